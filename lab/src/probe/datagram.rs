//! UDP datagrams between namespaces: what the receiver sees as the source shows address translation.

use crate::error::{Result, Tried};
use crate::names::netns_path;
use crate::namespaces::in_netns;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// A UDP socket that waits in a network namespace.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
}

impl Receiver {
    /// Opens it on an address of the namespace.
    ///
    /// # Errors
    /// The namespace or the address is not there.
    pub(crate) fn open(netns: &str, address: SocketAddr) -> Result<Self> {
        let opened = in_netns(&netns_path(netns), move || UdpSocket::bind(address));
        let socket = opened
            .and_then(|r| r)
            .tried(|| format!("cannot listen on {address} in {netns}"))?;
        Ok(Self { socket })
    }

    /// Address and port it listens on.
    ///
    /// # Errors
    /// The socket failed.
    pub fn address(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .tried(|| "cannot read the socket's address".to_owned())
    }

    /// Source of the next datagram; `None` when nothing came within `limit`.
    ///
    /// # Errors
    /// The socket failed.
    pub fn next_source(&self, limit: Duration) -> Result<Option<SocketAddr>> {
        let what = || "cannot receive".to_owned();
        self.socket.set_read_timeout(Some(limit)).tried(what)?;
        let mut buffer = [0; 64];
        match self.socket.recv_from(&mut buffer) {
            Ok((_, source)) => Ok(Some(source)),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e).tried(what),
        }
    }
}

/// Sends one datagram from a network namespace.
///
/// # Errors
/// The namespace is not there, or the kernel knows no way to the destination.
pub fn send_datagram(netns: &str, from: IpAddr, to: SocketAddr) -> Result<()> {
    let sent = in_netns(&netns_path(netns), move || {
        UdpSocket::bind(SocketAddr::new(from, 0))?
            .send_to(b"margay", to)
            .map(|_| ())
    });
    sent.and_then(|r| r)
        .tried(|| format!("cannot send from {netns} to {to}"))
}
