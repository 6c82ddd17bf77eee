//! The objects a kubelet writes: its Node, the status of its pods, Events about them.

use crate::error::{Result, Tried};
use crate::state::{Node, Pod, State};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Field manager of the lab's writes.
pub(super) const MANAGER: &str = "margay-lab";

/// Creates the Nodes with InternalIP and a Ready condition.
pub(super) async fn register_nodes(kube: &kube::Client, state: &State) -> Result<()> {
    let api: Api<core::Node> = Api::all(kube.clone());
    try_join_all(state.nodes.iter().map(|node| register_node(&api, node)))
        .await
        .map(|_| ())
}

async fn register_node(api: &Api<core::Node>, node: &Node) -> Result<()> {
    let what = || format!("cannot register Node {}", node.name);
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "labels": {
            "kubernetes.io/hostname": node.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        }},
    });
    let object = serde_json::from_value(object).tried(what)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(e) => return Err(e).tried(what),
    }
    let status = json!({"status": node_status(node)});
    let patch = Patch::Merge(status);
    api.patch_status(&node.name, &PatchParams::apply(MANAGER), &patch)
        .await
        .tried(what)
        .map(|_| ())
}

fn node_status(node: &Node) -> Value {
    let internal = node
        .addresses
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip.to_string()}));
    let addresses: Vec<Value> = internal
        .chain([json!({"type": "Hostname", "address": node.name})])
        .collect();
    let resources = json!({"cpu": "2", "memory": "4Gi", "pods": "110"});
    json!({
        "addresses": addresses,
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "the lab plays the kubelet of this node",
        }],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "margay-lab://0.1.0",
            "kernelVersion": kernel_version(), "kubeProxyVersion": "", "kubeletVersion": "v1.33.0-lab",
            "machineID": "", "operatingSystem": "linux", "osImage": "network namespace", "systemUUID": "",
        },
    })
}

fn kernel_version() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The Pod object as a user would create it, bound to a node.
pub(super) fn pod_object(
    name: &str,
    namespace: &str,
    node: &str,
    annotations: &[(String, String)],
) -> Value {
    let annotations: serde_json::Map<String, Value> = annotations
        .iter()
        .map(|(k, v)| (k.clone(), Value::String(v.clone())))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "lab"}, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "netns", "image": "margay.io/lab/network-namespace:1"}],
        },
    })
}

/// The status of a pod whose sandbox is wired.
pub(super) fn running(pod: &Pod, node: &Node) -> Value {
    let ip = |ip: &std::net::IpAddr| json!({"ip": ip.to_string()});
    let conditions: Vec<Value> = [
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
    ]
    .iter()
    .map(|kind| json!({"type": kind, "status": "True"}))
    .collect();
    json!({"status": {
        "phase": "Running",
        "podIP": pod.addresses.first().map(ToString::to_string),
        "podIPs": pod.addresses.iter().map(ip).collect::<Vec<_>>(),
        "hostIP": node.addresses.first().map(ToString::to_string),
        "hostIPs": node.addresses.iter().map(ip).collect::<Vec<_>>(),
        "conditions": conditions,
        "containerStatuses": [{
            "name": "netns", "ready": true, "started": true, "restartCount": 0,
            "image": "margay.io/lab/network-namespace:1", "imageID": "", "state": {"running": {}},
        }],
    }})
}

/// The status of a pod whose sandbox could not be wired.
pub(super) fn waiting(message: &str) -> Value {
    json!({"status": {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "PodReadyToStartContainers", "status": "False", "reason": "FailedCreatePodSandBox", "message": message},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": message},
        ],
        "containerStatuses": [{
            "name": "netns", "ready": false, "started": false, "restartCount": 0,
            "image": "margay.io/lab/network-namespace:1", "imageID": "",
            "state": {"waiting": {"reason": "ContainerCreating"}},
        }],
    }})
}

/// The Event a kubelet writes when a sandbox cannot be made.
pub(super) fn sandbox_failed(pod: &core::Pod, node: &str, message: &str) -> Value {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let now = k8s_openapi::jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": format!("{name}."), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": pod.metadata.uid},
        "reason": "FailedCreatePodSandBox", "type": "Warning", "message": message,
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet", "reportingInstance": node,
        "count": 1, "firstTimestamp": now, "lastTimestamp": now,
    })
}
