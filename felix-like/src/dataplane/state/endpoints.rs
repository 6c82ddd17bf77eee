//! Pods of this node: host routes and neighbour entries.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::oneshot;

use super::State;
use crate::desired::{EndpointDesired, EndpointId};
use crate::kernel::rtnl::{NeighKey, RouteKey};
use crate::routes::{Candidate, ELEVATED_METRIC, Intent, Owner, RouteClass, WORKLOAD_METRIC};

impl State {
    pub(in crate::dataplane) fn set_endpoints(&mut self, all: Vec<EndpointDesired>) {
        let wanted: BTreeSet<EndpointId> = all.iter().map(|e| e.id.clone()).collect();
        let gone: Vec<EndpointId> = self
            .endpoints
            .keys()
            .filter(|id| !wanted.contains(*id))
            .cloned()
            .collect();
        for endpoint in all {
            self.upsert_endpoint(endpoint);
        }
        for id in gone {
            self.remove_endpoint(&id);
        }
    }

    pub(in crate::dataplane) fn upsert_endpoint(&mut self, endpoint: EndpointDesired) {
        let id = endpoint.id.clone();
        if self.endpoints.get(&id) == Some(&endpoint) {
            return;
        }
        if let Some(old) = self.endpoints.get(&id)
            && old.interface != endpoint.interface
        {
            let interface = old.interface.clone();
            self.forget_interface(&interface, &id);
        }
        self.endpoints_by_interface
            .entry(endpoint.interface.clone())
            .or_default()
            .insert(id.clone());
        self.endpoints.insert(id.clone(), endpoint);
        self.plan_endpoint(&id);
        if let Some(link) = self.topology.named(&self.endpoints[&id].interface) {
            self.settings_to_check.insert(link.index);
        }
        // A route that was left alone on this interface may be explained now.
        self.routes.reconsider_keys(self.link_routes(&id));
    }

    pub(in crate::dataplane) fn remove_endpoint(&mut self, id: &EndpointId) {
        let Some(endpoint) = self.endpoints.remove(id) else {
            return;
        };
        self.forget_interface(&endpoint.interface, id);
        self.plan_endpoint(id);
    }

    fn forget_interface(&mut self, interface: &str, id: &EndpointId) {
        if let Some(ids) = self.endpoints_by_interface.get_mut(interface) {
            ids.remove(id);
            if ids.is_empty() {
                self.endpoints_by_interface.remove(interface);
            }
        }
    }

    /// Keys of kernel routes on the endpoint's interface.
    fn link_routes(&self, id: &EndpointId) -> Vec<RouteKey> {
        let link = self
            .endpoints
            .get(id)
            .and_then(|e| self.topology.named(&e.interface));
        let keys = link.and_then(|l| self.routes_by_link.get(&l.index));
        keys.map(|k| k.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Brings candidates and neighbours of an endpoint in line with what is desired of it (nothing, when it is gone).
    pub(super) fn plan_endpoint(&mut self, id: &EndpointId) {
        let owner = Owner::Endpoint(id.clone());
        let mut keys = BTreeSet::new();
        if let Some(endpoint) = self.endpoints.get(id).filter(|e| e.active) {
            let metric = if endpoint.elevated {
                ELEVATED_METRIC
            } else {
                WORKLOAD_METRIC
            };
            let provenance = Arc::new(endpoint.provenance.clone());
            for address in &endpoint.addresses {
                if !self.family_on(address.is_ipv6()) {
                    continue;
                }
                let key = RouteKey::new(IpNet::from(*address), metric);
                let candidate = Candidate {
                    class: RouteClass::LocalWorkload,
                    owner: owner.clone(),
                    intent: Intent::Interface(endpoint.interface.clone()),
                    protocol: self.config.device_route_protocol,
                    source: self.route_source(address.is_ipv6()),
                    mtu: None,
                    provenance: Arc::clone(&provenance),
                };
                self.candidates.put(key, candidate);
                keys.insert(key);
            }
        }
        let old = if keys.is_empty() {
            self.endpoint_routes.remove(id)
        } else {
            self.endpoint_routes.insert(id.clone(), keys.clone())
        };
        for key in old.into_iter().flatten() {
            if keys.insert(key) {
                self.candidates.take(&key, &owner);
            }
        }
        self.recompute_all(keys);
        self.plan_neighbours(id);
    }

    /// Permanent entries for the endpoint's IPv4 addresses on its host end, while that is up.
    pub(super) fn plan_neighbours(&mut self, id: &EndpointId) {
        let mut wanted = BTreeSet::new();
        if let Some(endpoint) = self.endpoints.get(id).filter(|e| e.active)
            && let Some(mac) = endpoint.mac
            && let Some(link) = self.topology.running(&endpoint.interface)
        {
            for ip in endpoint.addresses.iter().filter(|a| a.is_ipv4()) {
                let key = NeighKey { link, ip: *ip };
                self.neighbours.want(key, mac);
                self.neighbours.retry(&key);
                wanted.insert(key);
            }
        }
        let old = if wanted.is_empty() {
            self.endpoint_neighbours.remove(id)
        } else {
            self.endpoint_neighbours.insert(id.clone(), wanted.clone())
        };
        for key in old.into_iter().flatten().filter(|k| !wanted.contains(k)) {
            self.neighbours.unwant(&key);
        }
    }

    pub(in crate::dataplane) fn wait_routed(&mut self, id: EndpointId, reply: oneshot::Sender<()>) {
        self.waiting.push((id, reply));
    }

    /// True when every route and neighbour entry of the endpoint is in the kernel.
    pub(super) fn is_routed(&self, id: &EndpointId) -> bool {
        let Some(endpoint) = self.endpoints.get(id) else {
            return false;
        };
        if endpoint.active && self.topology.running(&endpoint.interface).is_none() {
            return false;
        }
        let routes = self.endpoint_routes.get(id).into_iter().flatten();
        let neighbours = self.endpoint_neighbours.get(id).into_iter().flatten();
        routes.into_iter().all(|k| self.routes.is_settled(k))
            && neighbours
                .into_iter()
                .all(|k| self.neighbours.is_settled(k))
    }

    /// Answers those whose endpoint is routed; those who gave up are dropped.
    pub(super) fn answer_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (id, reply) in waiting {
            if reply.is_closed() {
                continue;
            }
            if self.is_routed(&id) {
                let _ = reply.send(());
            } else {
                self.waiting.push((id, reply));
            }
        }
    }
}
