//! sysctls: forwarding of the node, and what every host end needs.

use std::time::Instant;

use super::State;
use super::drift::Finding;
use crate::dataplane::status::{Problem, ProblemKind};
use crate::desired::Provenance;
use crate::kernel::sysctl;
use crate::wire::{HostSettings, apply_host_settings};

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
