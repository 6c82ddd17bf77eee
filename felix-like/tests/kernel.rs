//! The kernel layer by itself: what the kernel does with our requests, and what we make of its answers.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use margay_felix::kernel::conntrack::Conntrack;
use margay_felix::kernel::monitor::{RouteEvent, RouteMonitor};
use margay_felix::kernel::netlink::Operation;
use margay_felix::kernel::netns::Netns;
use margay_felix::kernel::nft::{
    BaseChain, Batch, Chain, CmpOp, CommitError, Data, Element, Expr, Family, Hook, KeyType,
    MetaKey, NftEvent, NftMonitor, NftSocket, Rule, Set, Table, TableFlags, Verdict, difference,
};
use margay_felix::kernel::rtnl::{Hop, LinkChange, RouteKey, RouteSpec, Rtnl, Scope};
use support::{Node, PATIENCE, eventually, run, set_up};

fn key(prefix: &str, metric: u32) -> RouteKey {
    RouteKey::new(prefix.parse().unwrap(), metric)
}

fn via(link: u32, gateway: &str, onlink: bool) -> RouteSpec {
    let hop = Hop::via(link, gateway.parse().unwrap(), onlink);
    RouteSpec::unicast(80, Scope::Universe, vec![hop])
}

#[test]
fn every_form_of_route_is_accepted_and_read_back_as_written() {
    let mut node = Node::new();
    let eth0 = node.index("eth0");
    let two = vec![
        Hop::via(eth0, "172.17.0.6".parse().unwrap(), false),
        Hop::via(eth0, "172.17.0.7".parse().unwrap(), true),
    ];
    let mut with_mtu = via(eth0, "172.17.0.6", false);
    (with_mtu.mtu, with_mtu.source) = (Some(1400), Some("172.17.0.5".parse().unwrap()));
    let routes = [
        (key("10.65.0.0/26", 0), RouteSpec::blackhole(80)),
        (key("10.66.0.0/26", 0), via(eth0, "172.16.9.9", true)),
        (
            key("10.67.0.0/26", 512),
            RouteSpec::unicast(80, Scope::Universe, two),
        ),
        (key("10.68.0.0/26", 0), via(eth0, "fe80::1", true)),
        (key("10.69.0.0/26", 0), with_mtu),
        (key("fd00:1::/122", 0), RouteSpec::blackhole(80)),
        (key("fd00:2::/122", 0), via(eth0, "fd17::6", false)),
    ];
    let operations: Vec<Operation> = routes.iter().map(|(k, s)| s.replace(k)).collect();
    assert!(node.rtnl.batch(&operations).iter().all(Result::is_ok));
    let there = node.rtnl.routes(None).unwrap();
    for (key, spec) in &routes {
        let found: Vec<_> = there.iter().filter(|(k, _)| k == key).collect();
        assert_eq!(found.len(), 1, "{key}");
        assert_eq!(&found[0].1, spec, "{key}");
    }
}

#[test]
fn an_error_inside_a_batch_hits_only_its_own_message_and_carries_the_kernels_words() {
    let mut node = Node::new();
    let eth0 = node.index("eth0");
    let mut operations: Vec<Operation> = (1..=5u8)
        .map(|i| via(eth0, "172.17.0.6", false).replace(&key(&format!("10.70.{i}.0/24"), 0)))
        .collect();
    operations[2] = via(eth0, "172.31.9.9", false).replace(&key("10.70.3.0/24", 0));
    let results = node.rtnl.batch(&operations);
    let ok: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, true, false, true, true]);
    let error = results[2].clone().unwrap_err();
    assert!(error.is(libc::ENETUNREACH), "{error}");
    assert!(
        error.to_string().contains("Nexthop has invalid gateway"),
        "{error}"
    );
    for i in [1, 2, 4, 5] {
        assert!(node.has_route(&format!("10.70.{i}.0/24")));
    }
}

#[test]
fn a_hundred_thousand_routes_go_in_fast_and_a_full_answer_buffer_does_not_hang() {
    let mut node = Node::new();
    let eth0 = node.index("eth0");
    let spec = via(eth0, "172.17.0.6", false);
    let prefix = |i: u32| {
        let address = Ipv4Addr::from(0x1400_0000 + (i << 8));
        RouteKey::new(ipnet::IpNet::new(address.into(), 24).unwrap(), 0)
    };
    let operations: Vec<Operation> = (0..100_000).map(|i| spec.replace(&prefix(i))).collect();
    let start = Instant::now();
    assert!(node.rtnl.batch(&operations).iter().all(Result::is_ok));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(node.rtnl.routes(None).unwrap().len(), 100_000 + 4);
}

