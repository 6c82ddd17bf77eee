//! Choosing the node's BGP address.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ipnet::IpNet;
use regex::RegexSet;

use super::interfaces::Interface;

/// Interfaces `first-found` never takes an address from.
const EXCLUDED: &[&str] = &[
    "^docker.*",
    "^cbr.*",
    "^dummy.*",
    "^podman.*",
    "^virbr.*",
    "^lxcbr.*",
    "^veth.*",
    "^lo",
    "^br-.*",
    "^cali.*",
    "^tunl.*",
    "^flannel.*",
    "^kube-ipvs.*",
    "^cni.*",
    r"^vxlan\.calico.*",
    r"^vxlan-v6\.calico.*",
    r"^wireguard\.cali.*",
    r"^wg-v6\.cali.*",
    "^nodelocaldns.*",
    "^margay.*",
    "^bwcali.*",
];

/// How an address is found.
#[derive(Debug, Clone)]
pub(crate) enum Method {
    /// First usable address of the interface with the highest index, after exclusions.
    FirstFound,
    /// Only interfaces whose name matches.
    Interface(RegexSet),
    /// `first-found` with more exclusions.
    SkipInterface(RegexSet),
    /// First usable address inside one of the networks.
    Cidr(Vec<IpNet>),
    /// The source address the kernel would use towards a destination.
    CanReach(String),
    /// The first InternalIP of the Kubernetes Node.
    KubernetesInternalIp,
}

impl Method {
    /// Parses a method variable; empty text is `first-found`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let list = |list: &str| {
            list.split(',')
                .map(|item| item.trim().to_owned())
                .collect::<Vec<_>>()
        };
        let regexes = |text: &str| RegexSet::new(list(text)).map_err(|error| error.to_string());
        match text.split_once('=') {
            None if text.is_empty() || text == "first-found" => Ok(Method::FirstFound),
            None if text.starts_with("kubernetes-internal-ip") => Ok(Method::KubernetesInternalIp),
            Some(("interface", names)) => Ok(Method::Interface(regexes(names)?)),
            Some(("skip-interface", names)) => Ok(Method::SkipInterface(regexes(names)?)),
            Some(("can-reach", host)) if !host.is_empty() => Ok(Method::CanReach(host.to_owned())),
            Some(("cidr", cidrs)) => {
                let parse =
                    |text: &String| text.parse().map_err(|_| format!("{text:?} is not a CIDR"));
                Ok(Method::Cidr(
                    list(cidrs).iter().map(parse).collect::<Result<_, _>>()?,
                ))
            }
            _ => Err("is not an autodetection method".into()),
        }
    }

    /// Finds the address of one family with its interface's prefix length. The error says in words why there is none.
    pub(crate) fn detect(
        &self,
        v4: bool,
        interfaces: &[Interface],
        node_addresses: &[IpAddr],
    ) -> Result<IpNet, String> {
        let family = if v4 { "IPv4" } else { "IPv6" };
        let none = |what: String| format!("no {family} address found: {what}");
        match self {
            Method::FirstFound => first(interfaces, v4, |name| !is_excluded(name))
                .ok_or_else(|| none("every interface is excluded or has none".into())),
            Method::SkipInterface(skip) => first(interfaces, v4, |name| {
                !is_excluded(name) && !skip.is_match(name)
            })
            .ok_or_else(|| {
                none(format!(
                    "no interface is left after skipping {:?}",
                    skip.patterns()
                ))
            }),
            Method::Interface(wanted) => first(interfaces, v4, |name| wanted.is_match(name))
                .ok_or_else(|| {
                    none(format!(
                        "no interface matching {:?} has one",
                        wanted.patterns()
                    ))
                }),
            Method::Cidr(cidrs) => preferred(
                usable(interfaces, v4)
                    .map(|(_, net)| net)
                    .filter(|net| cidrs.iter().any(|cidr| cidr.contains(&net.addr()))),
            )
            .ok_or_else(|| none(format!("no interface has one inside {cidrs:?}"))),
            Method::CanReach(host) => {
                let source = source_towards(host, v4)
                    .map_err(|error| none(format!("cannot reach {host}: {error}")))?;
                owned(interfaces, source)
                    .ok_or_else(|| none(format!("{source} is on no interface")))
            }
            Method::KubernetesInternalIp => {
                let ip = node_addresses
                    .iter()
                    .find(|ip| ip.is_ipv4() == v4)
                    .ok_or_else(|| none("the Node has no InternalIP of this family".into()))?;
                owned(interfaces, *ip)
                    .ok_or_else(|| none(format!("the Node's InternalIP {ip} is on no interface")))
            }
        }
    }
}

/// The network of the interface that owns an address.
pub(crate) fn owned(interfaces: &[Interface], ip: IpAddr) -> Option<IpNet> {
    interfaces
        .iter()
        .flat_map(|interface| &interface.addresses)
        .find(|net| net.addr() == ip)
        .copied()
}

/// First address of an accepted interface.
fn first(interfaces: &[Interface], v4: bool, accept: impl Fn(&str) -> bool) -> Option<IpNet> {
    preferred(
        usable(interfaces, v4)
            .filter(|(name, _)| accept(name))
            .map(|(_, net)| net),
    )
}

