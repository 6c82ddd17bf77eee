//! BGPConfiguration.

use std::net::IpAddr;

use kube::ResourceExt;

use super::{
    BgpConfigurationAnnotations, FieldError, Findings, Validate, annotation, name, syntax, written,
};
use crate::values::{BGPPassword, parse_cidr, parse_masked_cidr};
use crate::{BGPConfiguration, ServiceRange};

impl Validate for BGPConfiguration {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::subdomain(&self.name_any(), &mut findings);
        findings.0.extend(
            BgpConfigurationAnnotations::read(self.annotations())
                .err()
                .unwrap_or_default(),
        );
        if self.name_any() != "default" {
            only_in_default(self, &mut findings);
        }
        ranges(
            "spec.serviceClusterIPs",
            &spec.service_cluster_ips,
            &mut findings,
        );
        ranges(
            "spec.serviceExternalIPs",
            &spec.service_external_ips,
            &mut findings,
        );
        ranges(
            "spec.serviceLoadBalancerIPs",
            &spec.service_load_balancer_ips,
            &mut findings,
        );
        communities(self, &mut findings);
        findings.duration(
            "spec.nodeMeshMaxRestartTime",
            spec.node_mesh_max_restart_time.as_deref(),
        );
        for (index, interface) in spec.ignored_interfaces.iter().flatten().enumerate() {
            if interface == "*" || !syntax::is_interface(interface, "*") {
                let reason = "is not an interface name of 1-15 characters [a-zA-Z0-9_.*-]";
                findings.add(
                    format!("spec.ignoredInterfaces[{index}]"),
                    interface,
                    reason,
                );
            }
        }
        for (field, text, v4) in [
            (
                "spec.localWorkloadPeeringIPV4",
                &spec.local_workload_peering_ipv4,
                true,
            ),
            (
                "spec.localWorkloadPeeringIPV6",
                &spec.local_workload_peering_ipv6,
                false,
            ),
        ] {
            if let Some(text) = written(text)
                && !text
                    .parse::<IpAddr>()
                    .is_ok_and(|address| address.is_ipv4() == v4)
            {
                findings.add(
                    field,
                    text,
                    format!("is not an IPv{} address", if v4 { 4 } else { 6 }),
                );
            }
        }
        if let Some(mesh) = &spec.node_mesh_password {
            password("spec.nodeMeshPassword", mesh, &mut findings);
        }
        findings.0
    }

    fn warnings(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let name = self.name_any();
        annotation::warn_unknown(
            self.annotations(),
            annotation::BGP_CONFIGURATION,
            &mut findings,
        );
        if name != "default" && name.strip_prefix("node.").is_none_or(str::is_empty) {
            findings.add(
                "metadata.name",
                name,
                "has no effect: the name is neither default nor node.<node>",
            );
        }
        findings.0
    }
}

