//! natOutgoing: what leaves the pools gets the node's address as source.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::dataplane::NatOutgoing;
use crate::desired::PoolView;
use crate::kernel::nft::{
    BaseChain, Chain, CmpOp, Expr, Family, Hook, LOCAL_ADDRESS, MetaKey, NatKind, Rule, Set, Table,
    Verdict,
};

/// Our table in both families.
const TABLE: &str = "margay";
const BASE: &str = "nat-POSTROUTING";
const TOP: &str = "nat-cali-POSTROUTING";
const OUTGOING: &str = "nat-cali-nat-outgoing";
/// After kube-proxy's (100): what it translated is translated for good.
const PRIORITY: i32 = 110;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// `IFNAMSIZ`.
const INTERFACE_NAME: usize = 16;

/// What the table depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NatInput<'a> {
    pub(crate) pools: &'a [PoolView],
    /// Tunnel devices with an address, and the UDP port that translated source ports must avoid.
    pub(crate) tunnels: &'a [String],
    pub(crate) vxlan_port: u16,
    /// Addresses of all nodes of the cluster.
    pub(crate) hosts: &'a [IpAddr],
    pub(crate) settings: &'a NatOutgoing,
}

/// The table of a family.
pub(crate) fn table(family: Family, input: NatInput<'_>) -> Table {
    let mut table = Table::new(family, TABLE);
    let names = Names::of(family);
    let cidrs = |wanted: fn(&PoolView) -> bool| {
        let pools = input.pools.iter().filter(move |p| wanted(p));
        pools.map(|p| p.cidr).collect::<Vec<IpNet>>()
    };
    let masqueraded = cidrs(|p| p.workload && p.nat_outgoing);
    let any = masqueraded
        .iter()
        .any(|n| n.addr().is_ipv6() == family.is_ipv6());
    table.sets.insert(
        names.masqueraded.clone(),
        Set::prefixes(family, masqueraded),
    );
    table.sets.insert(
        names.pools.clone(),
        Set::prefixes(family, cidrs(|p| p.workload)),
    );
    table.sets.insert(
        names.hosts.clone(),
        Set::addresses(family, input.hosts.iter().copied()),
    );

    let jump = |to: &str, origin: &str| {
        Rule::new(
            vec![Expr::Counter, Expr::Verdict(Verdict::Jump(to.to_owned()))],
            origin,
        )
    };
    let mut top = vec![jump(OUTGOING, "margay nat")];
    for device in input.tunnels {
        top.extend(into_tunnel(device, input.vxlan_port));
    }
    let base = BaseChain {
        kind: "nat".into(),
        hook: Hook::Postrouting,
        priority: PRIORITY,
    };
    let origin = "margay nat";
    table.chains.insert(
        BASE.into(),
        Chain {
            base: Some(base),
            rules: vec![jump(TOP, origin)],
        },
    );
    table.chains.insert(
        TOP.into(),
        Chain {
            base: None,
            rules: top,
        },
    );
    let rules = if any {
        outgoing(family, &names, input)
    } else {
        Vec::new()
    };
    table
        .chains
        .insert(OUTGOING.into(), Chain { base: None, rules });
    table
}

/// Set names; the listing of `nft` shows them.
struct Names {
    masqueraded: String,
    pools: String,
    hosts: String,
}

impl Names {
    fn of(family: Family) -> Self {
        let prefix = if family.is_ipv6() { "cali60" } else { "cali40" };
        Self {
            masqueraded: format!("{prefix}masq-ipam-pools"),
            pools: format!("{prefix}network-ip-pools"),
            hosts: format!("{prefix}all-hosts-net"),
        }
    }
}

