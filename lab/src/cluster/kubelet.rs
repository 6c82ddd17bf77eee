//! What a kubelet and a runtime do for a pod: sandbox, CNI, status.

use super::{Lab, blocking, network, objects};
use crate::error::{Error, Kind, Result, Tried};
use crate::names::netns_path;
use crate::namespaces::{self, Placement, place};
use crate::state::{Node, Pod, State};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Configuration the agent writes when it is ready to wire pods.
const CONFLIST: &str = "etc/cni/net.d/10-margay.conflist";
/// How long an agent may take until it is ready to wire pods.
const AGENT_READY: Duration = Duration::from_secs(60);
/// Pods wired at once on all nodes together.
const AT_ONCE: usize = 8;
/// Kubernetes namespace of the lab's pods.
const NAMESPACE: &str = "default";

/// A pod to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// Node it runs on.
    pub node: String,
    /// Its name; without one `NODE-pNUMBER`.
    pub name: Option<String>,
    /// Annotations, for example `cni.projectcalico.org/ipv4pools`.
    pub annotations: Vec<(String, String)>,
}

impl PodRequest {
    /// A pod on a node, with the next free name.
    pub fn on(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            ..Self::default()
        }
    }

    /// The same with addresses from this IPv4 pool only.
    pub fn from_pool(mut self, pool: &str) -> Self {
        let value = json!([pool]).to_string();
        self.annotations
            .push(("cni.projectcalico.org/ipv4pools".into(), value));
        self
    }
}

impl Lab {
    /// Starts the pods of the lab's shape, each node as soon as its agent is ready.
    pub(super) async fn start_pods(&self, state: &State) -> Result<()> {
        let numbers = 1..=state.shape.pods_per_node;
        let per_node = state.nodes.iter().map(|node| {
            let requests: Vec<PodRequest> = numbers
                .clone()
                .map(|i| PodRequest {
                    name: Some(format!("{}-p{i}", node.name)),
                    ..PodRequest::on(&node.name)
                })
                .collect();
            async move {
                self.agent_ready(&node.name).await?;
                stream::iter(requests.iter().map(|r| Box::pin(self.add_pod(r))))
                    .buffer_unordered(AT_ONCE)
                    .try_collect::<Vec<Pod>>()
                    .await
            }
        });
        futures::future::try_join_all(per_node).await?;
        // Started in any order, listed in the order of their names.
        let order = |pod: &Pod| {
            let number =
                |text: &str, c: char| text.rsplit(c).next().and_then(|n| n.parse::<u32>().ok());
            (
                number(&pod.node, 'n'),
                number(&pod.name, 'p'),
                pod.name.clone(),
            )
        };
        State::update(&self.name, |s| s.pods.sort_by_key(order))
    }

    /// Waits until the agent of a node is ready to wire pods.
    ///
    /// # Errors
    /// It ends, or is not ready in time.
    pub async fn agent_ready(&self, node: &str) -> Result<()> {
        let state = self.state()?;
        let found = state.node(node)?;
        let (conflist, socket) = (
            found.folder.join(CONFLIST),
            found.folder.join("run/margay/cni.sock"),
        );
        let log = super::units::log_of(&state, node);
        let what = format!("the agent of {node}");
        super::units::until(AGENT_READY, &what, &log, self.process(node)?, || {
            conflist.exists() && socket.exists()
        })
        .await
    }

