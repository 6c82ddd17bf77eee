//! sysctls: forwarding of the node, and what every host end needs.

use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;

use super::State;
use super::drift::Finding;
use crate::dataplane::status::{Problem, ProblemKind};
use crate::desired::Provenance;
use crate::kernel::rtnl::{Address, AddressFlags, Link, LinkChange};
use crate::kernel::sysctl;
use crate::wire::{GATEWAY_V6, HOST_MAC, HostSettings, LINK_LOCAL_PREFIX, apply_host_settings};

impl State {
    /// Settings of the whole node. Forwarding comes only after the tables are in place, so that no packet leaves
    /// untranslated or unfiltered.
    pub(super) fn apply_global_settings(&mut self) {
        self.global_settings_to_check = false;
        let mut wanted = Vec::new();
        if self.settings.ip_forwarding && self.settings.ipv4 {
            wanted.push("net/ipv4/ip_forward");
        }
        if self.settings.ip_forwarding && self.settings.ipv6 {
            wanted.push("net/ipv6/conf/all/forwarding");
        }
        self.feature_problems
            .retain(|p| p.kind != ProblemKind::SysctlFailed);
        for key in wanted {
            match sysctl::write(key, "1") {
                Ok(true) if self.forwarding_on => self.sysctl_drift(key, "1"),
                Ok(_) => {}
                // A kernel without IPv6 has nothing to forward.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.feature_problems.push(Problem::new(
                    ProblemKind::SysctlFailed,
                    &Provenance::default(),
                    "",
                    format!("sysctl {key} cannot be set to 1: {error}; pods are cut off"),
                )),
            }
        }
        // Byte counts of connections; absent until conntrack is loaded.
        let _ = sysctl::write("net/netfilter/nf_conntrack_acct", "1");
        self.forwarding_on = true;
        self.problems_stale = true;
    }

    /// Settings of host ends that came up or whose settings somebody touched.
    pub(super) fn apply_interface_settings(&mut self) {
        if self.drift.paused {
            return;
        }
        let links = std::mem::take(&mut self.settings_to_check);
        for index in links {
            let Some(link) = self.topology.link(index).filter(|l| l.is_running()) else {
                continue;
            };
            let name = link.name.clone();
            let Some(ids) = self.endpoints_by_interface.get(&name) else {
                continue;
            };
            let addresses: Vec<_> = ids
                .iter()
                .filter_map(|id| self.endpoints.get(id))
                .flat_map(|e| e.addresses.iter().copied())
                .collect();
            let settings = HostSettings {
                interface: name.clone(),
                v4: addresses.iter().any(std::net::IpAddr::is_ipv4),
                v6: addresses.iter().any(std::net::IpAddr::is_ipv6),
            };
            self.keep_host_end(index, settings.v6);
            match apply_host_settings(&settings) {
                Ok(changed) => {
                    let known = !self.settings_done.insert(index);
                    for key in changed.into_iter().filter(|_| known) {
                        self.sysctl_drift(&key, "as a pod's interface needs");
                    }
                }
                Err(error) => {
                    tracing::warn!(interface = name, %error, "settings of a pod's interface");
                }
            }
        }
    }

    /// The Ethernet address that pods know their gateway by, and its link-local IPv6 address. Only on interfaces we
    /// made, told by their alias.
    fn keep_host_end(&mut self, index: u32, ipv6: bool) {
        let Some(link) = self.topology.link(index).cloned() else {
            return;
        };
        if !link
            .alias
            .as_deref()
            .is_some_and(|a| a.starts_with("margay:"))
        {
            return;
        }
        let mut done = Vec::new();
        if link.mac.is_some_and(|m| m != HOST_MAC) {
            let change = LinkChange {
                mac: Some(HOST_MAC),
                ..LinkChange::default()
            };
            let found = link.mac.map(|m| m.to_string()).unwrap_or_default();
            let changed = self.rtnl.change_link(index, &change);
            // Known at once: until the notice comes nobody should do it again.
            if changed.is_ok() {
                self.topology.set_link(Link {
                    mac: Some(HOST_MAC),
                    ..link.clone()
                });
            }
            done.push((HOST_MAC.to_string(), found, changed));
        }
        let gateway = IpAddr::V6(GATEWAY_V6);
        // Asked of the kernel itself: it tells of an address given to a link that is down only later.
        let has = |all: Vec<Address>| all.iter().any(|a| a.address.addr() == gateway);
        if ipv6
            && self.rtnl.addresses_of(index).is_ok_and(|all| !has(all))
            && let Ok(address) = IpNet::new(gateway, LINK_LOCAL_PREFIX)
        {
            let flags = AddressFlags { no_dad: true };
            let added = self.rtnl.add_address(index, address, flags);
            done.push((address.to_string(), String::new(), added));
        }
        for (expected, found, result) in done {
            self.writes += 1;
            let kind = if found.is_empty() {
                "missing"
            } else {
                "changed"
            };
            let number = self.drift.record(Finding {
                subsystem: "link",
                kind,
                item: link.name.clone(),
                provenance: String::new(),
                expected,
                found,
                by: "unknown: the kernel does not tell who changes links".to_owned(),
            });
            match (result, number) {
                (Ok(()), Some(number)) => self.drift.repaired(number),
                (Ok(()), None) => {}
                (Err(error), _) => {
                    tracing::warn!(interface = link.name, %error, "host end not put right");
                }
            }
        }
    }

    fn sysctl_drift(&mut self, key: &str, expected: &str) {
        let number = self.drift.record(Finding {
            subsystem: "sysctl",
            kind: "changed",
            item: key.replace('/', "."),
            provenance: String::new(),
            expected: expected.to_owned(),
            found: "another value".to_owned(),
            by: "unknown: the kernel does not tell who writes sysctls".to_owned(),
        });
        if let Some(number) = number {
            self.drift.repaired(number);
        }
        // Damped like routes are, by the same rules, under the name of the setting.
        self.drift.settings.changed(&key.to_owned(), Instant::now());
    }
}
