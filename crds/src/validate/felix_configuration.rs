//! FelixConfiguration.

use kube::ResourceExt;

use super::{FelixAnnotations, FieldError, Findings, Validate, annotation, name, syntax};
use crate::values::{IntOrString, PortMatch, dscp_value, parse_address_or_cidr, parse_cidr};
use crate::{FelixConfiguration, FelixConfigurationSpec, ProtoPort};

/// Tables routeTableRanges may cover together.
const MOST_TABLES: i64 = 65535;

impl Validate for FelixConfiguration {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        let name = self.name_any();
        name::subdomain(&name, &mut findings);
        findings.0.extend(
            FelixAnnotations::read(self.annotations())
                .err()
                .unwrap_or_default(),
        );
        findings.selector("spec.nodeSelector", spec.node_selector.as_deref());
        if let Some(text) = &spec.node_selector
            && (name == "default" || name.starts_with("node."))
        {
            let reason = "nodeSelector must not be set on the 'default' or per-node ('node.*') FelixConfiguration";
            findings.add("spec.nodeSelector", text, reason);
        }
        durations(spec, &mut findings);
        routes(spec, &mut findings);
        ports(spec, &mut findings);
        interfaces(spec, &mut findings);
        if let Some(mask) = spec.nftables_mark_mask.filter(|mask| mask.count_ones() < 2) {
            findings.add("spec.nftablesMarkMask", mask, "must have at least two bits");
        }
        if let Some(mark) = &spec.istio_dscp_mark {
            findings.take("spec.istioDSCPMark", mark, dscp_value(mark));
        }
        findings.0
    }

    fn warnings(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        let name = self.name_any();
        annotation::warn_unknown(self.annotations(), annotation::FELIX, &mut findings);
        if name != "default" && !name.starts_with("node.") && spec.node_selector.is_none() {
            let reason = "has no effect: the name is neither default nor node.<node>, and nodeSelector is not set";
            findings.add("metadata.name", name, reason);
        }
        for (setting, value) in &spec.extra {
            findings.add(format!("spec.{setting}"), value, "has no effect here");
        }
        if spec
            .nftables_mode
            .as_ref()
            .is_some_and(|mode| mode.is_disabled())
        {
            findings.add(
                "spec.nftablesMode",
                "Disabled",
                "has no effect: rules are always written with nf_tables",
            );
        }
        findings.0
    }
}

fn durations(spec: &FelixConfigurationSpec, findings: &mut Findings) {
    for (field, text) in [
        ("routeRefreshInterval", &spec.route_refresh_interval),
        ("interfaceRefreshInterval", &spec.interface_refresh_interval),
        (
            "liveMigrationRouteConvergenceTime",
            &spec.live_migration_route_convergence_time,
        ),
        (
            "localSubnetL2ReachabilityRefreshInterval",
            &spec.local_subnet_l2_reachability_refresh_interval,
        ),
        ("wireguardKeepAlive", &spec.wireguard_keep_alive),
        ("nftablesRefreshInterval", &spec.nftables_refresh_interval),
        ("ipsetsRefreshInterval", &spec.ipsets_refresh_interval),
        ("netlinkTimeout", &spec.netlink_timeout),
        ("flowLogsFlushInterval", &spec.flow_logs_flush_interval),
        ("dataplaneWatchdogTimeout", &spec.dataplane_watchdog_timeout),
    ] {
        findings.duration(&format!("spec.{field}"), text.as_deref());
    }
    for (index, entry) in spec.health_timeout_overrides.iter().flatten().enumerate() {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
        let path = format!("spec.healthTimeoutOverrides[{index}]");
        if entry.name.is_empty() || !entry.name.chars().all(allowed) {
            findings.add(
                format!("{path}.name"),
                &entry.name,
                "must be made of [a-zA-Z0-9_ -]",
            );
        }
        findings.duration(&format!("{path}.timeout"), Some(&entry.timeout));
    }
}

fn routes(spec: &FelixConfigurationSpec, findings: &mut Findings) {
    let mut tables = 0i64;
    for (index, range) in spec.route_table_ranges.iter().flatten().enumerate() {
        let path = format!("spec.routeTableRanges[{index}]");
        let text = format!("{}-{}", range.min, range.max);
        if range.min < 1 {
            findings.add(path, text, "min must be >= 1");
        } else if range.min > range.max || range.max > i64::from(u32::MAX) {
            findings.add(path, text, "max must be from min to 4294967295");
        } else {
            tables += range.max - range.min + 1;
        }
    }
    if tables > MOST_TABLES {
        findings.add(
            "spec.routeTableRanges",
            tables,
            format!("cover more than {MOST_TABLES} tables"),
        );
    }
    if spec.route_table_range.is_some() && spec.route_table_ranges.is_some() {
        findings.add(
            "spec.routeTableRange",
            "",
            "routeTableRange and routeTableRanges cannot both be set",
        );
    }
    for (field, value) in [
        ("ipv4NormalRoutePriority", spec.ipv4_normal_route_priority),
        ("ipv6NormalRoutePriority", spec.ipv6_normal_route_priority),
        (
            "ipv4ElevatedRoutePriority",
            spec.ipv4_elevated_route_priority,
        ),
        (
            "ipv6ElevatedRoutePriority",
            spec.ipv6_elevated_route_priority,
        ),
    ] {
        if let Some(value) = value.filter(|value| !(1..i32::MAX).contains(value)) {
            findings.add(
                format!("spec.{field}"),
                value,
                "must be from 1 to 2147483646",
            );
        }
    }
    for (index, text) in spec.external_nodes_list.iter().flatten().enumerate() {
        let path = format!("spec.externalNodesList[{index}]");
        let net = parse_address_or_cidr(text);
        if findings
            .take(&path, text, net)
            .is_some_and(|net| net.addr().is_ipv6())
        {
            findings.add(path, text, "is not an IPv4 address or range");
        }
    }
}

