//! One rule of a policy.

use ipnet::IpNet;

use super::policy::Direction;
use super::{Findings, written};
use crate::selector::Selector;
use crate::values::{
    IntOrString, PortMatch, parse_masked_cidr, protocol_has_ports, protocol_number,
};
use crate::{EntityRule, IcmpFields, Rule, RuleAction};

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
const TCP: u8 = 6;

/// Where a rule stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) direction: Direction,
    /// True in a policy that belongs to a namespace.
    pub(super) namespaced: bool,
}

/// Checks one rule; `path` is that of the rule.
pub(super) fn check(path: &str, rule: &Rule, place: Place, findings: &mut Findings) {
    if let RuleAction::Other(text) = &rule.action {
        findings.add(
            format!("{path}.action"),
            text,
            "must be Allow, Deny, Log or Pass",
        );
    }
    let mut number = |name: &str, protocol: &Option<IntOrString>| {
        let protocol = protocol.as_ref()?;
        findings.take(
            &format!("{path}.{name}"),
            protocol,
            protocol_number(protocol),
        )
    };
    let protocol = number("protocol", &rule.protocol);
    let not_protocol = number("notProtocol", &rule.not_protocol);
    icmp(path, rule, protocol, findings);
    http(path, rule, protocol, place, findings);
    let unreadable = rule.protocol.is_some() && protocol.is_none();
    let mut nets = Vec::new();
    let sides = [
        ("source", &rule.source, Direction::Ingress),
        ("destination", &rule.destination, Direction::Egress),
    ];
    for (side, entity, service_direction) in sides {
        let Some(entity) = entity else { continue };
        let path = format!("{path}.{side}");
        selectors(&path, entity, findings);
        addresses(&path, entity, &mut nets, findings);
        if !unreadable {
            ports(&path, entity, rule.protocol.is_some(), protocol, findings);
        }
        services(&path, entity, service_direction, place, findings);
    }
    families(path, rule, protocol, not_protocol, &nets, findings);
}

fn icmp(path: &str, rule: &Rule, protocol: Option<u8>, findings: &mut Findings) {
    if rule.icmp.is_some() && !matches!(protocol, Some(ICMP | ICMP_V6)) {
        findings.add(
            format!("{path}.icmp"),
            "",
            "ICMP fields require protocol to be ICMP or ICMPv6",
        );
    }
    for (name, fields) in [("icmp", &rule.icmp), ("notICMP", &rule.not_icmp)] {
        let Some(IcmpFields { code, kind }) = fields else {
            continue;
        };
        if code.is_some() && kind.is_none() {
            findings.add(
                format!("{path}.{name}"),
                "",
                "ICMP code specified without an ICMP type",
            );
        }
        if let Some(kind) = kind.filter(|kind| !(0..=254).contains(kind)) {
            findings.add(format!("{path}.{name}.type"), kind, "must be from 0 to 254");
        }
        if let Some(code) = code.filter(|code| !(0..=255).contains(code)) {
            findings.add(format!("{path}.{name}.code"), code, "must be from 0 to 255");
        }
    }
}

fn http(path: &str, rule: &Rule, protocol: Option<u8>, place: Place, findings: &mut Findings) {
    if rule.http.is_none() {
        return;
    }
    let path = format!("{path}.http");
    findings.add(
        path.clone(),
        "",
        "HTTP match is not supported; the rule never matches",
    );
    if !matches!(protocol, None | Some(TCP)) {
        findings.add(
            path.clone(),
            "",
            "rules with HTTP match must have protocol TCP or unset",
        );
    }
    if !rule.action.is_allow() {
        findings.add(path.clone(), "", "HTTP match is only valid on Allow rules");
    }
    if place.direction == Direction::Egress {
        findings.add(path, "", "HTTP match is only valid on ingress rules");
    }
}

fn selectors(path: &str, entity: &EntityRule, findings: &mut Findings) {
    let accounts = entity.service_accounts.as_ref();
    let plain = [
        ("selector", entity.selector.as_deref()),
        ("notSelector", entity.not_selector.as_deref()),
        (
            "serviceAccounts.selector",
            accounts.and_then(|accounts| accounts.selector.as_deref()),
        ),
    ];
    for (name, text) in plain {
        let text = text.unwrap_or_default();
        match Selector::parse(text) {
            Ok(selector) if selector.mentions_global() => {
                let reason = "global() can only be used in an EntityRule namespaceSelector";
                findings.add(format!("{path}.{name}"), text, reason);
            }
            _ => findings.selector(&format!("{path}.{name}"), Some(text)),
        }
    }
    let text = entity.namespace_selector.as_deref().unwrap_or_default();
    match Selector::parse(text) {
        Ok(selector) if selector.mentions_global() && !selector.is_global() => {
            let reason = "global() cannot be combined with other selectors";
            findings.add(format!("{path}.namespaceSelector"), text, reason);
        }
        _ => findings.selector(&format!("{path}.namespaceSelector"), Some(text)),
    }
}

