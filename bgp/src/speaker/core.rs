//! What all peers of a speaker share.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::peer::Peer;
use super::recovery::Recovery;
use super::{Action, ConnectionId};
use crate::policy::Source;
use crate::rib::{DecisionContext, FastMap, FastSet, Interner, Path, SourceFacts, SourceId, Table};
use crate::{Families, Family, LocalRoute, NextHops, RecoveryEvent, RoutePath, SpeakerConfig};

/// State shared by all peers.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) config: SpeakerConfig,
    pub(super) table: Table,
    pub(super) context: DecisionContext,
    pub(super) interner: Interner,
    pub(super) actions: VecDeque<Action>,
    pub(super) random: StdRng,
    pub(super) recovery: Recovery,
    /// Recovery events of this batch, delivered after its route changes.
    pub(super) events: Vec<RecoveryEvent>,
    pub(super) local: FastMap<IpNet, LocalRoute>,
    /// True once the local routes have been given.
    pub(super) local_known: bool,
    /// Peers that may have something to send.
    pub(super) busy: BTreeSet<SourceId>,
    /// Prefixes the forwarding table holds.
    pub(super) installed: FastSet<IpNet>,
    pub(super) deadlines: BTreeSet<(Instant, SourceId)>,
    pub(super) owners: FastMap<ConnectionId, SourceId>,
    next_connection: u64,
    next_source: u32,
}

impl Core {
    pub(super) fn new(config: SpeakerConfig, seed: u64) -> Self {
        let mut context = DecisionContext {
            sources: FastMap::default(),
            next_hops: NextHops::new(),
            default_local_pref: config.default_local_pref,
            max_paths: usize::from(config.max_paths),
        };
        context
            .sources
            .insert(SourceId::LOCAL, SourceFacts::local(config.router_id));
        Core {
            recovery: Recovery::new(config.restart),
            config,
            table: Table::default(),
            context,
            interner: Interner::default(),
            actions: VecDeque::new(),
            random: StdRng::seed_from_u64(seed),
            events: Vec::new(),
            local: FastMap::default(),
            local_known: false,
            busy: BTreeSet::new(),
            installed: FastSet::default(),
            deadlines: BTreeSet::new(),
            owners: FastMap::default(),
            next_connection: 0,
            next_source: SourceId::LOCAL.0,
        }
    }

    /// A new connection name owned by a peer.
    pub(super) fn connection(&mut self, owner: SourceId) -> ConnectionId {
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        self.owners.insert(id, owner);
        id
    }

    /// A new peer name.
    pub(super) fn source(&mut self) -> SourceId {
        self.next_source += 1;
        SourceId(self.next_source)
    }

    /// Makes sure that a peer's timers are looked at in time. A deadline that moved away is noticed
    /// when the old one comes.
    pub(super) fn arm(&mut self, peer: &mut Peer) {
        let Some(at) = peer.deadline() else { return };
        match peer.armed {
            Some(armed) if armed <= at => {}
            armed => {
                if let Some(armed) = armed {
                    self.deadlines.remove(&(armed, peer.id));
                }
                self.deadlines.insert((at, peer.id));
                peer.armed = Some(at);
            }
        }
    }

    /// Delivers recovery events behind the route changes of the batch.
    pub(super) fn finish_batch(&mut self) {
        self.actions
            .extend(self.events.drain(..).map(Action::Recovery));
    }

    /// F bits of the next OPEN: kept over the start, or the session itself was up before.
    pub(super) fn forwarding(&self, was_established: bool) -> Families {
        if was_established {
            Families::BOTH
        } else {
            self.config.restart.preserved
        }
    }
}

/// Index of a family in per-family arrays.
pub(super) const fn slot(family: Family) -> usize {
    match family {
        Family::Ipv4 => 0,
        Family::Ipv6 => 1,
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// A selected path for the forwarding table.
pub(super) fn route_path(path: &Path, context: &DecisionContext) -> Option<RoutePath> {
    let attributes = path.accepted.as_ref()?;
    let facts = context.sources.get(&path.source)?;
    Some(RoutePath {
        next_hop: attributes.next_hop.address,
        interface: None,
        peer: facts.address,
        local_pref: attributes.local_pref.unwrap_or(context.default_local_pref),
        external: facts.kind == Source::External,
        communities: attributes.communities.clone(),
    })
}
