//! Names and labels of the stored objects, and the handles addresses are held under.
//!
//! These encodings are shared with every other program that reads the objects and must never change: existing objects
//! would no longer be found.

use std::collections::BTreeMap;

use ipnet::IpNet;
use margay_crds::BlockAffinitySpec;
use sha2::{Digest, Sha256};
use sha3::Sha3_256;

/// Label with the hash of the node name on a BlockAffinity.
pub const LABEL_HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";
/// Label with the type of a BlockAffinity: `host` or `virtual`.
pub const LABEL_AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";
/// Label with the IP version of a BlockAffinity: `4` or `6`.
pub const LABEL_IP_VERSION: &str = "projectcalico.org/ip-version";
/// Greatest length of the name of an affinity.
const AFFINITY_NAME_LIMIT: usize = 252;

/// Name of the IPAMBlock of a network: `10.244.41.192/26` is `10-244-41-192-26`.
pub fn block_name(cidr: &IpNet) -> String {
    cidr.to_string().replace(['.', ':', '/'], "-")
}

/// The network a block name stands for; absent when the name is not one.
pub fn block_cidr(name: &str) -> Option<IpNet> {
    let (address, len) = name.rsplit_once('-')?;
    let separator =
        if address.split('-').count() == 4 && address.split('-').all(|p| p.parse::<u8>().is_ok()) {
            "."
        } else {
            ":"
        };
    let cidr: IpNet = format!("{}/{len}", address.replace('-', separator))
        .parse()
        .ok()?;
    (block_name(&cidr) == name).then_some(cidr)
}

/// Name of the BlockAffinity of a node for a block.
pub fn affinity_name(host: &str, cidr: &IpNet) -> String {
    let block = block_name(cidr);
    let plain = format!("{host}-{block}");
    if plain.len() <= AFFINITY_NAME_LIMIT {
        return plain;
    }
    let digest = hex(&Sha256::digest(format!("{host}+{block}")));
    let mut room = AFFINITY_NAME_LIMIT
        .saturating_sub(block.len() + 13)
        .min(host.len());
    while !host.is_char_boundary(room) {
        room -= 1;
    }
    format!("{}-{block}-{}", &host[..room], &digest[..11])
}

/// Name of the IPAMHandle of a handle.
pub fn handle_name(handle: &str) -> String {
    handle.to_lowercase()
}

/// A handle as stored, without the residue some old writers left after a carriage return.
pub fn clean_handle(handle: &str) -> &str {
    handle.split('\r').next().unwrap_or(handle)
}

/// Value of [`LABEL_HOSTNAME_HASH`]: SHA3-256 of the node name in base32 (RFC 4648 section 6) without padding.
pub fn hostname_hash(host: &str) -> String {
    base32(&Sha3_256::digest(host.as_bytes()))
}

/// The labels of an affinity.
pub fn affinity_labels(spec: &BlockAffinitySpec) -> BTreeMap<String, String> {
    let version = if spec.cidr.contains(':') { "6" } else { "4" };
    BTreeMap::from([
        (LABEL_HOSTNAME_HASH.to_owned(), hostname_hash(&spec.node)),
        (
            LABEL_AFFINITY_TYPE.to_owned(),
            spec.kind.clone().unwrap_or_else(|| "host".into()),
        ),
        (LABEL_IP_VERSION.to_owned(), version.to_owned()),
    ])
}

/// Label selector of the affinities of a node, both families.
pub fn host_affinities_selector(host: &str) -> String {
    format!(
        "{LABEL_HOSTNAME_HASH}={},{LABEL_AFFINITY_TYPE}=host",
        hostname_hash(host)
    )
}

/// Handle of a pod's addresses: `<network>.<container id>`.
pub fn pod_handle(network: &str, container_id: &str) -> String {
    format!("{network}.{container_id}")
}

/// Handle of the addresses a node keeps for quick hand-out.
pub fn warm_handle(node: &str) -> String {
    format!("margay-warm.{node}")
}

/// Handle of the address of a node's tunnel device; `device` is one of `ipip vxlan vxlan-v6 wireguard wireguard-v6`.
pub fn tunnel_handle(device: &str, node: &str) -> String {
    format!("{device}-tunnel-addr-{node}")
}

/// Value of the attribute `type` of a tunnel address; the device as for [`tunnel_handle`].
pub fn tunnel_type(device: &str) -> Option<&'static str> {
    Some(match device {
        "ipip" => "ipipTunnelAddress",
        "vxlan" => "vxlanTunnelAddress",
        "vxlan-v6" => "vxlanV6TunnelAddress",
        "wireguard" => "wireguardTunnelAddress",
        "wireguard-v6" => "wireguardV6TunnelAddress",
        _ => return None,
    })
}

/// True for the attribute `type` of any tunnel address.
pub fn is_tunnel_type(kind: &str) -> bool {
    ["ipip", "vxlan", "vxlan-v6", "wireguard", "wireguard-v6"]
        .iter()
        .any(|device| tunnel_type(device) == Some(kind))
}

