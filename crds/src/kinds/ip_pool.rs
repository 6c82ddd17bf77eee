//! IPPool: a range of addresses nodes take blocks from.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{Condition, open_enum};

/// Block prefix length of IPv4 pools that name none.
pub const DEFAULT_BLOCK_SIZE_V4: u8 = 26;
/// Block prefix length of IPv6 pools that name none.
pub const DEFAULT_BLOCK_SIZE_V6: u8 = 122;
/// Finalizer that keeps a pool until its last block is gone.
pub const IP_POOL_FINALIZER: &str = "projectcalico.org/ippool-finalizer";

/// Specification of an IP pool.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "IPPool",
    plural = "ippools",
    status = "IPPoolStatus",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolSpec {
    /// What the addresses may be used for. Absent means Workload and Tunnel. LoadBalancer excludes the other two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_uses: Option<Vec<AllowedUse>>,
    /// Automatic: new addresses come from this pool when nothing else is asked for. Manual: only when a pod, a
    /// namespace or the CNI configuration names the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_mode: Option<AssignmentMode>,
    /// Prefix length of the blocks nodes claim: 20-32 for IPv4 (26 when absent), 116-128 for IPv6 (122 when absent).
    /// It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub block_size: Option<i32>,
    /// The range, in CIDR notation without host bits, at least as large as one block. It cannot be changed.
    #[schemars(length(max = 48), extend("format" = "cidr"))]
    pub cidr: String,
    /// True: routes inside the pool are not exported to any BGP peer.
    #[serde(
        rename = "disableBGPExport",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub disable_bgp_export: Option<bool>,
    /// True: no new addresses are assigned; existing ones keep routing, encapsulation and NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// When traffic between nodes is encapsulated in IPIP: Never, Always, or CrossSubnet (only between nodes of
    /// different subnets). IPv4 only; excludes vxlanMode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipip_mode: Option<EncapMode>,
    /// Which namespaces may use the pool for pods, by the labels of the Namespace. Empty means every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub namespace_selector: Option<String>,
    /// True: traffic from the pool to anything outside all pools leaves with the address of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_outgoing: Option<bool>,
    /// Which nodes may claim blocks of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_selector: Option<String>,
    /// When traffic between nodes is encapsulated in VXLAN: Never, Always, or CrossSubnet (only between nodes of
    /// different subnets). Excludes ipipMode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vxlan_mode: Option<EncapMode>,
}

/// Observed state of an IP pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolStatus {
    /// Conditions of the pool; type Allocatable says whether new addresses come from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

open_enum! {
    /// What the addresses of a pool may be used for.
    AllowedUse {
        /// Pod addresses.
        Workload = "Workload", is_workload;
        /// Addresses of tunnel devices.
        Tunnel = "Tunnel", is_tunnel;
        /// Addresses of Services of type LoadBalancer.
        LoadBalancer = "LoadBalancer", is_load_balancer;
    }
}

open_enum! {
    /// Whether a pool is used without being named.
    AssignmentMode {
        /// Used by default.
        Automatic = "Automatic", is_automatic;
        /// Used only when named.
        Manual = "Manual", is_manual;
    }
}

open_enum! {
    /// When traffic between nodes is encapsulated.
    EncapMode {
        /// Never.
        Never = "Never", is_never;
        /// Between any two nodes.
        Always = "Always", is_always;
        /// Between nodes of different subnets.
        CrossSubnet = "CrossSubnet", is_cross_subnet;
    }
}

impl IPPoolSpec {
    /// Block prefix length in force: the written one, or the default of the family when absent or 0.
    pub fn effective_block_size(&self) -> u8 {
        match self.block_size.and_then(|size| u8::try_from(size).ok()) {
            Some(size) if size != 0 => size,
            _ if self.cidr.contains(':') => DEFAULT_BLOCK_SIZE_V6,
            _ => DEFAULT_BLOCK_SIZE_V4,
        }
    }

    /// Uses in force: the written ones, or Workload and Tunnel when absent or empty.
    pub fn effective_allowed_uses(&self) -> Vec<AllowedUse> {
        match &self.allowed_uses {
            Some(uses) if !uses.is_empty() => uses.clone(),
            _ => vec![AllowedUse::Workload, AllowedUse::Tunnel],
        }
    }

    /// True when the pool may serve the given use.
    pub fn allows(&self, wanted: &AllowedUse) -> bool {
        match &self.allowed_uses {
            Some(uses) if !uses.is_empty() => uses.contains(wanted),
            _ => matches!(wanted, AllowedUse::Workload | AllowedUse::Tunnel),
        }
    }

    /// IPIP mode in force, Never when absent.
    pub fn effective_ipip_mode(&self) -> EncapMode {
        self.ipip_mode.clone().unwrap_or(EncapMode::Never)
    }

    /// VXLAN mode in force, Never when absent.
    pub fn effective_vxlan_mode(&self) -> EncapMode {
        self.vxlan_mode.clone().unwrap_or(EncapMode::Never)
    }

    /// True when the pool serves requests that name no pool.
    pub fn is_automatic(&self) -> bool {
        self.assignment_mode
            .as_ref()
            .is_none_or(AssignmentMode::is_automatic)
    }
}

impl IPPool {
    /// Status of the Allocatable condition; absent when no verdict has been written yet.
    pub fn allocatable(&self) -> Option<bool> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|condition| condition.kind == "Allocatable")
            .map(|condition| condition.status != "False")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_zero_block_size_mean_the_default_of_the_family() {
        let pool = |cidr: &str, block_size| IPPoolSpec {
            cidr: cidr.into(),
            block_size,
            ..IPPoolSpec::default()
        };
        assert_eq!(pool("10.0.0.0/16", None).effective_block_size(), 26);
        assert_eq!(pool("10.0.0.0/16", Some(0)).effective_block_size(), 26);
        assert_eq!(pool("fd00::/48", None).effective_block_size(), 122);
        assert_eq!(pool("10.0.0.0/16", Some(28)).effective_block_size(), 28);
    }

    #[test]
    fn an_empty_list_of_uses_means_the_default() {
        let pool = IPPoolSpec {
            allowed_uses: Some(vec![]),
            ..IPPoolSpec::default()
        };
        assert!(pool.allows(&AllowedUse::Workload));
        assert!(!pool.allows(&AllowedUse::LoadBalancer));
        assert_eq!(pool.effective_allowed_uses().len(), 2);
    }
}
