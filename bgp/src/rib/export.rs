//! What a route looks like to a peer (RFC 4271 section 5, RFC 4456 section 8, RFC 1997).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::path::{Path, SourceFacts, SourceId};
use super::{FastMap, Interner};
use crate::policy::{Policy, Source, Subject};
use crate::wire::{Attributes, Community, NextHop};
use crate::{Family, NextHopMode};

/// Bit of the type octet that keeps an extended community inside the AS (RFC 4360 section 2).
const NON_TRANSITIVE: u8 = 0x40;

/// The session a route leaves on.
#[derive(Debug, Clone)]
pub(crate) struct ExportSession {
    /// The peer itself: nothing goes back to where it came from.
    pub(crate) peer: SourceId,
    pub(crate) external: bool,
    pub(crate) client: bool,
    pub(crate) local_as: u32,
    pub(crate) cluster_id: Ipv4Addr,
    pub(crate) next_hop: NextHopMode,
    /// Own addresses on the session.
    pub(crate) self_ipv4: Option<Ipv4Addr>,
    pub(crate) self_ipv6: Option<Ipv6Addr>,
    /// Address of the peer: never a next hop.
    pub(crate) remote: IpAddr,
    /// IPv4 routes may have IPv6 next hops.
    pub(crate) extended_next_hop: bool,
    pub(crate) default_local_pref: u32,
}

/// Exports the routes of one batch to one peer, remembering attribute sets it has seen.
#[derive(Debug)]
pub(crate) struct Exporter<'a> {
    session: &'a ExportSession,
    policy: &'a Policy,
    seen: FastMap<(usize, SourceId, Family), Option<Arc<Attributes>>>,
}

impl<'a> Exporter<'a> {
    pub(crate) fn new(session: &'a ExportSession, policy: &'a Policy) -> Self {
        Exporter {
            session,
            policy,
            seen: FastMap::default(),
        }
    }

    /// The attributes a selected path leaves with; `None` when it does not leave.
    pub(crate) fn export(
        &mut self,
        prefix: &IpNet,
        path: &Path,
        facts: &SourceFacts,
        interner: &mut Interner,
    ) -> Option<Arc<Attributes>> {
        let accepted = path.accepted.as_ref()?;
        if path.source == self.session.peer || !self.may_leave(accepted, facts) {
            return None;
        }
        let decision = self.policy.apply(Subject {
            prefix: *prefix,
            source: facts.kind,
            attributes: accepted,
            default_local_pref: self.session.default_local_pref,
        })?;
        let family = Family::of_prefix(prefix);
        let unchanged = matches!(decision.attributes, std::borrow::Cow::Borrowed(_));
        if !unchanged || !decision.prepend.is_empty() {
            let policy_med = decision
                .attributes
                .med
                .filter(|med| accepted.med != Some(*med));
            let attributes = decision.attributes.into_owned();
            return self
                .transform(family, attributes, policy_med, &decision.prepend, facts)
                .map(|attributes| interner.intern(attributes));
        }
        // The interned set outlives the batch: the table holds it.
        let key = (Arc::as_ptr(accepted) as usize, path.source, family);
        if let Some(known) = self.seen.get(&key) {
            return known.clone();
        }
        let result = self
            .transform(family, accepted.as_ref().clone(), None, &[], facts)
            .map(|attributes| interner.intern(attributes));
        self.seen.insert(key, result.clone());
        result
    }

    /// Rules that hold before any policy.
    fn may_leave(&self, attributes: &Attributes, facts: &SourceFacts) -> bool {
        if facts.kind == Source::Local {
            return true;
        }
        if attributes.has_community(Community::NO_ADVERTISE) {
            return false;
        }
        if self.session.external {
            !attributes.has_community(Community::NO_EXPORT)
                && !attributes.has_community(Community::NO_EXPORT_SUBCONFED)
        } else {
            // Internal routes go to internal peers only by reflection (RFC 4456 section 6).
            facts.kind == Source::External || facts.client || self.session.client
        }
    }

