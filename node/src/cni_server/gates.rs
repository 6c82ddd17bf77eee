//! Readiness gates: URLs of the network configuration that must answer before a pod is added.

use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use margay_cni::{CniError, Code};
use tokio::net::TcpStream;

/// Pause between attempts.
const PAUSE: Duration = Duration::from_secs(5);
/// Time for all attempts at one gate.
const LIMIT: Duration = Duration::from_secs(30);
/// Time for one attempt.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Waits until every gate has answered with a status of 200 to 399.
///
/// Errors are of code 7 for what is no URL, 2 for another scheme than http, 11 when a gate stays closed.
pub(super) async fn pass(gates: &[String]) -> Result<(), CniError> {
    for gate in gates {
        let uri = parse(gate)?;
        let open = async {
            while let Err(why) = attempt(&uri).await {
                tracing::debug!(%gate, %why, "readiness gate is closed");
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(LIMIT, open).await.map_err(|_| {
            CniError::try_again("a readiness gate did not open").with_details(gate.clone())
        })?;
    }
    Ok(())
}

fn parse(gate: &str) -> Result<Uri, CniError> {
    let uri: Uri = gate
        .parse()
        .map_err(|_| CniError::invalid(format!("readiness gate {gate:?} is no URL")))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => Ok(uri),
        (None, _) | (_, None) => Err(CniError::invalid(format!(
            "readiness gate {gate:?} is no URL"
        ))),
        (Some(scheme), _) => Err(CniError::new(
            Code::UNSUPPORTED_FIELD,
            format!("readiness_gates: scheme {scheme:?} is not supported"),
        )),
    }
}

async fn attempt(uri: &Uri) -> Result<(), String> {
    tokio::time::timeout(ATTEMPT, get(uri))
        .await
        .unwrap_or_else(|_| Err("no answer".to_owned()))
}

async fn get(uri: &Uri) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80)))
        .await
        .map_err(|error| text(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| text(&error))?;
    tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(hyper::header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| text(&error))?;
    let status = response.status();
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    Err(format!("status {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that answers with these statuses in turn.
    async fn server(statuses: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        tokio::spawn(async move {
            for status in statuses {
                let (mut stream, _) = listener.accept().await.expect("accept");
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}/ready?x=1")
    }

    #[tokio::test]
    async fn open_gate_is_passed_at_once() {
        let gates = [server(&["200 OK"]).await, server(&["302 Found"]).await];
        tokio::time::timeout(Duration::from_secs(2), pass(&gates))
            .await
            .expect("at once")
            .expect("open");
    }

    #[tokio::test]
    async fn closed_gate_is_not_an_open_one() {
        let uri = parse(&server(&["503 Service Unavailable"]).await).expect("URL");
        assert_eq!(
            attempt(&uri).await,
            Err("status 503 Service Unavailable".to_owned())
        );
        assert!(
            attempt(&"http://127.0.0.1:1/".parse().expect("URL"))
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn what_is_no_url_is_refused() {
        for (gate, code) in [
            ("not a url", Code::INVALID_CONFIG),
            ("/path", Code::INVALID_CONFIG),
            ("https://example.com/", Code::UNSUPPORTED_FIELD),
        ] {
            assert_eq!(pass(&[gate.to_owned()]).await.expect_err(gate).code, code);
        }
    }
}
