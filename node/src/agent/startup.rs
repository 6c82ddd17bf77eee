//! What the agent does once before it runs: settle the node's addresses, create what a new cluster lacks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, bail};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use margay_crds::IPPool;
use margay_felix::calc::sessions::BgpNode;
use serde_json::{Value, json};

use super::addresses::{self, Settled};
use super::default_pools::{self, Surroundings};
use super::environment::{Backend, Environment};
use super::interfaces;

const PREFIX: &str = "projectcalico.org/";

/// Reads the own Node.
///
/// # Errors
/// The API server answers with anything but the Node.
pub(crate) async fn own_node(client: &Client, name: &str) -> anyhow::Result<Node> {
    Api::<Node>::all(client.clone())
        .get(name)
        .await
        .with_context(|| {
            format!("cannot read Node {name}; is NODENAME the name of a Node this agent may read?")
        })
}

/// Settles the addresses of this node and writes them, with the AS number, to its annotations.
///
/// # Errors
/// No address can be found, another node has it, or the Node cannot be written.
pub(crate) async fn settle_addresses(
    client: &Client,
    environment: &Environment,
    node: &Node,
) -> anyhow::Result<BgpNode> {
    let name = node.name_any();
    let stored = read(node);
    if environment.backend == Backend::None {
        return Ok(stored);
    }
    let interfaces = interfaces::list().context("cannot list the host's interfaces")?;
    let settled = addresses::settle(
        environment,
        &stored.addresses,
        &interfaces,
        &internal_addresses(node),
    )?;
    for warning in &settled.warnings {
        tracing::warn!("{warning}");
    }
    if environment.check_conflicts && settled.changes(&stored.addresses) {
        let nodes = Api::<Node>::all(client.clone())
            .list(&ListParams::default())
            .await
            .context("cannot list Nodes")?;
        let others: BTreeMap<String, BgpNode> = nodes
            .iter()
            .filter(|other| other.name_any() != name)
            .map(|other| (other.name_any(), read(other)))
            .collect();
        if let Some((other, ip)) = settled.conflict(&others) {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            bail!("{family} address conflict: {ip} is also the address of node {other}");
        }
    }
    write_annotations(client, node, &settled, environment.as_number).await?;
    let mut result = stored;
    result.addresses = settled.networks();
    result.as_number = environment.as_number.or(result.as_number);
    Ok(result)
}

/// BGP data of a Kubernetes Node.
pub(crate) fn read(node: &Node) -> BgpNode {
    BgpNode::read(node.labels(), node.annotations())
}

/// InternalIPs of a Node, in order.
pub(crate) fn internal_addresses(node: &Node) -> Vec<IpAddr> {
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    addresses
        .filter(|address| address.type_ == "InternalIP")
        .filter_map(|address| address.address.parse().ok())
        .collect()
}

/// Merge-patches the annotations that differ, through the status subresource.
pub(crate) async fn write_annotations(
    client: &Client,
    node: &Node,
    settled: &Settled,
    as_number: Option<u32>,
) -> anyhow::Result<()> {
    let mut patch = serde_json::Map::new();
    let mut set = |key: &str, value: Option<String>| {
        let key = format!("{PREFIX}{key}");
        if let Some(value) = value
            && node.annotations().get(&key) != Some(&value)
        {
            patch.insert(key, Value::String(value));
        }
    };
    set("IPv4Address", settled.v4.map(|net| net.to_string()));
    set("IPv6Address", settled.v6.map(|net| net.to_string()));
    set("ASNumber", as_number.map(|number| number.to_string()));
    if patch.is_empty() {
        return Ok(());
    }
    let name = node.name_any();
    let body = json!({"metadata": {"annotations": patch}});
    Api::<Node>::all(client.clone())
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(body))
        .await
        .with_context(|| format!("cannot write the BGP annotations of Node {name}"))?;
    Ok(())
}

