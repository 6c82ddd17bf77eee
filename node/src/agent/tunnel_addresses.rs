//! Addresses of this node's tunnel devices: assigned out of the pools that use the tunnel, published as annotations of
//! the Node, from where they come back through the watch.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use margay_crds::selector::Selector;
use margay_crds::{AllowedUse, EncapMode, IPPool};
use margay_ipam::names::{tunnel_handle, tunnel_type};
use margay_ipam::{ATTR_TYPE, AssignRequest, Ipam};
use serde_json::json;
use tokio::sync::watch;

/// Pause before an address that could not be had is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// A device by the name in its handle, and the annotation of its address.
const DEVICES: [(&str, &str); 3] = [
    ("ipip", "projectcalico.org/IPv4IPIPTunnelAddr"),
    ("vxlan", "projectcalico.org/IPv4VXLANTunnelAddr"),
    ("vxlan-v6", "projectcalico.org/IPv6VXLANTunnelAddr"),
];

/// Pools a device takes its address from, by device. A device that is not named has no address.
pub(crate) type Wanted = BTreeMap<&'static str, Vec<(String, IpNet)>>;

/// The tunnel devices this node needs: those of the enabled pools that select it and stay.
pub(crate) fn wanted(
    pools: &BTreeMap<String, IPPool>,
    labels: &BTreeMap<String, String>,
) -> Wanted {
    let mut wanted = Wanted::new();
    for (name, pool) in pools {
        let Ok(cidr) = pool.spec.cidr.parse::<IpNet>() else {
            continue;
        };
        let selector = pool.spec.node_selector.as_deref().unwrap_or_default();
        let selected = Selector::parse(selector).is_ok_and(|selector| selector.matches(labels));
        // A pool that is being deleted waits for its last address: it must not hold its own deletion up.
        let leaving =
            pool.spec.disabled == Some(true) || pool.metadata.deletion_timestamp.is_some();
        if leaving || !selected || !pool.spec.allows(&AllowedUse::Tunnel) {
            continue;
        }
        let on = |mode: &Option<EncapMode>| {
            matches!(mode, Some(EncapMode::Always | EncapMode::CrossSubnet))
        };
        let device = match (
            on(&pool.spec.vxlan_mode),
            on(&pool.spec.ipip_mode),
            cidr.addr().is_ipv4(),
        ) {
            (true, _, true) => "vxlan",
            (true, _, false) => "vxlan-v6",
            (false, true, true) => "ipip",
            _ => continue,
        };
        wanted.entry(device).or_default().push((name.clone(), cidr));
    }
    wanted
}

