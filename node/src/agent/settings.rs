//! FelixConfiguration in the dataplane's words.

use std::net::SocketAddr;

use margay_crds::{FelixConfigurationSpec, NatOutgoingExclusions, ProgramClusterRoutes};
use margay_felix::{NatOutgoing, Settings};

use super::environment::Environment;

/// One field out of the object of this node, else out of `default`.
macro_rules! pick {
    ($objects:expr, $field:ident) => {
        $objects
            .1
            .and_then(|spec| spec.$field.clone())
            .or_else(|| $objects.0.and_then(|spec| spec.$field.clone()))
    };
}

/// `default` and the object of this node.
pub(crate) type Objects<'a> = (
    Option<&'a FelixConfigurationSpec>,
    Option<&'a FelixConfigurationSpec>,
);

/// What may change while the dataplane runs. Values that make no sense fall back to the default.
pub(crate) fn dataplane(objects: Objects<'_>) -> Settings {
    let defaults = Settings::default();
    let positive = |value: Option<i32>| {
        value
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| *value > 0)
    };
    let owner: Option<ProgramClusterRoutes> = pick!(objects, program_cluster_routes);
    let (ipip, no_encap) = match owner {
        Some(ProgramClusterRoutes::Enabled) => (true, true),
        Some(ProgramClusterRoutes::Disabled) => (false, false),
        Some(ProgramClusterRoutes::EnabledNoEncapOnly) => (false, true),
        _ => (true, false),
    };
    let exclusions: Option<NatOutgoingExclusions> = pick!(objects, nat_outgoing_exclusions);
    let address: Option<String> = pick!(objects, nat_outgoing_address);
    Settings {
        remove_external_routes: pick!(objects, remove_external_routes)
            .unwrap_or(defaults.remove_external_routes),
        nat_outgoing: NatOutgoing {
            exclude_hosts: exclusions.is_some_and(|value| value.as_str() == "IPPoolsAndHostIPs"),
            port_range: pick!(objects, nat_port_range)
                .and_then(|value| port_range(&value.to_string())),
            addresses: address
                .and_then(|text| text.parse().ok())
                .into_iter()
                .collect(),
            interface: pick!(objects, iptables_nat_outgoing_interface_filter)
                .filter(|name| !name.is_empty()),
        },
        program_ipip_routes: ipip,
        program_no_encap_routes: no_encap,
        ipip_mtu: positive(pick!(objects, ipip_mtu)),
        vxlan_mtu: positive(pick!(objects, vxlan_mtu)),
        vxlan_vni: positive(pick!(objects, vxlan_vni)).unwrap_or(defaults.vxlan_vni),
        vxlan_port: pick!(objects, vxlan_port)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            .unwrap_or(defaults.vxlan_port),
        ..defaults
    }
}

/// `32768:65535` or one number.
fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let range = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (range.0 > 0 && range.0 <= range.1).then_some(range)
}

/// Where metrics are served, if anywhere. The environment wins over the objects.
pub(crate) fn metrics_address(
    environment: &Environment,
    objects: Objects<'_>,
) -> Option<SocketAddr> {
    let enabled = environment
        .metrics_enabled
        .or_else(|| pick!(objects, prometheus_metrics_enabled));
    if enabled != Some(true) {
        return None;
    }
    let host = environment
        .metrics_host
        .clone()
        .or_else(|| pick!(objects, prometheus_metrics_host));
    let port = environment
        .metrics_port
        .or_else(|| {
            pick!(objects, prometheus_metrics_port).and_then(|port| u16::try_from(port).ok())
        })
        .unwrap_or(9091);
    let host = host
        .filter(|host| !host.is_empty())
        .and_then(|host| host.parse().ok());
    Some(SocketAddr::new(
        host.unwrap_or_else(|| std::net::Ipv4Addr::UNSPECIFIED.into()),
        port,
    ))
}

/// The severity FelixConfiguration asks for.
pub(crate) fn log_severity(objects: Objects<'_>) -> Option<String> {
    pick!(objects, log_severity_screen)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> FelixConfigurationSpec {
        serde_json::from_value(value).expect("a FelixConfiguration")
    }

    #[test]
    fn the_object_of_the_node_wins_field_by_field() {
        let default = spec(json!({"vxlanPort": 4790, "programClusterRoutes": "Enabled"}));
        let node = spec(json!({"vxlanPort": 4791}));
        let settings = dataplane((Some(&default), Some(&node)));
        assert_eq!(settings.vxlan_port, 4791);
        assert!(settings.program_ipip_routes && settings.program_no_encap_routes);
        assert_eq!(dataplane((None, None)), Settings::default());
    }

    #[test]
    fn values_that_make_no_sense_fall_back() {
        let settings = dataplane((
            Some(&spec(
                json!({"vxlanPort": 0, "natPortRange": "9:1", "ipipMTU": -1}),
            )),
            None,
        ));
        assert_eq!(settings.vxlan_port, 4789);
        assert_eq!(settings.nat_outgoing.port_range, None);
        assert_eq!(settings.ipip_mtu, None);
        let range = dataplane((Some(&spec(json!({"natPortRange": "32768:65535"}))), None))
            .nat_outgoing
            .port_range;
        assert_eq!(range, Some((32768, 65535)));
    }

    #[test]
    fn metrics_are_off_unless_asked_for() {
        let read = |pairs: &'static [(&'static str, &'static str)]| {
            Environment::read(&|name| {
                pairs
                    .iter()
                    .find(|(k, _)| *k == name)
                    .map(|(_, v)| (*v).to_owned())
            })
            .expect("valid")
        };
        assert_eq!(metrics_address(&read(&[]), (None, None)), None);
        let on = spec(json!({"prometheusMetricsEnabled": true}));
        let address = |text: &str| Some(text.parse().expect("address"));
        assert_eq!(
            metrics_address(&read(&[]), (Some(&on), None)),
            address("0.0.0.0:9091")
        );
        let env = read(&[
            ("FELIX_PROMETHEUSMETRICSPORT", "9095"),
            ("FELIX_PROMETHEUSMETRICSHOST", "127.0.0.1"),
        ]);
        assert_eq!(
            metrics_address(&env, (Some(&on), None)),
            address("127.0.0.1:9095")
        );
        assert_eq!(
            metrics_address(
                &read(&[("FELIX_PROMETHEUSMETRICSENABLED", "false")]),
                (Some(&on), None)
            ),
            None
        );
    }
}
