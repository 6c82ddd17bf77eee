//! Rates of the route path with the real kernel, in namespaces of its own (needs root):
//!
//! - the bulk programmer alone: add, identical replace, delete, full dump;
//! - the whole dataplane: BGP routes handed over until the last one is in the kernel, then withdrawn;
//! - one pod: endpoint handed over until its route is there, with the BGP table in place.
//!
//! `cargo bench -p margay-felix --bench routes -- [ROUTES]`, 100 000 by default.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use margay_felix::kernel::netlink::Operation;
use margay_felix::kernel::rtnl::{Hop, RouteKey, RouteSpec, Scope};
use margay_felix::{BgpNextHop, BgpRoute, Dataplane, EndpointId};
use support::{Node, all_in_sync, block_on, endpoint};

fn prefix(i: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(0x1400_0000 + (i << 8)).into(), 24).unwrap()
}

fn report(what: &str, count: u32, took: Duration) {
    let rate = f64::from(count) / took.as_secs_f64();
    println!(
        "{what:<44} {count:>8} in {:>8.1} ms  {rate:>10.0}/s",
        took.as_secs_f64() * 1e3
    );
}

fn programmer(count: u32) {
    let mut node = Node::new();
    let hop = Hop::via(node.index("eth0"), "172.17.0.6".parse().unwrap(), false);
    let spec = RouteSpec::unicast(12, Scope::Universe, vec![hop]);
    let keys: Vec<RouteKey> = (0..count).map(|i| RouteKey::new(prefix(i), 1024)).collect();
    let mut timed = |what: &str, encode: &dyn Fn(&RouteKey) -> Operation| {
        let start = Instant::now();
        let operations: Vec<Operation> = keys.iter().map(encode).collect();
        assert!(node.rtnl.batch(&operations).iter().all(Result::is_ok));
        report(what, count, start.elapsed());
    };
    timed("programmer: add", &|key| spec.replace(key));
    timed("programmer: identical replace", &|key| spec.replace(key));
    let start = Instant::now();
    let found = node.rtnl.routes(None).unwrap().len();
    report("programmer: dump", found as u32, start.elapsed());
    let start = Instant::now();
    let operations: Vec<Operation> = keys.iter().map(|key| spec.delete(key)).collect();
    assert!(node.rtnl.batch(&operations).iter().all(Result::is_ok));
    report("programmer: delete", count, start.elapsed());
}

fn settled(dataplane: &Dataplane, desired: usize) {
    loop {
        let routes = block_on(dataplane.status()).unwrap().tables["routes"];
        if routes.pending == 0 && routes.desired == desired && routes.actual == desired {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn dataplane(count: u32) {
    let mut node = Node::new();
    let dataplane = node.dataplane();
    all_in_sync(&dataplane);
    let routes = |next_hops: Vec<BgpNextHop>| -> Vec<BgpRoute> {
        let route = |i| BgpRoute {
            prefix: prefix(i),
            next_hops: next_hops.clone(),
            local_pref: 2_147_482_623,
        };
        (0..count).map(route).collect()
    };
    let hop = BgpNextHop {
        address: "172.17.0.6".parse().unwrap(),
        interface: None,
    };
    let table = routes(vec![hop.clone()]);
    let start = Instant::now();
    dataplane.apply_bgp(table);
    settled(&dataplane, count as usize);
    report(
        "dataplane: BGP routes into the kernel",
        count,
        start.elapsed(),
    );

    let mut slowest = Duration::ZERO;
    let mut total = Duration::ZERO;
    const PODS: u32 = 50;
    let mut pods = Vec::new();
    for i in 0..PODS {
        let (interface, address) = (format!("cali{i}"), format!("10.65.0.{}", i + 1));
        pods.push(node.raw_pod(&interface, &address));
        let start = Instant::now();
        let name = format!("pod{i}");
        dataplane.upsert_endpoint(endpoint(&name, &interface, &[&address]));
        block_on(dataplane.wait_routed(&EndpointId(name), Duration::from_secs(5))).unwrap();
        slowest = slowest.max(start.elapsed());
        total += start.elapsed();
    }
    report("dataplane: pod handed over until routed", PODS, total);
    println!(
        "{:<44} {:>29.1} ms",
        "  slowest",
        slowest.as_secs_f64() * 1e3
    );

    let start = Instant::now();
    dataplane.apply_bgp(routes(Vec::new()));
    settled(&dataplane, PODS as usize);
    report("dataplane: BGP routes withdrawn", count, start.elapsed());
}

fn main() {
    // `cargo bench` adds `--bench`.
    let count = std::env::args()
        .filter_map(|a| a.parse().ok())
        .next()
        .unwrap_or(100_000);
    programmer(count);
    dataplane(count);
}
