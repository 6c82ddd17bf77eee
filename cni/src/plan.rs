//! What a pod asks for: decided from configuration, runtime and annotations before anything is allocated.
//!
//! Precedence, highest first: pod annotation, namespace annotation, `CNI_ARGS`, `runtimeConfig`, configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::args::PodArgs;
use crate::config::{Bandwidth, NetworkConfig, PortMapping};
use crate::error::CniError;
use crate::result::AddResult;

/// Start of all annotations read here.
const PREFIX: &str = "cni.projectcalico.org/";

/// What the agent knows about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// UID of the API object.
    pub uid: String,
    /// `spec.nodeName`.
    pub node: String,
    /// Phase Succeeded or Failed.
    pub finished: bool,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Labels of its namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// Annotations of its namespace.
    pub namespace_annotations: BTreeMap<String, String>,
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// Host ports of its containers; used when the runtime supplies none.
    pub host_ports: Vec<PortMapping>,
}

/// What is to be set up for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where its addresses come from.
    pub addresses: AddressPlan,
    /// MAC of the container side; the kernel chooses when absent.
    pub mac: Option<[u8; 6]>,
    /// Host ports that lead to it.
    pub host_ports: Vec<PortMapping>,
    /// Limits the runtime gives.
    pub bandwidth: Option<Bandwidth>,
    /// Sources it may use beside its addresses.
    pub allowed_source_prefixes: Vec<IpNet>,
    /// External addresses translated to it.
    pub floating_ips: Vec<IpAddr>,
    /// Routes inside the pod; empty means the default routes.
    pub routes: Vec<IpNet>,
}

/// Where addresses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressPlan {
    /// One address of each family asked for, from the pools named (none named: all that select the pod).
    Automatic {
        /// Pools for IPv4; `None`: no IPv4 address.
        v4: Option<Vec<String>>,
        /// Pools for IPv6; `None`: no IPv6 address.
        v6: Option<Vec<String>>,
    },
    /// Exactly these, allocated.
    Specific(Vec<IpAddr>),
    /// Exactly these, not recorded anywhere.
    WithoutIpam(Vec<IpAddr>),
    /// What another IPAM plugin assigned.
    External(Vec<IpAddr>),
}

/// Decides what a pod gets. `external` is the result of an external IPAM plugin.
///
/// # Errors
/// Code 7 for bad annotations and impossible wishes.
pub fn plan(
    config: &NetworkConfig,
    args: &PodArgs,
    pod: Option<&PodFacts>,
    external: Option<&AddResult>,
) -> Result<Plan, CniError> {
    let annotations = Annotations::new(config, pod);
    let host_ports = match (&config.runtime.port_mappings, pod) {
        (Some(mappings), _) => mappings.clone(),
        (None, Some(pod)) => {
            PortMapping::check_unique(&pod.host_ports)?;
            pod.host_ports.clone()
        }
        (None, None) => Vec::new(),
    };
    let floating_ips = annotations.addresses("floatingIPs")?.unwrap_or_default();
    if !floating_ips.is_empty() && !config.floating_ips {
        return Err(CniError::invalid(
            "requested feature is not enabled: floating_ips",
        ));
    }
    Ok(Plan {
        addresses: address_plan(config, args, &annotations, external)?,
        mac: mac(config, args, &annotations)?,
        host_ports,
        bandwidth: config.runtime.bandwidth,
        allowed_source_prefixes: annotations.prefixes("allowedSourcePrefixes")?,
        floating_ips,
        routes: routes(config),
    })
}

fn routes(config: &NetworkConfig) -> Vec<IpNet> {
    let mut routes = Vec::new();
    if !config.ipam.routes.is_empty() {
        if config.include_default_routes {
            routes.extend(default_routes());
        }
        routes.extend(config.ipam.routes.iter().map(IpNet::trunc));
    }
    routes
}

/// The default routes of both families.
pub fn default_routes() -> [IpNet; 2] {
    let v4 = IpNet::V4(ipnet::Ipv4Net::default());
    let v6 = IpNet::V6(ipnet::Ipv6Net::default());
    [v4, v6]
}

fn address_plan(
    config: &NetworkConfig,
    args: &PodArgs,
    annotations: &Annotations<'_>,
    external: Option<&AddResult>,
) -> Result<AddressPlan, CniError> {
    let fixed = annotations.addresses("ipAddrs")?;
    let without = annotations.addresses("ipAddrsNoIpam")?;
    if fixed.is_some() && without.is_some() {
        return Err(CniError::invalid(
            "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time",
        ));
    }
    if !config.ipam.is_own() {
        for (name, present) in [
            ("ipAddrs", fixed.is_some()),
            ("ipAddrsNoIpam", without.is_some()),
        ] {
            if present {
                let kind = &config.ipam.kind;
                return Err(CniError::invalid(format!(
                    "{name} is not compatible with configured IPAM: {kind}"
                )));
            }
        }
        let addresses: Vec<IpAddr> = external.map_or_else(Vec::new, |r| {
            r.ips.iter().map(|ip| ip.address.addr()).collect()
        });
        if addresses.is_empty() {
            let kind = &config.ipam.kind;
            return Err(CniError::invalid(format!(
                "IPAM plugin {kind} returned no address"
            )));
        }
        return Ok(AddressPlan::External(addresses));
    }
    if let Some(addresses) = without {
        if !config.ip_addrs_no_ipam {
            return Err(CniError::invalid(
                "requested feature is not enabled: ip_addrs_no_ipam",
            ));
        }
        one_per_family("ipAddrsNoIpam", &addresses)?;
        return Ok(AddressPlan::WithoutIpam(addresses));
    }
    if let Some(addresses) = fixed {
        one_per_family("ipAddrs", &addresses)?;
        return Ok(AddressPlan::Specific(addresses));
    }
    if let Some(address) = args.ip {
        return Ok(AddressPlan::Specific(vec![address]));
    }
    if !config.runtime.ips.is_empty() {
        one_per_family("runtimeConfig.ips", &config.runtime.ips)?;
        return Ok(AddressPlan::Specific(config.runtime.ips.clone()));
    }
    let (want_v4, want_v6) = match annotations.list("ipFamilies")? {
        None => (config.ipam.assign_ipv4, config.ipam.assign_ipv6),
        Some(words) => families(&words)?,
    };
    if !want_v4 && !want_v6 {
        return Err(CniError::invalid(
            "neither an IPv4 nor an IPv6 address is asked for",
        ));
    }
    let pools = |annotation: &str, configured: &[String]| {
        annotations
            .list(annotation)
            .map(|named| named.unwrap_or_else(|| configured.to_vec()))
    };
    let v4 = pools("ipv4pools", &config.ipam.ipv4_pools)?;
    let v6 = pools("ipv6pools", &config.ipam.ipv6_pools)?;
    Ok(AddressPlan::Automatic {
        v4: want_v4.then_some(v4),
        v6: want_v6.then_some(v6),
    })
}

