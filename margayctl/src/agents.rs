//! Asking the agents: HTTP on their admin sockets, several at once, with a deadline for each.

use crate::api::Connection;
use crate::failure::Failure;
use futures::StreamExt;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// How many agents are asked at once.
const PARALLEL: usize = 16;
/// How long one agent may take.
const PER_AGENT: Duration = Duration::from_secs(3);
/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 256 << 20;

/// Which agents a command asks.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Nodes {
    /// Only this node (repeatable)
    #[arg(long = "node", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Ask the agent behind this admin socket
    #[arg(long, value_name = "PATH", conflicts_with = "nodes")]
    pub(crate) socket: Option<PathBuf>,
}

/// Where one agent can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Agent {
    node: String,
    socket: PathBuf,
}

/// The agents of a cluster that can be reached from here.
#[derive(Debug)]
pub(crate) struct Agents {
    agents: Vec<Agent>,
}

/// What the agents said.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    /// Answers in the order of node names.
    pub(crate) answers: Vec<(String, T)>,
    /// Agents that did not answer, and why.
    pub(crate) silent: Vec<(String, String)>,
}

impl<T> Answers<T> {
    /// Tells on standard error who did not answer.
    pub(crate) fn report_silent(&self) {
        for (node, why) in &self.silent {
            eprintln!("warning: node {node} did not answer: {why}");
        }
    }

    /// The exit code so far: inconclusive when somebody did not answer.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.silent.is_empty() {
            crate::failure::DONE
        } else {
            crate::failure::INCONCLUSIVE
        }
    }
}

impl Agents {
    /// Finds the agents: the given socket, the lab the kubeconfig points at, or the agent of this machine.
    pub(crate) async fn find(connection: &Connection, which: &Nodes) -> Result<Self, Failure> {
        if let Some(socket) = &which.socket {
            return Ok(Self {
                agents: vec![Agent {
                    node: String::new(),
                    socket: socket.clone(),
                }],
            });
        }
        let mut agents = Self::of_lab(connection).await?;
        if agents.is_empty() && Path::new(margay_crds::admin::SOCKET).exists() {
            let node = std::fs::read_to_string("/var/lib/calico/nodename").unwrap_or_default();
            agents.push(Agent {
                node: node.trim().to_owned(),
                socket: margay_crds::admin::SOCKET.into(),
            });
        }
        if agents.is_empty() {
            return Err(Failure::new("cannot find an agent", format!("no admin socket at {} and the kubeconfig's server is no running lab", margay_crds::admin::SOCKET))
                .hint("run on a node, or export KUBECONFIG=$(margayctl lab kubeconfig NAME); --socket names one agent"));
        }
        if !which.nodes.is_empty() {
            for node in &which.nodes {
                if !agents.iter().any(|a| &a.node == node) {
                    let known: Vec<&str> = agents.iter().map(|a| a.node.as_str()).collect();
                    return Err(Failure::new(
                        format!("no agent on node \"{node}\""),
                        format!("agents found: {}", known.join(", ")),
                    ));
                }
            }
            agents.retain(|a| which.nodes.contains(&a.node));
        }
        Ok(Self { agents })
    }

    async fn of_lab(connection: &Connection) -> Result<Vec<Agent>, Failure> {
        let Ok(config) = connection.config().await else {
            return Ok(Vec::new());
        };
        let server = config.cluster_url.to_string();
        let found = margay_lab::agents_behind(&server);
        Ok(found
            .into_iter()
            .map(|(node, socket)| Agent { node, socket })
            .collect())
    }

    /// Asks every agent the same.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Answers<T> {
        let results: Vec<(String, Result<T, String>)> = futures::stream::iter(&self.agents)
            .map(|agent| async move {
                let answer = tokio::time::timeout(PER_AGENT, get(&agent.socket, path))
                    .await
                    .unwrap_or_else(|_| Err(format!("no answer within {} s", PER_AGENT.as_secs())));
                (agent.node.clone(), answer)
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut answers = Answers {
            answers: Vec::new(),
            silent: Vec::new(),
        };
        for (node, result) in results {
            match result {
                Ok(answer) => answers.answers.push((node, answer)),
                Err(why) => answers.silent.push((node, why)),
            }
        }
        answers
    }
}

/// One GET request on an admin socket.
async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, String> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|e| format!("{}: {e}", socket.display()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let serving = tokio::spawn(connection);
    let request = http::Request::get(path)
        .header(http::header::HOST, "agent")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| e.to_string())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|e| e.to_string())?
        .to_bytes();
    drop(sender);
    serving.abort();
    if !status.is_success() {
        let said = serde_json::from_slice::<margay_crds::admin::Error>(&body).map(|e| e.error);
        return Err(said.unwrap_or_else(|_| format!("status {status}")));
    }
    serde_json::from_slice(&body).map_err(|e| format!("the answer to {path} cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    async fn agent_that_says(dir: &Path, response: &'static str) -> PathBuf {
        let socket = dir.join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = [0_u8; 1024];
            let _ = stream.read(&mut seen).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        socket
    }

    #[tokio::test]
    async fn a_refusal_is_reported_in_the_agents_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let body = r#"{"error":"no such peer"}"#;
        let response: &'static str = format!(
            "HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .leak();
        let socket = agent_that_says(dir.path(), response).await;
        let agents = Agents {
            agents: vec![Agent {
                node: "a".into(),
                socket,
            }],
        };
        let answers = agents.ask::<margay_crds::admin::Status>("/v1/status").await;
        assert_eq!(
            answers.silent,
            [("a".to_owned(), "no such peer".to_owned())]
        );
        assert_eq!(answers.exit_code(), crate::failure::INCONCLUSIVE);
    }

    #[tokio::test]
    async fn a_dead_socket_is_a_silent_agent_not_a_failure_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let agents = Agents {
            agents: vec![Agent {
                node: "a".into(),
                socket: dir.path().join("none"),
            }],
        };
        let answers = agents.ask::<margay_crds::admin::Status>("/v1/status").await;
        assert!(answers.answers.is_empty());
        assert_eq!(answers.silent.len(), 1);
    }
}
