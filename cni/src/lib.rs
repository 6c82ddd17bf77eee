//! What the CNI executable and the node agent have in common.
//!
//! A container runtime executes `margay-cni` with `CNI_*` variables and a network configuration on standard input
//! (Container Network Interface specification 0.1.0 to 1.1.0). The executable is thin: it checks what it was given,
//! opens the pod's network namespace, and hands everything to the node agent over a unix socket. The agent does the
//! work and the executable prints the answer.
//!
//! ```text
//! runtime --env, stdin--> plugin --frame + netns fd--> agent: machine (pure) <--> addresses, kernel, pods
//! runtime <--stdout------ plugin <--frame------------- agent
//! ```
//!
//! - [`environment`], [`args`], [`config`]: what the runtime says, checked;
//! - [`result`]: what it is told, in the shape of the version it asked for; [`error`]: the codes;
//! - [`names`]: interface, handle and endpoint names, all deterministic;
//! - [`plan`]: which addresses, MAC and ports a pod asks for, from configuration and annotations;
//! - [`machine`]: the steps of ADD, DEL, CHECK, GC and STATUS as pure state machines;
//! - [`proto`], [`frame`], [`scm`]: the agent's socket; [`netns`]: identity of a namespace;
//! - [`attachment`], [`tombstone`]: the files that outlive both processes;
//! - [`plugin`]: the executable itself, minus `main`.
//!
//! Nothing here is asynchronous, talks to Kubernetes or to netlink.

pub mod args;
pub mod attachment;
pub mod config;
pub mod environment;
pub mod error;
pub mod frame;
pub mod machine;
pub mod names;
pub mod netns;
pub mod plan;
pub mod plugin;
pub mod proto;
pub mod result;
pub mod scm;
pub mod tombstone;
pub mod version;

mod file;

pub use attachment::{Attachment, AttachmentKey};
pub use environment::{Command, Environment};
pub use error::{CniError, Code};
pub use result::AddResult;
pub use version::CniVersion;
