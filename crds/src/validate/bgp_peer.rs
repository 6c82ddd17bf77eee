//! BGPPeer, by itself and with what it refers to.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::ResourceExt;

use super::{BgpPeerAnnotations, FieldError, Findings, Validate, annotation, name, written};
use crate::values::PeerAddress;
use crate::{BGPFilter, BGPPeer};

impl Validate for BGPPeer {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::subdomain(&self.name_any(), &mut findings);
        let annotations = BgpPeerAnnotations::read(self.annotations());
        let unnumbered = annotations
            .as_ref()
            .is_ok_and(|read| read.interface.is_some());
        findings.0.extend(annotations.err().unwrap_or_default());
        findings.selector("spec.nodeSelector", spec.node_selector.as_deref());
        findings.selector("spec.peerSelector", spec.peer_selector.as_deref());
        findings.selector(
            "spec.localWorkloadSelector",
            spec.local_workload_selector.as_deref(),
        );
        findings.duration("spec.keepaliveTime", spec.keepalive_time.as_deref());
        findings.duration("spec.maxRestartTime", spec.max_restart_time.as_deref());
        if let (Some(node), Some(_)) = (written(&spec.node), written(&spec.node_selector)) {
            findings.add(
                "spec.node",
                node,
                "node and nodeSelector cannot both be set",
            );
        }
        let address = written(&spec.peer_ip)
            .and_then(|text| findings.take("spec.peerIP", text, text.parse()));
        remote(self, unnumbered, &mut findings);
        gateway(self, address.as_ref(), &mut findings);
        if spec.keep_original_next_hop == Some(true) && spec.next_hop_mode.is_some() {
            let reason = "keepOriginalNextHop and nextHopMode cannot both be set; keepOriginalNextHop is deprecated";
            findings.add("spec.keepOriginalNextHop", true, reason);
        }
        if let Some(password) = &spec.password {
            super::bgp_configuration::password("spec.password", password, &mut findings);
        }
        findings.0
    }

    fn warnings(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        annotation::warn_unknown(self.annotations(), annotation::BGP_PEER, &mut findings);
        let by_node = written(&spec.peer_selector).is_some();
        if let Some(number) = spec.local_as_number.filter(|_| by_node) {
            findings.add(
                "spec.localASNumber",
                number,
                "has no effect with peerSelector",
            );
        }
        if let Some(number) = spec.num_allowed_local_as_numbers.filter(|_| by_node) {
            findings.add(
                "spec.numAllowedLocalASNumbers",
                number,
                "has no effect with peerSelector",
            );
        }
        findings.0
    }
}

/// Which peers the object means.
fn remote(peer: &BGPPeer, unnumbered: bool, findings: &mut Findings) {
    let spec = &peer.spec;
    let address = written(&spec.peer_ip);
    let nodes = written(&spec.peer_selector);
    let pods = written(&spec.local_workload_selector);
    let as_number = spec.as_number.filter(|number| *number != 0);
    if let (Some(address), Some(_)) = (address, nodes) {
        findings.add(
            "spec.peerIP",
            address,
            "peerIP and peerSelector cannot both be set",
        );
    }
    if let (Some(_), Some(number)) = (nodes, as_number) {
        findings.add(
            "spec.asNumber",
            number,
            "asNumber must be empty when peerSelector is set",
        );
    }
    if pods.is_some() {
        if let Some(address) = address {
            findings.add(
                "spec.peerIP",
                address,
                "peerIP must be empty when localWorkloadSelector is set",
            );
        }
        if let Some(nodes) = nodes {
            findings.add(
                "spec.peerSelector",
                nodes,
                "peerSelector must be empty when localWorkloadSelector is set",
            );
        }
        if as_number.is_none() {
            findings.add(
                "spec.asNumber",
                "",
                "asNumber is required when localWorkloadSelector is set",
            );
        }
    }
    if unnumbered && (address.or(nodes).or(pods).is_some()) {
        let reason = "cannot be used with peerIP, peerSelector or localWorkloadSelector";
        findings.add("metadata.annotations[margay.io/interface]", "", reason);
    }
}

fn gateway(peer: &BGPPeer, address: Option<&PeerAddress>, findings: &mut Findings) {
    let Some(text) = written(&peer.spec.reachable_by) else {
        return;
    };
    if written(&peer.spec.peer_ip).is_none() {
        findings.add(
            "spec.reachableBy",
            text,
            "reachableBy must be empty when peerIP is empty",
        );
    }
    let gateway = text
        .parse::<IpAddr>()
        .map_err(|_| "is not an IP address".to_owned());
    let Some(gateway) = findings.take("spec.reachableBy", text, gateway) else {
        return;
    };
    if address.is_some_and(|address| address.ip.is_ipv4() != gateway.is_ipv4()) {
        findings.add(
            "spec.reachableBy",
            text,
            "is of another IP version than peerIP",
        );
    }
}

/// References of `peer` that lead nowhere: filters without an object. The sessions of such a peer come up, but no route
/// passes until the filter exists.
pub fn peer_references(peer: &BGPPeer, filters: &[BGPFilter]) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let known: BTreeSet<String> = filters.iter().map(ResourceExt::name_any).collect();
    for (index, filter) in peer.spec.filters.iter().flatten().enumerate() {
        if !known.contains(filter) {
            findings.add(
                format!("spec.filters[{index}]"),
                filter,
                "no BGPFilter has this name",
            );
        }
    }
    findings.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BGPFilterSpec, BGPPeerSpec};

    fn peer(spec: serde_json::Value) -> BGPPeer {
        BGPPeer::new(
            "p",
            serde_json::from_value::<BGPPeerSpec>(spec).expect("decodes"),
        )
    }

    fn fields(spec: serde_json::Value) -> Vec<String> {
        peer(spec)
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect()
    }

    #[test]
    fn addresses_and_selectors_are_read() {
        use serde_json::json;
        assert!(fields(json!({})).is_empty());
        assert!(
            fields(
                json!({"peerIP": "192.0.2.1:1179", "asNumber": 64512, "nodeSelector": "has(rack)"})
            )
            .is_empty()
        );
        assert!(fields(json!({"peerIP": "fe80::1%eth0", "asNumber": 64512})).is_empty());
        assert_eq!(
            fields(json!({"peerIP": "192.0.2.300", "asNumber": 1})),
            ["spec.peerIP"]
        );
        assert_eq!(
            fields(json!({"peerIP": "fe80::1", "asNumber": 1})),
            ["spec.peerIP"]
        );
        assert_eq!(
            fields(json!({"peerSelector": "has(rr", "nodeSelector": "x"})),
            ["spec.nodeSelector", "spec.peerSelector"]
        );
        assert_eq!(
            fields(json!({"peerIP": "192.0.2.1", "reachableBy": "fd00::1"})),
            ["spec.reachableBy"]
        );
        assert_eq!(
            fields(json!({"localWorkloadSelector": "all()"})),
            ["spec.asNumber"]
        );
    }

    #[test]
    fn a_filter_that_does_not_exist_is_named() {
        let peer = peer(serde_json::json!({"filters": ["a", "b"]}));
        let found = peer_references(&peer, &[BGPFilter::new("a", BGPFilterSpec::default())]);
        assert_eq!(
            found,
            [FieldError::new(
                "spec.filters[1]",
                "b",
                "no BGPFilter has this name"
            )]
        );
    }
}
