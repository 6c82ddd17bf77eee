//! The pod end: everything that happens inside the pod's namespace, on one thread that enters it and exits.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{GATEWAY_V4, GATEWAY_V6, HOST_MAC, PodWiring, WireError};
use crate::kernel::rtnl::{
    AddressFlags, Hop, Link, LinkChange, NeighKey, RouteKey, RouteSpec, Rtnl, Scope,
};
use crate::kernel::{KernelError, sysctl};

/// Protocol of a pod's own routes: `boot`, as if set by hand.
const PROTOCOL_BOOT: u8 = 3;

/// Sets up the pod end and returns it.
pub(super) fn wire_pod_side(wiring: &PodWiring) -> Result<Link, WireError> {
    let inside = wiring.clone();
    wiring.pod.run(move || inside_pod(&inside))?
}

fn inside_pod(wiring: &PodWiring) -> Result<Link, WireError> {
    let name = &wiring.pod_interface;
    let mut rtnl = Rtnl::open().map_err(WireError::kernel("open a netlink socket in the pod"))?;
    let up = |rtnl: &mut Rtnl, name: &str| -> Result<Link, WireError> {
        let link = rtnl
            .link_by_name(name)
            .and_then(|link| link.ok_or_else(|| KernelError::errno(libc::ENODEV)))
            .map_err(WireError::kernel(format!("find {name} in the pod")))?;
        rtnl.change_link(
            link.index,
            &LinkChange {
                up: Some(true),
                ..LinkChange::default()
            },
        )
        .map_err(WireError::kernel(format!("set {name} up in the pod")))?;
        Ok(link)
    };
    up(&mut rtnl, "lo")?;
    if wiring.has_v6() {
        for scope in ["all", "default", "lo", name] {
            set(&format!("net/ipv6/conf/{scope}/disable_ipv6"), "0")?;
        }
        set(&format!("net/ipv6/conf/{name}/accept_dad"), "0")?;
    }
    let link = up(&mut rtnl, name)?;
    if wiring.has_v4() {
        gateway(&mut rtnl, link.index, GATEWAY_V4.into())?;
        let to_gateway = RouteKey::new(IpNet::from(IpAddr::V4(GATEWAY_V4)), 0);
        route(&mut rtnl, to_gateway, Hop::link(link.index), Scope::Link)?;
        for destination in wiring.routes.iter().filter(|r| r.addr().is_ipv4()) {
            let hop = Hop::via(link.index, GATEWAY_V4.into(), false);
            route(
                &mut rtnl,
                RouteKey::new(*destination, 0),
                hop,
                Scope::Universe,
            )?;
        }
    }
    if wiring.has_v6() {
        gateway(&mut rtnl, link.index, GATEWAY_V6.into())?;
        for destination in wiring.routes.iter().filter(|r| r.addr().is_ipv6()) {
            let hop = Hop::via(link.index, GATEWAY_V6.into(), false);
            route(
                &mut rtnl,
                RouteKey::new(*destination, 0),
                hop,
                Scope::Universe,
            )?;
        }
    }
    for address in &wiring.addresses {
        rtnl.add_address(
            link.index,
            IpNet::from(*address),
            AddressFlags { no_dad: true },
        )
        .map_err(WireError::kernel(format!(
            "add {address} to {name} in the pod"
        )))?;
    }
    let forwarding = if wiring.pod_forwarding { "1" } else { "0" };
    if wiring.has_v4() {
        set("net/ipv4/ip_forward", forwarding)?;
    }
    if wiring.has_v6() {
        set("net/ipv6/conf/all/forwarding", forwarding)?;
    }
    rtnl.link_by_index(link.index)
        .and_then(|link| link.ok_or_else(|| KernelError::errno(libc::ENODEV)))
        .map_err(WireError::kernel(format!("read back {name} in the pod")))
}

/// The gateway's Ethernet address, known for good: proxy ARP would need a route to 169.254.1.1 and forwarding on the
/// host end, and a node without a default route has none.
fn gateway(rtnl: &mut Rtnl, link: u32, ip: IpAddr) -> Result<(), WireError> {
    rtnl.replace_neighbour(NeighKey { link, ip }, HOST_MAC)
        .map_err(WireError::kernel(format!(
            "write the neighbour entry of {ip} in the pod"
        )))
}

fn route(rtnl: &mut Rtnl, key: RouteKey, hop: Hop, scope: Scope) -> Result<(), WireError> {
    let spec = RouteSpec::unicast(PROTOCOL_BOOT, scope, vec![hop]);
    let result = rtnl.batch(&[spec.replace(&key)]).pop().unwrap_or(Ok(()));
    result.map_err(WireError::kernel(format!(
        "write the route to {} in the pod",
        key.prefix
    )))
}

fn set(key: &str, value: &str) -> Result<(), WireError> {
    let error = |source| WireError::Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        source,
    };
    sysctl::write(key, value).map(drop).map_err(error)
}
