//! Asking an agent: `GET` on its admin socket.

use crate::error::{Error, Result, Tried};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long an agent may take.
const LIMIT: Duration = Duration::from_secs(3);

/// The answer to `GET path`.
///
/// # Errors
/// The agent does not run, does not answer in time, refuses, or answers something else.
pub(crate) async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T> {
    let what = || format!("cannot ask the agent at {} for {path}", socket.display());
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        // HTTP/1.0: the answer ends with the connection and is not cut into chunks.
        stream
            .write_all(format!("GET {path} HTTP/1.0\r\nHost: agent\r\n\r\n").as_bytes())
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(LIMIT, exchange)
        .await
        .tried(what)?
        .tried(what)?;
    let body = body(&answer).map_err(|why| Error::new(what(), why))?;
    serde_json::from_slice(body).tried(what)
}

/// The body of a successful answer, or what the agent said instead.
fn body(answer: &[u8]) -> std::result::Result<&[u8], String> {
    let end = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .ok_or("the answer is not HTTP")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let line = String::from_utf8_lossy(head.split(|b| *b == b'\r').next().unwrap_or_default());
    match line.split_whitespace().nth(1) {
        Some("200") => Ok(body),
        _ => Err(serde_json::from_slice::<margay_crds::admin::Error>(body)
            .map_or_else(|_| line.into_owned(), |e| e.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_in_the_agents_words() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{}").unwrap(), b"{}");
        let refused = b"HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"no such peer\"}";
        assert_eq!(body(refused).unwrap_err(), "no such peer");
        assert_eq!(
            body(b"HTTP/1.1 500 Oops\r\n\r\n").unwrap_err(),
            "HTTP/1.1 500 Oops"
        );
        assert!(body(b"junk").is_err());
    }
}
