//! The node's BGP addresses: from the environment, from detection, or as stored.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::bail;
use ipnet::IpNet;
use margay_felix::calc::sessions::{BgpNode, Networks, NodeAddress};

use super::autodetect::{Method, owned};
use super::environment::{AddressSource, Environment};
use super::interfaces::Interface;

/// The addresses to use from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) v4: Option<IpNet>,
    pub(crate) v6: Option<IpNet>,
    /// What the operator should know, one sentence each.
    pub(crate) warnings: Vec<String>,
}

impl Settled {
    /// True when an address differs from the stored one.
    pub(crate) fn changes(&self, stored: &Networks) -> bool {
        let ip = |net: Option<IpNet>| net.map(|net| net.addr());
        ip(self.v4) != stored.v4.map(|address| address.ip())
            || ip(self.v6) != stored.v6.map(|address| address.ip())
    }

    /// The first other node that has one of the addresses.
    pub(crate) fn conflict<'a>(
        &self,
        others: &'a BTreeMap<String, BgpNode>,
    ) -> Option<(&'a str, IpAddr)> {
        let mine: Vec<IpAddr> = [self.v4, self.v6]
            .into_iter()
            .flatten()
            .map(|net| net.addr())
            .collect();
        others.iter().find_map(|(name, node)| {
            let theirs = [node.addresses.v4, node.addresses.v6]
                .into_iter()
                .flatten()
                .map(|address| address.ip());
            theirs
                .into_iter()
                .find(|ip| mine.contains(ip))
                .map(|ip| (name.as_str(), ip))
        })
    }

    /// In the form calc reads.
    pub(crate) fn networks(&self) -> Networks {
        Networks {
            v4: self.v4.map(|net| NodeAddress { net }),
            v6: self.v6.map(|net| NodeAddress { net }),
        }
    }
}

/// Settles both families.
///
/// # Errors
/// A family has to be detected, is not found and nothing is stored; or no family has an address.
pub(crate) fn settle(
    environment: &Environment,
    stored: &Networks,
    interfaces: &[Interface],
    node_addresses: &[IpAddr],
) -> anyhow::Result<Settled> {
    let mut settled = Settled::default();
    let mut family =
        |v4: bool, source: &AddressSource, method: &Method, stored: Option<NodeAddress>| {
            settle_family(
                v4,
                source,
                method,
                stored,
                interfaces,
                node_addresses,
                &mut settled.warnings,
            )
        };
    let v4 = family(true, &environment.ip, &environment.method, stored.v4)?;
    let v6 = family(false, &environment.ip6, &environment.method6, stored.v6)?;
    if v4.is_none() && v6.is_none() {
        bail!(
            "this node has neither an IPv4 nor an IPv6 address for BGP; set IP or IP6, or choose an autodetection method"
        );
    }
    settled.v4 = v4;
    settled.v6 = v6;
    Ok(settled)
}

fn settle_family(
    v4: bool,
    source: &AddressSource,
    method: &Method,
    stored: Option<NodeAddress>,
    interfaces: &[Interface],
    node_addresses: &[IpAddr],
    warnings: &mut Vec<String>,
) -> anyhow::Result<Option<IpNet>> {
    let stored = stored.map(|address| address.net);
    let net = match source {
        AddressSource::Stored => stored,
        AddressSource::DetectIfAbsent if stored.is_some() => stored,
        AddressSource::Detect | AddressSource::DetectIfAbsent => {
            match (method.detect(v4, interfaces, node_addresses), stored) {
                (Ok(found), _) => return Ok(Some(found)),
                (Err(cause), Some(stored)) => {
                    warnings.push(format!("{cause}; keeping {stored}"));
                    Some(stored)
                }
                (Err(cause), None) => bail!("{cause}"),
            }
        }
        // The prefix is looked up for IPv4 only; a bare IPv6 address is a host prefix.
        AddressSource::Literal(ip) => Some(
            owned(interfaces, *ip)
                .filter(|_| v4)
                .unwrap_or_else(|| IpNet::from(*ip)),
        ),
        AddressSource::LiteralNet(net) => Some(*net),
    };
    let Some(net) = net else { return Ok(None) };
    let Some(own) = owned(interfaces, net.addr()) else {
        warnings.push(format!("{} is on no interface of this host", net.addr()));
        return Ok(Some(net));
    };
    // A stored host prefix would make every other node look remote; the interface knows better, unless the operator
    // wrote the host prefix.
    let explicit = matches!(
        source,
        AddressSource::LiteralNet(_) | AddressSource::Literal(_)
    );
    let is_host_prefix = net.prefix_len() == net.max_prefix_len();
    Ok(Some(if is_host_prefix && !explicit {
        own
    } else {
        net
    }))
}

