//! Tunnel devices, and what VXLAN needs to know of other nodes: the Ethernet address of each tunnel end (neighbour
//! entries) and the node behind each Ethernet address (forwarding entries).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use sha1::{Digest, Sha1};

use super::State;
use crate::dataplane::status::{Feature, Problem, ProblemKind};
use crate::desired::{EncapMode, PoolView, Provenance, RemoteNode, Source};
use crate::kernel::monitor::FdbEvent;
use crate::kernel::rtnl::{
    AddressFlags, FdbEntry, FdbKey, Link, LinkChange, NeighKey, VxlanDevice,
};
use crate::kernel::{KernelError, MacAddr};
use crate::reconcile::{Removal, Work};
use crate::routes::{IPIP_DEVICE, VXLAN_DEVICES};

/// Address of a node's VXLAN device: `f` and the first five octets of the SHA-1 of its name (`-v6` appended for IPv6).
pub(super) fn vtep_mac(node: &str, ipv6: bool) -> MacAddr {
    let name = if ipv6 {
        format!("{node}-v6")
    } else {
        node.to_owned()
    };
    let digest = Sha1::digest(name.as_bytes());
    MacAddr([b'f', digest[0], digest[1], digest[2], digest[3], digest[4]])
}

/// What a tunnel device needs that the kernel may lack.
struct Trouble {
    kind: ProblemKind,
    message: String,
}

impl State {
    /// Brings the tunnel devices in line with the pools.
    pub(super) fn apply_tunnels(&mut self) {
        if !std::mem::take(&mut self.tunnels_changed) {
            return;
        }
        self.feature_problems
            .retain(|p| p.kind == ProblemKind::SysctlFailed);
        for ipv6 in [false, true] {
            let uses = |p: &PoolView| {
                p.workload && p.vxlan != EncapMode::Never && p.cidr.addr().is_ipv6() == ipv6
            };
            if self.family_on(ipv6) && self.pools.iter().any(uses) {
                let outcome = self.ensure_vxlan(ipv6);
                self.note_tunnel(outcome, uses, "spec.vxlanMode");
            } else if self.in_sync.contains(&Source::Pools) {
                self.remove_vxlan(ipv6);
            }
            self.plan_vteps(ipv6);
        }
        let uses = |p: &PoolView| {
            let ipip = p.ipip != EncapMode::Never && p.vxlan == EncapMode::Never;
            p.workload && ipip && p.cidr.addr().is_ipv4()
        };
        if self.settings.ipv4 && self.pools.iter().any(uses) {
            let outcome = self.ensure_ipip();
            self.note_tunnel(outcome, uses, "spec.ipipMode");
        }
        self.problems_stale = true;
    }

    /// A problem on every pool that wants the tunnel.
    fn note_tunnel(
        &mut self,
        outcome: Result<(), Trouble>,
        uses: impl Fn(&PoolView) -> bool,
        field: &str,
    ) {
        self.tunnels_failed |= outcome.is_err();
        let Err(trouble) = outcome else { return };
        for pool in self.pools.iter().filter(|p| uses(p)) {
            self.feature_problems.push(Problem::new(
                trouble.kind.clone(),
                &Provenance::cluster("IPPool", &pool.name),
                field,
                trouble.message.clone(),
            ));
        }
    }

    fn ensure_ipip(&mut self) -> Result<(), Trouble> {
        let link = match self.device(IPIP_DEVICE)? {
            Some(link) => link,
            None => {
                // Loading the module makes the device by itself, so that ours is one too many.
                match self.rtnl.create_ipip(IPIP_DEVICE, IpAddr::from([0; 4])) {
                    Ok(()) => {}
                    Err(e) if e.is(libc::EEXIST) => {}
                    Err(e) => return Err(missing(Feature::Ipip, "ipip", &e)),
                }
                self.writes += 1;
                let made = self.device(IPIP_DEVICE)?;
                made.ok_or_else(|| refused(IPIP_DEVICE, &KernelError::errno(libc::ENODEV)))?
            }
        };
        let address = self.local_node.ipip_address;
        self.finish_device(&link, self.ipip_mtu(), address, false)
    }

