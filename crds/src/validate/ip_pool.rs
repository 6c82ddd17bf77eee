//! IPPool, by itself and next to other pools and existing blocks.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, annotation, name, written};
use crate::values::{overlap, parse_cidr, parse_masked_cidr};
use crate::{AllowedUse, EncapMode, IPAMBlock, IPPool};

impl Validate for IPPool {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::subdomain(&self.name_any(), &mut findings);
        annotation::pool(self.annotations(), &mut findings);
        findings.selector("spec.nodeSelector", spec.node_selector.as_deref());
        findings.selector("spec.namespaceSelector", spec.namespace_selector.as_deref());
        for (field, text) in [
            ("spec.nodeSelector", &spec.node_selector),
            ("spec.namespaceSelector", &spec.namespace_selector),
        ] {
            if let Some(text) = written(text).filter(|text| text.contains("global(")) {
                findings.add(field, text, "global() has no meaning for pools");
            }
        }
        let encapsulated = |mode: &EncapMode| !mode.is_never();
        let ipip = spec.ipip_mode.as_ref().is_some_and(encapsulated);
        let vxlan = spec.vxlan_mode.as_ref().is_some_and(encapsulated);
        if ipip && vxlan {
            findings.add(
                "spec.vxlanMode",
                spec.effective_vxlan_mode(),
                "ipipMode and vxlanMode cannot both be enabled",
            );
        }
        for (field, mode) in [
            ("spec.ipipMode", &spec.ipip_mode),
            ("spec.vxlanMode", &spec.vxlan_mode),
        ] {
            if let Some(EncapMode::Other(text)) = mode {
                findings.add(field, text, "must be Never, Always or CrossSubnet");
            }
        }
        if spec.allows(&AllowedUse::LoadBalancer) {
            load_balancer(self, ipip || vxlan, &mut findings);
        }
        range(self, ipip, &mut findings);
        findings.0
    }

    fn warnings(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        annotation::warn_unknown(self.annotations(), annotation::POOL, &mut findings);
        let spec = &self.spec;
        if let Some(text) = written(&spec.namespace_selector)
            && spec.allowed_uses.as_ref().is_none_or(Vec::is_empty)
        {
            findings.add(
                "spec.namespaceSelector",
                text,
                "the pool serves pods only: tunnels have no namespace",
            );
        }
        findings.0
    }
}

fn load_balancer(pool: &IPPool, encapsulated: bool, findings: &mut Findings) {
    let spec = &pool.spec;
    let uses = spec.effective_allowed_uses();
    if uses.iter().any(|one| !one.is_load_balancer()) {
        let uses: Vec<_> = uses.iter().map(AllowedUse::as_str).collect();
        let reason = "LoadBalancer cannot be combined with Workload or Tunnel allowed uses";
        findings.add("spec.allowedUses", uses.join(","), reason);
    }
    if encapsulated {
        findings.add(
            "spec.allowedUses",
            "LoadBalancer",
            "LoadBalancer IP pool cannot have IPIP or VXLAN enabled",
        );
    }
    if spec.disable_bgp_export == Some(true) {
        findings.add(
            "spec.disableBGPExport",
            true,
            "LoadBalancer IP pools cannot disable BGP export",
        );
    }
    if let Some(text) = written(&spec.node_selector).filter(|text| *text != "all()") {
        let reason = "IP Pool with AllowedUse LoadBalancer must have nodeSelector set to all()";
        findings.add("spec.nodeSelector", text, reason);
    }
}

fn range(pool: &IPPool, ipip: bool, findings: &mut Findings) {
    let spec = &pool.spec;
    let Some(cidr) = findings.take("spec.cidr", &spec.cidr, parse_masked_cidr(&spec.cidr)) else {
        return;
    };
    for (link_local, family) in [("169.254.0.0/16", "IPv4"), ("fe80::/10", "IPv6")] {
        if parse_cidr(link_local).is_ok_and(|link_local| overlap(&link_local, &cidr)) {
            findings.add(
                "spec.cidr",
                cidr,
                format!("IPPool CIDR overlaps with {family} link local range {link_local}"),
            );
        }
    }
    let v6 = matches!(cidr, ipnet::IpNet::V6(_));
    if v6 && ipip {
        findings.add(
            "spec.ipipMode",
            spec.effective_ipip_mode(),
            "IPIP is not supported on IPv6 pools",
        );
    }
    let size = i32::from(spec.effective_block_size());
    let sizes = if v6 { 116..=128 } else { 20..=32 };
    if let Some(written) = spec
        .block_size
        .filter(|size| *size != 0 && !sizes.contains(size))
    {
        let reason = format!("must be from {} to {}", sizes.start(), sizes.end());
        findings.add("spec.blockSize", written, reason);
    } else if spec.disabled != Some(true) && i32::from(cidr.prefix_len()) > size {
        findings.add(
            "spec.cidr",
            cidr,
            format!("the pool is smaller than one of its blocks, which are /{size}"),
        );
    }
}

