//! The dataplane's handle: what the rest of the agent sees of it.

mod command;
mod config;
mod drift;
mod flows;
mod reactor;
mod state;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ipnet::IpNet;
use thiserror::Error;
use tokio::sync::{oneshot, watch};

use crate::desired::{
    BgpRoute, EndpointDesired, EndpointId, LocalNode, OwnBlock, PoolView, RemoteBlock, RemoteNode,
    Seq, Source,
};
use crate::kernel::{KernelError, NetnsError};
use command::{Change, Command};
use drift::DriftLog;
use reactor::{Facts, Input, Reactor};

pub use config::{DataplaneConfig, NatOutgoing, Settings};
pub use drift::DriftRecord;
pub use status::{Feature, Problem, ProblemKind, Status, TableCount};

/// Why the dataplane could not start or answer.
#[derive(Debug, Error)]
pub enum DataplaneError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A netlink socket could not be opened or a table not read.
    #[error("{action}: {source}")]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// Cause.
        source: KernelError,
    },
    /// The dataplane has stopped.
    #[error("the dataplane has stopped")]
    Stopped,
    /// It took too long; the change is still going to happen.
    #[error("not done within {} ms: {what}", .limit.as_millis())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
}

/// Handle of the node's dataplane. Cheap to clone; all clones speak to the same thread. The thread ends, leaving the
/// kernel as it is, when [`Dataplane::stop`] is called or the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Dataplane {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The next number and the way to the thread: numbers must go out in order.
    outbox: Mutex<(u64, mpsc::Sender<Input>)>,
    committed: watch::Receiver<Option<Seq>>,
    problems: watch::Receiver<Vec<Problem>>,
    drift: Arc<Mutex<DriftLog>>,
}

