//! A small durable server of the Kubernetes API, enough for kubectl, kube-rs and client-go programs.
//!
//! A request flows through four storeys:
//!
//! * [`http`]: TLS connection, credentials, path and query, media types; everything ends as JSON or a `Status`.
//! * [`resource`]: what is served. Built-in kinds and CRDs become the same description, so no handler knows kinds.
//! * [`admission`]: what a write means: patch, server-side apply, ownership of fields, pruning, defaults, schema and
//!   CEL validation, what only the server may set, finalizers. Pure functions from (old, request) to (new).
//! * [`store`]: one revision sequence, optimistic locks, group commit with fsync, bounded history for watches.
//!
//! Authentication is by client certificate or bearer token; there is no authorisation beyond it: whoever can prove an
//! identity may do everything. No scheduler, kubelet or controller runs here, except that deleting a namespace
//! removes its content and deleting an owner its dependents. Pods are removed at once: there is no kubelet that would confirm a graceful end.
//!
//! References: Kubernetes API concepts and API conventions, CustomResourceDefinition structural schemas,
//! aggregated discovery, server-side apply.

pub mod admission;
pub mod auth;
mod bootstrap;
mod expiry;
mod garbage;
pub mod http;
mod listen;
mod namespaces;
pub mod resource;
pub mod schema;
mod selector;
mod server;
pub mod status;
pub mod store;
pub mod table;

pub use server::{Config, Server, StartError};
