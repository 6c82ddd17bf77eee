//! The projectcalico.org/v3 and margay.io/v1 resources as Rust types: selectors, validation, CRD manifests.

pub mod admin;
