//! Routes of the main table.
//!
//! Keys and values are normalised on reading and on writing, so that "equal" means "the kernel would treat both alike":
//! IPv6 stores metric 0 as 1024, knows no scopes and shows blackholes on `lo`; next hops are an unordered set.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Rtnl, family_of};
use crate::kernel::KernelError;
use crate::kernel::netlink::{Attr, Attrs, Encoder, Message, Operation};

const RTMSG: usize = 12;
const RTNEXTHOP: usize = 8;
const RT_TABLE_MAIN: u8 = 254;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTNH_F_ONLINK: u8 = 4;
const RTM_F_CLONED: u32 = 0x200;
/// Metric that the kernel gives IPv6 routes without one.
const IPV6_DEFAULT_METRIC: u32 = 1024;

/// What makes two routes the same for the kernel: a replace swaps the one with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RouteKey {
    /// Destination.
    pub prefix: IpNet,
    /// Metric, lower wins.
    pub metric: u32,
}

impl RouteKey {
    /// Normalised key.
    pub fn new(prefix: IpNet, metric: u32) -> Self {
        let metric = if metric == 0 && prefix.addr().is_ipv6() {
            IPV6_DEFAULT_METRIC
        } else {
            metric
        };
        Self {
            prefix: prefix.trunc(),
            metric,
        }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} metric {}", self.prefix, self.metric)
    }
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteType {
    /// Forwarded.
    Unicast,
    /// Dropped silently.
    Blackhole,
    /// Refused with "host unreachable".
    Unreachable,
    /// Refused with "administratively prohibited".
    Prohibit,
    /// Lookup goes on in the next table.
    Throw,
}

impl RouteType {
    fn number(self) -> u8 {
        match self {
            Self::Unicast => 1,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Prohibit => 8,
            Self::Throw => 9,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        [
            Self::Unicast,
            Self::Blackhole,
            Self::Unreachable,
            Self::Prohibit,
            Self::Throw,
        ]
        .into_iter()
        .find(|t| t.number() == number)
    }
}

/// How far the destination is (IPv4 only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Behind a gateway.
    Universe,
    /// On the link.
    Link,
    /// Anything else, by number.
    Other(u8),
}

impl Scope {
    fn number(self) -> u8 {
        match self {
            Self::Universe => 0,
            Self::Link => 253,
            Self::Other(n) => n,
        }
    }

    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Universe,
            253 => Self::Link,
            n => Self::Other(n),
        }
    }
}

/// One next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Outgoing interface index.
    pub link: u32,
    /// Gateway; may be of the other family for IPv4 routes (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// The gateway is on the link although no route says so.
    pub onlink: bool,
    /// Share of the traffic, 1 to 256.
    pub weight: u16,
}

impl Hop {
    /// Straight onto the link.
    pub fn link(link: u32) -> Self {
        Self {
            link,
            gateway: None,
            onlink: false,
            weight: 1,
        }
    }

    /// Through a gateway.
    pub fn via(link: u32, gateway: IpAddr, onlink: bool) -> Self {
        Self {
            link,
            gateway: Some(gateway),
            onlink,
            weight: 1,
        }
    }
}

/// Everything about a route but its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteSpec {
    /// What happens to the packet.
    pub kind: RouteType,
    /// Who wrote it (`/etc/iproute2/rt_protos`).
    pub protocol: u8,
    /// Scope.
    pub scope: Scope,
    /// Preferred source address of packets the node itself sends.
    pub source: Option<IpAddr>,
    /// MTU of the path.
    pub mtu: Option<u32>,
    /// Next hops in ascending order; empty unless unicast.
    pub hops: Vec<Hop>,
}

impl RouteSpec {
    /// A route that drops.
    pub fn blackhole(protocol: u8) -> Self {
        Self {
            kind: RouteType::Blackhole,
            protocol,
            scope: Scope::Universe,
            source: None,
            mtu: None,
            hops: Vec::new(),
        }
    }

