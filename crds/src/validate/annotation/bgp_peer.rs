//! Annotations of a BGPPeer.

use std::time::Duration;

use super::{Annotations, Reader, finished, one_of};
use crate::validate::{FieldError, Findings, syntax};

/// What to do when a peer sends more prefixes than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxPrefixesAction {
    /// End the session and try again later.
    Restart,
    /// Say so only.
    Warn,
}

/// Address families of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    /// IPv4 unicast.
    pub ipv4: bool,
    /// IPv6 unicast.
    pub ipv6: bool,
}

/// Own role in the relation to the peer (RFC 9234).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Provider.
    Provider,
    /// Customer.
    Customer,
    /// Peer.
    Peer,
    /// Route server.
    RouteServer,
    /// Client of a route server.
    RouteServerClient,
}

/// Use of graceful restart (RFC 4724) on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GracefulRestart {
    /// Both roles, without the N bit.
    Auto,
    /// Only help the peer restart.
    Helper,
    /// Not at all.
    Off,
    /// Both roles, with the N bit (RFC 8538).
    Notification,
}

/// Authentication of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAuth {
    /// TCP MD5 (RFC 2385).
    Md5,
    /// TCP-AO (RFC 5925).
    Ao,
}

/// Annotations of a BGPPeer. Absent ones are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpPeerAnnotations {
    /// Hold time proposed to the peer; zero switches keepalives off.
    pub hold_time: Option<Duration>,
    /// Only wait for the connection.
    pub passive: Option<bool>,
    /// Use BFD (RFC 5880).
    pub bfd: Option<bool>,
    /// Least interval between sent BFD packets.
    pub bfd_min_tx: Option<Duration>,
    /// Least interval between received BFD packets.
    pub bfd_min_rx: Option<Duration>,
    /// BFD packets that may be lost.
    pub bfd_multiplier: Option<u8>,
    /// A BFD failure ends the session at once even during a graceful restart.
    pub bfd_wins: Option<bool>,
    /// Greatest number of prefixes accepted.
    pub max_prefixes: Option<u32>,
    /// What to do beyond it.
    pub max_prefixes_action: Option<MaxPrefixesAction>,
    /// Interface of an unnumbered peer.
    pub interface: Option<String>,
    /// Address families.
    pub families: Option<Families>,
    /// Own role.
    pub role: Option<Role>,
    /// Refuse a peer without a role.
    pub role_strict: Option<bool>,
    /// Use of graceful restart.
    pub graceful_restart: Option<GracefulRestart>,
    /// Authentication.
    pub auth: Option<PeerAuth>,
    /// Key id of TCP-AO.
    pub ao_key_id: Option<u8>,
    /// Obey the GRACEFUL_SHUTDOWN community (RFC 8326).
    pub honour_graceful_shutdown: Option<bool>,
    /// Refuse eBGP routes whose first AS is not the peer's.
    pub enforce_first_as: Option<bool>,
    /// Replace the peer's AS in sent paths by the own.
    pub as_override: Option<bool>,
    /// Remove private ASes from sent paths.
    pub remove_private_as: Option<bool>,
}

impl BgpPeerAnnotations {
    /// Reads the annotations of a BGPPeer.
    ///
    /// # Errors
    /// Every invalid value; a peer with one must not be started.
    pub fn read(annotations: &Annotations) -> Result<Self, Vec<FieldError>> {
        let mut findings = Findings::default();
        let mut reader = Reader {
            annotations,
            findings: &mut findings,
        };
        let (fast, slow) = (Duration::from_millis(10), Duration::from_secs(60));
        let read = BgpPeerAnnotations {
            hold_time: reader.hold_time("hold-time"),
            passive: reader.boolean("passive"),
            bfd: reader.switch("bfd"),
            bfd_min_tx: reader.duration("bfd-min-tx", fast, slow),
            bfd_min_rx: reader.duration("bfd-min-rx", fast, slow),
            bfd_multiplier: reader.small("bfd-multiplier", 1, u8::MAX),
            bfd_wins: reader.boolean("bfd-wins"),
            max_prefixes: reader.number("max-prefixes", 1, u32::MAX),
            max_prefixes_action: reader.get("max-prefixes-action", |text| {
                one_of(
                    text,
                    &[
                        ("Restart", MaxPrefixesAction::Restart),
                        ("Warn", MaxPrefixesAction::Warn),
                    ],
                )
            }),
            interface: reader.get("interface", |text| match syntax::is_interface(text, "") {
                true => Ok(text.to_owned()),
                false => {
                    Err("is not an interface name of 1-15 characters [a-zA-Z0-9_.-]".to_owned())
                }
            }),
            families: reader.get("families", families),
            role: reader.get("role", |text| {
                one_of(
                    text,
                    &[
                        ("Provider", Role::Provider),
                        ("Customer", Role::Customer),
                        ("Peer", Role::Peer),
                        ("RS", Role::RouteServer),
                        ("RSClient", Role::RouteServerClient),
                    ],
                )
            }),
            role_strict: reader.boolean("role-strict"),
            graceful_restart: reader.get("graceful-restart", |text| {
                one_of(
                    text,
                    &[
                        ("Auto", GracefulRestart::Auto),
                        ("Helper", GracefulRestart::Helper),
                        ("Off", GracefulRestart::Off),
                        ("Notification", GracefulRestart::Notification),
                    ],
                )
            }),
            auth: reader.get("auth", |text| {
                one_of(text, &[("MD5", PeerAuth::Md5), ("AO", PeerAuth::Ao)])
            }),
            ao_key_id: reader.small("ao-key-id", 0, u8::MAX),
            honour_graceful_shutdown: reader.get("graceful-shutdown", |text| {
                one_of(text, &[("Honour", true), ("Ignore", false)])
            }),
            enforce_first_as: reader.boolean("enforce-first-as"),
            as_override: reader.boolean("as-override"),
            remove_private_as: reader.boolean("remove-private-as"),
        };
        finished(read, findings)
    }
}

