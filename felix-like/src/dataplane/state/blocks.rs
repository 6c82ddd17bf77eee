//! Blocks of this node (blackholes), pools, and blocks of other nodes where the agent writes their routes itself.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::State;
use crate::desired::{EncapMode, LocalNode, OwnBlock, PoolView, RemoteBlock, RemoteNode};
use crate::kernel::rtnl::RouteKey;
use crate::routes::{
    AGENT_METRIC, Candidate, IPIP_DEVICE, Intent, Owner, PoolTable, RouteClass, VXLAN_DEVICES,
};

impl State {
    pub(in crate::dataplane) fn set_own_blocks(&mut self, blocks: Vec<OwnBlock>) {
        if blocks != self.own_blocks {
            self.own_blocks = blocks;
            self.plan_own_blocks();
        }
    }

    pub(in crate::dataplane) fn set_pools(&mut self, pools: Vec<PoolView>) {
        if pools == self.pools {
            return;
        }
        self.pool_table = PoolTable::new(&pools);
        self.pools = pools;
        self.plan_remote_blocks();
        self.replan_bgp();
        // Whether a BGP route is ours depends on the pools.
        self.routes.reconsider();
        self.problems_stale = true;
        self.tunnels_changed = true;
        self.rules_changed = true;
    }

    pub(in crate::dataplane) fn set_remote_blocks(&mut self, blocks: Vec<RemoteBlock>) {
        if blocks != self.remote_blocks {
            self.remote_blocks = blocks;
            self.plan_remote_blocks();
        }
    }

    pub(in crate::dataplane) fn set_remote_nodes(&mut self, nodes: Vec<RemoteNode>) {
        let nodes = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
        if nodes != self.remote_nodes {
            self.remote_nodes = nodes;
            self.plan_remote_blocks();
            self.tunnels_changed = true;
            self.rules_changed = true;
        }
    }

    pub(in crate::dataplane) fn set_local_node(&mut self, node: LocalNode) {
        if node == self.local_node {
            return;
        }
        self.local_node = node;
        self.topology
            .set_local(self.local_node.addresses.iter().map(IpNet::addr).collect());
        self.plan_remote_blocks();
        self.uplink_changed();
        self.tunnels_changed = true;
        self.rules_changed = true;
    }

    /// Routes through our own address's interface have to be looked at again.
    pub(super) fn uplink_changed(&mut self) {
        let uplinks = [false, true].map(|ipv6| {
            let link = self.topology.link(self.topology.uplink(ipv6)?)?;
            Some((link.index, link.mtu))
        });
        if uplinks != self.uplinks {
            // Whether a node is near, and how large a packet to it may be.
            self.uplinks = uplinks;
            self.plan_remote_blocks();
            self.replan_bgp();
            self.tunnels_changed = true;
        }
        for ipv6 in [false, true] {
            let keys = self.candidates.on_uplink(ipv6);
            self.recompute_all(keys);
        }
    }

    /// A blackhole for every block, so that unused addresses are refused here; none for single addresses, which would
    /// compete with a pod's own route.
    pub(super) fn plan_own_blocks(&mut self) {
        let mut keys = BTreeSet::new();
        for block in &self.own_blocks {
            let ipv6 = block.cidr.addr().is_ipv6();
            if block.cidr.prefix_len() == block.cidr.max_prefix_len() || !self.family_on(ipv6) {
                continue;
            }
            let key = RouteKey::new(block.cidr, AGENT_METRIC);
            let candidate = Candidate {
                class: RouteClass::Blackhole,
                owner: Owner::OwnBlocks,
                intent: Intent::Blackhole,
                protocol: self.ownership.agent_protocol(),
                source: None,
                mtu: None,
                provenance: Arc::new(block.provenance.clone()),
            };
            self.candidates.put(key, candidate);
            keys.insert(key);
        }
        let old = std::mem::replace(&mut self.own_block_keys, keys.clone());
        for key in old.difference(&keys) {
            self.candidates.take(key, &Owner::OwnBlocks);
        }
        keys.extend(old);
        self.recompute_all(keys);
    }

    pub(super) fn plan_remote_blocks(&mut self) {
        let mut keys = BTreeSet::new();
        for block in &self.remote_blocks {
            let Some((class, intent, protocol, mtu)) = self.remote_route(block) else {
                continue;
            };
            let key = RouteKey::new(block.cidr, AGENT_METRIC);
            let candidate = Candidate {
                class,
                owner: Owner::RemoteBlocks,
                intent,
                protocol,
                source: self.route_source(block.cidr.addr().is_ipv6()),
                mtu,
                provenance: Arc::new(block.provenance.clone()),
            };
            self.candidates.put(key, candidate);
            keys.insert(key);
        }
        let old = std::mem::replace(&mut self.remote_block_keys, keys.clone());
        for key in old.difference(&keys) {
            self.candidates.take(key, &Owner::RemoteBlocks);
        }
        keys.extend(old);
        self.recompute_all(keys);
        self.routes.reconsider();
    }

    /// How a block of another node is reached; `None` when BGP writes its route or something is not known yet.
    fn remote_route(&self, block: &RemoteBlock) -> Option<(RouteClass, Intent, u8, Option<u32>)> {
        let ipv6 = block.cidr.addr().is_ipv6();
        if !self.family_on(ipv6) {
            return None;
        }
        let pool = self.pool_table.of(&block.cidr)?;
        let node = self.remote_nodes.get(&block.node)?;
        let address = node.addresses.iter().copied().find(|a| a.is_ipv6() == ipv6);
        let agent = self.ownership.agent_protocol();
        if pool.vxlan != EncapMode::Never {
            if pool.vxlan == EncapMode::CrossSubnet
                && let Some(address) = address.filter(|a| self.same_subnet(*a))
                && self.topology.uplink(ipv6).is_some()
            {
                return Some((
                    RouteClass::VxlanSameSubnet,
                    Intent::Direct(address),
                    agent,
                    None,
                ));
            }
            let device = VXLAN_DEVICES[usize::from(ipv6)];
            let gateway = node
                .vxlan_addresses
                .iter()
                .copied()
                .find(|a| a.is_ipv6() == ipv6)?;
            let intent = if block.cidr == IpNet::from(gateway) {
                Intent::TunnelAddress(device)
            } else {
                Intent::Tunnel { device, gateway }
            };
            let protocol = self.config.device_route_protocol;
            return Some((
                RouteClass::VxlanTunnel,
                intent,
                protocol,
                self.vxlan_mtu(ipv6),
            ));
        }
        let address = address?;
        if pool.ipip != EncapMode::Never {
            if !self.settings.program_ipip_routes || ipv6 {
                return None;
            }
            if pool.ipip == EncapMode::CrossSubnet && self.same_subnet(address) {
                return Some((
                    RouteClass::IpipSameSubnet,
                    Intent::Direct(address),
                    agent,
                    None,
                ));
            }
            let intent = Intent::Tunnel {
                device: IPIP_DEVICE,
                gateway: address,
            };
            return Some((RouteClass::IpipTunnel, intent, agent, self.ipip_mtu()));
        }
        self.settings.program_no_encap_routes.then_some((
            RouteClass::NoEncap,
            Intent::Direct(address),
            agent,
            None,
        ))
    }

    /// True when a node's address lies in the subnet of our own; its own mask does not count.
    pub(super) fn same_subnet(&self, node: IpAddr) -> bool {
        self.local_node
            .addresses
            .iter()
            .any(|own| own.contains(&node))
    }
}
