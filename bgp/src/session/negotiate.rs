//! The OPEN this speaker sends, and what two OPENs agree on.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::wire::{
    Capability, GracefulRestartCapability, GracefulRestartFamily, MAX_EXTENDED_LENGTH, MAX_LENGTH,
    Notification, Open, capability_code, code, open_error,
};
use crate::{Families, Family, GracefulRestartMode, PeerConfig, RemoteAs};

/// Graceful restart as the peer announced it (RFC 4724).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerRestart {
    /// R bit.
    pub(crate) restarted: bool,
    /// How long its routes may be kept without it.
    pub(crate) time: Duration,
    /// Families it wants kept.
    pub(crate) families: Families,
    /// Of those, the ones whose forwarding state survived.
    pub(crate) forwarding: Families,
}

/// What holds on a session after both OPENs.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) peer_as: u32,
    pub(crate) peer_id: Ipv4Addr,
    pub(crate) external: bool,
    pub(crate) families: Families,
    pub(crate) wide_as: bool,
    pub(crate) refresh: bool,
    pub(crate) enhanced_refresh: bool,
    pub(crate) extended_next_hop: bool,
    pub(crate) max_length: usize,
    pub(crate) hold: Duration,
    pub(crate) keepalive: Duration,
    /// `None` unless both sides have the capability.
    pub(crate) restart: Option<PeerRestart>,
}