    /// A route to next hops.
    pub fn unicast(protocol: u8, scope: Scope, mut hops: Vec<Hop>) -> Self {
        hops.sort_unstable();
        hops.dedup();
        Self {
            kind: RouteType::Unicast,
            protocol,
            scope,
            source: None,
            mtu: None,
            hops,
        }
    }

    /// The same as the kernel will show it for this key.
    pub fn normalised(mut self, key: &RouteKey) -> Self {
        if key.prefix.addr().is_ipv6() {
            self.scope = Scope::Universe;
        }
        self
    }

    /// True when every next hop uses this interface, so that the route goes with it.
    pub fn depends_on(&self, link: u32) -> bool {
        !self.hops.is_empty() && self.hops.iter().all(|h| h.link == link)
    }

    /// The operation that writes the route, replacing the one with the same key.
    pub fn replace(&self, key: &RouteKey) -> Operation {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        Operation(self.encode(libc::RTM_NEWROUTE, flags, key))
    }

    /// The operation that adds the route and fails with `EEXIST` when the key is taken.
    pub fn add(&self, key: &RouteKey) -> Operation {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        Operation(self.encode(libc::RTM_NEWROUTE, flags, key))
    }

    /// The operation that removes the route. It names the protocol and, for IPv4, the scope, so that a route of
    /// somebody else with the same key stays.
    pub fn delete(&self, key: &RouteKey) -> Operation {
        let bare = Self {
            source: None,
            mtu: None,
            ..self.clone()
        };
        Operation(bare.encode(libc::RTM_DELROUTE, 0, key))
    }

    fn encode(&self, message: u16, flags: u16, key: &RouteKey) -> Encoder {
        let v6 = key.prefix.addr().is_ipv6();
        let single_onlink = self.hops.len() == 1 && self.hops[0].onlink;
        let mut fixed = [0; RTMSG];
        fixed[0] = family_of(key.prefix.addr());
        fixed[1] = key.prefix.prefix_len();
        fixed[4] = RT_TABLE_MAIN;
        fixed[5] = self.protocol;
        fixed[6] = if v6 { 0 } else { self.scope.number() };
        fixed[7] = self.kind.number();
        if single_onlink {
            fixed[8..12].copy_from_slice(&u32::from(RTNH_F_ONLINK).to_ne_bytes());
        }
        Encoder::single(message, flags, &fixed, |m| {
            if key.prefix.prefix_len() > 0 {
                m.ip(RTA_DST, key.prefix.addr());
            }
            if key.metric != 0 {
                m.u32(RTA_PRIORITY, key.metric);
            }
            if let Some(source) = self.source {
                m.ip(RTA_PREFSRC, source);
            }
            if let Some(mtu) = self.mtu {
                m.nest(RTA_METRICS, |metrics| metrics.u32(RTAX_MTU, mtu));
            }
            match self.hops.as_slice() {
                [] => {}
                [hop] => {
                    put_gateway(m, hop, v6);
                    m.u32(RTA_OIF, hop.link);
                }
                hops => m.nest(RTA_MULTIPATH, |multipath| {
                    for hop in hops {
                        put_hop(multipath, hop, v6);
                    }
                }),
            }
        })
    }
}

fn put_gateway(m: &mut Encoder, hop: &Hop, v6: bool) {
    match hop.gateway {
        Some(gateway) if gateway.is_ipv6() == v6 => m.ip(RTA_GATEWAY, gateway),
        Some(IpAddr::V6(gateway)) => {
            let mut via = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
            via.extend(gateway.octets());
            m.attr(RTA_VIA, &via);
        }
        // An IPv6 route cannot have an IPv4 gateway; the kernel refuses the incomplete hop.
        Some(IpAddr::V4(_)) | None => {}
    }
}