    fn transform(
        &self,
        family: Family,
        mut attributes: Attributes,
        policy_med: Option<u32>,
        prepend: &[u32],
        facts: &SourceFacts,
    ) -> Option<Attributes> {
        attributes.next_hop = self.next_hop(family, &attributes.next_hop, facts)?;
        if self.session.external {
            attributes.local_pref = None;
            if facts.kind != Source::Local {
                // MED of one neighbour means nothing to another (RFC 4271 section 5.1.4).
                attributes.med = policy_med;
            }
            attributes.originator_id = None;
            attributes.cluster_list.clear();
            attributes
                .extended_communities
                .retain(|community| community[0] & NON_TRANSITIVE == 0);
            attributes.as_path.prepend(self.session.local_as);
        } else {
            attributes.local_pref = Some(
                attributes
                    .local_pref
                    .unwrap_or(self.session.default_local_pref),
            );
            if facts.kind == Source::Internal {
                attributes.originator_id.get_or_insert(facts.router_id);
                attributes.cluster_list.insert(0, self.session.cluster_id);
            }
        }
        for number in prepend.iter().rev() {
            attributes.as_path.prepend(*number);
        }
        Some(attributes)
    }

    fn next_hop(&self, family: Family, current: &NextHop, facts: &SourceFacts) -> Option<NextHop> {
        let given = !current.address.is_unspecified();
        let keep = match (self.session.next_hop, facts.kind) {
            (NextHopMode::SelfAddress, _) => false,
            (NextHopMode::Keep, _) => given,
            (NextHopMode::Auto, _) => given && !self.session.external,
        };
        let next_hop = if keep {
            *current
        } else {
            self.own_address(family)?
        };
        // A next hop equal to the peer would be dropped there.
        (next_hop.address != self.session.remote).then_some(next_hop)
    }