    fn ensure_vxlan(&mut self, ipv6: bool) -> Result<(), Trouble> {
        let name = VXLAN_DEVICES[usize::from(ipv6)];
        let local = self.local_node.addresses.iter().map(IpNet::addr);
        let local = local.into_iter().find(|a| a.is_ipv6() == ipv6);
        let (Some(parent), Some(local)) = (self.topology.uplink(ipv6), local) else {
            return Err(Trouble {
                kind: ProblemKind::TunnelParentMissing,
                message: format!(
                    "{name} cannot be made: this node's address is on no interface that is up"
                ),
            });
        };
        let wanted = VxlanDevice {
            vni: self.settings.vxlan_vni,
            port: self.settings.vxlan_port,
            parent,
            local: Some(local),
            ..VxlanDevice::default()
        };
        let mac = vtep_mac(&self.config.node_name, ipv6);
        let mtu = self.vxlan_mtu(ipv6);
        let mut link = self.device(name)?;
        if let Some(found) = link.as_ref().filter(|l| must_be_made_anew(l, &wanted, mac)) {
            let index = found.index;
            self.writes += 1;
            self.rtnl
                .delete_link(index)
                .map_err(|e| refused(name, &e))?;
            link = None;
        }
        let link = match link {
            Some(link) => link,
            None => {
                self.writes += 1;
                let made = self
                    .rtnl
                    .create_vxlan(name, mac, mtu.unwrap_or(1450), &wanted);
                made.map_err(|e| missing(Feature::Vxlan, "vxlan", &e))?;
                let made = self.device(name)?;
                made.ok_or_else(|| refused(name, &KernelError::errno(libc::ENODEV)))?
            }
        };
        let address = self
            .local_node
            .vxlan_addresses
            .iter()
            .copied()
            .find(|a| a.is_ipv6() == ipv6);
        self.finish_device(&link, mtu, address, ipv6)
    }

    fn remove_vxlan(&mut self, ipv6: bool) {
        let name = VXLAN_DEVICES[usize::from(ipv6)];
        let Some(index) = self.topology.named(name).map(|l| l.index) else {
            return;
        };
        self.writes += 1;
        match self.rtnl.delete_link(index) {
            Ok(_) => tracing::info!(device = name, "no pool needs the device, removed"),
            Err(error) => tracing::warn!(device = name, %error, "device not removed"),
        }
    }

    fn device(&mut self, name: &str) -> Result<Option<Link>, Trouble> {
        self.rtnl.link_by_name(name).map_err(|e| refused(name, &e))
    }