fn put_hop(m: &mut Encoder, hop: &Hop, v6: bool) {
    let mut gateway = Encoder::new();
    put_gateway(&mut gateway, hop, v6);
    let length = u16::try_from(RTNEXTHOP + gateway.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.push(if hop.onlink { RTNH_F_ONLINK } else { 0 });
    bytes.push(u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX));
    bytes.extend(hop.link.to_ne_bytes());
    bytes.extend(gateway.bytes());
    m.raw(&bytes);
}

impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RouteType::Unicast => {}
            RouteType::Blackhole => f.write_str("blackhole ")?,
            RouteType::Unreachable => f.write_str("unreachable ")?,
            RouteType::Prohibit => f.write_str("prohibit ")?,
            RouteType::Throw => f.write_str("throw ")?,
        }
        for hop in &self.hops {
            if let Some(gateway) = hop.gateway {
                write!(f, "via {gateway} ")?;
            }
            write!(f, "ifindex {} ", hop.link)?;
            if hop.onlink {
                f.write_str("onlink ")?;
            }
        }
        write!(f, "proto {}", self.protocol)?;
        if self.scope == Scope::Link {
            f.write_str(" scope link")?;
        }
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        Ok(())
    }
}

impl Rtnl {
    /// The main table's routes of both families, or of one interface.
    pub fn routes(&mut self, link: Option<u32>) -> Result<Vec<(RouteKey, RouteSpec)>, KernelError> {
        let mut all = Vec::new();
        for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
            let mut fixed = [0; RTMSG];
            fixed[0] = family;
            fixed[4] = RT_TABLE_MAIN;
            let request = Encoder::single(libc::RTM_GETROUTE, 0, &fixed, |m| {
                if let Some(link) = link {
                    m.u32(RTA_OIF, link);
                }
            });
            all.extend(self.socket.dump(&request, |found: &mut Vec<_>, message| {
                found.extend(decode_route(message));
            })?);
        }
        Ok(all)
    }
}

/// Reads `RTM_NEWROUTE` or `RTM_DELROUTE` of the main table; other tables, other TOS values, cached and local routes
/// are nobody's business here.
pub(crate) fn decode_route(message: &Message<'_>) -> Option<(RouteKey, RouteSpec)> {
    if message.kind != libc::RTM_NEWROUTE && message.kind != libc::RTM_DELROUTE {
        return None;
    }
    let fixed = message.payload.get(..RTMSG)?;
    let v6 = i32::from(fixed[0]) == libc::AF_INET6;
    let (source_length, tos, table, protocol) = (fixed[2], fixed[3], fixed[4], fixed[5]);
    let flags = u32::from_ne_bytes(fixed[8..12].try_into().ok()?);
    if source_length != 0 || tos != 0 || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let kind = RouteType::from_number(fixed[7])?;
    let mut destination: IpAddr = if v6 {
        [0u8; 16].into()
    } else {
        [0u8; 4].into()
    };
    let mut metric = 0;
    let mut table = u32::from(table);
    let mut spec = RouteSpec {
        kind,
        protocol,
        scope: Scope::from_number(fixed[6]),
        source: None,
        mtu: None,
        hops: Vec::new(),
    };
    let mut single = Hop::link(0);
    single.onlink = flags & u32::from(RTNH_F_ONLINK) != 0;
    for attr in message.attrs(RTMSG) {
        match attr.kind {
            RTA_DST => destination = attr.ip()?,
            RTA_PRIORITY => metric = attr.u32()?,
            RTA_TABLE => table = attr.u32()?,
            RTA_PREFSRC => spec.source = attr.ip(),
            RTA_METRICS => spec.mtu = attr.nested().find(RTAX_MTU).and_then(|a| a.u32()),
            RTA_OIF => single.link = attr.u32()?,
            RTA_GATEWAY => single.gateway = attr.ip(),
            RTA_VIA => single.gateway = via(&attr),
            RTA_MULTIPATH => spec.hops = decode_hops(attr.data)?,
            _ => {}
        }
    }
    if table != u32::from(RT_TABLE_MAIN) {
        return None;
    }
    if kind != RouteType::Unicast {
        spec.hops.clear();
    } else if spec.hops.is_empty() && single.link != 0 {
        spec.hops.push(single);
    }
    spec.hops.sort_unstable();
    Some((
        RouteKey {
            prefix: IpNet::new(destination, fixed[1]).ok()?,
            metric,
        },
        spec,
    ))
}

