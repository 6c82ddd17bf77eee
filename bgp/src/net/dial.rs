//! Outgoing connections.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use super::{options, sys};
use crate::speaker::Dial;

/// Dials at a time: a cold start of a large mesh must not flood the neighbour tables.
pub(super) const CONCURRENT: usize = 64;

/// Opens a connection.
pub(super) async fn dial(request: Dial, slots: Arc<Semaphore>) -> io::Result<TcpStream> {
    // The semaphore is never closed.
    let _slot = slots.acquire_owned().await.map_err(io::Error::other)?;
    let (socket, remote) = prepare(&request)?;
    match tokio::time::timeout(request.timeout, socket.connect(remote)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
    }
}

fn prepare(request: &Dial) -> io::Result<(TcpSocket, SocketAddr)> {
    let remote = remote_address(request)?;
    let socket = Socket::new(
        Domain::for_address(remote),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    let ipv4 = remote.is_ipv4();
    options::set_connection(&socket, ipv4, request.ttl, request.hold)?;
    if let Some(interface) = &request.peer.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if let Some(key) = &request.password {
        sys::set_md5_key(socket.as_fd(), request.peer.address, Some(key))?;
    }
    if let Some(local) = request.local_address {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    Ok((TcpSocket::from_std_stream(socket.into()), remote))
}

fn remote_address(request: &Dial) -> io::Result<SocketAddr> {
    let port = request.peer.port;
    match (request.peer.address, &request.peer.interface) {
        (IpAddr::V6(address), Some(interface)) => {
            let scope = sys::interface_index(interface).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("no interface {interface}"))
            })?;
            Ok(SocketAddrV6::new(address, port, 0, scope).into())
        }
        (address, _) => Ok(SocketAddr::new(address, port)),
    }
}

/// Why a dial failed, in words that help.
pub(super) fn reason(error: &io::Error, authenticated: bool) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut if authenticated => {
            "connect: no answer (a wrong TCP-MD5 password looks the same)".to_owned()
        }
        io::ErrorKind::TimedOut => "connect: no answer".to_owned(),
        io::ErrorKind::ConnectionRefused => {
            "connect: refused, nothing listens on the peer's port".to_owned()
        }
        _ => format!("connect: {error}"),
    }
}
