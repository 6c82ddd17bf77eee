//! Source NAT and our tables against a real kernel.
#![allow(clippy::unwrap_used)]

mod support;

use margay_felix::kernel::nft::{
    Batch, Chain, Element, Expr, Family, NftSocket, Rule, TableFlags, Verdict,
};
use margay_felix::{Dataplane, EndpointId, NatOutgoing, Settings};
use support::{
    Node, PATIENCE, REPAIR, all_in_sync, block_on, connect, endpoint, eventually, pool, run,
};

/// A node with pod A = 10.65.0.2; the fabric knows the way back to the pool.
fn node_with_pod(
    change: impl FnOnce(&mut Settings),
) -> (Node, Dataplane, margay_felix::kernel::netns::Netns) {
    let mut node = Node::new();
    let pod = node.raw_pod("caliA", "10.65.0.2");
    let mut settings = Settings::default();
    change(&mut settings);
    let dataplane = node.dataplane_with(|config| config.settings = settings);
    run(&node.fabric, "ip route add 10.65.0.0/16 via 172.17.0.5");
    run(&node.fabric, "ip addr add 10.65.1.9/32 dev node");
    run(&node.netns, "ip route add 10.65.1.0/26 via 172.17.0.6");
    dataplane.set_pools(vec![pool("10.65.0.0/16", true)]);
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    all_in_sync(&dataplane);
    commit(&dataplane);
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    (node, dataplane, pod)
}

/// Waits until everything handed over so far is committed.
fn commit(dataplane: &Dataplane) {
    let seq = dataplane.in_sync(margay_felix::Source::Endpoints);
    block_on(dataplane.wait_committed(seq, PATIENCE)).unwrap();
}

fn seen(node: &Node, pod: &margay_felix::kernel::netns::Netns, target: &str) -> String {
    connect(pod, &node.fabric, target).unwrap().to_string()
}

#[test]
fn traffic_that_leaves_the_pools_gets_the_nodes_address_and_the_switch_works_live() {
    let (node, dataplane, pod) = node_with_pod(|_| {});
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.5");
    assert_eq!(
        seen(&node, &pod, "10.65.1.9"),
        "10.65.0.2",
        "inside the pool"
    );
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "10.65.0.2");
    dataplane.set_pools(vec![pool("10.65.0.0/16", true)]);
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.5");
}

#[test]
fn addresses_of_nodes_can_be_left_untranslated() {
    let (node, dataplane, pod) = node_with_pod(|_| {});
    let mut settings = Settings::default();
    dataplane.set_remote_nodes(vec![margay_felix::RemoteNode {
        name: "n2".into(),
        addresses: vec!["172.17.0.6".parse().unwrap()],
        ..Default::default()
    }]);
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.6"), "172.17.0.5");
    settings.nat_outgoing = NatOutgoing {
        exclude_hosts: true,
        ..NatOutgoing::default()
    };
    dataplane.configure(settings.clone());
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.6"), "10.65.0.2");
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.5");
    settings.nat_outgoing = NatOutgoing {
        addresses: vec!["172.17.0.200".parse().unwrap()],
        port_range: Some((40_000, 40_100)),
        interface: Some("eth+".into()),
        ..NatOutgoing::default()
    };
    run(&node.netns, "ip addr add 172.17.0.200/32 dev eth0");
    dataplane.configure(settings.clone());
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.200");
    settings.nat_outgoing.interface = Some("other0".into());
    dataplane.configure(settings);
    commit(&dataplane);
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "10.65.0.2");
}

#[test]
fn other_programs_cannot_change_or_flush_an_owned_table() {
    let (node, dataplane, pod) = node_with_pod(|_| {});
    assert!(block_on(dataplane.status()).unwrap().tables_owned);
    let mut other = NftSocket::open_in(&node.netns).unwrap();
    let mut batch = Batch::new();
    batch.flush_chain(Family::Ipv4, "margay", "nat-cali-nat-outgoing");
    assert!(other.commit(&batch, None).unwrap_err().is(libc::EPERM));
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.5");
    assert!(dataplane.drift().is_empty());
}

