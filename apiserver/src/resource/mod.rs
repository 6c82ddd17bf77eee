//! What is served: one [`Resource`] per (group, version, plural), built in or defined by a CRD.

pub mod catalog;
pub mod columns;
pub mod core;
mod core_cells;
pub mod crd;
pub mod event_versions;

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;
use columns::Column;

/// How an object of a resource's storage form becomes one of the served version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Storage form and served form are the same.
    None,
    /// Only `apiVersion` differs (CRDs with several versions).
    ApiVersion,
    /// `events.k8s.io/v1` over stored `v1` Events: renamed fields.
    Events,
}

/// Which content of a new object only the server or the status subresource may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRule {
    /// No status subresource: `status` is a field like any other.
    Plain,
    /// `status` is written through `/status` only.
    Separate,
    /// As `Separate`, but a create keeps what it carries (Node: kubelets register with their status).
    SeparateAfterCreate,
}

/// One served resource in one version.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, e.g. `v1`.
    pub version: String,
    /// Version objects are stored in.
    pub storage_version: String,
    /// Kind, e.g. `Pod`.
    pub kind: String,
    /// Kind of lists, e.g. `PodList`.
    pub list_kind: String,
    /// Plural as in paths.
    pub plural: String,
    /// Singular.
    pub singular: String,
    /// Short names kubectl understands.
    pub short_names: Vec<String>,
    /// Categories, e.g. `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Treatment of `status`.
    pub status: StatusRule,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// `plural.group`: where objects are stored.
    pub storage: Arc<str>,
    /// Printer columns.
    pub columns: Vec<Column>,
    /// Schema of the served version.
    pub schema: Arc<Schema>,
    /// Extra field selector paths besides metadata.name and metadata.namespace.
    pub selectable: Vec<String>,
    /// From storage form to this version.
    pub conversion: Conversion,
    /// Defined by a CRD.
    pub custom: bool,
}

impl Resource {
    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether there is a `/status` subresource.
    pub fn has_status(&self) -> bool {
        self.status != StatusRule::Plain
    }

    /// An object in storage form, as this version shows it.
    pub fn to_served(&self, mut object: Value) -> Value {
        match self.conversion {
            Conversion::None => {}
            Conversion::ApiVersion => object["apiVersion"] = self.api_version().into(),
            Conversion::Events => event_versions::to_events_v1(&mut object),
        }
        object
    }

    /// An object of this version in storage form.
    pub fn to_stored(&self, mut object: Value) -> Value {
        match self.conversion {
            Conversion::None => {}
            Conversion::ApiVersion => {
                object["apiVersion"] = format!("{}/{}", self.group, self.storage_version).into();
            }
            Conversion::Events => event_versions::to_core_v1(&mut object),
        }
        object
    }
}
