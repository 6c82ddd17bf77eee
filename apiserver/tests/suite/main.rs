//! The API server as its clients see it: raw HTTP, kube-rs, kubectl, and processes that are killed.
#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod bodies_and_credentials;
mod crash;
mod custom_resources;
mod discovery;
mod harness;
mod kube_rs;
mod kubectl;
mod kubectl_core;
mod lists;
mod objects;
mod patches;
mod shipped_crds;
mod watches;