/// Settings that only the object `default` may carry.
fn only_in_default(configuration: &BGPConfiguration, findings: &mut Findings) {
    let spec = &configuration.spec;
    let present = [
        (
            "spec.nodeToNodeMeshEnabled",
            spec.node_to_node_mesh_enabled.is_some(),
        ),
        ("spec.asNumber", spec.as_number.is_some()),
        (
            "spec.serviceClusterIPs",
            spec.service_cluster_ips
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        (
            "spec.serviceExternalIPs",
            spec.service_external_ips
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        (
            "spec.serviceLoadBalancerIPs",
            spec.service_load_balancer_ips
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        ("spec.nodeMeshPassword", spec.node_mesh_password.is_some()),
        (
            "spec.nodeMeshMaxRestartTime",
            spec.node_mesh_max_restart_time.is_some(),
        ),
    ];
    for (field, _) in present.iter().filter(|(_, present)| *present) {
        findings.add(*field, "", "can only be set in the object default");
    }
}

fn ranges(field: &str, ranges: &Option<Vec<ServiceRange>>, findings: &mut Findings) {
    for (index, range) in ranges.iter().flatten().enumerate() {
        findings.take(
            &format!("{field}[{index}].cidr"),
            &range.cidr,
            parse_masked_cidr(&range.cidr),
        );
    }
}

fn communities(configuration: &BGPConfiguration, findings: &mut Findings) {
    let spec = &configuration.spec;
    let mut names = Vec::new();
    for (index, entry) in spec.communities.iter().flatten().enumerate() {
        let field = format!("spec.communities[{index}]");
        let entry_name = entry.name.as_deref().unwrap_or_default();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if entry_name.is_empty() || !entry_name.bytes().all(allowed) {
            findings.add(
                format!("{field}.name"),
                entry_name,
                "must be made of [a-zA-Z0-9_.-]",
            );
        }
        let value = entry.value.as_deref().unwrap_or_default();
        findings.take(&format!("{field}.value"), value, syntax::community(value));
        names.push(entry_name);
    }
    let used = spec
        .prefix_advertisements
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    if !names.is_empty() && !used {
        findings.add(
            "spec.communities",
            "",
            "communities are defined but not used in prefixAdvertisements",
        );
    }
    for (index, entry) in spec.prefix_advertisements.iter().flatten().enumerate() {
        let field = format!("spec.prefixAdvertisements[{index}]");
        let cidr = entry.cidr.as_deref().unwrap_or_default();
        findings.take(&format!("{field}.cidr"), cidr, parse_cidr(cidr));
        for (position, text) in entry.communities.iter().flatten().enumerate() {
            if !names.contains(&text.as_str()) && syntax::community(text).is_err() {
                let reason =
                    "is neither a name out of spec.communities nor a community aa:nn or aa:nn:mm";
                findings.add(format!("{field}.communities[{position}]"), text, reason);
            }
        }
    }
}

/// Checks that a password names a Secret and a key.
pub(super) fn password(field: &str, password: &BGPPassword, findings: &mut Findings) {
    let Some(reference) = &password.secret_key_ref else {
        return findings.add(
            format!("{field}.secretKeyRef"),
            "",
            "must name a Secret and a key",
        );
    };
    if reference.name.is_empty() {
        findings.add(
            format!("{field}.secretKeyRef.name"),
            "",
            "must name a Secret",
        );
    }
    if reference.key.is_empty() {
        findings.add(
            format!("{field}.secretKeyRef.key"),
            "",
            "must name a key of the Secret",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(name: &str, spec: serde_json::Value) -> Vec<String> {
        let object = BGPConfiguration::new(name, serde_json::from_value(spec).expect("decodes"));
        object
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect()
    }

    #[test]
    fn settings_of_the_cluster_belong_into_default() {
        let spec = json!({"asNumber": 64513, "nodeToNodeMeshEnabled": false, "serviceClusterIPs": [], "listenPort": 1790});
        assert!(fields("default", spec.clone()).is_empty());
        assert_eq!(
            fields("node.a", spec),
            ["spec.nodeToNodeMeshEnabled", "spec.asNumber"]
        );
        let other =
            BGPConfiguration::new("other", serde_json::from_value(json!({})).expect("decodes"));
        assert_eq!(other.warnings()[0].field, "metadata.name");
    }

    #[test]
    fn communities_are_names_of_the_same_object_or_values() {
        let spec = json!({
            "communities": [{"name": "web", "value": "64512:70000"}],
            "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["web", "1:2", "4200000000:1:2", "db"]}],
        });
        assert_eq!(
            fields("default", spec),
            [
                "spec.communities[0].value",
                "spec.prefixAdvertisements[0].communities[3]"
            ]
        );
    }

    #[test]
    fn service_ranges_have_no_host_bits() {
        let spec = json!({"serviceClusterIPs": [{"cidr": "10.96.0.1/12"}], "localWorkloadPeeringIPV4": "fd00::1"});
        assert_eq!(
            fields("default", spec),
            [
                "spec.serviceClusterIPs[0].cidr",
                "spec.localWorkloadPeeringIPV4"
            ]
        );
    }
}
