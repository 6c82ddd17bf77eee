//! Clusters in network namespaces on one machine, for learning and for tests.
//!
//! A lab is a fabric (a bridge in a namespace of its own), nodes and a top-of-rack router behind it, an API server, a
//! controller and one agent per node: the real executables with their canonical paths, each in a network and a mount
//! namespace. Pods are namespaces wired by the real CNI executable with the configuration the agent wrote; the lab
//! does what a kubelet does around it: it registers the Node, creates the sandbox, reports the pod's addresses.
//!
//! | Module | What |
//! |---|---|
//! | [`names`], [`underlay`] | what everything is called, which addresses it has |
//! | `namespaces`, `process` | namespaces and processes that outlive the caller and leave nothing behind |
//! | `state` | the lab on file, shared by all commands |
//! | [`cluster`] | start, convergence, pods, faults, status, end |
//! | `tor` | the router's software and its configuration from `examples/tor` |
//! | [`probe`] | pings and datagrams from inside the namespaces |
//!
//! Everything is in the lab's namespaces, in its folder below `/run/margay-lab` (a tmpfs) and in one loopback port of
//! the host. [`cluster::down`] removes all of it; it is safe to repeat and works on what is left of a broken lab.

mod admin;
pub mod cluster;
mod error;
pub mod names;
mod namespaces;
mod preflight;
pub mod probe;
mod process;
mod programs;
mod state;
mod tor;
pub mod underlay;

pub use cluster::{Builder, Lab, agents_behind, down, down_all, kubeconfig, list, only};
pub use error::{Error, Kind, Result};
pub use names::LabName;
pub use process::Pid;
pub use programs::Programs;
pub use state::{Node, Phase, Pod, Router, Shape, State, Tor};
pub use underlay::Families;