#[cfg(test)]
mod tests {
    use margay_felix::calc::sessions::Family;

    use super::*;

    fn interfaces() -> Vec<Interface> {
        vec![Interface {
            index: 2,
            name: "eth0".into(),
            up: true,
            addresses: vec![
                "10.0.0.5/24".parse().expect("net"),
                "fd00::5/64".parse().expect("net"),
            ],
        }]
    }

    fn run(
        pairs: &[(&str, &str)],
        stored: &Networks,
    ) -> Result<(Option<String>, Option<String>, usize), String> {
        let lookup = |name: &str| {
            pairs
                .iter()
                .find(|(k, _)| *k == name)
                .map(|(_, v)| (*v).to_owned())
        };
        let environment = Environment::read(&lookup).map_err(|error| error.to_string())?;
        let text = |net: Option<IpNet>| net.map(|net| net.to_string());
        settle(&environment, stored, &interfaces(), &[])
            .map(|s| (text(s.v4), text(s.v6), s.warnings.len()))
            .map_err(|error| error.to_string())
    }

    fn stored(v4: &str) -> Networks {
        Networks {
            v4: NodeAddress::parse(v4, Family::V4),
            v6: None,
        }
    }

    #[test]
    fn every_setting_gives_its_address() {
        let none = Networks::default();
        let old = stored("10.0.0.9/24");
        for (ip, ip6, before, v4, v6, warnings) in [
            ("", "", &none, Some("10.0.0.5/24"), None, 0),
            ("", "", &old, Some("10.0.0.9/24"), None, 1),
            ("autodetect", "", &old, Some("10.0.0.5/24"), None, 0),
            ("none", "autodetect", &none, None, Some("fd00::5/64"), 0),
            ("10.0.0.5", "", &none, Some("10.0.0.5/24"), None, 0),
            ("10.0.0.7", "", &none, Some("10.0.0.7/32"), None, 1),
            (
                "10.0.0.5/16",
                "fd00::5",
                &none,
                Some("10.0.0.5/16"),
                Some("fd00::5/128"),
                0,
            ),
            ("", "", &stored("10.0.0.5/32"), Some("10.0.0.5/24"), None, 0),
            ("10.0.0.5/32", "", &none, Some("10.0.0.5/32"), None, 0),
        ] {
            let expected = Ok((v4.map(str::to_owned), v6.map(str::to_owned), warnings));
            assert_eq!(
                run(&[("IP", ip), ("IP6", ip6)], before),
                expected,
                "IP={ip:?} IP6={ip6:?}"
            );
        }
    }

    #[test]
    fn failing_detection_keeps_what_is_stored_and_fails_without() {
        let method = [
            ("IP", "autodetect"),
            ("IP_AUTODETECTION_METHOD", "interface=eth7"),
        ];
        assert_eq!(
            run(&method, &stored("10.0.0.5/24")),
            Ok((Some("10.0.0.5/24".into()), None, 1))
        );
        assert!(
            run(&method, &Networks::default())
                .expect_err("nothing stored")
                .contains("eth7")
        );
    }

    #[test]
    fn a_node_without_any_address_cannot_start() {
        let error = run(&[("IP", "none")], &Networks::default()).expect_err("no address");
        assert!(error.contains("neither"), "{error}");
    }

    #[test]
    fn an_address_of_another_node_is_a_conflict_whatever_its_prefix() {
        let other = BgpNode {
            addresses: stored("10.0.0.5/16"),
            ..BgpNode::default()
        };
        let others = BTreeMap::from([("edge-b".to_owned(), other)]);
        let settled = Settled {
            v4: Some("10.0.0.5/24".parse().expect("net")),
            ..Settled::default()
        };
        assert_eq!(
            settled.conflict(&others).map(|(name, _)| name),
            Some("edge-b")
        );
        assert!(settled.changes(&Networks::default()) && !settled.changes(&stored("10.0.0.5/32")));
    }
}
