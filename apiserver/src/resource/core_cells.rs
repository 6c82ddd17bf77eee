//! Cells of core kinds that no path can say, in kubectl's familiar wording.

use serde_json::{Value, json};

use super::columns::Column;
use crate::table::age;

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn or_none(text: &str) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn joined(values: impl Iterator<Item = String>) -> Value {
    or_none(&values.collect::<Vec<_>>().join(","))
}

/// First `most` values, then how many more there are.
fn shortened(values: Vec<String>, most: usize) -> Value {
    let more = values.len().saturating_sub(most);
    let shown = values.into_iter().take(most).collect::<Vec<_>>().join(",");
    if more > 0 {
        format!("{shown} + {more} more...").into()
    } else {
        or_none(&shown)
    }
}

pub(super) fn node() -> Vec<Column> {
    let info = |name: &str, field: &str| {
        Column::at(name, "string", &format!(".status.nodeInfo.{field}")).wide()
    };
    vec![
        Column::computed("Status", "string", node_status),
        Column::computed("Roles", "string", node_roles),
        Column::age(),
        Column::at("Version", "string", ".status.nodeInfo.kubeletVersion"),
        Column::computed("Internal-IP", "string", |o| node_address(o, "InternalIP")).wide(),
        Column::computed("External-IP", "string", |o| node_address(o, "ExternalIP")).wide(),
        info("OS-Image", "osImage"),
        info("Kernel-Version", "kernelVersion"),
        info("Container-Runtime", "containerRuntimeVersion"),
    ]
}

fn node_address(node: &Value, wanted: &str) -> Value {
    let found = list(node, "/status/addresses").find(|a| a["type"] == wanted);
    or_none(found.map_or("", |a| text(a, "/address")))
}

fn node_status(node: &Value) -> Value {
    let ready = list(node, "/status/conditions").find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| text(c, "/status")) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn node_roles(node: &Value) -> Value {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(k, _)| {
            k.strip_prefix("node-role.kubernetes.io/")
                .map(str::to_owned)
        })
        .collect();
    roles.sort();
    joined(roles.into_iter())
}

pub(super) fn pod() -> Vec<Column> {
    vec![
        Column::computed("Ready", "string", pod_ready),
        Column::computed("Status", "string", pod_status),
        Column::computed("Restarts", "string", |o| {
            let count =
                list(o, "/status/containerStatuses").filter_map(|c| c["restartCount"].as_i64());
            count.sum::<i64>().to_string().into()
        }),
        Column::age(),
        Column::computed("IP", "string", |o| or_none(text(o, "/status/podIP"))).wide(),
        Column::computed("Node", "string", |o| or_none(text(o, "/spec/nodeName"))).wide(),
        Column::computed("Nominated Node", "string", |o| {
            or_none(text(o, "/status/nominatedNodeName"))
        })
        .wide(),
        Column::computed("Readiness Gates", "string", |_| "<none>".into()).wide(),
    ]
}

fn pod_ready(pod: &Value) -> Value {
    let ready = list(pod, "/status/containerStatuses")
        .filter(|c| c["ready"] == true)
        .count();
    format!("{ready}/{}", list(pod, "/spec/containers").count()).into()
}

fn pod_status(pod: &Value) -> Value {
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return "Terminating".into();
    }
    for container in list(pod, "/status/containerStatuses") {
        let reason = text(container, "/state/waiting/reason");
        if !reason.is_empty() {
            return reason.into();
        }
    }
    match text(pod, "/status/reason") {
        "" => match text(pod, "/status/phase") {
            "Succeeded" => "Completed",
            "Failed" => "Error",
            phase => phase,
        },
        reason => reason,
    }
    .into()
}

pub(super) fn service() -> Vec<Column> {
    vec![
        Column::at("Type", "string", ".spec.type"),
        Column::computed("Cluster-IP", "string", |o| {
            or_none(text(o, "/spec/clusterIP"))
        }),
        Column::computed("External-IP", "string", |o| {
            let ingress = list(o, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
                "" => text(i, "/hostname").to_owned(),
                ip => ip.to_owned(),
            });
            let external = list(o, "/spec/externalIPs").filter_map(Value::as_str);
            let all: Vec<_> = ingress.chain(external.map(str::to_owned)).collect();
            if all.is_empty() && text(o, "/spec/type") == "LoadBalancer" {
                return "<pending>".into();
            }
            joined(all.into_iter())
        }),
        Column::computed("Port(s)", "string", |o| {
            joined(list(o, "/spec/ports").map(|p| {
                let protocol = text(p, "/protocol");
                match p["nodePort"].as_i64().filter(|n| *n > 0) {
                    Some(node) => format!("{}:{node}/{protocol}", p["port"]),
                    None => format!("{}/{protocol}", p["port"]),
                }
            }))
        }),
        Column::age(),
        Column::computed("Selector", "string", |o| pairs(&o["spec"]["selector"])).wide(),
    ]
}