/// The first one. A host prefix is taken only when there is nothing else: next to a subnet it is a floating or service
/// address, alone it is how some clouds number their machines.
fn preferred(candidates: impl Iterator<Item = IpNet>) -> Option<IpNet> {
    let candidates: Vec<IpNet> = candidates.collect();
    let subnet = candidates
        .iter()
        .find(|net| net.prefix_len() < net.max_prefix_len());
    subnet.or(candidates.first()).copied()
}

/// Usable addresses of a family, interfaces with the highest index first, addresses of one in kernel order.
fn usable(interfaces: &[Interface], v4: bool) -> impl Iterator<Item = (&str, IpNet)> {
    let mut order: Vec<&Interface> = interfaces.iter().filter(|interface| interface.up).collect();
    order.sort_by_key(|interface| std::cmp::Reverse(interface.index));
    order.into_iter().flat_map(move |interface| {
        interface
            .addresses
            .iter()
            .filter(move |net| net.addr().is_ipv4() == v4 && is_global_unicast(net.addr()))
            .map(|net| (interface.name.as_str(), *net))
    })
}

fn is_excluded(name: &str) -> bool {
    use std::sync::OnceLock;
    static SET: OnceLock<Option<RegexSet>> = OnceLock::new();
    SET.get_or_init(|| RegexSet::new(EXCLUDED).ok())
        .as_ref()
        .is_some_and(|set| set.is_match(name))
}

/// Neither unspecified, loopback, link-local, multicast nor broadcast; private and unique-local addresses count.
fn is_global_unicast(ip: IpAddr) -> bool {
    let local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

/// Asks the kernel for the source address towards a host; no packet is sent.
fn source_towards(host: &str, v4: bool) -> std::io::Result<IpAddr> {
    use std::net::ToSocketAddrs;
    let destination = (host, 80)
        .to_socket_addrs()?
        .find(|address| address.is_ipv4() == v4)
        .ok_or_else(|| std::io::Error::other("it has no address of this family"))?;
    let any: SocketAddr = if v4 {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(destination)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses
            .iter()
            .map(|text| text.parse().expect("net"))
            .collect();
        Interface {
            index,
            name: name.into(),
            up: true,
            addresses,
        }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface(1, "lo", &["127.0.0.1/8", "::1/128"]),
            interface(
                2,
                "eth0",
                &["169.254.3.3/16", "10.0.0.5/24", "fe80::1/64", "fd00::5/64"],
            ),
            interface(3, "eth1", &["192.168.7.5/25"]),
            interface(4, "docker0", &["172.17.0.1/16"]),
            interface(5, "longhorn0", &["10.9.9.9/24"]),
            interface(6, "cali123", &["10.88.0.1/24"]),
            Interface {
                up: false,
                ..interface(7, "eth9", &["10.7.7.7/24"])
            },
            interface(8, "vip0", &["10.0.0.100/32"]),
        ]
    }

    fn detect(method: &str, v4: bool) -> Result<String, String> {
        let node = [
            "10.0.0.5".parse().expect("ip"),
            "fd00::5".parse().expect("ip"),
        ];
        Method::parse(method)?
            .detect(v4, &host(), &node)
            .map(|net| net.to_string())
    }

    #[test]
    fn each_method_finds_its_address() {
        for (method, v4, expected) in [
            ("", true, "192.168.7.5/25"),
            ("first-found", true, "192.168.7.5/25"),
            ("first-found", false, "fd00::5/64"),
            ("skip-interface=eth1", true, "10.0.0.5/24"),
            ("interface=eth0", true, "10.0.0.5/24"),
            ("interface=docker.*, none", true, "172.17.0.1/16"),
            ("cidr=10.0.0.0/16,fd00::/8", true, "10.0.0.5/24"),
            ("cidr=10.0.0.0/16,fd00::/8", false, "fd00::5/64"),
            ("kubernetes-internal-ip", true, "10.0.0.5/24"),
            ("kubernetes-internal-ip", false, "fd00::5/64"),
            ("can-reach=127.0.0.1", true, "127.0.0.1/8"),
        ] {
            assert_eq!(detect(method, v4).as_deref(), Ok(expected), "{method}");
        }
    }

    #[test]
    fn a_host_prefix_is_taken_when_there_is_nothing_else() {
        assert_eq!(
            detect("interface=vip0", true).as_deref(),
            Ok("10.0.0.100/32")
        );
        assert_eq!(
            detect("interface=vip0,eth0", true).as_deref(),
            Ok("10.0.0.5/24")
        );
    }

    #[test]
    fn failures_say_why() {
        assert!(
            detect("interface=eth7", true)
                .expect_err("none")
                .contains("eth7")
        );
        assert!(
            detect("cidr=172.30.0.0/16", true)
                .expect_err("none")
                .contains("172.30.0.0/16")
        );
        assert!(detect("skip-interface=eth,vip", true).is_err());
        let foreign = ["10.1.1.1".parse().expect("ip")];
        let error = Method::KubernetesInternalIp
            .detect(true, &host(), &foreign)
            .expect_err("not on an interface");
        assert!(error.contains("10.1.1.1"), "{error}");
    }

    #[test]
    fn unknown_methods_are_refused() {
        for text in [
            "guess",
            "cidr=10.0.0.0/33",
            "can-reach=",
            "interface=(",
            "interfaces=eth0",
        ] {
            assert!(Method::parse(text).is_err(), "{text}");
        }
    }
}
