//! The pools a new cluster starts with.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use margay_crds::IPPool;
use serde_json::{Value, json};

use super::environment::{Environment, PoolSettings};

/// What the choice of default pools depends on besides the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    /// CIDRs of all pools that exist, disabled ones too.
    pub(crate) pools: Vec<IpNet>,
    /// Addresses of this host's interfaces.
    pub(crate) host: Vec<IpAddr>,
    /// `podSubnet` of kubeadm's configuration.
    pub(crate) pod_subnets: Vec<IpNet>,
    /// Random octets for a unique local prefix.
    pub(crate) random: [u8; 5],
}

/// The pools to create: at most one per family, and none in a family that has a pool.
pub(crate) fn wanted(environment: &Environment, around: &Surroundings) -> Vec<Value> {
    if !environment.default_pools {
        return Vec::new();
    }
    let has = |v4: bool| around.pools.iter().any(|net| net.addr().is_ipv4() == v4);
    let subnet = |v4: bool| {
        around
            .pod_subnets
            .iter()
            .copied()
            .find(|net| net.addr().is_ipv4() == v4)
    };
    let mut pools = Vec::new();
    if !has(true) && !environment.pool4.never {
        let cidr = environment
            .pool4
            .cidr
            .or_else(|| subnet(true))
            .unwrap_or_else(|| free_private_range(&around.host));
        pools.push(manifest("default-ipv4-ippool", cidr, &environment.pool4));
    }
    let wants_v6 = environment.wants_ipv6_pool || subnet(false).is_some();
    if wants_v6 && !has(false) && !environment.pool6.never {
        let cidr = environment
            .pool6
            .cidr
            .or_else(|| subnet(false))
            .unwrap_or_else(|| unique_local_prefix(around.random));
        pools.push(manifest("default-ipv6-ippool", cidr, &environment.pool6));
    }
    pools
}

/// 192.168.0.0/16 unless the host is in it, then the first free /16 of 172.16.0.0/12.
fn free_private_range(host: &[IpAddr]) -> IpNet {
    let range = |a: u8, b: u8| IpNet::new_assert(IpAddr::from([a, b, 0, 0]), 16);
    let free = |net: &IpNet| !host.iter().any(|ip| net.contains(ip));
    let first = range(192, 168);
    std::iter::once(first)
        .chain((16..32).map(|b| range(172, b)))
        .find(free)
        .unwrap_or(first)
}

/// fd00::/8 with 40 random bits (RFC 4193 section 3.1).
fn unique_local_prefix(random: [u8; 5]) -> IpNet {
    let mut octets = [0u8; 16];
    octets[0] = 0xfd;
    octets[1..6].copy_from_slice(&random);
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from(octets), 48))
}

fn manifest(name: &str, cidr: IpNet, settings: &PoolSettings) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPPool",
        "metadata": {"name": name},
        "spec": {
            "cidr": cidr.to_string(),
            "blockSize": settings.block_size,
            "ipipMode": settings.ipip,
            "vxlanMode": settings.vxlan,
            "natOutgoing": settings.nat_outgoing,
            "disableBGPExport": settings.disable_bgp_export,
            "nodeSelector": settings.node_selector,
            "allowedUses": ["Workload", "Tunnel"],
            "assignmentMode": "Automatic",
        },
    })
}

/// CIDRs of the pools that exist; an unreadable one still counts for its family when that can be told.
pub(crate) fn cidrs(pools: &[IPPool]) -> Vec<IpNet> {
    pools
        .iter()
        .filter_map(|pool| pool.spec.cidr.to_string().parse().ok())
        .collect()
}

