//! The node dataplane: desired kernel state, reconcilers, netlink and nf_tables.
//!
//! Three storeys. [`desired`] says in the words of the cluster what should be (pods, blocks, pools, BGP routes);
//! `routes` and `rules` translate it into this kernel's terms (interface indexes, metrics, chains, sets); [`kernel`]
//! reads and writes. Between the last two stands one mechanism, [`reconcile::Reconciled`]: per kernel table it holds
//! what should be there and what is there, and yields the difference.
//!
//! One thread per network namespace owns all of it ([`Dataplane`]): it takes desired state from any number of callers,
//! listens to the kernel's notifications, writes, and reports facts. Because one thread commits, a change by another
//! program is told apart from our own by its port or thread id, is put right within a second, and is recorded with its
//! culprit. Nothing found in the kernel is removed before the source that might still want it has reported in
//! ([`Source`]), and nothing is removed on exit: a restart changes no packet's way.
//!
//! [`wire`] makes the interface of one pod; it is the only other writer, and only of things the dataplane then keeps.

pub mod calc;
mod dataplane;
pub mod desired;
pub mod kernel;
mod map;
pub mod reconcile;
mod routes;
mod rules;
pub mod wire;

pub use dataplane::{
    Dataplane, DataplaneConfig, DataplaneError, DriftRecord, Feature, NatOutgoing, Problem,
    ProblemKind, Settings, Status, TableCount,
};
pub use desired::{
    BgpNextHop, BgpRoute, EncapMode, EndpointDesired, EndpointId, LocalNode, OwnBlock, PoolView,
    Provenance, RemoteBlock, RemoteNode, Seq, Source,
};
