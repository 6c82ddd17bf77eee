//! The agent's side of CNI: answers `margay-cni` on a unix socket.
//!
//! Each connection carries one request. The steps of an operation are decided by the state machines of `margay_cni`;
//! here they are carried out with addresses ([`Addresses`]), the kernel ([`margay_felix`]) and pods ([`PodSource`]).
//! Calls for one pod run one after the other, those for different pods at the same time; GC excludes all others.
//!
//! What must survive the agent is in attachment records on disk. On start, records of another boot give back their
//! addresses, half-made ones are removed, live ones become endpoints again before the dataplane may remove anything,
//! and DEL requests that came while nobody listened are done.

mod add;
mod annotate;
mod check;
mod conflist;
mod connection;
mod del;
mod deps;
mod gates;
mod gc;
mod ipam_half;
mod kernel;
mod locks;
mod records;
mod recover;
mod serve;
mod status_file;
mod sweep;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use margay_cni::attachment::State;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use conflist::{Conflist, write_conflist};
pub(crate) use deps::{
    Addresses, CniDeps, CniPaths, NodeState, PodPatch, PodSource, PodUpdate, TransferTarget,
};

use annotate::Annotator;
use locks::{GcLock, Locks};
use records::Records;
use sweep::Sweeper;

/// How long calls under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(8);

/// The running server.
pub(crate) struct CniServer {
    shared: Arc<Shared>,
    stop: CancellationToken,
    acceptor: JoinHandle<()>,
}

/// What all calls share.
struct Shared {
    deps: CniDeps,
    records: Records,
    locks: Locks,
    gc: GcLock,
    calls: TaskTracker,
    annotator: Annotator,
    sweeper: Sweeper,
    /// When an allocation last failed for lack of addresses.
    exhausted: std::sync::Mutex<Option<std::time::Instant>>,
    /// Why the kernel could not be programmed the last time.
    kernel_failure: std::sync::Mutex<Option<String>>,
    /// False during recovery: the dataplane may not commit anything yet then, and nobody must wait for it.
    serving: AtomicBool,
}

impl CniServer {
    /// Recovers what the last run left and starts to listen.
    ///
    /// # Errors
    /// When the state directory or the socket cannot be made.
    pub(crate) async fn start(deps: CniDeps) -> anyhow::Result<CniServer> {
        let records = Records::open(&deps.paths.state)
            .with_context(|| format!("open {}", deps.paths.state.display()))?;
        let stop = CancellationToken::new();
        let annotator = Annotator::start(Arc::clone(&deps.pods), stop.clone());
        let (sweeper, sweep_requests) = Sweeper::new();
        let shared = Arc::new(Shared {
            deps,
            records,
            locks: Locks::default(),
            gc: GcLock::default(),
            calls: TaskTracker::new(),
            annotator,
            sweeper,
            exhausted: std::sync::Mutex::new(None),
            kernel_failure: std::sync::Mutex::new(None),
            serving: AtomicBool::new(false),
        });
        recover::recover(&shared).await?;
        shared.serving.store(true, Ordering::Relaxed);
        let listener = serve::listen(&shared.deps.paths.socket)?;
        sweep::run(Arc::clone(&shared), sweep_requests, stop.clone());
        let acceptor = tokio::spawn(serve::accept(Arc::clone(&shared), listener, stop.clone()));
        Ok(CniServer {
            shared,
            stop,
            acceptor,
        })
    }

    /// A notice at each change of [`CniServer::endpoints`].
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.records.changes()
    }

    /// The complete attachments of this node, for the admin API and for BGP.
    pub(crate) fn endpoints(&self) -> Vec<margay_crds::admin::Endpoint> {
        self.shared
            .records
            .all()
            .into_iter()
            .filter(|record| record.state == State::Ready && !record.superseded)
            .map(|record| {
                let pod = record.pod.clone();
                let (namespace, pod) =
                    pod.map_or_else(Default::default, |pod| (pod.namespace, pod.name));
                margay_crds::admin::Endpoint {
                    namespace,
                    pod,
                    container_id: record.key.container_id,
                    interface: record.key.ifname,
                    host_interface: record.host_if,
                    addresses: record.ips.iter().map(ipnet::IpNet::addr).collect(),
                }
            })
            .collect()
    }

    /// Addresses of attachments that hold them in IPAM, for the comparison of what is assigned with what is used.
    pub(crate) fn live_addresses(&self) -> Vec<margay_ipam::LiveAddress> {
        let held = self
            .shared
            .records
            .all()
            .into_iter()
            .filter(|record| record.state != State::Deleting && !record.ipam.handle.is_empty());
        held.flat_map(|record| {
            let mut attrs = std::collections::BTreeMap::new();
            if let Some(pod) = &record.pod {
                attrs.insert(margay_ipam::ATTR_POD.to_owned(), pod.name.clone());
                attrs.insert(
                    margay_ipam::ATTR_NAMESPACE.to_owned(),
                    pod.namespace.clone(),
                );
            }
            let handle = record.ipam.handle.clone();
            let live = move |net: &ipnet::IpNet| margay_ipam::LiveAddress {
                ip: net.addr(),
                handle: handle.clone(),
                attrs: attrs.clone(),
            };
            record.ips.iter().map(live).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Stops accepting, lets calls under way finish for at most 8 s, and makes the records durable. The socket file
    /// stays: a new server replaces it, and until then callers wait for it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.acceptor.await;
        self.shared.calls.close();
        if tokio::time::timeout(DRAIN, self.shared.calls.wait())
            .await
            .is_err()
        {
            tracing::warn!("CNI calls were still under way when the agent stopped");
        }
        self.shared.records.sync().await;
    }
}
