//! Route refresh (RFC 2918) and its brackets (RFC 7313).

use std::time::{Duration, Instant};

use super::ConnectionId;
use super::core::{Core, slot};
use super::peer::Peer;
use crate::Family;
use crate::wire::{RefreshKind, RouteRefresh};

/// Longest time between the beginning and the end of a refresh.
const REFRESH_CAP: Duration = Duration::from_secs(360);

impl Peer {
    /// A ROUTE-REFRESH came in.
    pub(super) fn refresh(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        refresh: RouteRefresh,
        now: Instant,
    ) {
        let family = refresh.family;
        if !self
            .established_families()
            .is_some_and(|families| families.contains(family))
        {
            return;
        }
        match refresh.kind {
            RefreshKind::Request => self.resend(core, id, family, now),
            RefreshKind::Begin => {
                core.table.mark_stale(self.id, family);
                self.stale_until[slot(family)] = Some(now + REFRESH_CAP);
            }
            RefreshKind::End => self.end_stale(core, family),
        }
    }

    fn resend(&mut self, core: &mut Core, id: ConnectionId, family: Family, now: Instant) {
        let bracketed = self
            .established()
            .is_some_and(|(_, session)| session.enhanced_refresh);
        let markers = &mut self.markers[slot(family)];
        // Before the initial End-of-RIB everything is on its way anyway.
        if bracketed && markers.end_of_rib_sent && !markers.refreshing {
            markers.refreshing = true;
            let begin = RouteRefresh {
                family,
                kind: RefreshKind::Begin,
            };
            self.send(core, id, begin.encode(), 1, now);
        }
        let out = &mut self.out[slot(family)];
        out.resend_all();
        core.table
            .selected_prefixes(family)
            .for_each(|prefix| out.mark(prefix));
        core.busy.insert(self.id);
    }

    /// Asks the peer to send everything again; false when it cannot.
    pub(super) fn request_refresh(&mut self, core: &mut Core, now: Instant) -> bool {
        let Some((connection, session)) = self.established() else {
            return false;
        };
        if !session.refresh {
            return false;
        }
        let (id, families) = (connection.id, session.families);
        for family in families.iter() {
            let request = RouteRefresh {
                family,
                kind: RefreshKind::Request,
            };
            self.send(core, id, request.encode(), 1, now);
        }
        true
    }
}
