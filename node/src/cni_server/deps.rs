//! What the server needs from the rest of the agent.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use margay_cni::CniError;
use margay_cni::machine::add::Allocation;
use margay_cni::plan::PodFacts;
use margay_felix::Dataplane;
use margay_felix::kernel::Netns;
use tokio::sync::watch;

/// Everything the server is given once.
pub(crate) struct CniDeps {
    /// Kubernetes name of this node.
    pub(crate) node: String,
    /// Namespace of the host ends; the agent's own in production.
    pub(crate) netns: Netns,
    /// Start of host-side interface names, at most 4 bytes.
    pub(crate) interface_prefix: String,
    /// Identity of this boot of the machine.
    pub(crate) boot_id: String,
    /// The dataplane.
    pub(crate) dataplane: Dataplane,
    /// Addresses.
    pub(crate) addresses: Arc<dyn Addresses>,
    /// Pods.
    pub(crate) pods: Arc<dyn PodSource>,
    /// What the agent knows about itself.
    pub(crate) state: watch::Receiver<NodeState>,
    /// Files.
    pub(crate) paths: CniPaths,
}

/// Files of the server.
#[derive(Debug, Clone)]
pub(crate) struct CniPaths {
    /// The socket.
    pub(crate) socket: PathBuf,
    /// Directory of records and tombstones.
    pub(crate) state: PathBuf,
    /// File touched while all is well.
    pub(crate) status_file: PathBuf,
    /// Directory of endpoint status files.
    pub(crate) endpoint_status: PathBuf,
}

impl Default for CniPaths {
    fn default() -> Self {
        CniPaths {
            socket: margay_cni::proto::SOCKET.into(),
            state: margay_cni::attachment::STATE_DIRECTORY.into(),
            status_file: margay_cni::proto::STATUS_FILE.into(),
            endpoint_status: "/var/run/calico/endpoint-status".into(),
        }
    }
}

/// What the agent knows about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// Why pods cannot be added now: never synced, datastore locked, fenced, base rules missing.
    pub(crate) not_ready: Option<String>,
    /// The same for STATUS, which ignores a locked datastore: a lock may last hours, and a failing STATUS makes the
    /// node not ready.
    pub(crate) unhealthy: Option<String>,
    /// MTU of pods when the configuration has none; `None` until determined.
    pub(crate) mtu: Option<u32>,
    /// A pool that pods can use exists for IPv4.
    pub(crate) has_v4_pool: bool,
    /// The same for IPv6.
    pub(crate) has_v6_pool: bool,
}

/// Where an address goes that was handed out although a pod uses it.
#[derive(Debug, Clone)]
pub(crate) struct TransferTarget {
    /// The handle that shall hold it.
    pub(crate) handle: String,
    /// The pod that uses it.
    pub(crate) pod: Option<margay_cni::attachment::PodRef>,
}

/// Address management as CNI sees it.
pub(crate) trait Addresses: Send + Sync + 'static {
    /// Allocates; addresses already held under the handle are returned instead (`true`). All families asked for, or
    /// none: what was allocated before a failure is released.
    fn allocate(&self, request: Allocation)
    -> BoxFuture<'_, Result<(Vec<IpAddr>, bool), CniError>>;

    /// Releases these addresses if they are held under this handle; those that are not are skipped.
    fn release(
        &self,
        handle: String,
        addresses: Vec<IpAddr>,
    ) -> BoxFuture<'_, Result<(), CniError>>;

    /// Releases everything held under a handle; it holding nothing is success.
    fn release_handle(&self, handle: String) -> BoxFuture<'_, Result<(), CniError>>;

    /// Moves an address from a handle to the one of the pod that uses it.
    fn transfer(
        &self,
        address: IpAddr,
        from: String,
        to: TransferTarget,
    ) -> BoxFuture<'_, Result<(), CniError>>;

    /// Whether an address is held under a handle, as far as is known here; no request is made.
    fn holds(&self, handle: &str, address: IpAddr) -> bool;
}

/// Annotations to set on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodPatch {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// Precondition; empty for none.
    pub(crate) uid: String,
    /// `Some`: only if the pod's container annotation has this value.
    pub(crate) only_container: Option<String>,
    /// Annotations by full name.
    pub(crate) annotations: Vec<(String, String)>,
}

/// What became of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodUpdate {
    /// Written.
    Done,
    /// There is no such pod any more, or it is another one, or another container's.
    Gone,
}

/// Pods as CNI sees them.
pub(crate) trait PodSource: Send + Sync + 'static {
    /// Finds a pod, waiting a little for the watch to deliver it and asking the API if it does not.
    ///
    /// Errors are of code 11: the pod does not exist yet, or the API cannot be asked.
    fn find(&self, namespace: String, name: String) -> BoxFuture<'_, Result<PodFacts, CniError>>;

    /// Writes annotations through `pods/status`.
    fn patch(&self, patch: PodPatch) -> BoxFuture<'_, Result<PodUpdate, CniError>>;
}
