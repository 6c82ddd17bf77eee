//! The form in which a manifest is best stored.

use serde_json::{Map, Value, json};

use crate::values::{parse_as_number, parse_cidr};

const TIER_LABEL: &str = "projectcalico.org/tier";

/// Brings an object of projectcalico.org/v3 into the form it is best stored in, without changing what it means:
///
/// - AS numbers written as text, plain or dotted (`"1.10"`), become numbers;
/// - the CIDR of an IPPool gets its canonical spelling;
/// - white space around selectors goes, since a line break there makes them unreadable for other programs;
/// - a policy without a tier gets `default` and the label that mirrors it;
/// - a policy without types gets those its rules imply: both when it has rules for both directions, Egress for egress
///   rules only, Ingress otherwise.
///
/// Objects of other groups and malformed values are left as they are.
pub fn canonicalise(object: &mut Value) {
    if object["apiVersion"] != "projectcalico.org/v3" {
        return;
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if let Some(spec) = object.get_mut("spec") {
        trim_selectors(spec);
        as_numbers(spec);
    }
    match kind.as_str() {
        "IPPool" => pool(object),
        "NetworkPolicy"
        | "GlobalNetworkPolicy"
        | "StagedNetworkPolicy"
        | "StagedGlobalNetworkPolicy" => policy(object),
        "StagedKubernetesNetworkPolicy" => {
            let egress = has_rules(&object["spec"], "egress");
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            fill(object, "policyTypes", types);
        }
        _ => {}
    }
}

fn trim_selectors(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                match child {
                    Value::String(text) if key == "selector" || key.ends_with("Selector") => {
                        *text = text.trim().to_owned();
                    }
                    child => trim_selectors(child),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(trim_selectors),
        _ => {}
    }
}

/// Fields that hold an AS number or a list of them.
const AS_NUMBERS: [&str; 3] = ["asNumber", "localASNumber", "asPathPrefix"];

fn as_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if AS_NUMBERS.contains(&key.as_str()) {
                    number(child);
                } else if key == "prependASPath" {
                    if let Some(prefix) = child.get_mut("prefix") {
                        number(prefix);
                    }
                } else {
                    as_numbers(child);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_numbers),
        _ => {}
    }
}

fn number(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(number) = parse_as_number(text) {
                *value = json!(number);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(number),
        _ => {}
    }
}

fn pool(object: &mut Value) {
    if let Some(Value::String(cidr)) = object.pointer_mut("/spec/cidr")
        && let Ok(network) = parse_cidr(cidr)
    {
        *cidr = network.to_string();
    }
}

fn policy(object: &mut Value) {
    let types = match (
        has_rules(&object["spec"], "ingress"),
        has_rules(&object["spec"], "egress"),
    ) {
        (true, true) => json!(["Ingress", "Egress"]),
        (false, true) => json!(["Egress"]),
        _ => json!(["Ingress"]),
    };
    fill(object, "types", types);
    if object.pointer("/spec/tier").is_none_or(|tier| tier == "") {
        if !object["spec"].is_object() {
            return;
        }
        object["spec"]["tier"] = json!("default");
    }
    let tier = object["spec"]["tier"].clone();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let labels = metadata
        .entry("labels")
        .or_insert_with(|| Value::Object(Map::new()));
    if let (Some(labels), true) = (labels.as_object_mut(), tier.is_string()) {
        labels.insert(TIER_LABEL.to_owned(), tier);
    }
}

fn has_rules(spec: &Value, list: &str) -> bool {
    spec[list].as_array().is_some_and(|rules| !rules.is_empty())
}

/// Sets a field of the specification that is absent.
fn fill(object: &mut Value, field: &str, value: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry(field).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(kind: &str, spec: Value) -> Value {
        let mut object = json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        canonicalise(&mut object);
        let once = object.clone();
        canonicalise(&mut object);
        assert_eq!(object, once);
        object
    }

    #[test]
    fn dotted_as_numbers_become_numbers_wherever_they_stand() {
        assert_eq!(
            canonical(
                "BGPPeer",
                json!({"asNumber": "1.10", "localASNumber": "65001"})
            )["spec"],
            json!({
                "asNumber": 65546, "localASNumber": 65001
            })
        );
        let filter = json!({"exportV4": [{"asPathPrefix": ["1.0", 2], "operations": [{"prependASPath": {"prefix": ["0.5"]}}]}]});
        assert_eq!(
            canonical("BGPFilter", filter)["spec"]["exportV4"][0],
            json!({
                "asPathPrefix": [65536, 2], "operations": [{"prependASPath": {"prefix": [5]}}]
            })
        );
        assert_eq!(
            canonical("BGPPeer", json!({"asNumber": "1.x"}))["spec"]["asNumber"],
            "1.x"
        );
    }

    #[test]
    fn a_pool_gets_the_canonical_spelling_of_its_range() {
        assert_eq!(
            canonical("IPPool", json!({"cidr": "FD00:0::/112"}))["spec"]["cidr"],
            "fd00::/112"
        );
        assert_eq!(
            canonical("IPPool", json!({"cidr": "10.0.0.1/24"}))["spec"]["cidr"],
            "10.0.0.1/24"
        );
        assert_eq!(
            canonical("IPPool", json!({"cidr": "x"}))["spec"]["cidr"],
            "x"
        );
    }

    #[test]
    fn selectors_lose_the_line_break_of_a_block_scalar() {
        let spec = json!({"selector": "has(a)\n", "ingress": [{"action": "Allow", "source": {"notSelector": " has(b) "}}]});
        let policy = canonical("NetworkPolicy", spec);
        assert_eq!(policy["spec"]["selector"], "has(a)");
        assert_eq!(
            policy["spec"]["ingress"][0]["source"]["notSelector"],
            "has(b)"
        );
    }

    #[test]
    fn policies_get_tier_label_and_types() {
        let policy = canonical(
            "NetworkPolicy",
            json!({"egress": [{"action": "Allow"}], "ingress": []}),
        );
        assert_eq!(policy["spec"]["types"], json!(["Egress"]));
        assert_eq!(policy["spec"]["tier"], "default");
        assert_eq!(policy["metadata"]["labels"][TIER_LABEL], "default");
        let policy = canonical(
            "GlobalNetworkPolicy",
            json!({"tier": "security", "types": []}),
        );
        assert_eq!(policy["spec"]["types"], json!([]));
        assert_eq!(policy["metadata"]["labels"][TIER_LABEL], "security");
        let policy = canonical("StagedKubernetesNetworkPolicy", json!({"egress": [{}]}));
        assert_eq!(
            policy["spec"],
            json!({"egress": [{}], "policyTypes": ["Ingress", "Egress"]})
        );
    }

    #[test]
    fn other_objects_are_left_alone() {
        for mut object in [
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeSelector": " x "}}),
            json!("text"),
        ] {
            let before = object.clone();
            canonicalise(&mut object);
            assert_eq!(object, before);
        }
        let odd =
            json!({"exportV4": [{"operations": [{"prependASPath": "x"}, {"prependASPath": {}}]}]});
        assert_eq!(canonical("BGPFilter", odd.clone())["spec"], odd);
        let mut bare = json!({"apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy"});
        canonicalise(&mut bare);
        assert_eq!(bare.get("spec"), None);
    }
}