fn addresses(path: &str, entity: &EntityRule, all: &mut Vec<IpNet>, findings: &mut Findings) {
    for (name, list) in [("nets", &entity.nets), ("notNets", &entity.not_nets)] {
        for (index, text) in list.iter().flatten().enumerate() {
            let path = format!("{path}.{name}[{index}]");
            let net = parse_masked_cidr(text).map_err(|reason| format!("invalid CIDR: {reason}"));
            let Some(net) = findings.take(&path, text, net) else {
                continue;
            };
            if name == "notNets" && net.prefix_len() == 0 {
                let reason =
                    "catch-all CIDR in negation creates logical contradiction (matches no traffic)";
                findings.add(path, text, reason);
            }
            all.push(net);
        }
    }
}

fn ports(
    path: &str,
    entity: &EntityRule,
    written: bool,
    protocol: Option<u8>,
    findings: &mut Findings,
) {
    let mut any = false;
    let mut numeric = false;
    for (name, list) in [("ports", &entity.ports), ("notPorts", &entity.not_ports)] {
        for (index, port) in list.iter().flatten().enumerate() {
            any = true;
            let parsed = findings.take(
                &format!("{path}.{name}[{index}]"),
                port,
                PortMatch::parse(port),
            );
            numeric |= parsed.is_some_and(|port| port.is_numeric());
        }
    }
    if any && written && !protocol.is_some_and(protocol_has_ports) {
        let reason = "rules that specify ports must set protocol to TCP or UDP or SCTP";
        findings.add(format!("{path}.ports"), "", reason);
    }
    if numeric && !written {
        let reason =
            "rules with numeric port or port range must set protocol to TCP or UDP or SCTP";
        findings.add(format!("{path}.ports"), "", reason);
    }
}

fn services(
    path: &str,
    entity: &EntityRule,
    usable_in: Direction,
    place: Place,
    findings: &mut Findings,
) {
    let Some(services) = &entity.services else {
        return;
    };
    let any = |list: &Option<Vec<_>>| {
        list.as_ref()
            .is_some_and(|list: &Vec<String>| !list.is_empty())
    };
    let any_port =
        |list: &Option<Vec<IntOrString>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let path_of = |name: &str| format!("{path}.{name}");
    if written(&services.name).is_none() {
        findings.add(
            path_of("services.name"),
            "",
            "services must specify a service name",
        );
    }
    if written(&services.namespace).is_none() && !place.namespaced {
        findings.add(
            path_of("services.namespace"),
            "",
            "must be set in a policy without namespace",
        );
    }
    if place.direction != usable_in {
        let reason = "services can only be used in the source of ingress rules and the destination of egress rules";
        findings.add(path_of("services"), "", reason);
    }
    let excluded = [
        (
            written(&entity.namespace_selector).is_some(),
            "cannot specify NamespaceSelector and Services on the same rule",
        ),
        (
            entity.service_accounts.is_some(),
            "cannot specify ServiceAccounts and Services on the same rule",
        ),
        (
            written(&entity.selector)
                .or(written(&entity.not_selector))
                .is_some(),
            "cannot specify Selector/NotSelector and Services on the same rule",
        ),
        (
            any(&entity.nets) || any(&entity.not_nets),
            "cannot specify Nets/NotNets and Services on the same rule",
        ),
        (
            usable_in == Direction::Egress
                && (any_port(&entity.ports) || any_port(&entity.not_ports)),
            "ports and notPorts cannot be specified with services",
        ),
    ];
    for (_, reason) in excluded.iter().filter(|(present, _)| *present) {
        findings.add(
            path_of("services"),
            written(&services.name).unwrap_or_default(),
            *reason,
        );
    }
}

/// Protocol, ipVersion and addresses must allow for the same family.
fn families(
    path: &str,
    rule: &Rule,
    protocol: Option<u8>,
    not_protocol: Option<u8>,
    nets: &[IpNet],
    findings: &mut Findings,
) {
    let v4 = nets.iter().any(|net| net.addr().is_ipv4());
    let v6 = nets.iter().any(|net| net.addr().is_ipv6());
    if v4 && v6 {
        findings.add(path, "", "rule contains both IPv4 and IPv6 CIDRs");
    }
    let Some(version) = rule.ip_version else {
        return;
    };
    let path = format!("{path}.ipVersion");
    if version != 4 && version != 6 {
        return findings.add(path, version, "must be 4 or 6");
    }
    let any = |wanted: u8| protocol == Some(wanted) || not_protocol == Some(wanted);
    if any(ICMP) && version == 6 {
        findings.add(path.clone(), version, "protocol ICMP requires ipVersion 4");
    }
    if any(ICMP_V6) && version == 4 {
        findings.add(
            path.clone(),
            version,
            "protocol ICMPv6 requires ipVersion 6",
        );
    }
    if (v4 && version == 6) || (v6 && version == 4) {
        findings.add(path, version, "rule IP version doesn't match CIDR version");
    }
}