fn via(attr: &Attr<'_>) -> Option<IpAddr> {
    Attr {
        kind: attr.kind,
        data: attr.data.get(2..)?,
    }
    .ip()
}

fn decode_hops(mut bytes: &[u8]) -> Option<Vec<Hop>> {
    let mut hops = Vec::new();
    while bytes.len() >= RTNEXTHOP {
        let length = usize::from(u16::from_ne_bytes(bytes[..2].try_into().ok()?));
        let whole = bytes.get(..length).filter(|w| w.len() >= RTNEXTHOP)?;
        let mut hop = Hop::link(u32::from_ne_bytes(whole[4..8].try_into().ok()?));
        hop.onlink = whole[2] & RTNH_F_ONLINK != 0;
        hop.weight = u16::from(whole[3]) + 1;
        for attr in Attrs(&whole[RTNEXTHOP..]) {
            match attr.kind {
                RTA_GATEWAY => hop.gateway = attr.ip(),
                RTA_VIA => hop.gateway = via(&attr),
                _ => {}
            }
        }
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(hops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::netlink::Messages;

    fn round_trip(key: RouteKey, spec: &RouteSpec) -> (RouteKey, RouteSpec) {
        let operation = spec.replace(&key);
        let message = Messages(operation.0.bytes()).next().unwrap();
        decode_route(&message).unwrap()
    }

    fn hop() -> impl Strategy<Value = Hop> {
        (
            1u32..100,
            any::<Option<[u8; 4]>>(),
            any::<bool>(),
            1u16..=256,
        )
            .prop_map(|(link, gateway, onlink, weight)| Hop {
                link,
                gateway: gateway.map(IpAddr::from),
                onlink,
                weight,
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(
            address in any::<[u8; 4]>(), length in 0u8..=32, metric in any::<u32>(),
            mut hops in prop::collection::vec(hop(), 1..5), mtu in prop::option::of(68u32..9000),
            protocol in any::<u8>(),
        ) {
            if hops.len() == 1 {
                hops[0].weight = 1;
            }
            let key = RouteKey::new(IpNet::new(address.into(), length).unwrap(), metric);
            let mut spec = RouteSpec::unicast(protocol, Scope::Universe, hops);
            if spec.hops.len() == 1 {
                spec.hops[0].weight = 1;
            }
            spec.mtu = mtu;
            prop_assert_eq!(round_trip(key, &spec), (key, spec));
        }

        #[test]
        fn arbitrary_route_messages_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let message = Message { kind: libc::RTM_NEWROUTE, flags: 0, seq: 0, port: 0, payload: &bytes };
            let _ = decode_route(&message);
        }
    }

    #[test]
    fn ipv6_metric_zero_is_1024_and_scope_does_not_count() {
        let key = RouteKey::new("fd00::/64".parse().unwrap(), 0);
        assert_eq!(key.metric, 1024);
        let link = RouteSpec::unicast(3, Scope::Link, vec![Hop::link(2)]).normalised(&key);
        assert_eq!(round_trip(key, &link), (key, link));
    }

    #[test]
    fn an_ipv4_route_may_have_an_ipv6_gateway() {
        let key = RouteKey::new("10.1.0.0/16".parse().unwrap(), 7);
        let hop = Hop::via(3, "fe80::1".parse().unwrap(), true);
        let spec = RouteSpec::unicast(12, Scope::Universe, vec![hop]);
        assert_eq!(round_trip(key, &spec), (key, spec));
    }
}