/// `podSubnet` out of kubeadm's ClusterConfiguration text.
pub(crate) fn pod_subnets(texts: impl Iterator<Item = impl AsRef<str>>) -> Vec<IpNet> {
    let mut found = Vec::new();
    for text in texts {
        for line in text.as_ref().lines() {
            if let Some(list) = line.trim().strip_prefix("podSubnet:") {
                let items = list.trim().trim_matches('"').split(',');
                found.extend(items.filter_map(|item| item.trim().parse::<IpNet>().ok()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &'static [(&'static str, &'static str)]) -> Environment {
        let lookup = |name: &str| {
            pairs
                .iter()
                .find(|(k, _)| *k == name)
                .map(|(_, v)| (*v).to_owned())
        };
        Environment::read(&lookup).expect("valid")
    }

    fn created(
        pairs: &'static [(&'static str, &'static str)],
        around: &Surroundings,
    ) -> Vec<String> {
        wanted(&environment(pairs), around)
            .iter()
            .map(|pool| {
                format!("{} {}", pool["metadata"]["name"], pool["spec"]["cidr"]).replace('"', "")
            })
            .collect()
    }

    #[test]
    fn a_new_cluster_gets_an_ipv4_pool_away_from_the_hosts_own_addresses() {
        let mut around = Surroundings::default();
        assert_eq!(
            created(&[], &around),
            ["default-ipv4-ippool 192.168.0.0/16"]
        );
        around.host = vec![
            "192.168.1.5".parse().expect("ip"),
            "172.16.0.1".parse().expect("ip"),
        ];
        assert_eq!(created(&[], &around), ["default-ipv4-ippool 172.17.0.0/16"]);
    }

    #[test]
    fn an_ipv6_pool_is_made_only_when_asked_for() {
        let around = Surroundings {
            random: [1, 2, 3, 4, 5],
            ..Surroundings::default()
        };
        assert_eq!(
            created(&[("IP6", "autodetect")], &around),
            [
                "default-ipv4-ippool 192.168.0.0/16",
                "default-ipv6-ippool fd01:203:405::/48"
            ]
        );
        assert_eq!(
            created(
                &[
                    ("CALICO_IPV4POOL_CIDR", "none"),
                    ("CALICO_IPV6POOL_CIDR", "fd10::/64")
                ],
                &around
            ),
            ["default-ipv6-ippool fd10::/64"]
        );
        assert_eq!(created(&[("IP6", "none")], &around).len(), 1);
    }

    #[test]
    fn a_family_that_has_a_pool_gets_none() {
        let around = Surroundings {
            pools: vec!["10.0.0.0/16".parse().expect("net")],
            ..Surroundings::default()
        };
        assert!(created(&[("CALICO_IPV4POOL_CIDR", "10.244.0.0/16")], &around).is_empty());
        assert!(created(&[("NO_DEFAULT_POOLS", "true")], &Surroundings::default()).is_empty());
    }

    #[test]
    fn kubeadm_subnets_are_used_and_spaces_tolerated() {
        let text =
            "networking:\n  dnsDomain: cluster.local\n  podSubnet: 10.244.0.0/16, fd00:1::/56\n";
        let around = Surroundings {
            pod_subnets: pod_subnets([text].iter()),
            ..Surroundings::default()
        };
        assert_eq!(
            created(&[], &around),
            [
                "default-ipv4-ippool 10.244.0.0/16",
                "default-ipv6-ippool fd00:1::/56"
            ]
        );
    }

    #[test]
    fn settings_reach_the_manifest() {
        let pools = wanted(
            &environment(&[
                ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
                ("CALICO_IPV4POOL_BLOCK_SIZE", "28"),
                ("CALICO_IPV4POOL_IPIP", "CrossSubnet"),
                ("CALICO_IPV4POOL_NAT_OUTGOING", "false"),
                ("CALICO_IPV4POOL_DISABLE_BGP_EXPORT", "true"),
                ("CALICO_IPV4POOL_NODE_SELECTOR", "has(x)"),
            ]),
            &Surroundings::default(),
        );
        let spec = &pools[0]["spec"];
        assert_eq!(spec["blockSize"], 28);
        assert_eq!(spec["ipipMode"], "CrossSubnet");
        assert_eq!(spec["natOutgoing"], false);
        assert_eq!(spec["disableBGPExport"], true);
        assert_eq!(spec["nodeSelector"], "has(x)");
        serde_json::from_value::<IPPool>(pools[0].clone()).expect("an IPPool");
    }
}
