//! Comparing a wired pod with what it should be (CNI CHECK).

use std::net::IpAddr;

use ipnet::IpNet;

use super::{GATEWAY_V4, GATEWAY_V6, HOST_MAC, PodWiring, WireError, WiredPod};
use crate::kernel::rtnl::Rtnl;

/// Every difference between the pod's interface and its wiring, in words; empty when all is well. Further addresses
/// and routes in the pod are fine.
///
/// # Errors
/// [`WireError`] when one of the namespaces cannot be looked at.
pub fn check(wiring: &PodWiring, wired: &WiredPod) -> Result<Vec<String>, WireError> {
    let mut findings = host_side(wiring, wired)?;
    let (inside, expected) = (wiring.clone(), wired.clone());
    findings.extend(wiring.pod.run(move || pod_side(&inside, &expected))??);
    Ok(findings)
}

fn host_side(wiring: &PodWiring, wired: &WiredPod) -> Result<Vec<String>, WireError> {
    let name = &wiring.host_interface;
    let mut rtnl = Rtnl::open_in(&wiring.host)
        .map_err(WireError::kernel("open a netlink socket on the host"))?;
    let link = rtnl
        .link_by_name(name)
        .map_err(WireError::kernel(format!("look for {name}")))?;
    let Some(link) = link else {
        return Ok(vec![format!("{name} is missing on the host")]);
    };
    let mut findings = Vec::new();
    if link.index != wired.host_index {
        findings.push(format!(
            "{name} has index {} instead of {}",
            link.index, wired.host_index
        ));
    }
    if !link.is_up() {
        findings.push(format!("{name} is down"));
    }
    if link.mac != Some(HOST_MAC) {
        findings.push(format!(
            "{name} has another Ethernet address than {HOST_MAC}"
        ));
    }
    if link.alias.as_deref() != Some(wiring.alias.as_str()) {
        findings.push(format!(
            "{name} has alias {:?} instead of {:?}",
            link.alias, wiring.alias
        ));
    }
    if link.parent != Some(wired.pod_index) {
        findings.push(format!("{name} is not paired with the pod's interface"));
    }
    let routes = rtnl
        .routes(Some(link.index))
        .map_err(WireError::kernel(format!("read the routes of {name}")))?;
    for address in &wiring.addresses {
        if !routes
            .iter()
            .any(|(key, _)| key.prefix == IpNet::from(*address))
        {
            findings.push(format!("the host has no route to {address} through {name}"));
        }
    }
    Ok(findings)
}

fn pod_side(wiring: &PodWiring, wired: &WiredPod) -> Result<Vec<String>, WireError> {
    let name = &wiring.pod_interface;
    let mut rtnl = Rtnl::open().map_err(WireError::kernel("open a netlink socket in the pod"))?;
    let link = rtnl
        .link_by_name(name)
        .map_err(WireError::kernel(format!("look for {name}")))?;
    let Some(link) = link else {
        return Ok(vec![format!("{name} is missing in the pod")]);
    };
    let mut findings = Vec::new();
    if !link.is_up() {
        findings.push(format!("{name} is down in the pod"));
    }
    if link.parent != Some(wired.host_index) {
        findings.push(format!(
            "{name} is not paired with {}",
            wiring.host_interface
        ));
    }
    let addresses = rtnl
        .addresses()
        .map_err(WireError::kernel("read the addresses in the pod"))?;
    for address in &wiring.addresses {
        if !addresses
            .iter()
            .any(|a| a.link == link.index && a.address.addr() == *address)
        {
            findings.push(format!("{name} does not have {address} in the pod"));
        }
    }
    let routes = rtnl
        .routes(Some(link.index))
        .map_err(WireError::kernel("read the routes in the pod"))?;
    let neighbours = rtnl
        .neighbours()
        .map_err(WireError::kernel("read the neighbours in the pod"))?;
    let families: [(bool, IpAddr); 2] = [
        (wiring.has_v4(), GATEWAY_V4.into()),
        (wiring.has_v6(), GATEWAY_V6.into()),
    ];
    for (used, gateway) in families {
        if !used {
            continue;
        }
        let entry = neighbours
            .iter()
            .find(|n| n.key.link == link.index && n.key.ip == gateway);
        if !entry.is_some_and(|n| n.permanent && n.mac == Some(HOST_MAC)) {
            findings.push(format!(
                "the pod has no permanent neighbour entry for {gateway}"
            ));
        }
        let mut wanted: Vec<IpNet> = wiring.routes.clone();
        wanted.retain(|r| r.addr().is_ipv4() == gateway.is_ipv4());
        if gateway.is_ipv4() {
            wanted.push(IpNet::from(gateway));
        }
        for destination in wanted {
            if !routes
                .iter()
                .any(|(key, _)| key.prefix == destination.trunc())
            {
                findings.push(format!("the pod has no route to {destination}"));
            }
        }
    }
    Ok(findings)
}