fn outgoing(family: Family, names: &Names, input: NatInput<'_>) -> Vec<Rule> {
    let settings = input.settings;
    let lookup = |set: &str, invert| Expr::Lookup {
        set: set.to_owned(),
        register: 1,
        invert,
    };
    let mut matches = vec![
        Expr::source_address(family),
        lookup(&names.masqueraded, false),
        Expr::destination_address(family),
        lookup(&names.pools, true),
    ];
    if settings.exclude_hosts {
        matches.push(Expr::destination_address(family));
        matches.push(lookup(&names.hosts, true));
    }
    if let Some(interface) = &settings.interface {
        matches.push(Expr::Meta {
            key: MetaKey::OutputInterface,
            register: 1,
        });
        matches.push(interface_match(interface));
    }
    let pools: Vec<&str> = input
        .pools
        .iter()
        .filter(|p| p.nat_outgoing && p.workload && p.cidr.addr().is_ipv6() == family.is_ipv6())
        .map(|p| p.name.as_str())
        .collect();
    let origin = format!("IPPool/{} spec.natOutgoing", pools.join(","));

    let mut rules = Vec::new();
    if let Some(ports) = settings.port_range {
        for protocol in [TCP, UDP] {
            let mut of_protocol = matches.clone();
            of_protocol.push(Expr::Meta {
                key: MetaKey::Protocol,
                register: 1,
            });
            let value = vec![protocol];
            of_protocol.push(Expr::Cmp {
                op: CmpOp::Equal,
                register: 1,
                value,
            });
            let mut translate = of_protocol.clone();
            translate.push(Expr::Counter);
            translate.extend(translation(family, settings, Some(ports)));
            rules.push(Rule::new(translate, &origin));
            // A packet for which no port of the range is free stays as it is.
            of_protocol.extend([Expr::Counter, Expr::Verdict(Verdict::Return)]);
            rules.push(Rule::new(of_protocol, &origin));
        }
    }
    matches.push(Expr::Counter);
    matches.extend(translation(family, settings, None));
    rules.push(Rule::new(matches, &origin));
    rules
}

/// The end of a rule: translate, to a given address or to the outgoing interface's.
fn translation(family: Family, settings: &NatOutgoing, ports: Option<(u16, u16)>) -> Vec<Expr> {
    let address = settings
        .addresses
        .iter()
        .find(|a| a.is_ipv6() == family.is_ipv6());
    let fully_random = settings.port_range.is_none();
    let mut exprs = Vec::new();
    let registers = ports.map(|(low, high)| {
        exprs.push(Expr::Load {
            register: 2,
            value: low.to_be_bytes().to_vec(),
        });
        exprs.push(Expr::Load {
            register: 3,
            value: high.to_be_bytes().to_vec(),
        });
        (2, 3)
    });
    match address {
        None => exprs.push(Expr::Masquerade {
            fully_random,
            ports: registers,
        }),
        Some(address) => {
            let value = match address {
                IpAddr::V4(a) => a.octets().to_vec(),
                IpAddr::V6(a) => a.octets().to_vec(),
            };
            exprs.push(Expr::Load { register: 1, value });
            exprs.push(Expr::Nat {
                kind: NatKind::Source,
                family: family.number(),
                address: 1,
                ports: registers,
                fully_random,
            });
        }
    }
    exprs
}

/// Packets of the node itself that enter a tunnel with another source than the tunnel's address, for example on their
/// way to a service address, could not be answered: they get the tunnel's address. A source port equal to VXLAN's own
/// would make the reply look like a tunnel packet.
fn into_tunnel(device: &str, vxlan_port: u16) -> Vec<Rule> {
    let local = LOCAL_ADDRESS.to_ne_bytes().to_vec();
    let mut matches = vec![
        Expr::Meta {
            key: MetaKey::OutputInterface,
            register: 1,
        },
        interface_match(device),
        Expr::SourceType {
            of_output_interface: true,
            register: 1,
        },
        Expr::Cmp {
            op: CmpOp::NotEqual,
            register: 1,
            value: local.clone(),
        },
        Expr::SourceType {
            of_output_interface: false,
            register: 1,
        },
        Expr::Cmp {
            op: CmpOp::Equal,
            register: 1,
            value: local,
        },
    ];
    let mut udp = vec![
        Expr::Meta {
            key: MetaKey::Protocol,
            register: 1,
        },
        Expr::Cmp {
            op: CmpOp::Equal,
            register: 1,
            value: vec![UDP],
        },
    ];
    udp.extend(matches.iter().cloned());
    let (low, high) = ports_beside(vxlan_port);
    udp.extend([
        Expr::Counter,
        Expr::Load {
            register: 2,
            value: low.to_be_bytes().to_vec(),
        },
        Expr::Load {
            register: 3,
            value: high.to_be_bytes().to_vec(),
        },
        Expr::Masquerade {
            fully_random: true,
            ports: Some((2, 3)),
        },
    ]);
    matches.extend([
        Expr::Counter,
        Expr::Masquerade {
            fully_random: true,
            ports: None,
        },
    ]);
    let origin = format!("margay tunnel {device}");
    vec![Rule::new(udp, &origin), Rule::new(matches, &origin)]
}

