//! Pod wiring: a veth pair whose host end lies in the node's namespace and whose other end is born in the pod's.
//!
//! The pod reaches everything through 169.254.1.1 (IPv4) and `fe80::ecee:eeff:feee:eeee` (IPv6), both with a permanent
//! neighbour entry for the host end's address ee:ee:ee:ee:ee:ee, so nothing depends on proxy ARP or on duplicate
//! address detection. The host route is not written here: the dataplane writes it when the interface comes up.
//!
//! All calls block for some milliseconds; async callers use `spawn_blocking`.

mod check;
mod host;
mod pod;
mod unwire;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

use crate::kernel::{KernelError, MacAddr, Netns, NetnsError};

pub use check::check;
pub use host::wire_pod;
pub(crate) use host::{HostSettings, LINK_LOCAL_PREFIX, apply_host_settings};
pub use unwire::unwire;

/// Address of every host end. One value on all nodes: a pod's neighbour entry stays right when its interface is made
/// anew.
pub const HOST_MAC: MacAddr = MacAddr([0xee; 6]);
/// IPv4 gateway of every pod.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// IPv6 gateway of every pod: the link-local address that belongs to [`HOST_MAC`] (RFC 4291 appendix A).
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);

/// One pod interface to be made.
#[derive(Debug, Clone)]
pub struct PodWiring {
    /// Namespace of the host end; the agent's own in production.
    pub host: Netns,
    /// Namespace of the pod.
    pub pod: Netns,
    /// Name of the host end, at most 15 bytes.
    pub host_interface: String,
    /// Name inside the pod, at most 15 bytes.
    pub pod_interface: String,
    /// Alias of the host end, `margay:<container id>:<interface>`: tells later whose interface it is.
    pub alias: String,
    /// Aliases of attachments that this one replaces; an interface in the way that carries one of them is removed.
    pub superseded: Vec<String>,
    /// MTU of both ends in bytes.
    pub mtu: u32,
    /// Address of the pod end; the kernel chooses one when absent.
    pub pod_mac: Option<MacAddr>,
    /// Transmit and receive queues of both ends, at least 1.
    pub queues: u32,
    /// Pod addresses, written as /32 and /128.
    pub addresses: Vec<IpAddr>,
    /// Destinations routed through the gateway of their family; usually the two default routes.
    pub routes: Vec<IpNet>,
    /// Let the pod forward packets.
    pub pod_forwarding: bool,
}

impl PodWiring {
    /// True when the pod has an IPv4 address.
    pub fn has_v4(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv4)
    }

    /// True when the pod has an IPv6 address.
    pub fn has_v6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WiredPod {
    /// Index of the host end.
    pub host_index: u32,
    /// Address of the host end.
    pub host_mac: MacAddr,
    /// Index of the pod end inside the pod.
    pub pod_index: u32,
    /// Address of the pod end.
    pub pod_mac: MacAddr,
}

/// Which interface to remove.
#[derive(Debug, Clone)]
pub struct Unwiring {
    /// Namespace of the host end.
    pub host: Netns,
    /// Name of the host end.
    pub host_interface: String,
    /// Index recorded when it was made.
    pub host_index: u32,
    /// Alias it was given.
    pub alias: String,
}

/// What became of an interface that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwired {
    /// It was there and is gone now, with its routes, neighbours and the pod end.
    Removed,
    /// There is no such interface any more.
    Absent,
    /// The name or index belongs to another attachment now; nothing was touched.
    NotOurs,
}

/// Why a pod could not be wired. Nothing is left behind in that case.
#[derive(Debug, Error)]
pub enum WireError {
    /// The pod already has an interface of that name.
    #[error("interface {0} exists in the pod already")]
    PodInterfaceExists(String),
    /// Something that is not a pod interface of ours has the host name.
    #[error("interface {name} exists on the host and belongs to {owner}; remove it or rename it")]
    HostInterfaceTaken {
        /// Interface name.
        name: String,
        /// Its kind and alias.
        owner: String,
    },
    /// The requested address cannot be an interface address.
    #[error("{0} cannot be the address of an interface (zero or multicast)")]
    InvalidMac(MacAddr),
    /// The host end did not keep its fixed address.
    #[error("the kernel does not keep {HOST_MAC} on {interface}, it has {found}")]
    HostMacLost {
        /// Interface name.
        interface: String,
        /// Address found.
        found: MacAddr,
    },
    /// A sysctl that the pod needs could not be written.
    #[error("write {value} to sysctl {key}: {source}")]
    Sysctl {
        /// Path below /proc/sys.
        key: String,
        /// Value.
        value: String,
        /// Cause.
        source: std::io::Error,
    },
    /// A namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A netlink request failed.
    #[error("{action}: {source}")]
    Kernel {
        /// What was tried, naming the interface.
        action: String,
        /// Cause.
        source: KernelError,
    },
}

impl WireError {
    pub(crate) fn kernel(action: impl Into<String>) -> impl FnOnce(KernelError) -> Self {
        let action = action.into();
        move |source| Self::Kernel { action, source }
    }
}
