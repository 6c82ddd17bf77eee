//! The Kubernetes API as the resource commands see it: which kinds the server has, and raw
//! requests that keep every field of an object as it is.

mod kinds;
mod request;

pub(crate) use kinds::{Kind, Kinds};
pub(crate) use request::{Method, Request, Write};

use crate::failure::Failure;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::time::Duration;

/// Which server to talk to and as whom.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Connection {
    /// The kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        help_heading = "Global options"
    )]
    pub(crate) context: Option<String>,
    /// Give up on a request after this many seconds
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 30,
        help_heading = "Global options"
    )]
    pub(crate) timeout: u64,
}

impl Connection {
    /// Reads the kubeconfig (or the in-cluster settings) without talking to the server.
    pub(crate) async fn config(&self) -> Result<Config, Failure> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..Default::default()
        };
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .map_err(|e| Failure::new(format!("cannot read {}", path.display()), crate::failure::chain(&e)))?;
                Config::from_custom_kubeconfig(file, &options).await.map_err(config_failure)?
            }
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(config_failure)?
            }
            None => Config::infer().await.map_err(|e| {
                Failure::new("cannot find a Kubernetes API server", crate::failure::chain(&e))
                    .hint("set KUBECONFIG or --kubeconfig; for a lab: export KUBECONFIG=$(margayctl lab kubeconfig NAME)")
            })?,
        };
        config.connect_timeout = Some(Duration::from_secs(self.timeout.clamp(1, 30)));
        Ok(config)
    }
}

fn config_failure(error: kube::config::KubeconfigError) -> Failure {
    Failure::new("cannot use the kubeconfig", crate::failure::chain(&error))
}

/// A connection to one API server.
pub(crate) struct Api {
    client: Client,
    kinds: Kinds,
    timeout: Duration,
    namespace: String,
}

impl Api {
    /// Connects and reads which kinds the server has.
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let client = client(connection).await?;
        let namespace = client.default_namespace().to_owned();
        let timeout = Duration::from_secs(connection.timeout.max(1));
        let kinds = tokio::time::timeout(timeout, Kinds::read(&client))
            .await
            .map_err(|_| timed_out("reading what the server has", timeout))??;
        Ok(Self {
            client,
            kinds,
            timeout,
            namespace,
        })
    }

    /// The kinds this server has.
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The namespace of the kubeconfig's context.
    pub(crate) fn default_namespace(&self) -> &str {
        &self.namespace
    }
}

/// A client for typed use.
pub(crate) async fn client(connection: &Connection) -> Result<Client, Failure> {
    Client::try_from(connection.config().await?).map_err(Failure::from)
}

fn timed_out(what: &str, timeout: Duration) -> Failure {
    Failure::new(what, format!("no answer within {} s", timeout.as_secs()))
        .hint("the server may be down or unreachable; --timeout sets how long to wait")
}
