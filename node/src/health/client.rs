//! Asking the probe endpoint of the agent on this host.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Sends one GET and returns status code and body. Plain blocking sockets: a probe runs every few seconds and must not
/// cost a runtime.
///
/// # Errors
/// In words, when the endpoint does not answer within `timeout` or not in HTTP.
pub(crate) fn get(
    host: &str,
    port: u16,
    path: &str,
    timeout: Duration,
) -> Result<(u16, String), String> {
    let unreachable =
        |error: std::io::Error| format!("the agent does not answer on {host}:{port}: {error}");
    let address = (host, port)
        .to_socket_addrs()
        .map_err(unreachable)?
        .next()
        .ok_or_else(|| format!("{host} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, timeout).map_err(unreachable)?;
    stream
        .set_read_timeout(Some(timeout))
        .map_err(unreachable)?;
    stream
        .set_write_timeout(Some(timeout))
        .map_err(unreachable)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(unreachable)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(unreachable)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or("the answer is not HTTP")?;
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or("the answer has no status")?;
    Ok((code, body.to_owned()))
}
