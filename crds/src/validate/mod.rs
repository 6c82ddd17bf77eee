//! Judges objects: what the API server does not look at, or may not have looked at because other documents of the same
//! kinds are installed.
//!
//! [`Validate`] judges one object by itself. What needs other objects takes them as arguments: [`pool_conflicts`],
//! [`peer_references`]. [`document`] judges an object of any kind in JSON form. Nothing here reads or writes anything.

mod annotation;
mod bgp_configuration;
mod bgp_filter;
mod bgp_peer;
mod document;
mod felix_configuration;
mod host_endpoint;
mod ip_pool;
mod ipam;
mod kube_controllers;
mod name;
mod network_set;
mod node_status;
mod policy;
mod rule;
mod syntax;
mod tier;

use std::fmt;

pub use annotation::{
    BgpConfigurationAnnotations, BgpPeerAnnotations, Families, FelixAnnotations, GracefulRestart,
    HostPortMode, MaxPrefixesAction, PeerAuth, Role, unknown_annotations,
};
pub use bgp_peer::peer_references;
pub use document::{DocumentError, document};
pub use ip_pool::pool_conflicts;
pub use policy::{Direction, RepairedRules, repair_rules};

/// Something wrong with one field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field: `spec.peerIP`, `spec.ingress[0].source.nets[2]`, `metadata.annotations[margay.io/bfd]`.
    pub field: String,
    /// The value as written; empty when the field is absent.
    pub value: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl FieldError {
    /// An error about a value.
    pub fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) -> Self {
        FieldError {
            field: field.into(),
            value: value.to_string(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.field, self.reason)
        } else {
            write!(
                f,
                "{}: Invalid value: {:?}: {}",
                self.field, self.value, self.reason
            )
        }
    }
}

/// A kind whose objects can be judged by themselves.
pub trait Validate {
    /// Everything wrong with the object. Empty when it is valid.
    fn validate(&self) -> Vec<FieldError>;

    /// What is valid but most likely not meant, such as a misspelt annotation or a setting without effect.
    fn warnings(&self) -> Vec<FieldError> {
        Vec::new()
    }
}

/// Collects errors about the fields of one object.
#[derive(Debug, Default)]
struct Findings(Vec<FieldError>);

impl Findings {
    fn add(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) {
        self.0.push(FieldError::new(field, value, reason));
    }

    /// Keeps the value of a result, reports its error.
    fn take<T>(
        &mut self,
        field: &str,
        value: impl fmt::Display,
        outcome: Result<T, String>,
    ) -> Option<T> {
        outcome
            .map_err(|reason| self.add(field, value, reason))
            .ok()
    }

    fn selector(&mut self, field: &str, text: Option<&str>) {
        let text = text.unwrap_or_default();
        if let Err(error) = crate::selector::Selector::parse(text) {
            self.add(field, text, format!("is not a selector: {error}"));
        }
    }

    fn duration(&mut self, field: &str, text: Option<&str>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return;
        };
        if crate::values::parse_duration(text).is_none() {
            self.add(field, text, "is not a duration such as 90s or 1m30s");
        }
    }
}

/// The text of an optional field, absent when empty.
fn written(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}
