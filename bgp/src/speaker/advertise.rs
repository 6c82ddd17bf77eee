//! What a peer must be told, written as UPDATEs: one message stream per attribute set, withdrawals
//! first, as much as the connection has room for.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ipnet::IpNet;

use super::ConnectionId;
use super::core::{Core, slot};
use super::peer::Peer;
use crate::rib::{ExportSession, Exporter, FastMap, SourceId};
use crate::wire::{
    Attributes, Nlri, PackContext, RefreshKind, RouteRefresh, end_of_rib, pack_announcements,
    pack_withdrawals,
};
use crate::{Families, Family};

/// Prefixes looked at in one go.
const BATCH: usize = 8192;

/// Announcements and withdrawals of one batch.
#[derive(Default)]
struct Batch {
    withdrawn: Vec<Nlri>,
    groups: Vec<(Arc<Attributes>, Vec<Nlri>)>,
    index: FastMap<usize, usize>,
}

impl Batch {
    fn announce(&mut self, prefix: IpNet, attributes: Arc<Attributes>) {
        let key = Arc::as_ptr(&attributes) as usize;
        let at = *self.index.entry(key).or_insert_with(|| {
            self.groups.push((attributes, Vec::new()));
            self.groups.len() - 1
        });
        self.groups[at].1.push(prefix.into());
    }
}

impl Peer {
    /// Sends what waits, as far as the connection has room.
    pub(super) fn advertise(&mut self, core: &mut Core, now: Instant) {
        let Some((id, export)) = self.export_session(core) else {
            return;
        };
        let Some((_, session)) = self.established() else {
            return;
        };
        let families = session.families;
        let wants_end_of_rib = session.restart.is_some();
        let context = PackContext {
            wide_as: session.wide_as,
            add_path: Families::NONE,
            max_length: session.max_length,
        };
        for family in families.iter() {
            while self.out[slot(family)].pending() > 0 {
                if !self
                    .connection(id)
                    .is_some_and(|connection| connection.flow.has_room())
                {
                    return;
                }
                let batch = self.next_batch(core, family, &export);
                self.write(core, id, family, batch, &context, now);
            }
            self.send_markers(core, id, family, wants_end_of_rib, now);
        }
    }

    fn next_batch(&mut self, core: &mut Core, family: Family, session: &ExportSession) -> Batch {
        let mut batch = Batch::default();
        let recovering = core.recovery.has_restarted() && !core.recovery.is_finished();
        let Core {
            table,
            context,
            interner,
            ..
        } = core;
        let mut exporter = Exporter::new(session, &self.config.export);
        let out = &mut self.out[slot(family)];
        for prefix in out.take(BATCH) {
            let best = table.selected(&prefix).first();
            if recovering && best.is_some_and(|path| path.source != SourceId::LOCAL) {
                // Comes again when recovery has finished.
                continue;
            }
            let exported = best.and_then(|path| {
                let facts = context.sources.get(&path.source)?;
                exporter.export(&prefix, path, facts, interner)
            });
            match exported {
                Some(attributes) => {
                    if out.announce(prefix, &attributes) {
                        batch.announce(prefix, attributes);
                    }
                }
                None => {
                    if out.withdraw(&prefix) {
                        batch.withdrawn.push(prefix.into());
                    }
                }
            }
        }
        batch
    }

    fn write(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        family: Family,
        mut batch: Batch,
        context: &PackContext,
        now: Instant,
    ) {
        let mut messages: Vec<Bytes> = Vec::new();
        for (attributes, prefixes) in &batch.groups {
            if !pack_announcements(family, attributes, prefixes, context, &mut messages) {
                tracing::error!(
                    peer = %self.config.key,
                    prefixes = prefixes.len(),
                    "attributes do not fit one message: routes are withdrawn from this peer"
                );
                let out = &mut self.out[slot(family)];
                for nlri in prefixes {
                    out.withdraw(&nlri.prefix);
                    batch.withdrawn.push(*nlri);
                }
            }
        }
        let announcements = messages.len();
        pack_withdrawals(family, &batch.withdrawn, context, &mut messages);
        // Withdrawals first: they free the peer's table.
        messages.rotate_left(announcements);
        for message in messages {
            self.send(core, id, message, 1, now);
        }
    }

    /// End-of-RIB and the end of a refresh follow the last route.
    fn send_markers(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        family: Family,
        wants_end_of_rib: bool,
        now: Instant,
    ) {
        let complete = core.local_known && core.recovery.is_finished();
        let markers = &mut self.markers[slot(family)];
        let (mut end, mut refreshed) = (false, false);
        if complete && !markers.end_of_rib_sent {
            markers.end_of_rib_sent = true;
            end = wants_end_of_rib;
        }
        if markers.refreshing {
            markers.refreshing = false;
            refreshed = true;
        }
        if end {
            self.send(core, id, end_of_rib(family), 1, now);
        }
        if refreshed {
            let end = RouteRefresh {
                family,
                kind: RefreshKind::End,
            };
            self.send(core, id, end.encode(), 1, now);
        }
    }
}