impl Dataplane {
    /// Starts the thread in the configured namespace and reads the kernel's tables. Writes nothing until sources have
    /// delivered.
    ///
    /// # Errors
    /// When the namespace cannot be entered, sockets cannot be opened (CAP_NET_ADMIN) or the first read fails.
    pub fn start(config: DataplaneConfig) -> Result<Self, DataplaneError> {
        let (input, inputs) = mpsc::channel();
        let (committed_tx, committed) = watch::channel(Some(Seq(0)));
        let (problems_tx, problems) = watch::channel(Vec::new());
        let drift = Arc::new(Mutex::new(DriftLog::default()));
        let facts = Facts {
            committed: committed_tx,
            problems: problems_tx,
            drift: Arc::clone(&drift),
        };
        Reactor::spawn(config, input.clone(), inputs, facts)?;
        let shared = Shared {
            outbox: Mutex::new((0, input)),
            committed,
            problems,
            drift,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Replaces all endpoints.
    pub fn set_endpoints(&self, endpoints: Vec<EndpointDesired>) -> Seq {
        self.change(Change::Endpoints(endpoints))
    }

    /// Adds an endpoint or replaces the one of the same id.
    pub fn upsert_endpoint(&self, endpoint: EndpointDesired) -> Seq {
        self.change(Change::UpsertEndpoint(endpoint))
    }

    /// Removes an endpoint: its routes and neighbours go, then the connection tracking entries of its addresses.
    pub fn remove_endpoint(&self, id: EndpointId) -> Seq {
        self.change(Change::RemoveEndpoint(id))
    }

    /// Replaces the blocks with an affinity to this node.
    pub fn set_own_blocks(&self, blocks: Vec<OwnBlock>) -> Seq {
        self.change(Change::OwnBlocks(blocks))
    }

    /// Replaces the pools.
    pub fn set_pools(&self, pools: Vec<PoolView>) -> Seq {
        self.change(Change::Pools(pools))
    }

    /// Replaces the blocks, and single borrowed addresses, of other nodes. Used for pools whose routes the agent
    /// writes itself: VXLAN always, IPIP and no encapsulation as [`Settings`] say.
    pub fn set_remote_blocks(&self, blocks: Vec<RemoteBlock>) -> Seq {
        self.change(Change::RemoteBlocks(blocks))
    }

    /// Replaces what is known of other nodes.
    pub fn set_remote_nodes(&self, nodes: Vec<RemoteNode>) -> Seq {
        self.change(Change::RemoteNodes(nodes))
    }

    /// Sets this node's own addresses.
    pub fn set_local_node(&self, node: LocalNode) -> Seq {
        self.change(Change::LocalNode(node))
    }

    /// Adds, replaces or (no next hops) withdraws BGP routes.
    pub fn apply_bgp(&self, routes: Vec<BgpRoute>) -> Seq {
        self.change(Change::Bgp(routes))
    }

    /// Says that a source has delivered its complete picture once. From then on what the kernel holds of that source's
    /// kind, and the source does not want, is removed. Cannot be taken back.
    pub fn in_sync(&self, source: Source) -> Seq {
        self.change(Change::InSync(source))
    }

    /// Changes the settings.
    pub fn configure(&self, settings: Settings) -> Seq {
        self.change(Change::Settings(Box::new(settings)))
    }

    /// Waits until everything handed over up to `seq` has been translated and the resulting tables committed: after
    /// that an interface of that name is known to the packet filter. Bulk BGP routes may still be on their way.
    ///
    /// # Errors
    /// [`DataplaneError::Timeout`], [`DataplaneError::Stopped`].
    pub async fn wait_committed(&self, seq: Seq, limit: Duration) -> Result<(), DataplaneError> {
        let mut committed = self.shared.committed.clone();
        let reached = committed.wait_for(|done| done.is_none_or(|done| done >= seq));
        match tokio::time::timeout(limit, reached).await {
            Ok(Ok(done)) if done.is_some() => Ok(()),
            Ok(_) => Err(DataplaneError::Stopped),
            Err(_) => {
                let what = format!("commit of change {}", seq.0);
                Err(DataplaneError::Timeout { what, limit })
            }
        }
    }

    /// Waits until every route and neighbour entry of an endpoint is in the kernel, which needs its interface to be
    /// up.
    ///
    /// # Errors
    /// [`DataplaneError::Timeout`], [`DataplaneError::Stopped`].
    pub async fn wait_routed(
        &self,
        id: &EndpointId,
        limit: Duration,
    ) -> Result<(), DataplaneError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::WaitRouted(id.clone(), reply));
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(DataplaneError::Stopped),
            Err(_) => Err(DataplaneError::Timeout {
                what: format!("routes of endpoint {id}"),
                limit,
            }),
        }
    }

    /// Facts as of now.
    ///
    /// # Errors
    /// [`DataplaneError::Stopped`].
    pub async fn status(&self) -> Result<Status, DataplaneError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Status(reply));
        answer.await.map_err(|_| DataplaneError::Stopped)
    }

    /// BGP routes in the kernel that lie in no pool, to be given to the next run as
    /// [`DataplaneConfig::restart_prefixes`].
    ///
    /// # Errors
    /// [`DataplaneError::Stopped`].
    pub async fn bgp_prefixes_outside_pools(&self) -> Result<Vec<IpNet>, DataplaneError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::BgpPrefixesOutsidePools(reply));
        answer.await.map_err(|_| DataplaneError::Stopped)
    }

    /// Open problems, with a notice at each change.
    pub fn problems(&self) -> watch::Receiver<Vec<Problem>> {
        self.shared.problems.clone()
    }

    /// Foreign changes noticed, oldest first, at most the last 10 000.
    pub fn drift(&self) -> Vec<DriftRecord> {
        lock(&self.shared.drift).all()
    }

    /// Stops (true) or resumes repairing foreign changes; they are recorded all the same.
    pub fn pause_repairs(&self, pause: bool) {
        self.send(Command::PauseRepairs(pause));
    }

    /// Ends the thread. Routes, tables, devices and sysctls stay as they are.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    fn change(&self, change: Change) -> Seq {
        let mut outbox = lock(&self.shared.outbox);
        outbox.0 += 1;
        let seq = Seq(outbox.0);
        // A stopped dataplane shows itself in `wait_committed`.
        let _ = outbox.1.send(Input::Command(Command::Change(seq, change)));
        seq
    }

    fn send(&self, command: Command) {
        let _ = lock(&self.shared.outbox).1.send(Input::Command(command));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = lock(&self.outbox).1.send(Input::Command(Command::Stop));
    }
}

/// A panic elsewhere must not take readers down: the data is consistent between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
