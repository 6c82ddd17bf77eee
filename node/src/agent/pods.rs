//! Pods as the CNI server sees them: from the agent's copy, with the API server as second source.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use margay_cni::CniError;
use margay_cni::config::{PortMapping, Protocol};
use margay_cni::plan::PodFacts;
use serde_json::{Map, Value, json};

use super::facts::FactsReader;
use crate::cni_server::{PodPatch, PodSource, PodUpdate};

/// How long the watch may take to deliver a pod before the API server is asked.
const WATCH_LAG: Duration = Duration::from_millis(500);

/// Attempts to write annotations when others write the pod at the same time.
const ATTEMPTS: usize = 5;

/// Annotation with the container a pod's addresses belong to.
const CONTAINER_ANNOTATION: &str = "cni.projectcalico.org/containerID";

/// The source.
#[derive(Clone)]
pub(crate) struct Pods {
    facts: FactsReader,
    client: Client,
}

impl Pods {
    /// A source over the agent's copy.
    pub(crate) fn new(facts: FactsReader, client: Client) -> Self {
        Pods { facts, client }
    }

    async fn lookup(&self, namespace: &str, name: &str) -> Result<PodFacts, CniError> {
        let mut reader = self.facts.clone();
        let arrived = async {
            reader
                .wait_for(|facts| facts.pod(namespace, name).is_some())
                .await
                .is_ok()
        };
        // Whether it came or not shows in the facts of now.
        let _ = tokio::time::timeout(WATCH_LAG, arrived).await;
        let facts = Arc::clone(&self.facts.borrow());
        if let Some(pod) = facts.pod(namespace, name) {
            return Ok(facts_of(
                pod,
                facts.namespaces.get(namespace).map(AsRef::as_ref),
            ));
        }
        let pod = match Api::<Pod>::namespaced(self.client.clone(), namespace)
            .get(name)
            .await
        {
            Ok(pod) => pod,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return Err(CniError::try_again(format!(
                    "pod {namespace}/{name} does not exist"
                )));
            }
            Err(error) => {
                return Err(CniError::try_again(format!(
                    "cannot read pod {namespace}/{name}: {error}"
                )));
            }
        };
        let known = self.facts.borrow().namespaces.get(namespace).cloned();
        Ok(facts_of(&pod, known.as_deref()))
    }

    async fn write(&self, patch: PodPatch) -> Result<PodUpdate, CniError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &patch.namespace);
        let failed = |error: kube::Error| {
            CniError::try_again(format!(
                "cannot annotate pod {}/{}: {error}",
                patch.namespace, patch.name
            ))
        };
        for _ in 0..ATTEMPTS {
            let mut metadata = Map::new();
            if !patch.uid.is_empty() {
                metadata.insert("uid".into(), json!(patch.uid));
            }
            if let Some(container) = &patch.only_container {
                // The comparison holds only for the version that was read.
                let Some(pod) = pods.get_opt(&patch.name).await.map_err(failed)? else {
                    return Ok(PodUpdate::Gone);
                };
                if pod.annotations().get(CONTAINER_ANNOTATION) != Some(container) {
                    return Ok(PodUpdate::Gone);
                }
                metadata.insert("resourceVersion".into(), json!(pod.resource_version()));
            }
            let annotations: Map<String, Value> = patch
                .annotations
                .iter()
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect();
            metadata.insert("annotations".into(), Value::Object(annotations));
            let body = Patch::Merge(json!({"metadata": metadata}));
            match pods
                .patch_status(&patch.name, &PatchParams::default(), &body)
                .await
            {
                Ok(_) => return Ok(PodUpdate::Done),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(PodUpdate::Gone),
                Err(kube::Error::Api(status))
                    if status.code == 409 && patch.only_container.is_some() => {}
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(PodUpdate::Gone),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(CniError::try_again(format!(
            "pod {}/{} keeps changing",
            patch.namespace, patch.name
        )))
    }
}

impl PodSource for Pods {
    fn find(&self, namespace: String, name: String) -> BoxFuture<'_, Result<PodFacts, CniError>> {
        async move { self.lookup(&namespace, &name).await }.boxed()
    }

    fn patch(&self, patch: PodPatch) -> BoxFuture<'_, Result<PodUpdate, CniError>> {
        self.write(patch).boxed()
    }
}

/// What ADD needs of a pod and its namespace.
fn facts_of(pod: &Pod, namespace: Option<&Namespace>) -> PodFacts {
    let spec = pod.spec.as_ref();
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    PodFacts {
        uid: pod.uid().unwrap_or_default(),
        node: spec
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        labels: pod.labels().clone(),
        annotations: pod.annotations().clone(),
        namespace_labels: namespace
            .map(|namespace| namespace.labels().clone())
            .unwrap_or_default(),
        namespace_annotations: namespace
            .map(|namespace| namespace.annotations().clone())
            .unwrap_or_default(),
        service_account: spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        host_ports: host_ports(pod),
    }
}

/// Host ports of the containers. A port that makes no sense is the API server's to refuse and left out here.
fn host_ports(pod: &Pod) -> Vec<PortMapping> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|port| *port > 0)?;
            Some(PortMapping {
                host_port: u16::try_from(host_port).ok()?,
                container_port: u16::try_from(port.container_port).ok()?,
                protocol: Protocol::parse(port.protocol.as_deref().unwrap_or(""))?,
                host_ip: port.host_ip.as_ref().and_then(|ip| ip.parse().ok()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_add_needs_is_read_from_pod_and_namespace() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u", "labels": {"x": "y"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 53, "hostPort": 5353, "protocol": "UDP", "hostIP": "127.0.0.1"},
                {"containerPort": 81}]}]},
            "status": {"phase": "Running"}}))
        .expect("a Pod");
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "d", "labels": {"team": "t"}}}))
                .expect("a Namespace");
        let facts = facts_of(&pod, Some(&namespace));
        assert_eq!(
            (facts.uid.as_str(), facts.node.as_str(), facts.finished),
            ("u", "n", false)
        );
        assert_eq!(
            facts.namespace_labels.get("team").map(String::as_str),
            Some("t")
        );
        assert_eq!(facts.host_ports.len(), 2);
        assert_eq!(facts.host_ports[1].host_ip, "127.0.0.1".parse().ok());
    }
}