#[test]
fn routes_of_others_are_neither_deleted_nor_told_of_when_nothing_changes() {
    let mut node = Node::new();
    let eth0 = node.index("eth0");
    run(
        &node.netns,
        "ip route add 10.71.0.0/24 via 172.17.0.6 proto static",
    );
    // Ours would be the same but for the protocol: the kernel does not find it.
    let result = node
        .rtnl
        .batch(&[via(eth0, "172.17.0.6", false).delete(&key("10.71.0.0/24", 0))]);
    assert!(result[0].clone().unwrap_err().is(libc::ESRCH));
    assert!(node.has_route("10.71.0.0/24"));

    // An identical replace causes no notice, so a resync cannot feed itself.
    let spec = via(eth0, "172.17.0.6", false);
    node.rtnl.batch(&[spec.replace(&key("10.72.0.0/24", 0))]);
    let monitor = node
        .netns
        .run(|| RouteMonitor::open(1 << 20).unwrap())
        .unwrap();
    node.rtnl.batch(&[
        spec.replace(&key("10.72.0.0/24", 0)),
        spec.replace(&key("10.73.0.0/24", 0)),
    ]);
    let mut first = None;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    monitor.run(&[], &stop, |event| {
        if let RouteEvent::Route { key, .. } = event {
            first = Some(key);
            return false;
        }
        true
    });
    assert_eq!(first, Some(key("10.73.0.0/24", 0)));
}

#[test]
fn one_replace_turns_two_ipv6_legs_into_a_third_alone() {
    let mut node = Node::new();
    let eth0 = node.index("eth0");
    let hop = |a: &str| Hop::via(eth0, a.parse().unwrap(), false);
    let two = RouteSpec::unicast(80, Scope::Universe, vec![hop("fd17::6"), hop("fd17::7")]);
    let one = via(eth0, "fd17::1", false);
    let key = key("fd00:9::/64", 0);
    node.rtnl.batch(&[two.replace(&key)]);
    assert_eq!(node.routes_to("fd00:9::/64"), [(key, two)]);
    node.rtnl.batch(&[one.replace(&key)]);
    assert_eq!(node.routes_to("fd00:9::/64"), [(key, one)]);
}

#[test]
fn lost_notices_are_reported_once_as_an_overrun() {
    let mut node = Node::new();
    let monitor = node
        .netns
        .run(|| RouteMonitor::open(64 << 10).unwrap())
        .unwrap();
    let spec = via(node.index("eth0"), "172.17.0.6", false);
    let operations: Vec<Operation> = (0..3000u32)
        .map(|i| {
            let address = Ipv4Addr::from(0x1400_0000 + (i << 8));
            spec.replace(&RouteKey::new(
                ipnet::IpNet::new(address.into(), 24).unwrap(),
                0,
            ))
        })
        .collect();
    node.rtnl.batch(&operations);
    // The overrun is told first, then what did fit.
    let mut events = Vec::new();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let quit = std::sync::Arc::clone(&stop);
    monitor.run(&[], &stop, |event| {
        events.push(event);
        // Ends once nothing more comes.
        quit.store(true, std::sync::atomic::Ordering::Relaxed);
        true
    });
    assert_eq!(events, [RouteEvent::Overrun]);
}

fn big_table(rules: u32) -> Table {
    let mut table = Table::new(Family::Ipv4, "margay-test");
    let base = BaseChain {
        kind: "filter".into(),
        hook: Hook::Forward,
        priority: 0,
    };
    table.chains.insert(
        "forward".into(),
        Chain {
            base: Some(base),
            rules: Vec::new(),
        },
    );
    let rules = (0..rules)
        .map(|i| {
            let value = Ipv4Addr::from(0x0a00_0000 + i).octets().to_vec();
            let exprs = vec![
                Expr::source_address(Family::Ipv4),
                Expr::Cmp {
                    op: CmpOp::Equal,
                    register: 1,
                    value,
                },
                Expr::Meta {
                    key: MetaKey::Protocol,
                    register: 1,
                },
                Expr::Cmp {
                    op: CmpOp::Equal,
                    register: 1,
                    value: vec![6],
                },
                Expr::Transport {
                    offset: 2,
                    length: 2,
                    register: 1,
                },
                Expr::Cmp {
                    op: CmpOp::Equal,
                    register: 1,
                    value: vec![0, 80],
                },
                Expr::Counter,
                Expr::Verdict(Verdict::Accept),
            ];
            Rule::new(exprs, "Test/rule")
        })
        .collect();
    table
        .chains
        .insert("many".into(), Chain { base: None, rules });
    table
}

fn commit(socket: &mut NftSocket, desired: &Table) -> usize {
    let actual = socket
        .read(desired.family, &desired.name)
        .unwrap()
        .0
        .map(|(t, _)| t);
    let batch = difference(desired, actual.as_ref(), TableFlags::PLAIN, false);
    socket.commit(&batch, None).unwrap();
    batch.len()
}

