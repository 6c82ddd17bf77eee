//! An object of any kind, in JSON form.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{FieldError, Validate};
use crate::*;

/// Why an object cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is of none of the kinds of this crate.
    #[error("{kind} of {api_version} is not a kind of projectcalico.org/v3 or margay.io/v1")]
    UnknownKind {
        /// The kind as written.
        kind: String,
        /// The group and version as written.
        api_version: String,
    },
    /// It does not have the shape of its kind.
    #[error("{field}: {reason}")]
    Shape {
        /// Path of the field at fault, as far as it is known.
        field: String,
        /// What is wrong.
        reason: String,
    },
}

/// What was found in an object: errors and warnings.
type Found = (Vec<FieldError>, Vec<FieldError>);

/// Judges an object by its apiVersion and kind. Answers its errors and its warnings.
///
/// # Errors
/// The kind is not known, or the object does not have its shape.
pub fn document(object: &Value) -> Result<Found, DocumentError> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("projectcalico.org/v3", "BGPConfiguration") => judge::<BGPConfiguration>(object),
        ("projectcalico.org/v3", "BGPFilter") => judge::<BGPFilter>(object),
        ("projectcalico.org/v3", "BGPPeer") => judge::<BGPPeer>(object),
        ("projectcalico.org/v3", "BlockAffinity") => judge::<BlockAffinity>(object),
        ("projectcalico.org/v3", "CalicoNodeStatus") => judge::<CalicoNodeStatus>(object),
        ("projectcalico.org/v3", "ClusterInformation") => judge::<ClusterInformation>(object),
        ("projectcalico.org/v3", "FelixConfiguration") => judge::<FelixConfiguration>(object),
        ("projectcalico.org/v3", "GlobalNetworkPolicy") => judge::<GlobalNetworkPolicy>(object),
        ("projectcalico.org/v3", "GlobalNetworkSet") => judge::<GlobalNetworkSet>(object),
        ("projectcalico.org/v3", "HostEndpoint") => judge::<HostEndpoint>(object),
        ("projectcalico.org/v3", "IPAMBlock") => judge::<IPAMBlock>(object),
        ("projectcalico.org/v3", "IPAMConfiguration") => judge::<IPAMConfiguration>(object),
        ("projectcalico.org/v3", "IPAMHandle") => judge::<IPAMHandle>(object),
        ("projectcalico.org/v3", "IPPool") => judge::<IPPool>(object),
        ("projectcalico.org/v3", "IPReservation") => judge::<IPReservation>(object),
        ("projectcalico.org/v3", "KubeControllersConfiguration") => {
            judge::<KubeControllersConfiguration>(object)
        }
        ("projectcalico.org/v3", "NetworkPolicy") => judge::<NetworkPolicy>(object),
        ("projectcalico.org/v3", "NetworkSet") => judge::<NetworkSet>(object),
        ("projectcalico.org/v3", "StagedGlobalNetworkPolicy") => {
            judge::<StagedGlobalNetworkPolicy>(object)
        }
        ("projectcalico.org/v3", "StagedKubernetesNetworkPolicy") => {
            judge::<StagedKubernetesNetworkPolicy>(object)
        }
        ("projectcalico.org/v3", "StagedNetworkPolicy") => judge::<StagedNetworkPolicy>(object),
        ("projectcalico.org/v3", "Tier") => judge::<Tier>(object),
        ("margay.io/v1", "NodeReport") => judge::<NodeReport>(object),
        (api_version, kind) => Err(DocumentError::UnknownKind {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        }),
    }
}

fn judge<K: DeserializeOwned + Validate>(object: &Value) -> Result<Found, DocumentError> {
    let typed: K =
        serde_path_to_error::deserialize(object).map_err(|error| DocumentError::Shape {
            field: error.path().to_string(),
            reason: error.inner().to_string(),
        })?;
    Ok((typed.validate(), typed.warnings()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_with_a_document_can_be_judged() {
        for (file, text) in manifests::ALL {
            let document: Value = serde_saphyr::from_str(text).expect("the document is YAML");
            let (group, version) = (
                &document["spec"]["group"],
                &document["spec"]["versions"][0]["name"],
            );
            let object = json!({
                "apiVersion": format!("{}/{}", group.as_str().expect("text"), version.as_str().expect("text")),
                "kind": document["spec"]["names"]["kind"],
                "metadata": {"name": "default"},
                "spec": {"cidr": "10.0.0.0/24", "node": "n", "handleID": "default"},
            });
            assert!(super::document(&object).is_ok(), "{file}");
        }
    }

    #[test]
    fn a_field_of_the_wrong_shape_is_named() {
        let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer", "metadata": {"name": "p"},
            "spec": {"asNumber": "64512"}});
        let error = super::document(&object)
            .expect_err("a text is not a number")
            .to_string();
        assert!(error.starts_with("spec.asNumber: "), "{error}");
        let error = super::document(&json!({"apiVersion": "v1", "kind": "Pod"}))
            .expect_err("unknown")
            .to_string();
        assert_eq!(
            error,
            "Pod of v1 is not a kind of projectcalico.org/v3 or margay.io/v1"
        );
    }
}
