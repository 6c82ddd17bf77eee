//! Applying manifests to the lab's API server.

use super::Lab;
use super::objects::MANAGER;
use crate::error::{Error, Result, Tried};
use crate::underlay::Families;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use serde_json::Value;

/// The router as a peer of all nodes.
pub(super) const TOR_PEERS: &str = include_str!("../../../examples/peers/tor.yaml");

/// The documents of a YAML text; empty ones are left out.
fn documents(text: &str) -> Result<Vec<Value>> {
    let what = || "cannot read a manifest".to_owned();
    let mut all = Vec::new();
    for document in text.split("\n---") {
        let value: Option<Value> = serde_saphyr::from_str(document).tried(what)?;
        all.extend(value.filter(|v| !v.is_null()));
    }
    Ok(all)
}

impl Lab {
    /// Applies a manifest (YAML, several documents) on the server side, as `kubectl apply --server-side` does.
    ///
    /// # Errors
    /// The text is not YAML, a kind is unknown, or the server refuses.
    pub async fn apply(&self, manifest: &str) -> Result<()> {
        for document in documents(manifest)? {
            self.apply_one(document).await?;
        }
        Ok(())
    }

    /// The same, leaving out BGPPeers whose address is of a family the lab does not have.
    pub(super) async fn apply_for(&self, manifest: &str, families: Families) -> Result<()> {
        for document in documents(manifest)? {
            let v6 = document["spec"]["peerIP"]
                .as_str()
                .map(|ip| ip.contains(':'));
            if v6.is_none_or(|v6| if v6 { families.v6() } else { families.v4() }) {
                self.apply_one(document).await?;
            }
        }
        Ok(())
    }

    async fn apply_one(&self, document: Value) -> Result<()> {
        let word = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let name = document["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let what = || format!("cannot apply {kind} {name}");
        let (group, version) = version.rsplit_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &kind);
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.kube, &gvk)
            .await
            .tried(what)?;
        let api: Api<DynamicObject> = if capabilities.scope == Scope::Cluster {
            Api::all_with(self.kube(), &resource)
        } else {
            let namespace = document["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default");
            Api::namespaced_with(self.kube(), namespace, &resource)
        };
        let patch = Patch::Apply(&document);
        match api
            .patch(&name, &PatchParams::apply(MANAGER).force(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(Error::new(what(), status.message.clone())),
            Err(e) => Err(e).tried(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_comments_and_two_documents_has_two_documents() {
        let found = documents("# c\n---\na: 1\n---\n# nothing\n---\nb: 2\n").unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(documents(TOR_PEERS).unwrap().len(), 2);
    }
}
