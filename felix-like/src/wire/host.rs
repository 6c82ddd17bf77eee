//! The host end, and the order in which a pod is wired.

use std::collections::BTreeSet;
use std::time::Duration;
use std::{io, thread};

use ipnet::{IpNet, Ipv6Net};

use super::pod::wire_pod_side;
use super::{GATEWAY_V6, HOST_MAC, PodWiring, WireError, WiredPod};
use crate::kernel::netns::Netns;
use crate::kernel::rtnl::{AddressFlags, Link, LinkChange, Rtnl, VethEnd, VethPair};
use crate::kernel::{KernelError, MacAddr, sysctl};

/// Prefix length of the host end's link-local address.
pub(crate) const LINK_LOCAL_PREFIX: u8 = 64;
/// The kernel was seen to lose the address given at creation; it is set again this often.
const MAC_ATTEMPTS: usize = 5;
const MAC_PAUSE: Duration = Duration::from_millis(20);

/// Makes a pod's interface: the pair, the host end's settings, the pod's addresses and routes, the host end up last.
/// The pod has traffic once the dataplane has written its host route, which it does on seeing the interface come up.
///
/// # Errors
/// See [`WireError`]; the pair is removed again in every case.
pub fn wire_pod(wiring: &PodWiring) -> Result<WiredPod, WireError> {
    if let Some(mac) = wiring.pod_mac.filter(|m| !m.is_usable()) {
        return Err(WireError::InvalidMac(mac));
    }
    let mut rtnl = Rtnl::open_in(&wiring.host)
        .map_err(WireError::kernel("open a netlink socket on the host"))?;
    clear_the_way(&mut rtnl, wiring)?;
    let link = create_pair(&mut rtnl, wiring)?;
    let wired = finish(&mut rtnl, wiring, &link);
    if wired.is_err() {
        // Takes the pod end, the addresses and the settings along.
        let _ = rtnl.delete_link(link.index);
    }
    wired
}

fn finish(rtnl: &mut Rtnl, wiring: &PodWiring, link: &Link) -> Result<WiredPod, WireError> {
    let name = &wiring.host_interface;
    let alias = LinkChange {
        alias: Some(wiring.alias.clone()),
        ipv6_link_local: wiring.has_v6().then_some(true),
        ..LinkChange::default()
    };
    rtnl.change_link(link.index, &alias)
        .map_err(WireError::kernel(format!("set the alias of {name}")))?;
    keep_host_mac(rtnl, link)?;
    host_settings(&wiring.host, HostSettings::of(wiring))?;
    if wiring.has_v6() {
        // Added by hand and without duplicate address detection, so there is nothing to wait for.
        let gateway = IpNet::V6(
            Ipv6Net::new(GATEWAY_V6, LINK_LOCAL_PREFIX).expect("64 is a valid prefix length"),
        );
        rtnl.add_address(link.index, gateway, AddressFlags { no_dad: true })
            .map_err(WireError::kernel(format!("add {gateway} to {name}")))?;
    }
    let pod = wire_pod_side(wiring)?;
    rtnl.change_link(
        link.index,
        &LinkChange {
            up: Some(true),
            ..LinkChange::default()
        },
    )
    .map_err(WireError::kernel(format!("set {name} up")))?;
    Ok(WiredPod {
        host_index: link.index,
        host_mac: HOST_MAC,
        pod_index: pod.index,
        pod_mac: pod.mac.unwrap_or(MacAddr([0; 6])),
    })
}

/// Removes what an earlier attachment left under the host name, if it is ours to remove.
fn clear_the_way(rtnl: &mut Rtnl, wiring: &PodWiring) -> Result<(), WireError> {
    let name = &wiring.host_interface;
    let look = rtnl.link_by_name(name);
    let Some(found) = look.map_err(WireError::kernel(format!("look for {name}")))? else {
        return Ok(());
    };
    let kind = found.kind.as_deref().unwrap_or("hardware");
    let is_pair = matches!(kind, "veth" | "netkit");
    let ours = match &found.alias {
        None => true,
        Some(alias) => alias == &wiring.alias || wiring.superseded.contains(alias),
    };
    if !(is_pair && ours) {
        let alias = found.alias.as_deref().unwrap_or("");
        let owner = format!("somebody else (kind {kind}, alias {alias:?})");
        return Err(WireError::HostInterfaceTaken {
            name: name.clone(),
            owner,
        });
    }
    rtnl.delete_link(found.index)
        .map_err(WireError::kernel(format!("remove the old {name}")))?;
    Ok(())
}