impl Session {
    /// Short names of the capabilities in effect.
    pub(crate) fn capability_names(&self) -> Vec<&'static str> {
        [
            (self.wide_as, "4B"),
            (self.refresh, "RR"),
            (self.enhanced_refresh, "ENH"),
            (self.restart.is_some(), "GR"),
            (self.max_length > MAX_LENGTH, "EXT"),
            (self.extended_next_hop, "ENHE"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect()
    }
}

/// The OPEN for a peer. `restarted` and `forwarding` are the R and F bits.
pub(crate) fn our_open(
    config: &PeerConfig,
    router_id: Ipv4Addr,
    restarted: bool,
    forwarding: Families,
) -> Open {
    let mut capabilities: Vec<Capability> = config
        .families
        .iter()
        .map(Capability::Multiprotocol)
        .collect();
    capabilities.push(Capability::RouteRefresh);
    if config.extended_next_hop && config.families.contains(Family::Ipv4) {
        capabilities.push(Capability::ExtendedNextHop);
    }
    capabilities.push(Capability::ExtendedMessage);
    let entry = |family| GracefulRestartFamily {
        family,
        forwarding: forwarding.contains(family),
    };
    let families = match config.graceful_restart.mode {
        GracefulRestartMode::Full => Some(config.families.iter().map(entry).collect()),
        GracefulRestartMode::HelperOnly => Some(Vec::new()),
        GracefulRestartMode::Off => None,
    };
    if let Some(families) = families {
        capabilities.push(Capability::GracefulRestart(GracefulRestartCapability {
            restarted,
            notification: false,
            // The configuration is at most 4095 s.
            time: config.graceful_restart.time.as_secs() as u16,
            families,
        }));
    }
    capabilities.push(Capability::FourOctetAs(config.local_as));
    capabilities.push(Capability::EnhancedRefresh);
    Open {
        as_number: config.local_as,
        // The configuration is at most 65535 s.
        hold_time: config.timers.hold.as_secs() as u16,
        identifier: router_id,
        capabilities,
    }
}

/// Judges the peer's OPEN against the configuration and the OPEN sent.
///
/// # Errors
/// The NOTIFICATION to send (RFC 4271 section 6.2).
pub(crate) fn negotiate(
    config: &PeerConfig,
    ours: &Open,
    theirs: &Open,
) -> Result<Session, Notification> {
    let external = theirs.as_number != config.local_as;
    let as_fits = match config.remote_as {
        RemoteAs::Is(number) => theirs.as_number == number,
        RemoteAs::AnyExternal => external,
    };
    if !as_fits {
        return Err(theirs.bad_peer_as());
    }
    if !external && theirs.identifier == ours.identifier {
        let data = theirs.identifier.octets().to_vec();
        return Err(Notification::with_data(
            code::OPEN,
            open_error::IDENTIFIER,
            data,
        ));
    }
    let families = theirs.families().intersection(config.families);
    if families.is_empty() {
        return Err(Notification::with_data(
            code::OPEN,
            open_error::CAPABILITY,
            wanted_families(config.families),
        ));
    }
    let both =
        |capability: Capability| ours.has(|c| *c == capability) && theirs.has(|c| *c == capability);
    let hold = Duration::from_secs(u64::from(ours.hold_time.min(theirs.hold_time)));
    let third = hold / 3;
    let keepalive = config
        .timers
        .keepalive
        .map_or(third, |wanted| wanted.min(third));
    let restart = match config.graceful_restart.mode {
        GracefulRestartMode::Off => None,
        _ => theirs.graceful_restart().map(|capability| {
            let families = |only_forwarding: bool| {
                capability
                    .families
                    .iter()
                    .filter(|entry| entry.forwarding || !only_forwarding)
                    .map(|entry| entry.family)
                    .collect::<Families>()
            };
            PeerRestart {
                restarted: capability.restarted,
                time: Duration::from_secs(u64::from(capability.time)),
                families: families(false),
                forwarding: families(true),
            }
        }),
    };
    Ok(Session {
        peer_as: theirs.as_number,
        peer_id: theirs.identifier,
        external,
        families,
        wide_as: theirs.is_four_octet(),
        refresh: both(Capability::RouteRefresh),
        enhanced_refresh: both(Capability::EnhancedRefresh),
        extended_next_hop: both(Capability::ExtendedNextHop),
        max_length: if both(Capability::ExtendedMessage) {
            MAX_EXTENDED_LENGTH
        } else {
            MAX_LENGTH
        },
        hold,
        keepalive: if hold.is_zero() {
            hold
        } else {
            keepalive.max(Duration::from_secs(1))
        },
        restart,
    })
}

/// The multiprotocol capabilities a peer would have to offer, as they look on the wire.
fn wanted_families(families: Families) -> Vec<u8> {
    families
        .iter()
        .flat_map(|family| {
            let [high, low] = family.afi().to_be_bytes();
            [capability_code::MULTIPROTOCOL, 4, high, low, 0, 1]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> PeerConfig {
        PeerConfig::new("10.0.0.2".parse().unwrap(), 65002, 65001)
    }

    fn open(config: &PeerConfig, id: u8) -> Open {
        our_open(config, Ipv4Addr::new(10, 0, 0, id), false, Families::NONE)
    }

    fn mirrored() -> PeerConfig {
        PeerConfig::new("10.0.0.1".parse().unwrap(), 65001, 65002)
    }

    #[test]
    fn two_margays_agree_on_everything() {
        let session = negotiate(&config(), &open(&config(), 1), &open(&mirrored(), 2)).unwrap();
        assert!(session.external && session.wide_as && session.refresh);
        assert_eq!(session.hold, Duration::from_secs(240));
        assert_eq!(session.keepalive, Duration::from_secs(80));
        assert_eq!(session.max_length, MAX_EXTENDED_LENGTH);
        assert_eq!(session.capability_names(), ["4B", "RR", "ENH", "GR", "EXT"]);
        let restart = session.restart.unwrap();
        assert_eq!(
            (restart.families, restart.forwarding),
            (Families::IPV4, Families::NONE)
        );
    }

    #[test]
    fn a_wrong_as_is_answered_with_the_received_number() {
        let mut theirs = open(&mirrored(), 2);
        theirs.as_number = 65009;
        let error = negotiate(&config(), &open(&config(), 1), &theirs).unwrap_err();
        assert_eq!(
            (error.code, error.subcode, &error.data[..]),
            (2, 2, &[0, 0, 0xFD, 0xF1][..])
        );
    }

    #[test]
    fn equal_identifiers_are_legal_between_as_only() {
        assert!(negotiate(&config(), &open(&config(), 1), &open(&mirrored(), 1)).is_ok());
        let internal = PeerConfig::new("10.0.0.2".parse().unwrap(), 65001, 65001);
        let error = negotiate(&internal, &open(&internal, 1), &open(&internal, 1)).unwrap_err();
        assert_eq!(error.subcode, open_error::IDENTIFIER);
    }

    #[test]
    fn any_external_as_is_taken_but_the_own_one() {
        let any = PeerConfig {
            remote_as: RemoteAs::AnyExternal,
            ..config()
        };
        assert!(negotiate(&any, &open(&any, 1), &open(&mirrored(), 2)).is_ok());
        let own = PeerConfig {
            local_as: 65001,
            ..mirrored()
        };
        assert!(negotiate(&any, &open(&any, 1), &open(&own, 2)).is_err());
    }

    #[test]
    fn no_common_family_names_the_wanted_ones() {
        let v6 = PeerConfig {
            families: Families::IPV6,
            ..config()
        };
        let error = negotiate(&v6, &open(&v6, 1), &open(&mirrored(), 2)).unwrap_err();
        assert_eq!(
            (error.subcode, &error.data[..]),
            (7, &[1u8, 4, 0, 2, 0, 1][..])
        );
    }

    #[test]
    fn the_lower_hold_time_counts_and_keepalive_is_clamped_to_a_third() {
        let mut short = mirrored();
        short.timers.hold = Duration::from_secs(3);
        let mut own = config();
        own.timers.keepalive = Some(Duration::from_secs(60));
        let session = negotiate(&own, &open(&own, 1), &open(&short, 2)).unwrap();
        assert_eq!(session.hold, Duration::from_secs(3));
        assert_eq!(session.keepalive, Duration::from_secs(1));
    }

    #[test]
    fn hold_time_zero_turns_keepalives_off() {
        let mut off = mirrored();
        off.timers.hold = Duration::ZERO;
        let session = negotiate(&config(), &open(&config(), 1), &open(&off, 2)).unwrap();
        assert_eq!(
            (session.hold, session.keepalive),
            (Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn graceful_restart_switched_off_is_neither_sent_nor_honoured() {
        let mut off = config();
        off.graceful_restart.mode = GracefulRestartMode::Off;
        let ours = open(&off, 1);
        assert!(ours.graceful_restart().is_none());
        assert!(
            negotiate(&off, &ours, &open(&mirrored(), 2))
                .unwrap()
                .restart
                .is_none()
        );
    }
}
