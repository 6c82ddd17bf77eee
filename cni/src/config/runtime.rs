//! `runtimeConfig`: what the runtime adds for one container.
//!
//! containerd writes these objects from Go structures without JSON names (`HostPort`, `IngressRate`), CRI-O in lower
//! camel case; both spellings are read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::error::CniError;

/// A checked `runtimeConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// `portMappings`; `None` when the runtime does not supply them (the pod's specification is used then).
    pub port_mappings: Option<Vec<PortMapping>>,
    /// `bandwidth`.
    pub bandwidth: Option<Bandwidth>,
    /// `ips`: addresses to assign, at most one per family.
    pub ips: Vec<IpAddr>,
    /// `mac`: MAC of the container's interface; unparsed.
    pub mac: Option<String>,
    /// `io.kubernetes.cri.pod-annotations`.
    pub pod_annotations: BTreeMap<String, String>,
}

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP, the default.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Any case; empty means TCP.
    pub fn parse(word: &str) -> Option<Protocol> {
        Some(match word.to_ascii_lowercase().as_str() {
            "" | "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return None,
        })
    }
}

/// A port of the host that leads to a port of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// Port on the host, 1 to 65535.
    pub host_port: u16,
    /// Port in the pod, 1 to 65535.
    pub container_port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Only this address of the host. The unspecified address of a family means all of that family, `None` all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}

impl PortMapping {
    /// Checks the parts of a mapping as the runtime or a pod's specification writes them.
    ///
    /// # Errors
    /// Code 7.
    pub fn new(
        host_port: i64,
        container_port: i64,
        protocol: &str,
        host_ip: &str,
    ) -> Result<PortMapping, CniError> {
        let port = |what: &str, port: i64| {
            u16::try_from(port)
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| {
                    CniError::invalid(format!("{what} {port} is not between 1 and 65535"))
                })
        };
        let host_ip = if host_ip.is_empty() {
            None
        } else {
            let parsed = host_ip.parse();
            Some(
                parsed
                    .map_err(|_| CniError::invalid(format!("hostIP {host_ip:?} is no address")))?,
            )
        };
        Ok(PortMapping {
            host_port: port("hostPort", host_port)?,
            container_port: port("containerPort", container_port)?,
            protocol: Protocol::parse(protocol).ok_or_else(|| {
                CniError::invalid(format!(
                    "protocol {protocol:?} of hostPort {host_port} is not tcp, udp or sctp"
                ))
            })?,
            host_ip,
        })
    }

    /// Refuses two mappings with the same host address, protocol and port.
    ///
    /// # Errors
    /// Code 7.
    pub fn check_unique(mappings: &[PortMapping]) -> Result<(), CniError> {
        let mut seen = BTreeSet::new();
        for mapping in mappings {
            if !seen.insert((mapping.host_ip, mapping.protocol, mapping.host_port)) {
                let port = mapping.host_port;
                return Err(CniError::invalid(format!(
                    "hostPort {port} is mapped twice"
                )));
            }
        }
        Ok(())
    }
}

/// Limits of a pod's traffic as the runtime gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// To the pod, bits per second; 0 is no limit.
    pub ingress_rate: u64,
    /// Bits.
    pub ingress_burst: u64,
    /// From the pod, bits per second; 0 is no limit.
    pub egress_rate: u64,
    /// Bits.
    pub egress_burst: u64,
}

impl Bandwidth {
    fn check(self) -> Result<Option<Bandwidth>, CniError> {
        for (what, rate, burst) in [
            ("ingress", self.ingress_rate, self.ingress_burst),
            ("egress", self.egress_rate, self.egress_burst),
        ] {
            if (rate == 0) != (burst == 0) {
                return Err(CniError::invalid(format!(
                    "bandwidth: {what} needs both a rate and a burst, or neither"
                )));
            }
            if burst / 8 >= u64::from(u32::MAX) {
                return Err(CniError::invalid(format!(
                    "bandwidth: {what} burst {burst} is too large"
                )));
            }
        }
        Ok(Some(self).filter(|bandwidth| *bandwidth != Bandwidth::default()))
    }
}