    fn own_address(&self, family: Family) -> Option<NextHop> {
        let v4 = self.session.self_ipv4.map(IpAddr::V4);
        let v6 = self.session.self_ipv6.map(IpAddr::V6);
        match family {
            Family::Ipv4 => v4.or(v6.filter(|_| self.session.extended_next_hop)),
            Family::Ipv6 => v6,
        }
        .map(NextHop::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Action, Rule, Verdict};
    use crate::wire::AsPath;

    fn session(external: bool) -> ExportSession {
        ExportSession {
            peer: SourceId(9),
            external,
            client: false,
            local_as: 64512,
            cluster_id: Ipv4Addr::new(10, 0, 0, 1),
            next_hop: NextHopMode::Auto,
            self_ipv4: Some(Ipv4Addr::new(10, 192, 0, 2)),
            self_ipv6: None,
            remote: IpAddr::from([10, 192, 0, 9]),
            extended_next_hop: false,
            default_local_pref: 100,
        }
    }

    fn facts(kind: Source) -> SourceFacts {
        SourceFacts {
            kind,
            router_id: Ipv4Addr::new(10, 192, 0, 3),
            address: IpAddr::from([10, 192, 0, 3]),
            as_number: 65002,
            client: false,
        }
    }

    fn learned() -> Attributes {
        Attributes {
            as_path: AsPath::sequence([65002]),
            next_hop: NextHop::from(IpAddr::from([10, 192, 0, 3])),
            med: Some(7),
            local_pref: Some(200),
            extended_communities: vec![[0x40; 8], [0x00; 8]],
            ..Attributes::default()
        }
    }

    fn export_with(
        session: &ExportSession,
        policy: &Policy,
        kind: SourceFacts,
        attributes: Attributes,
    ) -> Option<Attributes> {
        let mut interner = Interner::default();
        let attributes = interner.intern(attributes);
        let path = Path {
            source: SourceId(1),
            path_id: 0,
            received: Arc::clone(&attributes),
            accepted: Some(attributes),
            preference: 100,
            stale: false,
        };
        let prefix = "192.168.1.0/26".parse().unwrap();
        Exporter::new(session, policy)
            .export(&prefix, &path, &kind, &mut interner)
            .map(|attributes| attributes.as_ref().clone())
    }

    fn export(session: &ExportSession, kind: Source, attributes: Attributes) -> Option<Attributes> {
        export_with(session, &Policy::accept_all(), facts(kind), attributes)
    }

    #[test]
    fn to_an_external_peer_own_as_and_address_are_put_in_and_internal_attributes_left_out() {
        let sent = export(&session(true), Source::Internal, learned()).unwrap();
        assert_eq!(sent.as_path, AsPath::sequence([64512, 65002]));
        assert_eq!(sent.next_hop.address, IpAddr::from([10, 192, 0, 2]));
        assert_eq!((sent.local_pref, sent.med), (None, None));
        assert_eq!(sent.extended_communities, vec![[0x00; 8]]);
    }

    #[test]
    fn to_an_internal_peer_an_external_route_goes_unchanged() {
        let sent = export(&session(false), Source::External, learned()).unwrap();
        assert_eq!(sent, learned());
    }

    #[test]
    fn an_internal_route_goes_to_an_internal_peer_only_by_reflection() {
        assert_eq!(export(&session(false), Source::Internal, learned()), None);
        let to_client = ExportSession {
            client: true,
            ..session(false)
        };
        let sent = export(&to_client, Source::Internal, learned()).unwrap();
        assert_eq!(sent.originator_id, Some(Ipv4Addr::new(10, 192, 0, 3)));
        assert_eq!(sent.cluster_list, vec![Ipv4Addr::new(10, 0, 0, 1)]);
        assert_eq!(sent.next_hop, learned().next_hop);
        let from_client = SourceFacts {
            client: true,
            ..facts(Source::Internal)
        };
        let policy = Policy::accept_all();
        assert!(export_with(&session(false), &policy, from_client, learned()).is_some());
    }

    #[test]
    fn well_known_communities_stop_learned_routes_only() {
        let tagged = |community| Attributes {
            communities: vec![community],
            ..learned()
        };
        let external = session(true);
        assert_eq!(
            export(&external, Source::Internal, tagged(Community::NO_EXPORT)),
            None
        );
        assert_eq!(
            export(&external, Source::External, tagged(Community::NO_ADVERTISE)),
            None
        );
        assert!(export(&external, Source::Local, tagged(Community::NO_EXPORT)).is_some());
        let internal = session(false);
        assert!(export(&internal, Source::External, tagged(Community::NO_EXPORT)).is_some());
    }

    #[test]
    fn local_routes_take_the_own_address_and_keep_their_gateway_to_internal_peers() {
        let local = Attributes {
            local_pref: Some(5),
            med: Some(3),
            ..Attributes::default()
        };
        let sent = export(&session(true), Source::Local, local.clone()).unwrap();
        assert_eq!(sent.next_hop.address, IpAddr::from([10, 192, 0, 2]));
        assert_eq!((sent.med, sent.local_pref), (Some(3), None));
        let gateway = NextHop::from(IpAddr::from([10, 192, 7, 7]));
        let alien = Attributes {
            next_hop: gateway,
            ..local
        };
        let sent = export(&session(false), Source::Local, alien.clone()).unwrap();
        assert_eq!(sent.next_hop, gateway);
        let sent = export(&session(true), Source::Local, alien).unwrap();
        assert_eq!(sent.next_hop.address, IpAddr::from([10, 192, 0, 2]));
    }

    #[test]
    fn keep_leaves_next_hops_and_a_next_hop_equal_to_the_peer_is_never_sent() {
        let keep = ExportSession {
            next_hop: NextHopMode::Keep,
            ..session(true)
        };
        let sent = export(&keep, Source::Internal, learned()).unwrap();
        assert_eq!(sent.next_hop, learned().next_hop);
        let to_itself = ExportSession {
            remote: learned().next_hop.address,
            ..keep
        };
        assert_eq!(export(&to_itself, Source::Internal, learned()), None);
    }

    #[test]
    fn a_policys_prepends_stand_before_the_own_as() {
        let policy = Policy {
            rules: vec![Rule {
                conditions: vec![],
                actions: vec![Action::PrependAsPath(vec![65000, 65001])],
                verdict: Some(Verdict::Accept),
            }],
            default: Verdict::Reject,
        };
        let local = Attributes::default();
        let sent = export_with(&session(true), &policy, facts(Source::Local), local).unwrap();
        assert_eq!(sent.as_path, AsPath::sequence([65000, 65001, 64512]));
    }

    #[test]
    fn ipv4_over_an_ipv6_session_needs_the_extended_next_hop() {
        let v6 = ExportSession {
            self_ipv4: None,
            self_ipv6: Some("fd00::2".parse().unwrap()),
            ..session(true)
        };
        assert_eq!(export(&v6, Source::Local, Attributes::default()), None);
        let extended = ExportSession {
            extended_next_hop: true,
            ..v6
        };
        let sent = export(&extended, Source::Local, Attributes::default()).unwrap();
        assert_eq!(sent.next_hop.address, "fd00::2".parse::<IpAddr>().unwrap());
    }
}