#[test]
fn ten_thousand_rules_are_one_transaction_and_read_back_equal() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    let table = big_table(10_000);
    let start = Instant::now();
    commit(&mut socket, &table);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (read, _) = socket.read(Family::Ipv4, "margay-test").unwrap().0.unwrap();
    assert_eq!(read, table);
    assert_eq!(commit(&mut socket, &table), 0, "nothing differs");
    let mut one_less = table.clone();
    one_less.chains.get_mut("many").unwrap().rules.pop();
    assert!(commit(&mut socket, &one_less) > 0);
}

#[test]
fn all_bad_messages_of_a_transaction_are_named_and_nothing_of_it_is_applied() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    commit(&mut socket, &big_table(0));
    let mut batch = Batch::new();
    let good = Rule::new(vec![Expr::Verdict(Verdict::Accept)], "good");
    let bad = Rule::new(vec![Expr::Verdict(Verdict::Jump("nowhere".into()))], "bad");
    for rule in [&good, &bad, &good, &bad] {
        batch.rule(Family::Ipv4, "margay-test", "many", rule);
    }
    let CommitError::Refused(refused) = socket.commit(&batch, None).unwrap_err() else {
        panic!("refusals expected");
    };
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(
        refused
            .iter()
            .all(|(label, e)| label.contains("bad") && e.is(libc::ENOENT))
    );
    let (read, _) = socket.read(Family::Ipv4, "margay-test").unwrap().0.unwrap();
    assert!(read.chains["many"].rules.is_empty());
}

#[test]
fn a_transaction_for_an_older_generation_is_refused_as_stale() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    let (_, generation) = socket.read(Family::Ipv4, "margay-test").unwrap();
    let mut other = NftSocket::open_in(&netns).unwrap();
    let mut batch = Batch::new();
    batch.table(Family::Ipv4, "foreign", TableFlags::PLAIN);
    other.commit(&batch, None).unwrap();
    let mut batch = Batch::new();
    batch.table(Family::Ipv4, "margay-test", TableFlags::PLAIN);
    assert_eq!(
        socket.commit(&batch, Some(generation)),
        Err(CommitError::Stale)
    );
    assert!(
        socket
            .read(Family::Ipv4, "margay-test")
            .unwrap()
            .0
            .is_none()
    );
    let (_, generation) = socket.read(Family::Ipv4, "margay-test").unwrap();
    socket.commit(&batch, Some(generation)).unwrap();
}

#[test]
fn a_commit_is_announced_with_its_thread_and_the_tables_it_touched() {
    let netns = Netns::create().unwrap();
    let monitor = netns.run(|| NftMonitor::open(1 << 20).unwrap()).unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    commit(&mut socket, &big_table(1));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut seen = None;
    monitor.run(&stop, |event| {
        seen = Some(event);
        false
    });
    let Some(NftEvent::Generation { thread, tables, .. }) = seen else {
        panic!("{seen:?}")
    };
    assert_eq!(thread, nix::unistd::gettid().as_raw() as u32);
    assert_eq!(tables, BTreeSet::from([(2, "margay-test".to_owned())]));
}

#[test]
fn large_sets_are_split_and_grow_by_one_element_in_no_time() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    let address = |i: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + i));
    let mut table = Table::new(Family::Ipv4, "margay-test");
    let set = Set::addresses(Family::Ipv4, (0..50_000).map(address));
    table.sets.insert("pods".into(), set);
    commit(&mut socket, &table);
    // The kernel enlarges the hash table in the background; a dump meanwhile may skip elements.
    eventually("all elements", PATIENCE, || {
        let (read, _) = socket.read(Family::Ipv4, "margay-test").unwrap().0.unwrap();
        read == table
    });
    let mut grown = table.clone();
    grown
        .sets
        .get_mut("pods")
        .unwrap()
        .elements
        .insert(Element::address(address(60_000)));
    let batch = difference(&grown, Some(&table), TableFlags::PLAIN, false);
    assert_eq!(batch.len(), 1);
    let start = Instant::now();
    socket.commit(&batch, None).unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn maps_marks_and_changed_types_are_written_and_read_back() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    let mut table = big_table(1);
    let mut name = b"caliA".to_vec();
    name.resize(16, 0);
    let data = Some(Data::Verdict(Verdict::Jump("many".into())));
    let element = Element {
        key: name,
        range_end: false,
        data,
    };
    let dispatch = Set {
        key: KeyType::INTERFACE,
        data: Some(KeyType::VERDICT),
        interval: false,
        elements: BTreeSet::from([element]),
    };
    table.sets.insert("dispatch".into(), dispatch);
    let rules = vec![
        Rule::new(
            vec![
                Expr::Load {
                    register: 1,
                    value: 0x1_0000u32.to_ne_bytes().to_vec(),
                },
                Expr::SetMeta {
                    key: MetaKey::Mark,
                    register: 1,
                },
                Expr::Meta {
                    key: MetaKey::InputInterface,
                    register: 1,
                },
                Expr::VerdictMap {
                    map: "dispatch".into(),
                    register: 1,
                },
            ],
            "Test/mark",
        ),
        Rule::new(
            vec![
                Expr::SourceType {
                    of_output_interface: false,
                    register: 1,
                },
                Expr::Cmp {
                    op: CmpOp::Equal,
                    register: 1,
                    value: 2u32.to_ne_bytes().to_vec(),
                },
                Expr::Verdict(Verdict::Drop),
            ],
            "Test/fib",
        ),
    ];
    table.chains.get_mut("forward").unwrap().rules = rules;
    commit(&mut socket, &table);
    let (read, _) = socket.read(Family::Ipv4, "margay-test").unwrap().0.unwrap();
    assert_eq!(read, table);
    // A set that becomes one of ranges, and a chain that moves, need the table anew: still one transaction.
    table.sets.insert(
        "pods".into(),
        Set::addresses(Family::Ipv4, ["10.0.0.1".parse().unwrap()]),
    );
    commit(&mut socket, &table);
    table.sets.insert(
        "pods".into(),
        Set::prefixes(Family::Ipv4, ["10.0.0.0/8".parse().unwrap()]),
    );
    table
        .chains
        .get_mut("forward")
        .unwrap()
        .base
        .as_mut()
        .unwrap()
        .priority = 10;
    commit(&mut socket, &table);
    let (read, _) = socket.read(Family::Ipv4, "margay-test").unwrap().0.unwrap();
    assert_eq!(read, table);
}

