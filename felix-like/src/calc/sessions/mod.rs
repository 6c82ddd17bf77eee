//! Which BGP sessions a node has, what it exports on them and what it originates.
//!
//! Pure: [`plan`] turns Nodes, BGPPeers and BGPConfigurations into [`Session`]s, [`export`] turns pools and own blocks
//! into a prefix policy, [`origin`] turns blocks and pod addresses into local routes, and [`peer_config`] puts all of
//! it in the words of the BGP engine. An object that is wrong becomes a [`Problem`] and takes nothing else down.
//!
//! Session sources, strongest first: a BGPPeer for all nodes (global), a BGPPeer for some nodes (node), the far end of
//! another node's BGPPeer (reverse), the node-to-node mesh. Among equals the lower resource name wins, so every node
//! and every restart decides alike.

mod address;
mod configuration;
mod expand;
pub mod export;
mod extension;
mod mesh;
mod node;
pub mod origin;
pub mod peer_config;
mod plan;
pub mod pools;
mod problem;
mod session;

pub use address::PeerAddress;
pub use configuration::{Configurations, DEFAULT_AS, DEFAULT_PORT, MAX_METRIC, NORMAL_PRIORITY};
pub use extension::duration as go_duration;
pub use node::{BgpNode, Networks, NodeAddress, hashed_router_id, parse_as};
pub use plan::{Inputs, SessionPlan, plan};
pub use problem::Problem;
pub use session::{Family, NextHopMode, Password, PeerKind, SecretRef, Session};

#[cfg(test)]
mod tests;