/// Creates the singletons, tiers and pools a new cluster lacks. What exists is left as it is; losing a race against
/// another node is fine.
///
/// # Errors
/// The API server refuses one for another reason than its existence; the message names it.
pub(crate) async fn create_missing(
    client: &Client,
    environment: &Environment,
) -> anyhow::Result<()> {
    let pools = Api::<IPPool>::all(client.clone())
        .list(&ListParams::default())
        .await
        .context("cannot list IPPools")?;
    let (pod_subnets, kubeadm) = kubeadm_subnets(client).await;
    let interfaces = interfaces::list().context("cannot list the host's interfaces")?;
    let around = Surroundings {
        pools: default_pools::cidrs(&pools.items),
        host: interfaces
            .iter()
            .flat_map(|i| i.addresses.iter().map(IpNet::addr))
            .collect(),
        pod_subnets,
        random: rand::random(),
    };
    let mut objects = singletons(environment, kubeadm);
    objects.extend(default_pools::wanted(environment, &around));
    for object in objects {
        create(client, object).await?;
    }
    Ok(())
}

fn singletons(environment: &Environment, kubeadm: bool) -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let tier = |name: &str, order: u32, action: &str| {
        object(
            "Tier",
            name,
            json!({"order": order, "defaultAction": action}),
        )
    };
    let mut types: Vec<&str> = environment
        .cluster_type
        .split(',')
        .filter(|word| !word.is_empty())
        .collect();
    if kubeadm {
        types.push("kubeadm");
    }
    types.push("kdd");
    let guid: [u8; 16] = rand::random();
    let guid: String = guid.iter().map(|octet| format!("{octet:02x}")).collect();
    vec![
        object(
            "ClusterInformation",
            "default",
            json!({"clusterGUID": guid, "clusterType": types.join(","), "calicoVersion": super::API_LEVEL,
                "datastoreReady": true}),
        ),
        tier("kube-admin", 1000, "Pass"),
        tier("default", 1_000_000, "Deny"),
        tier("kube-baseline", 10_000_000, "Pass"),
        object(
            "FelixConfiguration",
            "default",
            json!({"reportingInterval": "0s", "logSeverityScreen": "Info"}),
        ),
        object("BGPConfiguration", "default", json!({})),
        object(
            "IPAMConfiguration",
            "default",
            json!({"autoAllocateBlocks": true, "strictAffinity": false, "maxBlocksPerHost": 0}),
        ),
    ]
}

async fn create(client: &Client, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().unwrap_or_default();
    let plural = match types.kind.as_str() {
        "IPPool" => "ippools".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = kube::core::ApiResource {
        group: "projectcalico.org".into(),
        version: "v3".into(),
        api_version: types.api_version.clone(),
        kind: types.kind.clone(),
        plural,
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {
            tracing::info!(kind = types.kind, name = object.name_any(), "created");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error)
            .with_context(|| format!("cannot create {} {}", types.kind, object.name_any())),
    }
}

/// Pod subnets of kubeadm's configuration and whether there is one. Not readable is the same as absent.
async fn kubeadm_subnets(client: &Client) -> (Vec<IpNet>, bool) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    match maps.get_opt("kubeadm-config").await {
        Ok(Some(map)) => (
            default_pools::pod_subnets(map.data.unwrap_or_default().values()),
            true,
        ),
        Ok(None) => (Vec::new(), false),
        Err(error) => {
            tracing::debug!(%error, "kubeadm-config is not readable");
            (Vec::new(), false)
        }
    }
}

/// True when a node of that name has address blocks.
///
/// # Errors
/// The affinities cannot be listed.
pub(crate) async fn owns_blocks(client: &Client, node: &str) -> anyhow::Result<bool> {
    let affinities: Api<margay_crds::BlockAffinity> = Api::all(client.clone());
    let list = affinities
        .list(&ListParams::default())
        .await
        .context("cannot list BlockAffinities")?;
    Ok(list.iter().any(|affinity| affinity.spec.node == node))
}

/// True for errors that waiting may cure: the API server does not answer, is not ready, or has not learned of the Node
/// or of the resource types yet.
pub(crate) fn may_pass(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => matches!(status.code, 404 | 429 | 500..=599),
        Some(_) => true,
        None => false,
    }
}
