//! Which routes that nobody desires may be removed, and when.

use std::time::Instant;

use super::State;
use crate::desired::Source;
use crate::kernel::rtnl::{RouteKey, RouteSpec};
use crate::reconcile::{Removal, Undesired};
use crate::routes::RouteOwner;

impl State {
    /// May a route go that nobody desires?
    pub(super) fn judge_route(
        &mut self,
        found: &Undesired<'_, RouteKey, RouteSpec>,
        now: Instant,
    ) -> Removal {
        let (key, spec, mine) = (found.key, found.value, found.mine);
        let owner = self.owner_of(key, spec);
        match owner {
            RouteOwner::Foreign => {
                // We wrote it, and it still carries our protocol: rules about who else might have do not matter.
                let ours = [
                    self.config.device_route_protocol,
                    self.config.bgp_route_protocol,
                    self.ownership.agent_protocol(),
                ];
                if mine && ours.contains(&spec.protocol) {
                    Removal::Now
                } else {
                    Removal::Never
                }
            }
            _ if mine => Removal::Now,
            RouteOwner::Ours(source) => {
                if self.is_complete(source) {
                    Removal::Now
                } else {
                    Removal::Later
                }
            }
            RouteOwner::OursAfterGrace => self.judge_workload_route(found, now),
        }
    }

    /// A route of somebody else on a pod's interface: perhaps of a CNI plugin, for a pod that we shall hear of.
    fn judge_workload_route(
        &mut self,
        found: &Undesired<'_, RouteKey, RouteSpec>,
        now: Instant,
    ) -> Removal {
        let (key, spec) = (found.key, found.value);
        let Some(link) = spec.hops.first().and_then(|h| self.topology.link(h.link)) else {
            return Removal::Later;
        };
        let wanted = self.candidates.on_interface(&link.name);
        // Ours for the same address is there: the other one is a twin.
        if wanted
            .iter()
            .any(|k| k.prefix == key.prefix && found.table.is_settled(k))
        {
            return Removal::Now;
        }
        if !self.in_sync.contains(&Source::Endpoints) {
            return Removal::Later;
        }
        let over = self
            .appeared
            .get(&link.index)
            .map_or(now, |appeared| *appeared + self.config.foreign_route_grace);
        if over <= now || wanted.iter().any(|k| found.table.is_settled(k)) {
            return Removal::Now;
        }
        self.reconsider_at = Some(self.reconsider_at.map_or(over, |t| t.min(over)));
        Removal::Later
    }
}