/// The wider side of the unprivileged ports beside a port.
fn ports_beside(port: u16) -> (u16, u16) {
    if port < 1024 {
        (1024, u16::MAX)
    } else if port - 1024 > u16::MAX - port {
        (1024, port - 1)
    } else {
        (port + 1, u16::MAX)
    }
}

/// Compares the whole name, or its beginning when it ends with `+`.
fn interface_match(interface: &str) -> Expr {
    let value = match interface.strip_suffix('+') {
        Some(beginning) => beginning.as_bytes().to_vec(),
        None => {
            let mut name = interface.as_bytes().to_vec();
            name.resize(INTERFACE_NAME, 0);
            name
        }
    };
    Expr::Cmp {
        op: CmpOp::Equal,
        register: 1,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::EncapMode;

    fn pool(cidr: &str, nat_outgoing: bool, workload: bool) -> PoolView {
        PoolView {
            name: cidr.into(),
            cidr: cidr.parse().unwrap(),
            nat_outgoing,
            ipip: EncapMode::Never,
            vxlan: EncapMode::Never,
            workload,
        }
    }

    fn build(pools: &[PoolView], settings: &NatOutgoing) -> Table {
        table(
            Family::Ipv4,
            NatInput {
                pools,
                tunnels: &[],
                vxlan_port: 4789,
                hosts: &[],
                settings,
            },
        )
    }

    #[test]
    fn translated_ports_stay_clear_of_the_vxlan_port() {
        assert_eq!(ports_beside(4789), (4790, 65_535));
        assert_eq!(ports_beside(60_000), (1024, 59_999));
        assert_eq!(ports_beside(80), (1024, 65_535));
    }

    #[test]
    fn without_a_pool_that_asks_for_it_nothing_is_translated() {
        let table = build(&[pool("10.0.0.0/8", false, true)], &NatOutgoing::default());
        assert!(table.chains[OUTGOING].rules.is_empty());
        let v6_only = build(&[pool("fd00::/64", true, true)], &NatOutgoing::default());
        assert!(v6_only.chains[OUTGOING].rules.is_empty());
    }

    #[test]
    fn pools_for_load_balancers_count_neither_as_source_nor_as_inside() {
        let pools = [
            pool("10.0.0.0/16", true, true),
            pool("10.200.0.0/24", true, false),
        ];
        let table = build(&pools, &NatOutgoing::default());
        assert_eq!(table.sets["cali40network-ip-pools"].elements.len(), 2);
        assert_eq!(table.sets["cali40masq-ipam-pools"].elements.len(), 2);
    }

    #[test]
    fn a_port_range_gives_five_rules_and_hosts_can_be_left_out() {
        let settings = NatOutgoing {
            exclude_hosts: true,
            port_range: Some((40_000, 40_100)),
            ..NatOutgoing::default()
        };
        let table = build(&[pool("10.0.0.0/16", true, true)], &settings);
        let rules = &table.chains[OUTGOING].rules;
        assert_eq!(rules.len(), 5);
        assert!(rules.iter().all(|r| r.exprs.iter().any(
            |e| matches!(e, Expr::Lookup { set, invert: true, .. } if set == "cali40all-hosts-net")
        )));
        assert!(
            rules[0]
                .comment
                .contains("IPPool/10.0.0.0/16 spec.natOutgoing")
        );
    }
}
