//! One file per kind.

use serde::{Deserialize, Deserializer};

mod bgp_configuration;
mod bgp_filter;
mod bgp_peer;
mod block_affinity;
mod calico_node_status;
mod cluster_information;
mod entity_rule;
mod felix_configuration;
mod global_network_policy;
mod host_endpoint;
mod ip_pool;
mod ip_reservation;
mod ipam_block;
mod ipam_configuration;
mod ipam_handle;
mod kube_controllers_configuration;
mod network_policy;
mod network_set;
mod node_report;
mod rule;
mod staged_policy;
mod tier;

pub use bgp_configuration::*;
pub use bgp_filter::*;
pub use bgp_peer::*;
pub use block_affinity::*;
pub use calico_node_status::*;
pub use cluster_information::*;
pub use entity_rule::*;
pub use felix_configuration::*;
pub use global_network_policy::*;
pub use host_endpoint::*;
pub use ip_pool::*;
pub use ip_reservation::*;
pub use ipam_block::*;
pub use ipam_configuration::*;
pub use ipam_handle::*;
pub use kube_controllers_configuration::*;
pub use network_policy::*;
pub use network_set::*;
pub use node_report::*;
pub use rule::*;
pub use staged_policy::*;
pub use tier::*;

/// Reads null like an absent value: writers in Go print an empty list as null.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod field_names;
