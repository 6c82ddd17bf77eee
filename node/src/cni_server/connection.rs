//! One connection: read a request, answer it, notice when the caller goes away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use margay_cni::proto::{Request, Response};
use margay_cni::{frame, scm};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// A request with the namespace that came along.
pub(super) struct Received {
    pub(super) request: Request,
    pub(super) netns: Option<OwnedFd>,
}

/// Reads one request. The descriptor may only come with the first byte.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<Received> {
    let mut header = [0; 4];
    let (mut read, netns) = some(stream, &mut header).await?;
    while read < header.len() {
        read += some(stream, &mut header[read..]).await?.0;
    }
    let mut message = vec![0; frame::decode_length(header)?];
    let mut read = 0;
    while read < message.len() {
        read += some(stream, &mut message[read..]).await?.0;
    }
    let request = serde_json::from_slice(&message)?;
    Ok(Received { request, netns })
}

async fn some(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    loop {
        stream.readable().await?;
        let received = stream.try_io(Interest::READABLE, || {
            scm::receive(stream.as_fd(), &mut *buffer)
        });
        match received {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Returns when the caller has closed its end, or sends what it must not.
pub(super) async fn closed(stream: &UnixStream) {
    let mut byte = [0];
    let _ = some(stream, &mut byte).await;
}

/// Sends the answer.
pub(super) async fn answer(stream: &mut UnixStream, response: &Response) -> io::Result<()> {
    let message = serde_json::to_vec(response)?;
    stream.write_all(&frame::encode(&message)?).await?;
    stream.flush().await
}
