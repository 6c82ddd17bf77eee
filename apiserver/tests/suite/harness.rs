//! A server in this process and a client that shows status codes and bodies as they are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use margay_apiserver::{Config, Server};
use serde_json::Value;

/// The longest any test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server with its data.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) client: kube::Client,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// Fails unless the status code is `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// Starts a server with the shipped CRDs.
pub(crate) async fn start() -> TestServer {
    start_with(|_| {}).await
}

/// Starts a server after `adjust` changed its configuration.
pub(crate) async fn start_with(adjust: impl FnOnce(&mut Config)) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path());
    config.listen.push(([127, 0, 0, 1], 0).into());
    config.crds = margay_crds::manifests::ALL;
    config.policies = &[margay_crds::manifests::VALIDATING_ADMISSION];
    adjust(&mut config);
    let server = Server::start(config).await.unwrap();
    let client = client(&directory.path().join("admin.kubeconfig")).await;
    TestServer {
        server,
        directory,
        client,
    }
}

/// A client from a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    kube::Client::try_from(client_config(kubeconfig).await).unwrap()
}

/// The configuration of a client.
pub(crate) async fn client_config(kubeconfig: &Path) -> kube::Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

/// One request with the given headers.
pub(crate) async fn send(
    client: &kube::Client,
    method: Method,
    path: &str,
    headers: &[(header::HeaderName, &str)],
    body: Vec<u8>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(kube::client::Body::from(body)).unwrap();
    let response = tokio::time::timeout(PATIENCE, client.send(request))
        .await
        .expect("no answer")
        .unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body,
    }
}

impl TestServer {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("admin.kubeconfig")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(&self.client, Method::GET, path, &[], Vec::new()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        send(
            &self.client,
            Method::GET,
            path,
            &[(header::ACCEPT, accept)],
            Vec::new(),
        )
        .await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.write(Method::POST, path, "application/json", body)
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.write(Method::PUT, path, "application/json", body)
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        send(&self.client, Method::DELETE, path, &[], Vec::new()).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.write(Method::DELETE, path, "application/json", options)
            .await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.write(Method::PATCH, path, "application/merge-patch+json", body)
            .await
    }

    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Answer {
        self.write(Method::PATCH, path, "application/apply-patch+yaml", body)
            .await
    }

    pub(crate) async fn write(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Answer {
        let headers = [(header::CONTENT_TYPE, kind)];
        send(
            &self.client,
            method,
            path,
            &headers,
            body.to_string().into_bytes(),
        )
        .await
    }

    /// Opens a watch; returns its lines as they come.
    pub(crate) async fn watch(&self, path: &str) -> WatchLines {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> WatchLines {
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            .body(kube::client::Body::from(Vec::new()))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        WatchLines {
            stream: response.into_body().into_data_stream().boxed(),
            buffer: Vec::new(),
        }
    }
}

type Chunks = futures::stream::BoxStream<'static, Result<bytes::Bytes, kube::Error>>;

/// Events of a watch.
pub(crate) struct WatchLines {
    stream: Chunks,
    buffer: Vec<u8>,
}

impl WatchLines {
    /// The next event; `None` when the server ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(PATIENCE, self.stream.next())
                .await
                .expect("no event in time");
            self.buffer.extend_from_slice(&chunk?.ok()?);
        }
    }

    /// Type and name of the next event.
    pub(crate) async fn next_short(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch ended");
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }
}

/// A minimal ConfigMap.
pub(crate) fn config_map(name: &str) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A valid IPPool.
pub(crate) fn pool(name: &str, cidr: &str) -> Value {
    serde_json::json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": {"name": name}, "spec": {"cidr": cidr}})
}

/// Path of ConfigMaps in `default`.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Path of IPPools.
pub(crate) const POOLS: &str = "/apis/projectcalico.org/v3/ippools";