    /// Starts a pod: object, sandbox, CNI ADD, status. When the plugin refuses, the object stays with the reason in a
    /// condition and an Event, as with a real kubelet.
    ///
    /// # Errors
    /// The API or the plugin refuses.
    pub async fn add_pod(&self, request: &PodRequest) -> Result<Pod> {
        let state = self.state()?;
        let node = state.node(&request.node)?.clone();
        let api: Api<core::Pod> = Api::namespaced(self.kube(), NAMESPACE);
        let object = self.create_pod(&api, &state, request).await?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let what = || format!("pod {name}");
        let pod = Pod {
            netns: self.name.netns(&name),
            namespace: NAMESPACE.into(),
            node: node.name.clone(),
            container_id: container_id(object.metadata.uid.as_deref().unwrap_or_default()),
            addresses: Vec::new(),
            name: name.clone(),
        };
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let (sandbox, host) = (pod.clone(), node.clone());
        let wired = blocking(move || {
            namespaces::create(&sandbox.netns)?;
            network::batch(&sandbox.netns, "link set lo up\n")?;
            add(&sandbox, &host, &uid)
        })
        .await;
        match wired {
            Ok(addresses) => {
                let pod = Pod { addresses, ..pod };
                let status = Patch::Merge(objects::running(&pod, &node));
                api.patch_status(&name, &PatchParams::apply(objects::MANAGER), &status)
                    .await
                    .tried(what)?;
                let entry = pod.clone();
                State::update(&self.name, |s| s.pods.push(entry))?;
                Ok(pod)
            }
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", error.why);
                self.report_failure(&api, &object, &node.name, &message)
                    .await?;
                let (sandbox, host) = (pod, node);
                blocking(move || {
                    // Whatever the attempt left is undone as far as possible; the first error is the one that counts.
                    let _ = delete(&sandbox, &host, "");
                    namespaces::delete(&sandbox.netns)
                })
                .await?;
                Err(error)
            }
        }
    }

    async fn create_pod(
        &self,
        api: &Api<core::Pod>,
        state: &State,
        request: &PodRequest,
    ) -> Result<core::Pod> {
        let mut number = 1 + state.pods.iter().filter(|p| p.node == request.node).count();
        loop {
            let name = request
                .name
                .clone()
                .unwrap_or_else(|| format!("{}-p{number}", request.node));
            let what = || format!("cannot create pod {name}");
            let object = objects::pod_object(&name, NAMESPACE, &request.node, &request.annotations);
            let object = serde_json::from_value(object).tried(what)?;
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 && request.name.is_none() => {
                    number += 1
                }
                created => return created.tried(what),
            }
        }
    }

    async fn report_failure(
        &self,
        api: &Api<core::Pod>,
        pod: &core::Pod,
        node: &str,
        message: &str,
    ) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let what = || format!("cannot report the failure of pod {name}");
        let status = Patch::Merge(objects::waiting(message));
        api.patch_status(name, &PatchParams::apply(objects::MANAGER), &status)
            .await
            .tried(what)?;
        let event =
            serde_json::from_value(objects::sandbox_failed(pod, node, message)).tried(what)?;
        let events: Api<core::Event> = Api::namespaced(self.kube(), NAMESPACE);
        events
            .create(&PostParams::default(), &event)
            .await
            .tried(what)
            .map(|_| ())
    }

    /// Ends a pod: CNI DEL, sandbox, object.
    ///
    /// # Errors
    /// There is no such pod, or the plugin or the API refuses.
    pub async fn remove_pod(&self, name: &str) -> Result<()> {
        let state = self.state()?;
        let what = || format!("pod {name}");
        let api: Api<core::Pod> = Api::namespaced(self.kube(), NAMESPACE);
        let pod = state.pod(name)?.clone();
        let node = state.node(&pod.node)?.clone();
        let sandbox = pod.clone();
        blocking(move || {
            delete(&sandbox, &node, "")?;
            namespaces::delete(&sandbox.netns)
        })
        .await?;
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => {
                result.tried(what)?;
            }
        }
        State::update(&self.name, |s| s.pods.retain(|p| p.name != pod.name))
    }
}

/// 64 hexadecimal digits, as runtimes use; made from the pod's UID so that it is new for each pod.
fn container_id(uid: &str) -> String {
    let digits: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
    digits
        .chars()
        .cycle()
        .take(if digits.is_empty() { 0 } else { 64 })
        .collect()
}

/// CNI ADD through every plugin of the conflist; the addresses of the last result.
fn add(pod: &Pod, node: &Node, uid: &str) -> Result<Vec<IpAddr>> {
    let mut previous: Option<Value> = None;
    for plugin in plugins(node)? {
        previous = Some(call("ADD", pod, node, uid, plugin, previous)?);
    }
    let result = previous.unwrap_or_default();
    let ips = result["ips"].as_array().into_iter().flatten();
    let addresses: Vec<IpAddr> = ips
        .filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
        .collect();
    if addresses.is_empty() {
        return Err(Error::new(
            "CNI ADD",
            format!("the result has no address: {result}"),
        ));
    }
    Ok(addresses)
}

/// CNI DEL through every plugin of the conflist, last one first.
fn delete(pod: &Pod, node: &Node, uid: &str) -> Result<()> {
    let mut plugins = plugins(node)?;
    plugins.reverse();
    for plugin in plugins {
        call("DEL", pod, node, uid, plugin, None)?;
    }
    Ok(())
}

