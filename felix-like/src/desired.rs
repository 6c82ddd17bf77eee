//! What a node's kernel should hold, in the words of the cluster: endpoints, blocks, pools, BGP routes.
//!
//! Each *source* owns its part and replaces it as it learns more. Nothing found in the kernel is removed before the
//! source that could still claim it has said that its picture is complete ([`Source`], [`crate::Dataplane::in_sync`]).

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::kernel::MacAddr;

/// Position in the order in which desired state was handed over; see [`crate::Dataplane::wait_committed`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// Who owns a part of the desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Pods of this node.
    Endpoints,
    /// IPAM blocks with an affinity to this node.
    OwnBlocks,
    /// IPAM blocks, and single addresses, of other nodes.
    RemoteBlocks,
    /// IP pools.
    Pools,
    /// Best routes of the BGP speaker. In sync when every session that is going to come up after a restart has sent
    /// its End-of-RIB, or the deferral time is over (RFC 4724 section 4.1).
    Bgp,
}

impl Source {
    /// All sources.
    pub const ALL: [Source; 5] = [
        Source::Endpoints,
        Source::OwnBlocks,
        Source::RemoteBlocks,
        Source::Pools,
        Source::Bgp,
    ];
}

/// The object a kernel item comes from; shown in comments, drift records and errors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Provenance {
    /// Kind of the object, `Pod`, `IPPool`, `IPAMBlock`, `BGPPeer`.
    pub kind: String,
    /// Namespace, empty for cluster-wide objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Provenance {
    /// A cluster-wide object.
    pub fn cluster(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    /// An object in a namespace.
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            f.write_str(&self.kind)
        } else if self.namespace.is_empty() {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Identity of an endpoint among those of this node; any text that is stable for the life of the attachment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointId(pub String);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One pod interface of this node, as it should be known to the kernel.
///
/// It may be handed over before the interface exists; its routes are written when the interface comes up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointDesired {
    /// Identity.
    pub id: EndpointId,
    /// The pod.
    pub provenance: Provenance,
    /// Host end of the pair, at most 15 bytes.
    pub interface: String,
    /// Addresses of the pod; each gets a host route (/32, /128).
    pub addresses: Vec<IpAddr>,
    /// Address of the pod end. With it the host holds a permanent IPv4 neighbour entry, so that no ARP round trip is
    /// needed and a pod cannot answer for another one.
    pub mac: Option<MacAddr>,
    /// False: no route (the endpoint exists but takes no traffic).
    pub active: bool,
    /// True while a live migration ends here: metric 512 instead of 1024.
    pub elevated: bool,
}

/// A block with an affinity to this node. Gets a blackhole route, so that an address of the block that no pod uses is
/// refused here instead of being sent back to the fabric. Single-address blocks get none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnBlock {
    /// The block.
    pub cidr: IpNet,
    /// Name of the IPAMBlock.
    pub provenance: Provenance,
}

/// Whether packets between nodes are encapsulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EncapMode {
    /// Never.
    #[default]
    Never,
    /// Always.
    Always,
    /// Only towards nodes outside the subnet of this node's own address.
    CrossSubnet,
}

/// What the dataplane needs to know of an IP pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    /// Name of the IPPool.
    pub name: String,
    /// Its range.
    pub cidr: IpNet,
    /// Traffic from the pool to anything outside all pools gets the node's address as source.
    pub nat_outgoing: bool,
    /// IPIP. Ignored when `vxlan` is not `Never`.
    pub ipip: EncapMode,
    /// VXLAN.
    pub vxlan: EncapMode,
    /// True when the pool serves pods or tunnels; false for pools whose only use is LoadBalancer addresses: these have
    /// no routes and do not count as a destination inside the cluster.
    pub workload: bool,
}

/// A block (or a single borrowed address) that lives on another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteBlock {
    /// The range.
    pub cidr: IpNet,
    /// Node that holds it.
    pub node: String,
    /// The IPAMBlock.
    pub provenance: Provenance,
}

/// Addresses of another node that tunnels and direct routes use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteNode {
    /// Node name.
    pub name: String,
    /// Addresses of the node, at most one per family.
    pub addresses: Vec<IpAddr>,
    /// Its VXLAN tunnel addresses, at most one per family.
    pub vxlan_addresses: Vec<IpAddr>,
    /// Address of its `vxlan.calico`; derived from the node name when absent.
    pub vxlan_mac_v4: Option<MacAddr>,
    /// Address of its `vxlan-v6.calico`; derived from the node name when absent.
    pub vxlan_mac_v6: Option<MacAddr>,
}

/// Addresses of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalNode {
    /// Addresses with the prefix length of their subnet; the subnet decides what `CrossSubnet` means.
    pub addresses: Vec<IpNet>,
    /// VXLAN tunnel addresses, at most one per family.
    pub vxlan_addresses: Vec<IpAddr>,
    /// IPIP tunnel address.
    pub ipip_address: Option<IpAddr>,
}

/// One next hop of a BGP route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BgpNextHop {
    /// Address as received (RFC 4271 section 5.1.3).
    pub address: IpAddr,
    /// Interface of the session; needed for link-local next hops (RFC 2545 section 3), otherwise found by the kernel's
    /// own routes.
    pub interface: Option<String>,
}

/// Best paths of one prefix as the BGP speaker sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BgpRoute {
    /// Destination.
    pub prefix: IpNet,
    /// Next hops to share the traffic over; empty withdraws the route.
    pub next_hops: Vec<BgpNextHop>,
    /// LOCAL_PREF (RFC 4271 section 5.1.5); the kernel metric is 2147483647 minus this, not below 1.
    pub local_pref: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provenance_reads_like_the_object_it_names() {
        assert_eq!(
            Provenance::namespaced("Pod", "default", "a").to_string(),
            "Pod/default/a"
        );
        assert_eq!(Provenance::cluster("IPPool", "p").to_string(), "IPPool/p");
        assert_eq!(Provenance::cluster("BGP", "").to_string(), "BGP");
        assert_eq!(Provenance::default().to_string(), "");
    }
}