/// What keeps `pool` from living next to the pools and blocks that exist: an overlapping pool, also a disabled one, or
/// blocks of another size. `others` may contain an earlier version of the pool itself, recognised by name.
pub fn pool_conflicts(pool: &IPPool, others: &[IPPool], blocks: &[IPAMBlock]) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let Ok(cidr) = parse_cidr(&pool.spec.cidr) else {
        return findings.0;
    };
    let name = pool.name_any();
    for other in others.iter().filter(|other| other.name_any() != name) {
        if parse_cidr(&other.spec.cidr).is_ok_and(|range| overlap(&range, &cidr)) {
            let (other, range) = (other.name_any(), &other.spec.cidr);
            findings.add(
                "spec.cidr",
                cidr,
                format!("IPPool({name}) CIDR overlaps with IPPool({other}) CIDR {range}"),
            );
        }
    }
    let size = pool.spec.effective_block_size();
    let odd = blocks.iter().find(|block| {
        parse_cidr(&block.spec.cidr)
            .is_ok_and(|block| overlap(&block, &cidr) && block.prefix_len() != size)
    });
    if let Some(block) = odd {
        let reason = format!(
            "conflicts with the existing block {}, which has another size",
            block.spec.cidr
        );
        findings.add("spec.blockSize", size, reason);
    }
    findings.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IPAMBlockSpec, IPPoolSpec};

    fn pool(name: &str, cidr: &str) -> IPPool {
        IPPool::new(
            name,
            IPPoolSpec {
                cidr: cidr.into(),
                ..IPPoolSpec::default()
            },
        )
    }

    fn reasons(pool: &IPPool) -> Vec<String> {
        pool.validate().iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn the_usual_pool_is_valid() {
        let mut usual = pool("default-ipv4-ippool", "192.168.0.0/16");
        usual.spec.ipip_mode = Some(EncapMode::Always);
        usual.spec.node_selector = Some("all()".into());
        assert!(reasons(&usual).is_empty());
        assert!(usual.warnings().is_empty());
    }

    #[test]
    fn a_selector_that_does_not_parse_names_its_field_and_position() {
        let mut bad = pool("a", "10.0.0.0/16");
        bad.spec.node_selector = Some("a = \"b\"".into());
        let reasons = reasons(&bad);
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].starts_with(
            "spec.nodeSelector: Invalid value: \"a = \\\"b\\\"\": is not a selector: position 3"
        ));
    }

    #[test]
    fn ranges_the_api_server_would_refuse_are_refused_here_too() {
        let cases = [
            ("10.0.0.1/24", "bits set behind the prefix"),
            ("10.01.0.0/16", "CIDR notation"),
            ("0.0.0.0/0", "link local"),
            ("fe00::/8", "link local"),
            ("10.0.0.0/27", "smaller than one of its blocks"),
        ];
        for (cidr, reason) in cases {
            let reasons = reasons(&pool("a", cidr));
            assert!(
                reasons.len() == 1 && reasons[0].contains(reason),
                "{cidr}: {reasons:?}"
            );
        }
        let mut disabled = pool("a", "10.0.0.0/27");
        disabled.spec.disabled = Some(true);
        assert!(reasons(&disabled).is_empty());
    }

    #[test]
    fn an_overlapping_pool_is_named_even_when_disabled() {
        let mut other = pool("a", "10.0.0.0/16");
        other.spec.disabled = Some(true);
        let new = pool("b", "10.0.1.0/24");
        let found = pool_conflicts(&new, &[other.clone(), new.clone()], &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].reason,
            "IPPool(b) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16"
        );
        assert!(pool_conflicts(&pool("b", "10.1.0.0/16"), &[other], &[]).is_empty());
    }

    #[test]
    fn blocks_of_another_size_conflict() {
        let block = |cidr: &str| {
            IPAMBlock::new(
                "x",
                IPAMBlockSpec {
                    cidr: cidr.into(),
                    ..IPAMBlockSpec::default()
                },
            )
        };
        let pool = pool("a", "10.0.0.0/16");
        assert!(
            pool_conflicts(&pool, &[], &[block("10.0.0.0/26"), block("10.1.0.0/28")]).is_empty()
        );
        let found = pool_conflicts(&pool, &[], &[block("10.0.0.0/28")]);
        assert!(
            found.len() == 1 && found[0].field == "spec.blockSize",
            "{found:?}"
        );
    }
}