    /// MTU, the one address, and up.
    fn finish_device(
        &mut self,
        link: &Link,
        mtu: Option<u32>,
        address: Option<IpAddr>,
        ipv6: bool,
    ) -> Result<(), Trouble> {
        let failed = |e: KernelError| refused(&link.name, &e);
        let change = LinkChange {
            up: (!link.is_up()).then_some(true),
            mtu: mtu.filter(|m| *m != link.mtu),
            ..LinkChange::default()
        };
        if change.up.is_some() || change.mtu.is_some() {
            self.writes += 1;
            self.rtnl.change_link(link.index, &change).map_err(failed)?;
        }
        let wanted = address.map(IpNet::from);
        let there: Vec<IpNet> = self
            .rtnl
            .addresses_of(link.index)
            .map_err(failed)?
            .into_iter()
            .filter(|a| a.address.addr().is_ipv6() == ipv6)
            .map(|a| a.address)
            .filter(|a| !is_link_local(a))
            .collect();
        // The source address of what the node sends into the tunnel must be its own tunnel address.
        for extra in there.iter().filter(|a| Some(**a) != wanted) {
            self.writes += 1;
            self.rtnl
                .delete_address(link.index, *extra)
                .map_err(failed)?;
        }
        if let Some(wanted) = wanted.filter(|w| !there.contains(w)) {
            self.writes += 1;
            let flags = AddressFlags { no_dad: true };
            self.rtnl
                .add_address(link.index, wanted, flags)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Neighbour and forwarding entries of all other nodes on a VXLAN device.
    fn plan_vteps(&mut self, ipv6: bool) {
        let mut neighbours = BTreeSet::new();
        let mut fdb = BTreeSet::new();
        let device = self.topology.running(VXLAN_DEVICES[usize::from(ipv6)]);
        let nodes: Vec<RemoteNode> = self.remote_nodes.values().cloned().collect();
        for node in nodes {
            let of_family = |list: &[IpAddr]| list.iter().copied().find(|a| a.is_ipv6() == ipv6);
            let (Some(link), Some(tunnel), Some(remote)) = (
                device,
                of_family(&node.vxlan_addresses),
                of_family(&node.addresses),
            ) else {
                continue;
            };
            let given = if ipv6 {
                node.vxlan_mac_v6
            } else {
                node.vxlan_mac_v4
            };
            let mac = given.unwrap_or_else(|| vtep_mac(&node.name, ipv6));
            let key = NeighKey { link, ip: tunnel };
            self.neighbours.want(key, mac);
            self.neighbours.retry(&key);
            neighbours.insert(key);
            let key = FdbKey { link, mac };
            self.fdb.want(key, remote);
            self.fdb.retry(&key);
            fdb.insert(key);
        }
        let slot = usize::from(ipv6);
        let old = std::mem::replace(&mut self.vtep_neighbours[slot], neighbours.clone());
        for key in old.difference(&neighbours) {
            self.neighbours.unwant(key);
        }
        let old = std::mem::replace(&mut self.vtep_fdb[slot], fdb.clone());
        for key in old.difference(&fdb) {
            self.fdb.unwant(key);
        }
    }

    /// Reads the forwarding entries of our devices; returns the number of differences.
    pub(super) fn resync_fdb(&mut self) -> Result<usize, KernelError> {
        let mut found: Vec<FdbEntry> = Vec::new();
        for name in VXLAN_DEVICES {
            if let Some(link) = self.topology.named(name).map(|l| l.index) {
                found.extend(self.rtnl.fdb(link)?);
            }
        }
        let news = self
            .fdb
            .replace_actual(found.into_iter().map(|e| (e.key, e.remote)));
        Ok(news
            .iter()
            .filter(|(_, o)| super::events::is_difference(o))
            .count())
    }

    pub(super) fn fdb_event(&mut self, event: &FdbEvent) {
        let ours = |name: &str| VXLAN_DEVICES.contains(&name);
        if !self
            .topology
            .link(event.key.link)
            .is_some_and(|l| ours(&l.name))
        {
            return;
        }
        let observation = self.fdb.observe(&event.key, event.remote);
        if event.port != 0 {
            self.fdb_drift(&event.key, &observation, event.port);
        }
    }

    pub(super) fn apply_fdb(&mut self) {
        if self.drift.paused {
            return;
        }
        let complete = self.is_complete(Source::RemoteBlocks);
        let work = self
            .fdb
            .take_work(usize::MAX, std::time::Instant::now(), |found| {
                // The device is ours, so whatever is on it is.
                if found.mine || complete {
                    Removal::Now
                } else {
                    Removal::Later
                }
            });
        for item in work {
            self.writes += 1;
            match item {
                Work::Write { key, value, .. } => {
                    let entry = FdbEntry { key, remote: value };
                    match self.rtnl.replace_fdb(&entry) {
                        Ok(()) => {
                            self.fdb.written(&key, value);
                            self.drift.fdb_repaired(&key);
                        }
                        Err(error) => {
                            tracing::warn!(mac = %key.mac, %error, "forwarding entry refused");
                            self.fdb.failed(&key, error.to_string());
                        }
                    }
                }
                Work::Remove { key, value } => {
                    match self.rtnl.delete_fdb(&FdbEntry { key, remote: value }) {
                        Ok(_) => self.fdb.removed(&key),
                        Err(error) => {
                            tracing::warn!(mac = %key.mac, %error, "forwarding entry not removed");
                            self.fdb.failed(&key, error.to_string());
                        }
                    }
                }
            }
        }
    }

    /// Tunnel devices with an address, whose name rules need.
    pub(super) fn tunnel_devices(&self, ipv6: bool) -> Vec<String> {
        let mut devices = Vec::new();
        let vxlan = |a: &IpAddr| a.is_ipv6() == ipv6;
        let uses = |p: &PoolView| {
            p.workload && p.vxlan != EncapMode::Never && p.cidr.addr().is_ipv6() == ipv6
        };
        if self.local_node.vxlan_addresses.iter().any(vxlan) && self.pools.iter().any(uses) {
            devices.push(VXLAN_DEVICES[usize::from(ipv6)].to_owned());
        }
        let uses = |p: &PoolView| p.workload && p.ipip != EncapMode::Never;
        if !ipv6 && self.local_node.ipip_address.is_some() && self.pools.iter().any(uses) {
            devices.push(IPIP_DEVICE.to_owned());
        }
        devices
    }
}

/// Attributes that a device keeps for life differ. What the kernel does not tell is no difference.
fn must_be_made_anew(link: &Link, wanted: &VxlanDevice, mac: MacAddr) -> bool {
    let Some(found) = &link.vxlan else {
        return true;
    };
    found.vni != wanted.vni
        || found.parent != wanted.parent
        || (found.port != 0 && found.port != wanted.port)
        || found.local.is_some_and(|l| Some(l) != wanted.local)
        || found.group.is_some()
        || found.learning
        || found.l2miss
        || found.external
        || found.gbp
        || link.mac.is_some_and(|m| m != mac)
}

fn is_link_local(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(a) if a.addr().segments()[0] & 0xffc0 == 0xfe80)
}

fn missing(feature: Feature, module: &str, error: &KernelError) -> Trouble {
    if error.is_unsupported() {
        return Trouble {
            kind: ProblemKind::DataplaneFeatureMissing(feature),
            message: format!(
                "the kernel of this node has no {module} (module {module} is missing): routes \
                 through the tunnel cannot be made. Load the module, or change the pool to a mode \
                 without it; other pools are not affected"
            ),
        };
    }
    refused(module, error)
}

fn refused(device: &str, error: &KernelError) -> Trouble {
    Trouble {
        kind: ProblemKind::DataplaneRefused,
        message: format!("device {device} cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vtep_address_follows_from_the_nodes_name() {
        let mac = vtep_mac("n1", false);
        assert_eq!(mac.0[0], 0x66);
        assert!(mac.is_usable());
        assert_ne!(mac, vtep_mac("n2", false));
        assert_ne!(mac, vtep_mac("n1", true));
        let digest = Sha1::digest(b"n1-v6");
        assert_eq!(vtep_mac("n1", true).0[1..], digest[..5]);
    }
}
