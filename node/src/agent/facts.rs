//! What other parts of the process read of the agent's copy of the cluster, without touching its loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use tokio::sync::watch;

/// A consistent picture at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Pods of this node by `namespace/name`.
    pub(crate) pods: BTreeMap<String, Arc<Pod>>,
    /// Namespaces by name.
    pub(crate) namespaces: BTreeMap<String, Arc<Namespace>>,
}

impl Facts {
    /// One pod of this node.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.pods.get(&format!("{namespace}/{name}"))
    }
}

/// Follows [`Facts`]; cheap to clone.
pub(crate) type FactsReader = watch::Receiver<Arc<Facts>>;
