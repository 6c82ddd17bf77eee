//! One file per kind.

use serde::{Deserialize, Deserializer};

mod bgp_configuration;
mod bgp_filter;
mod bgp_peer;
mod block_affinity;
mod cluster_information;
mod felix_configuration;
mod ip_pool;
mod ip_reservation;
mod ipam_block;
mod ipam_configuration;
mod ipam_handle;
mod node_report;

pub use bgp_configuration::*;
pub use bgp_filter::*;
pub use bgp_peer::*;
pub use block_affinity::*;
pub use cluster_information::*;
pub use felix_configuration::*;
pub use ip_pool::*;
pub use ip_reservation::*;
pub use ipam_block::*;
pub use ipam_configuration::*;
pub use ipam_handle::*;
pub use node_report::*;

/// Reads null like an absent value: writers in Go print an empty list as null.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
