//! Listening sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connection::Event;
use super::{options, sys};
use crate::{Password, StartError};

/// Connections the kernel holds for us: a storm of peers after an outage must fit.
const BACKLOG: i32 = 4096;

/// One listening socket and the task that accepts on it.
#[derive(Debug)]
struct Listener {
    socket: Socket,
    task: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All listening sockets, and the TCP-MD5 keys set on them.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    open: BTreeMap<SocketAddr, Listener>,
    keys: BTreeMap<IpAddr, Password>,
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    options::set_class(&socket, address.is_ipv4())?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, events: mpsc::UnboundedSender<Event>) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                if events.send(Event::Accepted(stream, remote)).is_err() {
                    return;
                }
            }
            Err(error) => {
                // Out of descriptors, or the peer gave up: neither is the end of listening.
                tracing::warn!(%error, "cannot accept a BGP connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

impl Listeners {
    /// Opens the sockets that are missing and closes those no longer wanted.
    ///
    /// # Errors
    /// An address cannot be used; the sockets are as before.
    pub(super) fn set(
        &mut self,
        addresses: &[SocketAddr],
        events: &mpsc::UnboundedSender<Event>,
    ) -> Result<(), StartError> {
        let mut opened = BTreeMap::new();
        for address in addresses.iter().filter(|a| !self.open.contains_key(*a)) {
            let fault = |source| StartError::Listen {
                address: *address,
                source,
            };
            let socket = bind(*address).map_err(fault)?;
            self.keys
                .iter()
                .filter(|(peer, _)| peer.is_ipv4() == address.is_ipv4())
                .for_each(|(peer, key)| set_key(&socket, *peer, Some(key)));
            let accepting = socket.try_clone().map_err(fault)?;
            let listener = TcpListener::from_std(accepting.into()).map_err(fault)?;
            let task = tokio::spawn(accept(listener, events.clone())).abort_handle();
            opened.insert(*address, Listener { socket, task });
        }
        self.open.retain(|address, _| addresses.contains(address));
        self.open.extend(opened);
        Ok(())
    }

    /// Replaces the TCP-MD5 keys of peers (RFC 2385).
    pub(super) fn set_keys(&mut self, keys: BTreeMap<IpAddr, Password>) {
        for peer in self.keys.keys().filter(|peer| !keys.contains_key(*peer)) {
            self.each_of(*peer, |socket| set_key(socket, *peer, None));
        }
        for (peer, key) in keys
            .iter()
            .filter(|(peer, key)| self.keys.get(*peer) != Some(*key))
        {
            self.each_of(*peer, |socket| set_key(socket, *peer, Some(key)));
        }
        self.keys = keys;
    }

    fn each_of(&self, peer: IpAddr, act: impl Fn(&Socket)) {
        let sockets = self
            .open
            .iter()
            .filter(|(address, _)| address.is_ipv4() == peer.is_ipv4());
        sockets.for_each(|(_, listener)| act(&listener.socket));
    }
}

fn set_key(socket: &Socket, peer: IpAddr, key: Option<&Password>) {
    if let Err(error) = sys::set_md5_key(socket.as_fd(), peer, key) {
        tracing::error!(
            %peer,
            %error,
            "cannot set a TCP-MD5 key on the listening socket; too many keys need a larger \
             net.core.optmem_max"
        );
    }
}

/// The interface a link-local peer was accepted on.
pub(super) fn interface_of(remote: &SocketAddr) -> Option<String> {
    match remote {
        SocketAddr::V6(remote) if remote.scope_id() != 0 => sys::interface_name(remote.scope_id()),
        _ => None,
    }
}

/// Local address of a connection, with IPv4 written as IPv4.
pub(super) fn local_address(stream: &TcpStream) -> io::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}