#[test]
fn what_others_do_to_a_plain_table_is_put_right_within_a_second() {
    let (node, dataplane, pod) = node_with_pod(|s| s.table_owner = false);
    assert!(!block_on(dataplane.status()).unwrap().tables_owned);
    let mut other = NftSocket::open_in(&node.netns).unwrap();
    let family = Family::Ipv4;
    let (before, flags) = other.read(family, "margay").unwrap().0.unwrap();
    assert_eq!(flags, TableFlags::PLAIN);
    let restored = |other: &mut NftSocket| {
        eventually("the table as it was", REPAIR, || {
            other
                .read(family, "margay")
                .unwrap()
                .0
                .is_some_and(|(now, _)| now == before)
        })
    };

    let chain = "nat-cali-nat-outgoing";
    // A rule that keeps its comment and does something else.
    let mut batch = Batch::new();
    batch.flush_chain(family, "margay", chain);
    let comment = before.chains[chain].rules[0].comment.clone();
    let exprs = vec![Expr::Counter, Expr::Verdict(Verdict::Accept)];
    batch.rule(family, "margay", chain, &Rule { exprs, comment });
    other.commit(&batch, None).unwrap();
    restored(&mut other);

    // An element of a set.
    let mut batch = Batch::new();
    let range = Element::range(&"10.65.0.0/16".parse().unwrap());
    batch.delete_elements(family, "margay", "cali40network-ip-pools", &range);
    other.commit(&batch, None).unwrap();
    restored(&mut other);

    // A chain of somebody's own in our table.
    let mut batch = Batch::new();
    batch.chain(family, "margay", "foreign", &Chain::default());
    other.commit(&batch, None).unwrap();
    restored(&mut other);

    // Everything.
    let mut batch = Batch::new();
    batch.delete_table(family, "margay");
    other.commit(&batch, None).unwrap();
    restored(&mut other);
    assert_eq!(seen(&node, &pod, "172.17.0.9"), "172.17.0.5");

    eventually("four finished records", PATIENCE, || {
        dataplane
            .drift()
            .iter()
            .filter(|r| r.repaired_at.is_some())
            .count()
            == 4
    });
    assert!(
        dataplane
            .drift()
            .iter()
            .all(|r| r.subsystem == "nft" && r.by.starts_with("pid "))
    );
    assert_eq!(dataplane.drift()[3].kind, "missing");
}

#[test]
fn a_table_of_somebody_else_changes_nothing() {
    let (node, dataplane, _pod) = node_with_pod(|_| {});
    let before = block_on(dataplane.status()).unwrap().writes;
    let mut other = NftSocket::open_in(&node.netns).unwrap();
    let mut batch = Batch::new();
    batch.table(Family::Ipv4, "foreign", TableFlags::PLAIN);
    other.commit(&batch, None).unwrap();
    commit(&dataplane);
    assert_eq!(block_on(dataplane.status()).unwrap().writes, before);
    assert!(other.read(Family::Ipv4, "foreign").unwrap().0.is_some());
}

#[test]
fn the_tables_stay_when_the_agent_stops_and_are_adopted_when_it_starts() {
    let (node, dataplane, pod) = node_with_pod(|_| {});
    let mut other = NftSocket::open_in(&node.netns).unwrap();
    let (before, _) = other.read(Family::Ipv4, "margay").unwrap().0.unwrap();
    dataplane.stop();
    eventually("the owner's socket closes", PATIENCE, || {
        other
            .read(Family::Ipv4, "margay")
            .unwrap()
            .0
            .is_some_and(|(_, flags)| !flags.owner)
    });
    let (orphan, flags) = other.read(Family::Ipv4, "margay").unwrap().0.unwrap();
    assert_eq!((&orphan, flags.persist), (&before, true));
    assert_eq!(
        seen(&node, &pod, "172.17.0.9"),
        "172.17.0.5",
        "without an agent"
    );

    let again = node.dataplane();
    again.set_pools(vec![pool("10.65.0.0/16", true)]);
    again.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    all_in_sync(&again);
    commit(&again);
    let (adopted, flags) = other.read(Family::Ipv4, "margay").unwrap().0.unwrap();
    assert_eq!((&adopted, flags), (&before, TableFlags::OWNED));
    // One message per table to adopt it; no route, neighbour, chain or element is written.
    assert_eq!(block_on(again.status()).unwrap().writes, 2);

    // A plain table left by other settings is made anew, owned, and back.
    again.configure(Settings {
        table_owner: false,
        ..Settings::default()
    });
    commit(&again);
    assert_eq!(
        other.read(Family::Ipv4, "margay").unwrap().0.unwrap().1,
        TableFlags::PLAIN
    );
    again.configure(Settings::default());
    commit(&again);
    assert_eq!(
        other.read(Family::Ipv4, "margay").unwrap().0.unwrap().1,
        TableFlags::OWNED
    );
}

#[test]
fn flows_that_began_untranslated_are_cut_when_translation_begins() {
    let (node, dataplane, pod) = node_with_pod(|_| {});
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    commit(&dataplane);
    let listener = node
        .fabric
        .run(|| std::net::UdpSocket::bind("172.17.0.9:7777").unwrap())
        .unwrap();
    listener
        .set_read_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    let sender = pod
        .run(|| std::net::UdpSocket::bind("10.65.0.2:5555").unwrap())
        .unwrap();
    let source = || {
        sender.send_to(b"x", "172.17.0.9:7777").unwrap();
        let mut buffer = [0; 8];
        listener
            .recv_from(&mut buffer)
            .map(|(_, from)| from.ip().to_string())
    };
    assert_eq!(source().unwrap(), "10.65.0.2");
    dataplane.set_pools(vec![pool("10.65.0.0/16", true)]);
    commit(&dataplane);
    eventually("the same flow is translated", PATIENCE, || {
        source().is_ok_and(|from| from == "172.17.0.5")
    });
}
