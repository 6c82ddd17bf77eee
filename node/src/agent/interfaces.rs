//! The host's interfaces and their addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// One interface with its addresses in kernel order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Administratively up.
    pub(crate) up: bool,
    pub(crate) addresses: Vec<IpNet>,
}

/// Lists the interfaces of this network namespace.
///
/// # Errors
/// The kernel refused the dump.
pub(crate) fn list() -> std::io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for entry in getifaddrs()? {
        let name = entry.interface_name;
        let interface = found.entry(name.clone()).or_insert_with(|| Interface {
            index: if_nametoindex(name.as_str()).unwrap_or(0),
            name,
            up: entry.flags.contains(InterfaceFlags::IFF_UP),
            addresses: Vec::new(),
        });
        let address = entry.address.as_ref().and_then(ip_of);
        let mask = entry.netmask.as_ref().and_then(ip_of);
        if let (Some(address), Some(mask)) = (address, mask)
            && let Ok(net) = IpNet::with_netmask(address, mask)
        {
            interface.addresses.push(net);
        }
    }
    Ok(found.into_values().collect())
}

fn ip_of(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    address
        .as_sockaddr_in()
        .map(|v4| IpAddr::V4(v4.ip()))
        .or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_with_its_network() {
        let interfaces = list().expect("dump");
        let lo = interfaces
            .iter()
            .find(|interface| interface.name == "lo")
            .expect("lo");
        assert!(lo.index > 0);
        assert!(
            lo.addresses.contains(&"127.0.0.1/8".parse().expect("net")),
            "{lo:?}"
        );
    }
}
