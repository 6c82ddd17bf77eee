//! Address management: pools are cut into blocks, nodes own blocks, pods get addresses of their node's blocks.
//!
//! The objects in the API ([`store`]) are the ones Calico's tools and writers use, so both may work on one cluster. A
//! [`block`] is the unit of ownership and of writing: whoever writes it read it before and names the revision it read.
//! An affinity object says which node a block belongs to; it is written before and after the block ([`write`]) so that a
//! crash at any moment leaves something the same node completes or another cleans up.
//!
//! On a node one [`Ipam`] does all of this. It keeps some addresses reserved in its blocks under a handle of its own and
//! hands them out from memory; a journal survives the process, and one write per block and interval tells the API who
//! has what. An address is handed out only while a write that names this node as its holder has been acknowledged, so
//! two nodes never hand out the same one, whatever crashes or gets lost in between.
//!
//! Everything that decides is a function of values: [`block`], [`pool`], [`probe`], [`reservation`]. Everything that
//! waits is in [`write`] and the agent.

mod agent;
pub mod block;
pub mod cidr;
pub mod names;
pub mod pool;
pub mod probe;
mod request;
pub mod reservation;
pub mod rules;
pub mod store;
pub mod write;

pub use agent::{Clock, Ipam, IpamConfig, IpamProblem, Released, StartError};
pub use cidr::Family;
pub use request::*;
pub use rules::{Handles, Rules, Settings};
pub use store::{KubeStore, MemoryStore, Store, StoreError};
