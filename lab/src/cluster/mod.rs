//! A lab cluster: making it, looking at it, breaking it, taking it down.

mod builder;
mod converge;
mod down;
mod exec;
mod fault;
mod kubelet;
mod list;
mod manifests;
mod network;
mod objects;
mod status;
mod units;
mod up;

pub use builder::{Builder, Progress, Step};
pub use down::{down, down_all};
pub use fault::{Fault, FaultReport, Faulted};
pub use kubelet::PodRequest;
pub use list::{Condition, Listed, agents_behind, kubeconfig, list, only};
pub use network::KernelRoute;
pub use status::{LabStatus, NodeStatus};

use crate::error::{Chain, Error, Kind, Result, Tried};
use crate::names::LabName;
use crate::probe::{self, Endpoint, Matrix, Ping, Receiver};
use crate::programs::Programs;
use crate::state::{Pod, State};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// A running lab. A lab of a test ([`Builder::bound`]) is taken down when this is dropped, in a panic too.
pub struct Lab {
    name: LabName,
    programs: Programs,
    kube: kube::Client,
    bound: bool,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("name", &self.name)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl Lab {
    /// A lab to be made, with a name nobody else uses; it is taken down when the value is dropped.
    pub fn builder() -> Builder {
        Builder::bound()
    }

    /// A lab to be made that stays after the caller has ended.
    pub fn named(name: LabName) -> Builder {
        Builder::named(name)
    }

    /// A lab that was made before, maybe by another process.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub async fn open(name: &LabName) -> Result<Self> {
        let state = State::require(name)?;
        let kube = client(&state.kubeconfig).await?;
        Ok(Self {
            name: name.clone(),
            programs: Programs::find()?,
            kube,
            bound: false,
        })
    }

    /// Its name.
    pub fn name(&self) -> &LabName {
        &self.name
    }

    /// A client of its API server with all rights.
    pub fn kube(&self) -> kube::Client {
        self.kube.clone()
    }

    /// What is on file about it now.
    ///
    /// # Errors
    /// The lab has gone meanwhile.
    pub fn state(&self) -> Result<State> {
        State::require(&self.name)
    }

    /// Its pods, in the order they were started.
    ///
    /// # Errors
    /// The lab has gone meanwhile.
    pub fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.state()?.pods)
    }

    /// Everybody who sends and answers pings: the pods, and the router under the addresses behind it.
    ///
    /// # Errors
    /// The lab has gone meanwhile.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>> {
        let state = self.state()?;
        let pods = state.pods.into_iter().map(|p| Endpoint {
            name: p.name,
            netns: p.netns,
            addresses: p.addresses,
        });
        let tor = state.tor.map(|t| Endpoint {
            name: t.name,
            netns: t.netns,
            addresses: t.behind,
        });
        Ok(pods.chain(tor).collect())
    }

    /// The pod or router of this name.
    ///
    /// # Errors
    /// [`Kind::NotFound`].
    pub fn endpoint(&self, name: &str) -> Result<Endpoint> {
        let found = self.endpoints()?.into_iter().find(|e| e.name == name);
        found.ok_or_else(|| {
            Error::new(
                format!("endpoint {name}"),
                "neither a pod nor a router of the lab",
            )
            .kind(Kind::NotFound)
        })
    }

    /// Everybody pings everybody once; `limit` is how long an answer may take.
    ///
    /// # Errors
    /// A namespace is gone.
    pub async fn matrix(&self, limit: Duration) -> Result<Matrix> {
        let endpoints = self.endpoints()?;
        blocking(move || probe::measure(&endpoints, limit)).await
    }

    /// Whether each address of `to` that `from` can speak to answers it.
    ///
    /// # Errors
    /// An endpoint does not exist.
    pub async fn ping(&self, from: &str, to: &str) -> Result<bool> {
        let pair = vec![self.endpoint(from)?, self.endpoint(to)?];
        let from = from.to_owned();
        let matrix = blocking(move || probe::measure(&pair, Duration::from_millis(500))).await?;
        let mut asked = matrix.pairs.iter().filter(|p| p.from == from).peekable();
        Ok(asked.peek().is_some() && asked.all(|p| p.rtt_microseconds.is_some()))
    }

    /// Starts to ping the first address of `to` from `from`, one packet per `interval`.
    ///
    /// # Errors
    /// An endpoint does not exist or has no address.
    pub fn ping_stream(&self, from: &str, to: &str, interval: Duration) -> Result<Ping> {
        let (from, to) = (self.endpoint(from)?, self.endpoint(to)?);
        let address = to.addresses.first().copied();
        let address =
            address.ok_or_else(|| Error::new(format!("endpoint {}", to.name), "has no address"))?;
        Ping::start((&from.name, &from.netns), (&to.name, address), interval)
    }

    /// A UDP socket on an address of an endpoint, any port.
    ///
    /// # Errors
    /// The endpoint or address does not exist.
    pub fn receiver(&self, on: &str, address: IpAddr) -> Result<Receiver> {
        Receiver::open(&self.endpoint(on)?.netns, SocketAddr::new(address, 0))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.bound
            && let Err(error) = down(&self.name)
        {
            eprintln!("lab {}: {error}", self.name);
        }
    }
}

/// Runs blocking work beside the async runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::new("a lab task failed", e))?
}

/// A client from a kubeconfig file.
pub(crate) async fn client(file: &Path) -> Result<kube::Client> {
    let what = || format!("cannot use {}", file.display());
    let kubeconfig = Kubeconfig::read_from(file).tried(what)?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .tried(what)?;
    config.proxy_url = None;
    kube::Client::try_from(config).map_err(|e| Error::new(what(), Chain(&e)))
}