fn families(words: &[String]) -> Result<(bool, bool), CniError> {
    if let Some(word) = words.iter().find(|word| *word != "IPv4" && *word != "IPv6") {
        return Err(CniError::invalid("error parsing ipFamilies")
            .with_details(format!("{word:?} is neither IPv4 nor IPv6")));
    }
    Ok((
        words.iter().any(|word| word == "IPv4"),
        words.iter().any(|word| word == "IPv6"),
    ))
}

fn one_per_family(what: &str, addresses: &[IpAddr]) -> Result<(), CniError> {
    for (family, v4) in [("IPv4", true), ("IPv6", false)] {
        if addresses
            .iter()
            .filter(|address| address.is_ipv4() == v4)
            .count()
            > 1
        {
            return Err(CniError::invalid(format!(
                "cannot have more than one {family} address for \"{what}\" annotation"
            )));
        }
    }
    Ok(())
}

fn mac(
    config: &NetworkConfig,
    args: &PodArgs,
    annotations: &Annotations<'_>,
) -> Result<Option<[u8; 6]>, CniError> {
    let text = annotations.pod("hwAddr").filter(|text| !text.is_empty());
    let Some(text) = text
        .or(args.mac.as_deref())
        .or(config.runtime.mac.as_deref())
    else {
        return Ok(None);
    };
    parse_mac(text)
        .ok_or_else(|| CniError::invalid(format!("{text:?} is not a usable MAC address")))
        .map(Some)
}

/// Six hex octets separated by colons or dashes; not zero, not multicast.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split([':', '-']);
    for octet in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    (parts.next().is_none() && mac != [0; 6] && mac[0] & 1 == 0).then_some(mac)
}

/// Annotations of a pod, with those of its namespace and the runtime's copy behind them.
struct Annotations<'a> {
    pod: &'a BTreeMap<String, String>,
    namespace: Option<&'a BTreeMap<String, String>>,
    own_ipam: bool,
}

impl<'a> Annotations<'a> {
    fn new(config: &'a NetworkConfig, pod: Option<&'a PodFacts>) -> Self {
        Annotations {
            pod: pod.map_or(&config.runtime.pod_annotations, |pod| &pod.annotations),
            namespace: pod.map(|pod| &pod.namespace_annotations),
            own_ipam: config.ipam.is_own(),
        }
    }

    fn pod(&self, name: &str) -> Option<&'a str> {
        self.pod.get(&format!("{PREFIX}{name}")).map(String::as_str)
    }

    /// A JSON list of words, from the pod or its namespace; only read for our own IPAM.
    fn list(&self, name: &str) -> Result<Option<Vec<String>>, CniError> {
        let inherited = || {
            self.namespace
                .and_then(|map| map.get(&format!("{PREFIX}{name}")))
                .map(String::as_str)
        };
        match self
            .pod(name)
            .or_else(inherited)
            .filter(|text| self.own_ipam && !text.is_empty())
        {
            None => Ok(None),
            Some(text) => parse_list(name, text).map(Some),
        }
    }

    /// A JSON list of addresses, from the pod only.
    fn addresses(&self, name: &str) -> Result<Option<Vec<IpAddr>>, CniError> {
        let Some(text) = self.pod(name) else {
            return Ok(None);
        };
        let words = parse_list(name, text)?;
        if words.is_empty() {
            return Err(CniError::invalid(format!(
                "annotation \"{PREFIX}{name}\" specified but empty"
            )));
        }
        words
            .iter()
            .map(|word| {
                word.parse()
                    .map_err(|_| CniError::invalid(format!("invalid IP format: {word}")))
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A JSON list of prefixes, from the pod only; host bits are cut off.
    fn prefixes(&self, name: &str) -> Result<Vec<IpNet>, CniError> {
        let Some(text) = self.pod(name) else {
            return Ok(Vec::new());
        };
        parse_list(name, text)?
            .iter()
            .map(|word| {
                let net: Result<IpNet, _> = word.parse();
                net.map(|net| net.trunc())
                    .map_err(|_| CniError::invalid(format!("{name}: {word:?} is no prefix")))
            })
            .collect()
    }
}

fn parse_list(name: &str, text: &str) -> Result<Vec<String>, CniError> {
    serde_json::from_str(text).map_err(|error| {
        CniError::invalid(format!(
            "failed to parse '{text}' as JSON list for annotation {PREFIX}{name}"
        ))
        .with_details(error.to_string())
    })
}

#[cfg(test)]
mod tests;