/// The plugin configurations of the node's conflist, as libcni derives them.
fn plugins(node: &Node) -> Result<Vec<Value>> {
    let file = node.folder.join(CONFLIST);
    let what = || format!("cannot read {}", file.display());
    let list: Value = serde_json::from_slice(&fs::read(&file).tried(what)?).tried(what)?;
    let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
    if plugins.is_empty() {
        return Err(Error::new(what(), "it lists no plugin"));
    }
    let derive = |mut plugin: Value| {
        plugin["name"] = list["name"].clone();
        plugin["cniVersion"] = list["cniVersion"].clone();
        plugin
    };
    Ok(plugins.into_iter().map(derive).collect())
}

/// One call of one plugin inside the node.
fn call(
    verb: &str,
    pod: &Pod,
    node: &Node,
    uid: &str,
    mut plugin: Value,
    previous: Option<Value>,
) -> Result<Value> {
    let what = || format!("CNI {verb} of pod {}", pod.name);
    let program = plugin["type"].as_str().unwrap_or_default().to_owned();
    if let Some(previous) = previous {
        plugin["prevResult"] = previous;
    }
    let (namespace, name, id) = (&pod.namespace, &pod.name, &pod.container_id);
    let mut args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={id}"
    );
    if !uid.is_empty() {
        args.push_str(&format!(";K8S_POD_UID={uid}"));
    }
    let mut command = Command::new(PathBuf::from("/opt/cni/bin").join(program));
    command
        .env_clear()
        .env("PATH", "/opt/cni/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", id)
        .env("CNI_IFNAME", "eth0");
    command
        .env("CNI_NETNS", netns_path(&pod.netns))
        .env("CNI_PATH", "/opt/cni/bin")
        .env("CNI_ARGS", args);
    command.env(crate::names::MARK, mark_of(pod));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir("/");
    let inside = Placement {
        netns: Some(netns_path(&node.netns)),
        mntns: Some(node.mount_namespace.clone()),
        ..Placement::default()
    };
    place(&mut command, inside).tried(what)?;
    let mut child = command.spawn().tried(what)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(plugin.to_string().as_bytes()).tried(what)?;
    }
    let output = child.wait_with_output().tried(what)?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if output.status.success() {
        return Ok(answer);
    }
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let mut why = match (text("msg"), text("details")) {
        (msg, details) if msg.is_empty() && details.is_empty() => {
            String::from_utf8_lossy(&output.stderr).trim().to_owned()
        }
        (msg, details) if details.is_empty() => msg,
        (msg, details) => format!("{msg}: {details}"),
    };
    if let Some(code) = answer["code"].as_u64() {
        why = format!("{why} (code {code})");
    }
    Err(Error::new(what(), why))
}

fn mark_of(pod: &Pod) -> String {
    let rest = pod
        .netns
        .strip_prefix(crate::names::PREFIX)
        .unwrap_or_default();
    rest.split('-').next().unwrap_or_default().to_owned()
}

impl Lab {
    /// Waits until a condition on the cluster holds; looks again every 20 ms.
    ///
    /// # Errors
    /// [`Kind::Timeout`] with `what` when `limit` has passed.
    pub async fn eventually<F, Fut>(
        &self,
        what: &str,
        limit: Duration,
        mut holds: F,
    ) -> Result<Duration>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<bool>>,
    {
        let start = Instant::now();
        loop {
            let last = holds().await;
            if matches!(last, Ok(true)) {
                return Ok(start.elapsed());
            }
            if start.elapsed() >= limit {
                let why = match last {
                    Err(e) => format!("not within {limit:?}: {e}"),
                    Ok(_) => format!("not within {limit:?}"),
                };
                return Err(Error::new(what, why).kind(Kind::Timeout));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_id_has_64_hexadecimal_digits_and_differs_between_pods() {
        let id = container_id("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
        assert_eq!(id.len(), 64);
        assert!(id.chars().all(|c| c.is_ascii_hexdigit()));
        assert_ne!(id, container_id("6ba7b811-9dad-11d1-80b4-00c04fd430c8"));
    }

    #[test]
    fn a_pool_request_is_calicos_annotation() {
        let request = PodRequest::on("n1").from_pool("second-pool");
        assert_eq!(request.annotations[0].1, r#"["second-pool"]"#);
    }
}
