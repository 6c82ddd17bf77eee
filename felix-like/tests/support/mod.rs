//! A node in a network namespace of its own, with an uplink to a second namespace; both vanish with the test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use margay_felix::kernel::netns::Netns;
use margay_felix::kernel::rtnl::{
    AddressFlags, LinkChange, RouteKey, RouteSpec, Rtnl, VethEnd, VethPair,
};
use margay_felix::kernel::{MacAddr, sysctl};
use margay_felix::{
    Dataplane, DataplaneConfig, EncapMode, EndpointDesired, EndpointId, LocalNode, OwnBlock,
    PoolView, Provenance, Source,
};

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A repair must not take longer.
pub const REPAIR: Duration = Duration::from_secs(1);

/// Waits until a condition holds; panics with what was waited for.
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

/// Runs a program inside a namespace and returns its output; panics when it fails.
pub fn run(netns: &Netns, command: &str) -> String {
    let (ok, output) = try_run(netns, command);
    assert!(ok, "{command}: {output}");
    output
}

/// Runs a program inside a namespace; true when it succeeded, and its output.
pub fn try_run(netns: &Netns, command: &str) -> (bool, String) {
    let command = command.to_owned();
    let result = netns.run(move || {
        let mut words = command.split_whitespace();
        Command::new(words.next().unwrap()).args(words).output()
    });
    let output = result.expect("namespace").expect("program of the test");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

/// Opens a TCP connection from one namespace to an address in another; returns the source address seen there.
pub fn connect(from: &Netns, to: &Netns, address: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = address.parse().unwrap();
    let listener = to.run(move || TcpListener::bind((ip, 0)).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let stream = from
        .run(move || TcpStream::connect_timeout(&target, Duration::from_secs(2)))
        .unwrap()
        .map_err(|e| e.to_string())?;
    let (_, peer) = listener.accept().map_err(|e| e.to_string())?;
    drop(stream);
    Ok(peer.ip())
}

/// A node `172.17.0.5/16` (and `fd17::5/64`) on `eth0`, with a fabric namespace at `172.17.0.1` behind it.
pub struct Node {
    pub netns: Netns,
    pub fabric: Netns,
    pub rtnl: Rtnl,
}

impl Node {
    pub fn new() -> Self {
        let netns = Netns::create().expect("these tests need root");
        let fabric = Netns::create().unwrap();
        let mut rtnl = Rtnl::open_in(&netns).unwrap();
        rtnl.create_veth(&VethPair {
            near: VethEnd {
                name: "eth0".into(),
                mac: None,
            },
            far: VethEnd {
                name: "node".into(),
                mac: None,
            },
            far_netns: fabric.clone(),
            mtu: 1500,
            queues: 1,
        })
        .unwrap();
        let mut far = Rtnl::open_in(&fabric).unwrap();
        set_up(&mut rtnl, "lo", &[]);
        set_up(&mut far, "lo", &[]);
        set_up(&mut rtnl, "eth0", &["172.17.0.5/16", "fd17::5/64"]);
        set_up(
            &mut far,
            "node",
            &[
                "172.17.0.1/16",
                "172.17.0.6/16",
                "172.17.0.7/16",
                "172.17.0.9/16",
                "fd17::1/64",
                "fd17::6/64",
                "fd17::7/64",
            ],
        );
        let node = Self {
            netns,
            fabric,
            rtnl,
        };
        run(&node.netns, "ip route add default via 172.17.0.1");
        node
    }

    /// A dataplane with defaults and the address of the node.
    pub fn dataplane(&self) -> Dataplane {
        self.dataplane_with(|_| {})
    }

    pub fn dataplane_with(&self, change: impl FnOnce(&mut DataplaneConfig)) -> Dataplane {
        let mut config = DataplaneConfig::new("n1", self.netns.clone());
        change(&mut config);
        let dataplane = Dataplane::start(config).unwrap();
        dataplane.set_local_node(LocalNode {
            addresses: vec![
                "172.17.0.5/16".parse().unwrap(),
                "fd17::5/64".parse().unwrap(),
            ],
            ..LocalNode::default()
        });
        dataplane
    }

    /// Index of a link.
    pub fn index(&mut self, name: &str) -> u32 {
        self.rtnl
            .link_by_name(name)
            .unwrap()
            .unwrap_or_else(|| panic!("no link {name}"))
            .index
    }

    /// Routes of the main table to a prefix, all metrics.
    pub fn routes_to(&mut self, prefix: &str) -> Vec<(RouteKey, RouteSpec)> {
        let prefix = prefix.parse().unwrap();
        let routes = self.rtnl.routes(None).unwrap();
        routes
            .into_iter()
            .filter(|(key, _)| key.prefix == prefix)
            .collect()
    }

    pub fn has_route(&mut self, prefix: &str) -> bool {
        !self.routes_to(prefix).is_empty()
    }

    /// A pod interface made by hand: a pair whose far end lies in a namespace of its own.
    pub fn raw_pod(&mut self, host_interface: &str, address: &str) -> Netns {
        let pod = Netns::create().unwrap();
        self.rtnl
            .create_veth(&VethPair {
                near: VethEnd {
                    name: host_interface.into(),
                    mac: Some(MacAddr([0xee; 6])),
                },
                far: VethEnd {
                    name: "eth0".into(),
                    mac: Some(POD_MAC),
                },
                far_netns: pod.clone(),
                mtu: 1440,
                queues: 1,
            })
            .unwrap();
        let mut inside = Rtnl::open_in(&pod).unwrap();
        let address = format!("{address}/32");
        set_up(&mut inside, "eth0", &[&address]);
        run(&pod, "ip route add 169.254.1.1 dev eth0 scope link");
        run(&pod, "ip route add default via 169.254.1.1 dev eth0");
        run(
            &pod,
            "ip neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
        );
        set_up(&mut self.rtnl, host_interface, &[]);
        pod
    }

    /// Reads a sysctl of the node.
    pub fn sysctl(&self, key: &str) -> String {
        let key = key.to_owned();
        self.netns.run(move || sysctl::read(&key).unwrap()).unwrap()
    }
}

/// Address of the far end of [`Node::raw_pod`].
pub const POD_MAC: MacAddr = MacAddr([0x0a, 0, 0, 0, 0, 2]);

pub fn set_up(rtnl: &mut Rtnl, name: &str, addresses: &[&str]) {
    let link = rtnl.link_by_name(name).unwrap().unwrap();
    rtnl.change_link(
        link.index,
        &LinkChange {
            up: Some(true),
            ..LinkChange::default()
        },
    )
    .unwrap();
    for address in addresses {
        let flags = AddressFlags { no_dad: true };
        rtnl.add_address(link.index, address.parse().unwrap(), flags)
            .unwrap();
    }
}

pub fn endpoint(name: &str, interface: &str, addresses: &[&str]) -> EndpointDesired {
    EndpointDesired {
        id: EndpointId(name.into()),
        provenance: Provenance::namespaced("Pod", "default", name),
        interface: interface.into(),
        addresses: addresses
            .iter()
            .map(|a| a.parse::<IpAddr>().unwrap())
            .collect(),
        mac: Some(POD_MAC),
        active: true,
        elevated: false,
    }
}

pub fn own_block(cidr: &str) -> OwnBlock {
    OwnBlock {
        cidr: cidr.parse().unwrap(),
        provenance: Provenance::cluster("IPAMBlock", cidr),
    }
}

pub fn pool(cidr: &str, nat_outgoing: bool) -> PoolView {
    PoolView {
        name: format!("pool-{cidr}"),
        cidr: cidr.parse().unwrap(),
        nat_outgoing,
        ipip: EncapMode::Never,
        vxlan: EncapMode::Never,
        workload: true,
    }
}

pub fn all_in_sync(dataplane: &Dataplane) {
    for source in Source::ALL {
        dataplane.in_sync(source);
    }
}

/// Runs a future to its end.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