impl RuntimeConfig {
    pub(super) fn from_document(document: RuntimeDocument) -> Result<RuntimeConfig, CniError> {
        let port_mappings = document
            .port_mappings
            .map(|mappings| {
                mappings
                    .into_iter()
                    .map(PortDocument::check)
                    .collect::<Result<Vec<_>, _>>()
            })
            .transpose()?;
        if let Some(mappings) = &port_mappings {
            PortMapping::check_unique(mappings)?;
        }
        let bandwidth = match document.bandwidth {
            Some(bandwidth) => bandwidth.check()?,
            None => None,
        };
        let ips = document.ips.unwrap_or_default();
        Ok(RuntimeConfig {
            port_mappings,
            bandwidth,
            ips: ips
                .iter()
                .map(|text| {
                    let address = text
                        .split_once('/')
                        .map_or(text.as_str(), |(address, _)| address);
                    address
                        .parse()
                        .map_err(|_| CniError::invalid(format!("invalid IP format: {text}")))
                })
                .collect::<Result<_, _>>()?,
            mac: document.mac.filter(|mac| !mac.is_empty()),
            pod_annotations: document.pod_annotations.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RuntimeDocument {
    #[serde(rename = "portMappings")]
    port_mappings: Option<Vec<PortDocument>>,
    bandwidth: Option<BandwidthDocument>,
    ips: Option<Vec<String>>,
    mac: Option<String>,
    #[serde(rename = "io.kubernetes.cri.pod-annotations")]
    pod_annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PortDocument {
    #[serde(rename = "hostPort", alias = "HostPort")]
    host_port: Option<i64>,
    #[serde(rename = "containerPort", alias = "ContainerPort")]
    container_port: Option<i64>,
    #[serde(alias = "Protocol")]
    protocol: Option<String>,
    #[serde(rename = "hostIP", alias = "HostIP")]
    host_ip: Option<String>,
}

impl PortDocument {
    fn check(self) -> Result<PortMapping, CniError> {
        PortMapping::new(
            self.host_port.unwrap_or(0),
            self.container_port.unwrap_or(0),
            self.protocol.as_deref().unwrap_or(""),
            self.host_ip.as_deref().unwrap_or(""),
        )
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BandwidthDocument {
    #[serde(rename = "ingressRate", alias = "IngressRate")]
    ingress_rate: Option<u64>,
    #[serde(rename = "ingressBurst", alias = "IngressBurst")]
    ingress_burst: Option<u64>,
    #[serde(rename = "egressRate", alias = "EgressRate")]
    egress_rate: Option<u64>,
    #[serde(rename = "egressBurst", alias = "EgressBurst")]
    egress_burst: Option<u64>,
}

impl BandwidthDocument {
    fn check(self) -> Result<Option<Bandwidth>, CniError> {
        Bandwidth {
            ingress_rate: self.ingress_rate.unwrap_or(0),
            ingress_burst: self.ingress_burst.unwrap_or(0),
            egress_rate: self.egress_rate.unwrap_or(0),
            egress_burst: self.egress_burst.unwrap_or(0),
        }
        .check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RuntimeConfig, CniError> {
        RuntimeConfig::from_document(serde_json::from_str(text).expect("json"))
    }

    #[test]
    fn both_spellings_of_port_mappings_are_read() {
        let upper = r#"{"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP","HostIP":""}]}"#;
        let lower = r#"{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}"#;
        let expected = Some(vec![PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: Protocol::Tcp,
            host_ip: None,
        }]);
        assert_eq!(parse(upper).expect("upper").port_mappings, expected);
        assert_eq!(parse(lower).expect("lower").port_mappings, expected);
    }

    #[test]
    fn bad_port_mappings_are_refused() {
        for mapping in [
            r#"{"hostPort":0,"containerPort":80}"#,
            r#"{"hostPort":70000,"containerPort":80}"#,
            r#"{"hostPort":80,"containerPort":80,"protocol":"icmp"}"#,
            r#"{"hostPort":80,"containerPort":80,"hostIP":"abc"}"#,
            r#"{"hostPort":80,"containerPort":80},{"hostPort":80,"containerPort":81}"#,
        ] {
            let error = parse(&format!(r#"{{"portMappings":[{mapping}]}}"#)).expect_err(mapping);
            assert_eq!(error.code, crate::Code::INVALID_CONFIG);
        }
    }

    #[test]
    fn bandwidth_needs_rate_and_burst() {
        let good = parse(r#"{"bandwidth":{"IngressRate":1000000,"IngressBurst":4294967295}}"#);
        assert_eq!(
            good.expect("valid").bandwidth.expect("set").ingress_rate,
            1_000_000
        );
        assert_eq!(parse(r#"{"bandwidth":{}}"#).expect("valid").bandwidth, None);
        for text in [
            r#"{"bandwidth":{"ingressRate":1}}"#,
            r#"{"bandwidth":{"egressBurst":1}}"#,
            r#"{"bandwidth":{"egressRate":1,"egressBurst":34359738360}}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