fn families(text: &str) -> Result<Families, String> {
    let mut families = Families {
        ipv4: false,
        ipv6: false,
    };
    for word in text.split(',').map(str::trim) {
        match word {
            "IPv4" => families.ipv4 = true,
            "IPv6" => families.ipv6 = true,
            _ => return Err("must be a list of IPv4 and IPv6".to_owned()),
        }
    }
    Ok(families)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs
            .iter()
            .map(|(name, value)| (format!("margay.io/{name}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_known_peer_annotation_is_read() {
        let read = BgpPeerAnnotations::read(&annotations(&[
            ("hold-time", "9s"),
            ("passive", "true"),
            ("bfd", "Enabled"),
            ("bfd-min-tx", "50ms"),
            ("bfd-min-rx", "60s"),
            ("bfd-multiplier", "5"),
            ("bfd-wins", "false"),
            ("max-prefixes", "4294967295"),
            ("max-prefixes-action", "Warn"),
            ("interface", "eth1.100"),
            ("families", "IPv4, IPv6"),
            ("role", "RSClient"),
            ("role-strict", "true"),
            ("graceful-restart", "Notification"),
            ("auth", "AO"),
            ("ao-key-id", "255"),
            ("graceful-shutdown", "Ignore"),
            ("enforce-first-as", "true"),
            ("as-override", "true"),
            ("remove-private-as", "true"),
        ]))
        .expect("all are valid");
        assert_eq!(
            read,
            BgpPeerAnnotations {
                hold_time: Some(Duration::from_secs(9)),
                passive: Some(true),
                bfd: Some(true),
                bfd_min_tx: Some(Duration::from_millis(50)),
                bfd_min_rx: Some(Duration::from_secs(60)),
                bfd_multiplier: Some(5),
                bfd_wins: Some(false),
                max_prefixes: Some(u32::MAX),
                max_prefixes_action: Some(MaxPrefixesAction::Warn),
                interface: Some("eth1.100".into()),
                families: Some(Families {
                    ipv4: true,
                    ipv6: true
                }),
                role: Some(Role::RouteServerClient),
                role_strict: Some(true),
                graceful_restart: Some(GracefulRestart::Notification),
                auth: Some(PeerAuth::Ao),
                ao_key_id: Some(255),
                honour_graceful_shutdown: Some(false),
                enforce_first_as: Some(true),
                as_override: Some(true),
                remove_private_as: Some(true),
            }
        );
    }

    #[test]
    fn every_invalid_peer_annotation_is_named() {
        let wrong = annotations(&[
            ("hold-time", "2s"),
            ("bfd", "true"),
            ("bfd-min-tx", "5ms"),
            ("bfd-multiplier", "0"),
            ("max-prefixes", "0"),
            ("families", "ipv4"),
            ("role", "provider"),
            ("interface", ""),
            ("passive", "yes"),
        ]);
        let found = BgpPeerAnnotations::read(&wrong).expect_err("all are invalid");
        assert_eq!(found.len(), wrong.len(), "{found:?}");
        assert!(found.iter().any(|error| error.to_string()
            == "metadata.annotations[margay.io/hold-time]: Invalid value: \"2s\": must be 0 or a duration from 3s to 65535s"));
        assert!(
            found
                .iter()
                .any(|error| error.reason == "must be a duration from 10ms to 1m")
        );
    }

    #[test]
    fn a_hold_time_is_zero_or_at_least_three_seconds() {
        let read = |text: &str| BgpPeerAnnotations::read(&annotations(&[("hold-time", text)]));
        for text in ["0", "0s", "3s", "65535s"] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in ["1s", "2.9s", "65536s", "65535.5s", "90", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