fn ports(spec: &FelixConfigurationSpec, findings: &mut Findings) {
    let numeric = |port: &IntOrString| match PortMatch::parse(port) {
        Ok(PortMatch::Named(_)) => Err("must be a port or a range min:max".to_owned()),
        other => other,
    };
    for (index, port) in spec.kube_node_port_ranges.iter().flatten().enumerate() {
        findings.take(
            &format!("spec.kubeNodePortRanges[{index}]"),
            port,
            numeric(port),
        );
    }
    if let Some(port) = &spec.nat_port_range {
        findings.take("spec.natPortRange", port, numeric(port));
    }
    for (list, ports) in [
        (
            "failsafeInboundHostPorts",
            &spec.failsafe_inbound_host_ports,
        ),
        (
            "failsafeOutboundHostPorts",
            &spec.failsafe_outbound_host_ports,
        ),
    ] {
        for (
            index,
            ProtoPort {
                net,
                port,
                protocol,
            },
        ) in ports.iter().flatten().enumerate()
        {
            let path = format!("spec.{list}[{index}]");
            if !(0..=65535).contains(port) {
                findings.add(format!("{path}.port"), port, "must be from 0 to 65535");
            }
            let protocol = protocol.as_deref().unwrap_or_default();
            if !["", "tcp", "udp", "sctp"].contains(&protocol.to_ascii_lowercase().as_str()) {
                findings.add(
                    format!("{path}.protocol"),
                    protocol,
                    "must be TCP, UDP or SCTP",
                );
            }
            if let Some(net) = net.as_deref().filter(|net| !net.is_empty()) {
                findings.take(&format!("{path}.net"), net, parse_cidr(net));
            }
        }
    }
}

fn interfaces(spec: &FelixConfigurationSpec, findings: &mut Findings) {
    let names = [
        ("wireguardInterfaceName", &spec.wireguard_interface_name, ""),
        (
            "wireguardInterfaceNameV6",
            &spec.wireguard_interface_name_v6,
            "",
        ),
        (
            "iptablesNATOutgoingInterfaceFilter",
            &spec.iptables_nat_outgoing_interface_filter,
            "+:",
        ),
    ];
    for (field, text, extra) in names {
        if let Some(text) = super::written(text).filter(|text| !syntax::is_interface(text, extra)) {
            findings.add(
                format!("spec.{field}"),
                text,
                "is not an interface name of 1-15 characters",
            );
        }
    }
    if let Some(prefixes) = super::written(&spec.interface_prefix)
        && !prefixes
            .split(',')
            .all(|prefix| syntax::is_interface(prefix, ""))
    {
        let reason = "must be a comma-separated list of interface name prefixes of 1-15 characters";
        findings.add("spec.interfacePrefix", prefixes, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(name: &str, spec: Value) -> FelixConfiguration {
        FelixConfiguration::new(name, serde_json::from_value(spec).expect("decodes"))
    }

    #[test]
    fn values_the_api_server_lets_through_are_named() {
        let spec = json!({
            "routeTableRanges": [{"min": 1, "max": 60000}, {"min": 60001, "max": 120000}, {"min": 5, "max": 4}],
            "externalNodesList": ["10.0.0.1", "fd00::1", "host"],
            "kubeNodePortRanges": ["30000:32767", "web"],
            "failsafeInboundHostPorts": [{"port": 22}, {"port": 53, "protocol": "Udp"}, {"port": 1, "protocol": "icmp", "net": "x"}],
            "nftablesMarkMask": 65536,
            "nftablesRefreshInterval": "often",
            "interfacePrefix": "cali,tap,",
            "iptablesNATOutgoingInterfaceFilter": "eth+",
        });
        let fields: Vec<_> = object("default", spec)
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(
            fields,
            [
                "spec.nftablesRefreshInterval",
                "spec.routeTableRanges[2]",
                "spec.routeTableRanges",
                "spec.externalNodesList[1]",
                "spec.externalNodesList[2]",
                "spec.kubeNodePortRanges[1]",
                "spec.failsafeInboundHostPorts[2].protocol",
                "spec.failsafeInboundHostPorts[2].net",
                "spec.interfacePrefix",
                "spec.nftablesMarkMask",
            ]
        );
    }

    #[test]
    fn settings_without_effect_are_warnings() {
        let object = object(
            "other",
            json!({"bpfEnabled": true, "nftablesMode": "Disabled"}),
        );
        assert!(object.validate().is_empty());
        let fields: Vec<_> = object
            .warnings()
            .into_iter()
            .map(|warning| warning.field)
            .collect();
        assert_eq!(
            fields,
            ["metadata.name", "spec.bpfEnabled", "spec.nftablesMode"]
        );
    }
}