/// Handle of the addresses of a Service of type LoadBalancer.
pub fn load_balancer_handle(service: &str, namespace: &str, uid: &str) -> String {
    let text = format!("{service}-{namespace}-{uid}").to_lowercase();
    let encoded = base64url(&Sha256::digest(text));
    format!("lb-{}", encoded.replace(['-', '_', '.'], ""))
}

/// Handle of the address of a virtual machine, which survives its pods. At most 128 characters: a longer name is
/// replaced by its hash.
pub fn virtual_machine_handle(network: &str, namespace: &str, machine: &str) -> String {
    const LIMIT: usize = 128;
    let prefix = format!("{network}.vmi.");
    let suffix = format!("{namespace}.{machine}");
    let len = prefix.len() + suffix.len();
    if len < LIMIT || (len == LIMIT && !suffix.starts_with('_')) {
        return prefix + &suffix;
    }
    let encoded = base64url(&Sha256::digest(suffix));
    let room = LIMIT.saturating_sub(prefix.len() + 1).min(encoded.len());
    format!("{prefix}_{}", &encoded[..room])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base32(bytes: &[u8]) -> String {
    encode(bytes, 5, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
}

fn base64url(bytes: &[u8]) -> String {
    encode(
        bytes,
        6,
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    )
}

/// Encodings of RFC 4648 without padding: `bits` input bits per output character.
fn encode(bytes: &[u8], bits: u32, alphabet: &[u8]) -> String {
    let mask = (1u32 << bits) - 1;
    let (mut buffer, mut held) = (0u32, 0u32);
    let mut text = String::new();
    let mut push = |index: u32| text.push(char::from(alphabet[(index & mask) as usize]));
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        held += 8;
        while held >= bits {
            held -= bits;
            push(buffer >> held);
        }
    }
    if held > 0 {
        push(buffer << (bits - held));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn blocks_and_affinities_are_named_as_every_reader_expects() {
        assert_eq!(block_name(&net("10.244.41.192/26")), "10-244-41-192-26");
        assert_eq!(block_name(&net("fd00:10:244::/122")), "fd00-10-244---122");
        assert_eq!(
            affinity_name("worker-1", &net("10.244.41.192/26")),
            "worker-1-10-244-41-192-26"
        );
        let spec = BlockAffinitySpec {
            cidr: "10.244.41.192/26".into(),
            node: "worker-1".into(),
            kind: Some("host".into()),
            ..BlockAffinitySpec::default()
        };
        let labels = affinity_labels(&spec);
        assert_eq!(labels[LABEL_AFFINITY_TYPE], "host");
        assert_eq!(labels[LABEL_IP_VERSION], "4");
        assert_eq!(
            labels[LABEL_HOSTNAME_HASH],
            "CPU5J3TPSNHFA66J45DG4Z5C3PSJAZ36LD46JZLYEGZSTAWBUCUA"
        );
        assert_eq!(
            hostname_hash("node-a"),
            "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA"
        );
    }

    #[test]
    fn a_long_node_name_is_cut_and_hashed() {
        let block = net("10.244.226.64/26");
        let plain = affinity_name(&"h".repeat(235), &block);
        assert_eq!(plain, format!("{}-10-244-226-64-26", "h".repeat(235)));
        assert_eq!(plain.len(), 252);
        let cut = affinity_name(&"h".repeat(236), &block);
        assert_eq!(
            cut,
            format!("{}-10-244-226-64-26-25f06a3821a", "h".repeat(223))
        );
        assert_eq!(cut.len(), 252);
    }

    #[test]
    fn handles_of_services_and_virtual_machines() {
        let handle = load_balancer_handle("web", "shop", "0f6c1c1e-8d0b-4f0e-9a53-1f1f7f3f9a10");
        assert_eq!(handle, "lb-bvj6zIr2tslIz9iv70MOZPNJl953RbQIL058xYrAJNE");
        assert_eq!(
            handle_name(&handle),
            "lb-bvj6zir2tsliz9iv70mozpnjl953rbqil058xyrajne"
        );
        assert_eq!(
            virtual_machine_handle("k8s-pod-network", "vms", "db-1"),
            "k8s-pod-network.vmi.vms.db-1"
        );
        let long = virtual_machine_handle("k8s-pod-network", "team-a", &"x".repeat(140));
        assert_eq!(
            long,
            "k8s-pod-network.vmi._VZa6xluYbEvhj6dn9TgM-4BWBQds9SYb5iR4hhz--fY"
        );
        assert_eq!(long.len(), 64);
    }

    #[test]
    fn block_names_can_be_read_back() {
        for cidr in [
            "10.244.41.192/26",
            "fd00:10:244::/122",
            "10.0.0.0/32",
            "fd00::1:2:0/122",
            "fd00:1:2:3:4:5:6:0/116",
        ] {
            assert_eq!(block_cidr(&block_name(&net(cidr))), Some(net(cidr)));
        }
        for junk in ["", "x", "10-0-0-26", "default", "10-0-0-0-99", "-1"] {
            assert_eq!(block_cidr(junk), None, "{junk}");
        }
    }
}
