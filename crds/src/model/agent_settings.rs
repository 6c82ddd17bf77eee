//! The FelixConfiguration in force on one node.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value};

use crate::selector::Selector;
use crate::{FelixConfiguration, FelixConfigurationSpec};

/// Values the CRDs of Calico stamp on every object of the kind. In an object that is not `default` they are taken for
/// stamped, not for written, or they would hide the setting of `default`.
const STAMPED: [(&str, &str); 2] = [
    ("nftablesMode", "Auto"),
    ("nftablesFlowTableOffload", "Disabled"),
];

/// Merges, field by field, `node.<node>` over the selector-scoped object of the node over `default`.
///
/// Of several selector-scoped objects that match `labels` the oldest counts, alone; of equally old ones that with the
/// lowest name. An object whose selector does not parse matches nothing. An empty text counts as not set.
pub fn agent_settings(
    objects: &[FelixConfiguration],
    node: &str,
    labels: &BTreeMap<String, String>,
) -> FelixConfigurationSpec {
    let own = format!("node.{node}");
    let named = |name: &str| objects.iter().find(|object| object.name_any() == name);
    let scoped = objects
        .iter()
        .filter(|object| matches(object, labels))
        .min_by_key(|object| {
            (
                object.creation_timestamp().map(|time| time.0),
                object.name_any(),
            )
        });
    let mut merged = Map::new();
    for (object, is_default) in [
        (named("default"), true),
        (scoped, false),
        (named(&own), false),
    ] {
        let Some(Value::Object(fields)) =
            object.and_then(|object| serde_json::to_value(&object.spec).ok())
        else {
            continue;
        };
        for (name, value) in fields {
            let stamped = !is_default
                && STAMPED
                    .iter()
                    .any(|(field, stamp)| name == *field && value == *stamp);
            if !stamped && value != "" && name != "nodeSelector" {
                merged.insert(name, value);
            }
        }
    }
    // Every field comes out of a specification of the same type.
    serde_json::from_value(Value::Object(merged)).unwrap_or_default()
}

fn matches(object: &FelixConfiguration, labels: &BTreeMap<String, String>) -> bool {
    let name = object.name_any();
    if name == "default" || name.starts_with("node.") {
        return false;
    }
    let selector = object.spec.node_selector.as_deref().map(Selector::parse);
    matches!(selector, Some(Ok(selector)) if selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, created: i64, spec: Value) -> FelixConfiguration {
        serde_json::from_value(json!({
            "apiVersion": "projectcalico.org/v3", "kind": "FelixConfiguration",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-{created:02}T00:00:00Z")},
            "spec": spec,
        }))
        .expect("decodes")
    }

    fn merged(objects: &[FelixConfiguration]) -> Value {
        let labels = BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]);
        serde_json::to_value(agent_settings(objects, "a", &labels)).expect("encodes")
    }

    #[test]
    fn a_stamped_default_on_the_object_of_a_node_does_not_hide_the_global_setting() {
        let global = object(
            "default",
            1,
            json!({"nftablesMode": "Enabled", "nftablesFlowTableOffload": "All"}),
        );
        for own in [
            json!({}),
            json!({"nftablesMode": "Auto", "nftablesFlowTableOffload": "Disabled"}),
        ] {
            let merged = merged(&[global.clone(), object("node.a", 2, own)]);
            assert_eq!(
                merged,
                json!({"nftablesMode": "Enabled", "nftablesFlowTableOffload": "All"})
            );
        }
        let own = object("node.a", 2, json!({"nftablesMode": "Disabled"}));
        assert_eq!(merged(&[global, own])["nftablesMode"], "Disabled");
    }

    #[test]
    fn the_most_specific_object_wins_per_field() {
        let objects = [
            object(
                "default",
                1,
                json!({"vxlanPort": 1, "vxlanVNI": 1, "healthPort": 1, "logPrefix": "x"}),
            ),
            object(
                "gpu",
                3,
                json!({"vxlanPort": 2, "vxlanVNI": 2, "nodeSelector": "has(gpu)"}),
            ),
            object("node.a", 2, json!({"vxlanPort": 3, "logPrefix": ""})),
            object("node.b", 2, json!({"healthPort": 9})),
        ];
        assert_eq!(
            merged(&objects),
            json!({"vxlanPort": 3, "vxlanVNI": 2, "healthPort": 1, "logPrefix": "x"})
        );
    }

    #[test]
    fn of_several_matching_objects_the_oldest_counts_alone() {
        let objects = [
            object(
                "young",
                9,
                json!({"vxlanPort": 9, "vxlanVNI": 9, "nodeSelector": "has(gpu)"}),
            ),
            object(
                "old-b",
                2,
                json!({"vxlanPort": 2, "nodeSelector": "has(gpu)"}),
            ),
            object(
                "old-a",
                2,
                json!({"healthPort": 2, "nodeSelector": "has(gpu)"}),
            ),
            object("older-but-unscoped", 1, json!({"vxlanPort": 1})),
            object(
                "older-but-elsewhere",
                1,
                json!({"vxlanPort": 1, "nodeSelector": "!has(gpu)"}),
            ),
            object(
                "older-but-broken",
                1,
                json!({"vxlanPort": 1, "nodeSelector": "has("}),
            ),
        ];
        assert_eq!(merged(&objects), json!({"healthPort": 2}));
    }
}