/// Keeps the addresses as wanted, until the sender is gone.
pub(crate) async fn run(
    client: Client,
    node: String,
    ipam: Ipam,
    mut wanted: watch::Receiver<Option<Wanted>>,
) {
    loop {
        let now = wanted.borrow_and_update().clone();
        let settled = match now {
            // Nothing is given up before it is known what is wanted.
            None => Ok(()),
            Some(now) => {
                ipam.wait_synced().await;
                settle(&client, &node, &ipam, &now).await
            }
        };
        if let Err(error) = &settled {
            tracing::warn!(
                error = format!("{error:#}"),
                "tunnel addresses are not settled"
            );
        }
        let changed = match settled {
            Ok(()) => wanted.changed().await,
            Err(_) => tokio::time::timeout(RETRY, wanted.changed())
                .await
                .unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn settle(client: &Client, node: &str, ipam: &Ipam, wanted: &Wanted) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let object = nodes
        .get(node)
        .await
        .with_context(|| format!("cannot read Node {node}"))?;
    let mut patch = serde_json::Map::new();
    let mut failure = None;
    for (device, annotation) in DEVICES {
        let published = object.annotations().get(annotation);
        match wanted.get(device) {
            Some(pools) => match assign(ipam, node, device, pools).await {
                Ok(address) if published == Some(&address.to_string()) => {}
                Ok(address) => {
                    tracing::info!(device, %address, "tunnel address");
                    patch.insert(annotation.to_owned(), json!(address.to_string()));
                }
                Err(error) => failure = Some(error),
            },
            None => {
                ipam.release_by_handle(&tunnel_handle(device, node)).await?;
                if published.is_some() {
                    patch.insert(annotation.to_owned(), json!(null));
                }
            }
        }
    }
    if !patch.is_empty() {
        let body = json!({"metadata": {"annotations": patch}});
        let written = nodes
            .patch_status(node, &PatchParams::default(), &Patch::Merge(body))
            .await;
        written.with_context(|| format!("cannot write the tunnel addresses of Node {node}"))?;
    }
    failure.map_or(Ok(()), Err)
}

/// The device's address; one that lies in none of its pools any more is given back first.
async fn assign(
    ipam: &Ipam,
    node: &str,
    device: &str,
    pools: &[(String, IpNet)],
) -> anyhow::Result<IpAddr> {
    let handle = tunnel_handle(device, node);
    let held = ipam.held_by(&handle);
    if let Some(address) = held
        .iter()
        .find(|ip| pools.iter().any(|(_, cidr)| cidr.contains(*ip)))
    {
        return Ok(*address);
    }
    if !held.is_empty() {
        ipam.release_by_handle(&handle).await?;
    }
    let v6 = device == "vxlan-v6";
    let mut request = AssignRequest::workload(&handle, usize::from(!v6), usize::from(v6));
    request.usage = AllowedUse::Tunnel;
    let names = pools.iter().map(|(name, _)| name.clone()).collect();
    if v6 {
        request.pools6 = names
    } else {
        request.pools4 = names
    }
    if let Some(kind) = tunnel_type(device) {
        request = request.attr(ATTR_TYPE, kind);
    }
    let assigned = ipam
        .auto_assign(request)
        .await
        .with_context(|| format!("no address for the {device} tunnel"))?;
    let address = assigned.ips().next().map(|assigned| assigned.ip);
    address.with_context(|| format!("no address for the {device} tunnel"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn devices_follow_the_pools_that_select_the_node() {
        let pool = |spec: Value| -> IPPool {
            serde_json::from_value(
                json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
                "metadata": {"name": "p"}, "spec": spec}),
            )
            .expect("an IPPool")
        };
        let labels = BTreeMap::from([("rack".to_owned(), "1".to_owned())]);
        for (spec, device) in [
            (
                json!({"cidr": "10.0.0.0/16", "vxlanMode": "Always"}),
                Some("vxlan"),
            ),
            (
                json!({"cidr": "fd00::/64", "vxlanMode": "CrossSubnet"}),
                Some("vxlan-v6"),
            ),
            (
                json!({"cidr": "10.0.0.0/16", "ipipMode": "Always"}),
                Some("ipip"),
            ),
            (json!({"cidr": "fd00::/64", "ipipMode": "Always"}), None),
            (json!({"cidr": "10.0.0.0/16"}), None),
            (
                json!({"cidr": "10.0.0.0/16", "vxlanMode": "Always", "disabled": true}),
                None,
            ),
            (
                json!({"cidr": "10.0.0.0/16", "vxlanMode": "Always", "nodeSelector": "rack == '2'"}),
                None,
            ),
            (
                json!({"cidr": "10.0.0.0/16", "vxlanMode": "Always", "allowedUses": ["Workload"]}),
                None,
            ),
        ] {
            let pools = BTreeMap::from([("p".to_owned(), pool(spec.clone()))]);
            assert_eq!(
                wanted(&pools, &labels).keys().next().copied(),
                device,
                "{spec}"
            );
        }
    }
    #[test]
    fn a_pool_that_is_being_deleted_gives_its_tunnel_address_back() {
        let pool: IPPool = serde_json::from_value(
            json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"cidr": "10.0.0.0/16", "ipipMode": "Always"}}),
        )
        .expect("an IPPool");
        let pools = BTreeMap::from([("p".to_owned(), pool)]);
        assert!(wanted(&pools, &BTreeMap::new()).is_empty());
    }
}