fn pairs(map: &Value) -> Value {
    let map = map.as_object();
    let mut pairs: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    joined(pairs.into_iter())
}

pub(super) fn endpoints(object: &Value) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        for address in list(subset, "/addresses") {
            for port in list(subset, "/ports") {
                all.push(format!("{}:{}", text(address, "/ip"), port["port"]));
            }
        }
    }
    shortened(all, 3)
}

pub(super) fn data_count(object: &Value) -> Value {
    let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(count("data") + count("binaryData"))
}

pub(super) fn secrets_count(object: &Value) -> Value {
    json!(list(object, "/secrets").count())
}

pub(super) fn validations_count(object: &Value) -> Value {
    json!(list(object, "/spec/validations").count())
}

pub(super) fn slice_ports(object: &Value) -> Value {
    let ports = list(object, "/ports")
        .map(|p| p["port"].to_string())
        .collect();
    match shortened(ports, 3) {
        Value::String(none) if none == "<none>" => "<unset>".into(),
        ports => ports,
    }
}

pub(super) fn slice_endpoints(object: &Value) -> Value {
    let addresses = list(object, "/endpoints")
        .flat_map(|e| list(e, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    match shortened(addresses, 3) {
        Value::String(none) if none == "<none>" => "<unset>".into(),
        addresses => addresses,
    }
}

pub(super) fn pod_selector(object: &Value) -> Value {
    pairs(&object["spec"]["podSelector"]["matchLabels"])
}

pub(super) fn daemon_set() -> Vec<Column> {
    let number = |name: &str, path: &str| Column::at(name, "integer", path);
    vec![
        number("Desired", ".status.desiredNumberScheduled"),
        number("Current", ".status.currentNumberScheduled"),
        number("Ready", ".status.numberReady"),
        number("Up-to-date", ".status.updatedNumberScheduled"),
        number("Available", ".status.numberAvailable"),
        Column::computed("Node Selector", "string", |o| {
            pairs(&o["spec"]["template"]["spec"]["nodeSelector"])
        }),
        Column::age(),
    ]
}

pub(super) fn deployment() -> Vec<Column> {
    let number = |name: &str, path: &str| Column::at(name, "integer", path);
    vec![
        Column::computed("Ready", "string", |o| {
            let ready = o["status"]["readyReplicas"].as_i64().unwrap_or(0);
            format!("{ready}/{}", o["spec"]["replicas"].as_i64().unwrap_or(1)).into()
        }),
        number("Up-to-date", ".status.updatedReplicas"),
        number("Available", ".status.availableReplicas"),
        Column::age(),
    ]
}

pub(super) fn binding() -> Vec<Column> {
    vec![
        Column::computed("Role", "string", |o| {
            format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into()
        }),
        Column::age(),
    ]
}

/// Columns of events; `renamed` = the `events.k8s.io` field names.
pub(super) fn event(renamed: bool) -> Vec<Column> {
    let seen = |o: &Value| {
        let times = [
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/deprecatedLastTimestamp",
            "/eventTime",
            "/firstTimestamp",
            "/metadata/creationTimestamp",
        ];
        let time = times
            .iter()
            .map(|t| text(o, t))
            .find(|t| !t.is_empty())
            .unwrap_or_default();
        Value::from(age::since(time, jiff::Timestamp::now()))
    };
    let object = |o: &Value| {
        let about = if o["regarding"].is_object() {
            &o["regarding"]
        } else {
            &o["involvedObject"]
        };
        Value::from(format!(
            "{}/{}",
            text(about, "/kind").to_lowercase(),
            text(about, "/name")
        ))
    };
    let message = if renamed { ".note" } else { ".message" };
    vec![
        Column::computed("Last Seen", "string", seen),
        Column::at("Type", "string", ".type"),
        Column::at("Reason", "string", ".reason"),
        Column::computed("Object", "string", object),
        Column::at("Message", "string", message),
        Column::name().wide(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_cells() {
        let node = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
        assert_eq!(node_status(&node), "Ready,SchedulingDisabled");
        assert_eq!(node_roles(&node), "worker");
        assert_eq!(node_address(&node, "InternalIP"), "192.0.2.1");
        assert_eq!(node_address(&node, "ExternalIP"), "<none>");
    }

    #[test]
    fn pod_cells() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true}]}});
        assert_eq!(pod_ready(&pod), "1/2");
        assert_eq!(pod_status(&pod), "Running");
    }

    #[test]
    fn many_endpoints_are_shortened() {
        let slice = json!({"endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3", "4"]}]});
        assert_eq!(slice_endpoints(&slice), "1,2,3 + 1 more...");
        assert_eq!(slice_endpoints(&json!({})), "<unset>");
    }
}