fn create_pair(rtnl: &mut Rtnl, wiring: &PodWiring) -> Result<Link, WireError> {
    let name = &wiring.host_interface;
    let pair = VethPair {
        near: VethEnd {
            name: name.clone(),
            mac: Some(HOST_MAC),
        },
        far: VethEnd {
            name: wiring.pod_interface.clone(),
            mac: wiring.pod_mac,
        },
        far_netns: wiring.pod.clone(),
        mtu: wiring.mtu,
        queues: wiring.queues,
    };
    let mut created = rtnl.create_veth(&pair);
    if created.as_ref().is_err_and(|e| e.is(libc::EEXIST)) {
        // The kernel gives the same number for either name.
        if pod_has(wiring)? {
            return Err(WireError::PodInterfaceExists(wiring.pod_interface.clone()));
        }
        clear_the_way(rtnl, wiring)?;
        created = rtnl.create_veth(&pair);
    }
    created.map_err(WireError::kernel(format!(
        "make the pair {name} and its pod end"
    )))?;
    rtnl.link_by_name(name)
        .and_then(|link| link.ok_or_else(|| KernelError::errno(libc::ENODEV)))
        .map_err(WireError::kernel(format!("read back {name}")))
}

fn pod_has(wiring: &PodWiring) -> Result<bool, WireError> {
    let mut pod = Rtnl::open_in(&wiring.pod)
        .map_err(WireError::kernel("open a netlink socket in the pod"))?;
    let found = pod.link_by_name(&wiring.pod_interface);
    let found = found.map_err(WireError::kernel("look for the pod's interface"))?;
    Ok(found.is_some())
}

fn keep_host_mac(rtnl: &mut Rtnl, link: &Link) -> Result<(), WireError> {
    let mut found = link.mac;
    for _ in 0..MAC_ATTEMPTS {
        if found == Some(HOST_MAC) {
            return Ok(());
        }
        let change = LinkChange {
            mac: Some(HOST_MAC),
            ..LinkChange::default()
        };
        rtnl.change_link(link.index, &change)
            .map_err(WireError::kernel(format!(
                "set {HOST_MAC} on {}",
                link.name
            )))?;
        thread::sleep(MAC_PAUSE);
        found = rtnl
            .link_by_index(link.index)
            .map_err(WireError::kernel(format!("read back {}", link.name)))?
            .and_then(|l| l.mac);
    }
    let found = found.unwrap_or(MacAddr([0; 6]));
    Err(WireError::HostMacLost {
        interface: link.name.clone(),
        found,
    })
}

/// Which settings a host end needs.
#[derive(Debug, Clone)]
pub(crate) struct HostSettings {
    /// Host end.
    pub(crate) interface: String,
    /// The pod has an IPv4 address.
    pub(crate) v4: bool,
    /// The pod has an IPv6 address.
    pub(crate) v6: bool,
}

impl HostSettings {
    fn of(wiring: &PodWiring) -> Self {
        Self {
            interface: wiring.host_interface.clone(),
            v4: wiring.has_v4(),
            v6: wiring.has_v6(),
        }
    }

    /// Settings in the order they are written; the last field says whether the pod can do without.
    pub(crate) fn list(&self) -> Vec<(String, &'static str, Need)> {
        let name = &self.interface;
        let v4 = |key: &str| format!("net/ipv4/conf/{name}/{key}");
        let v6 = |key: &str| format!("net/ipv6/conf/{name}/{key}");
        let mut list = Vec::new();
        if self.v4 {
            list.push((v4("route_localnet"), "1", Need::Must));
            list.push((
                format!("net/ipv4/neigh/{name}/proxy_delay"),
                "0",
                Need::Wish,
            ));
            list.push((v4("proxy_arp"), "1", Need::Must));
            list.push((v4("forwarding"), "1", Need::Must));
        }
        if self.v6 {
            list.push((v6("accept_dad"), "0", Need::Must));
            list.push((v6("disable_ipv6"), "0", Need::Must));
            list.push((v6("proxy_ndp"), "1", Need::Must));
            list.push((v6("forwarding"), "1", Need::Must));
        }
        // Pods must not send router advertisements to the node, whatever families they use.
        list.push((v6("accept_ra"), "0", Need::Wish));
        list
    }
}

/// Whether a pod can do without a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Traffic does not flow without it.
    Must,
    /// Worth a warning.
    Wish,
}

fn host_settings(host: &Netns, settings: HostSettings) -> Result<(), WireError> {
    host.run(move || apply_host_settings(&settings).map(drop))?
}

/// Writes the settings of a host end on a thread that is in the host's namespace; returns the keys that had other
/// values.
pub(crate) fn apply_host_settings(settings: &HostSettings) -> Result<BTreeSet<String>, WireError> {
    let mut changed = BTreeSet::new();
    for (key, value, need) in settings.list() {
        match sysctl::write(&key, value) {
            Ok(true) => {
                changed.insert(key);
            }
            Ok(false) => {}
            Err(source) if need == Need::Must => {
                return Err(WireError::Sysctl {
                    key,
                    value: value.to_owned(),
                    source,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(key, value, %error, "sysctl not written"),
        }
    }
    Ok(changed)
}
