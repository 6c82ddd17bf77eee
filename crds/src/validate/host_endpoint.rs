//! HostEndpoint.

use std::net::IpAddr;

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name, syntax, written};
use crate::HostEndpoint;
use crate::values::{IntOrString, PortMatch, protocol_number};

impl Validate for HostEndpoint {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::subdomain(&self.name_any(), &mut findings);
        if written(&spec.node).is_none() {
            findings.add("spec.node", "", "node must be specified");
        }
        let interface = written(&spec.interface_name);
        if interface.is_none() && spec.expected_ips.as_ref().is_none_or(Vec::is_empty) {
            let reason = "at least one of interfaceName or expectedIPs must be specified";
            findings.add("spec.interfaceName", "", reason);
        }
        if let Some(interface) =
            interface.filter(|text| *text != "*" && !syntax::is_interface(text, ""))
        {
            findings.add(
                "spec.interfaceName",
                interface,
                "is neither * nor 1-15 characters [a-zA-Z0-9_.-]",
            );
        }
        for (index, address) in spec.expected_ips.iter().flatten().enumerate() {
            if address.parse::<IpAddr>().is_err() {
                findings.add(
                    format!("spec.expectedIPs[{index}]"),
                    address,
                    "is not an IP address",
                );
            }
        }
        for (index, port) in spec.ports.iter().flatten().enumerate() {
            let path = format!("spec.ports[{index}]");
            findings.take(
                &format!("{path}.protocol"),
                &port.protocol,
                protocol_number(&port.protocol),
            );
            if !(1..=65535).contains(&port.port) {
                findings.add(format!("{path}.port"), port.port, "must be from 1 to 65535");
            }
            let parsed = PortMatch::parse(&IntOrString::String(port.name.clone()));
            if !parsed.is_ok_and(|port| !port.is_numeric()) {
                findings.add(format!("{path}.name"), &port.name, "is not a port name");
            }
        }
        findings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_endpoint_names_a_node_and_an_interface_or_address() {
        let fields = |spec: serde_json::Value| {
            let endpoint = HostEndpoint::new("h", serde_json::from_value(spec).expect("decodes"));
            endpoint
                .validate()
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        assert!(fields(json!({"node": "a", "interfaceName": "*"})).is_empty());
        assert!(fields(json!({"node": "a", "expectedIPs": ["10.0.0.1"]})).is_empty());
        assert_eq!(fields(json!({})), ["spec.node", "spec.interfaceName"]);
        let spec = json!({"node": "a", "interfaceName": "eth 0", "expectedIPs": ["x"],
            "ports": [{"name": "80", "protocol": "tcp", "port": 0}]});
        assert_eq!(
            fields(spec),
            [
                "spec.interfaceName",
                "spec.expectedIPs[0]",
                "spec.ports[0].protocol",
                "spec.ports[0].port",
                "spec.ports[0].name"
            ]
        );
    }
}