#[test]
fn only_the_flows_of_one_address_are_forgotten() {
    // Two namespaces with a translated path between them, so that flows are tracked.
    let mut node = Node::new();
    let mut socket = NftSocket::open_in(&node.netns).unwrap();
    let mut table = Table::new(Family::Ipv4, "track");
    let base = BaseChain {
        kind: "nat".into(),
        hook: Hook::Postrouting,
        priority: 100,
    };
    let rules = vec![Rule::new(
        vec![Expr::Masquerade {
            fully_random: false,
            ports: None,
        }],
        "t",
    )];
    table.chains.insert(
        "post".into(),
        Chain {
            base: Some(base),
            rules,
        },
    );
    commit(&mut socket, &table);
    let addresses = ["172.17.1.1", "172.17.1.2", "172.17.1.3"];
    for address in addresses {
        set_up(&mut node.rtnl, "eth0", &[&format!("{address}/16")]);
    }
    for address in addresses {
        let socket = node
            .netns
            .run(move || std::net::UdpSocket::bind((address, 0)).unwrap())
            .unwrap();
        for port in 1..=100u16 {
            socket.send_to(b"x", ("172.17.0.9", 1000 + port)).unwrap();
        }
    }
    let mut conntrack = Conntrack::open_in(&node.netns).unwrap();
    let count = |conntrack: &mut Conntrack, address: &str| {
        let ip: IpAddr = address.parse().unwrap();
        conntrack
            .flows(false)
            .unwrap()
            .iter()
            .filter(|f| f.involves(ip))
            .count()
    };
    for address in addresses {
        assert_eq!(count(&mut conntrack, address), 100, "{address}");
    }
    let doomed: IpAddr = addresses[1].parse().unwrap();
    assert_eq!(
        conntrack.forget(false, |f| f.involves(doomed)).unwrap(),
        100
    );
    let left = addresses.map(|a| count(&mut conntrack, a));
    assert_eq!(left, [100, 0, 100]);
}

#[test]
fn links_are_read_changed_and_deleted() {
    let mut node = Node::new();
    node.rtnl.create_bridge("br0").unwrap();
    let bridge = node.rtnl.link_by_name("br0").unwrap().unwrap();
    assert_eq!(bridge.kind.as_deref(), Some("bridge"));
    let change = LinkChange {
        alias: Some("margay:test".into()),
        mtu: Some(1400),
        ..LinkChange::default()
    };
    node.rtnl.change_link(bridge.index, &change).unwrap();
    let bridge = node.rtnl.link_by_index(bridge.index).unwrap().unwrap();
    assert_eq!(
        (bridge.alias.as_deref(), bridge.mtu),
        (Some("margay:test"), 1400)
    );
    assert!(node.rtnl.delete_link(bridge.index).unwrap());
    assert!(!node.rtnl.delete_link(bridge.index).unwrap());
    assert!(node.rtnl.link_by_name("br0").unwrap().is_none());
    let mut other = Rtnl::open_in(&node.fabric).unwrap();
    eventually("the other end", PATIENCE, || {
        other.link_by_name("node").unwrap().is_some()
    });
}
