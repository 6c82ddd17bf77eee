//! The API server as its clients see it: raw HTTP, kube-rs, kubectl, and processes that are killed.

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
