//! The `margay.io/<name>` annotations: settings the kinds have no fields for, on the object they refine.
//!
//! Values are short scalars. An invalid value makes [`FieldError`]s; a name that is not known makes a warning.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FieldError, Findings, syntax};
use crate::values::parse_duration;

/// What all names begin with.
const PREFIX: &str = "margay.io/";

/// Names known on a BGPPeer.
pub(super) const BGP_PEER: &[&str] = &[
    "hold-time",
    "passive",
    "bfd",
    "bfd-min-tx",
    "bfd-min-rx",
    "bfd-multiplier",
    "bfd-wins",
    "max-prefixes",
    "max-prefixes-action",
    "interface",
    "families",
    "role",
    "role-strict",
    "graceful-restart",
    "auth",
    "ao-key-id",
    "graceful-shutdown",
    "enforce-first-as",
    "as-override",
    "remove-private-as",
];
/// Names known on a BGPConfiguration.
pub(super) const BGP_CONFIGURATION: &[&str] = &[
    "mesh-hold-time",
    "mesh-bfd",
    "route-protocol",
    "bmp-server",
    "mrt-dir",
];
/// Names known on a FelixConfiguration.
pub(super) const FELIX: &[&str] = &[
    "hostport-mode",
    "hostport-deny",
    "nft-table-owner",
    "cut-denied-flows",
    "ipam-reserve-max",
    "ipam-reuse-floor",
    "ipam-handles",
    "cni-status",
];
/// Names known on an IPPool.
pub(super) const POOL: &[&str] = &["allow-delete-in-use"];
/// Names known on a ClusterInformation.
pub(super) const CLUSTER_INFORMATION: &[&str] = &["version"];

/// Annotations of an object.
type Annotations = BTreeMap<String, String>;

/// Path of an annotation.
fn field(name: &str) -> String {
    format!("metadata.annotations[{PREFIX}{name}]")
}

/// Names behind `margay.io/` that are not among the known ones.
pub fn unknown_annotations<'a>(annotations: &'a Annotations, known: &[&str]) -> Vec<&'a str> {
    annotations
        .keys()
        .filter_map(|key| key.strip_prefix(PREFIX))
        .filter(|name| !known.contains(name))
        .collect()
}

pub(super) fn warn_unknown(annotations: &Annotations, known: &[&str], findings: &mut Findings) {
    for name in unknown_annotations(annotations, known) {
        findings.add(
            field(name),
            "",
            format!("is not known here; known are {}", known.join(", ")),
        );
    }
}

pub(super) fn pool(annotations: &Annotations, findings: &mut Findings) {
    let mut reader = Reader {
        annotations,
        findings,
    };
    reader.get("allow-delete-in-use", |text| one_of(text, &[("true", ())]));
}

/// Reads single annotations and collects what is wrong with them.
struct Reader<'a> {
    annotations: &'a Annotations,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn get<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.annotations.get(&format!("{PREFIX}{name}"))?;
        self.findings.take(&field(name), text, parse(text))
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.get(name, |text| {
            one_of(text, &[("true", true), ("false", false)])
        })
    }

    fn switch(&mut self, name: &str) -> Option<bool> {
        self.get(name, |text| {
            one_of(text, &[("Enabled", true), ("Disabled", false)])
        })
    }

    fn duration(&mut self, name: &str, least: Duration, most: Duration) -> Option<Duration> {
        self.get(name, |text| match parse_duration(text) {
            Some(time) if (least..=most).contains(&time) => Ok(time),
            _ => Err(format!(
                "must be a duration from {} to {}",
                printed(least),
                printed(most)
            )),
        })
    }

    fn number(&mut self, name: &str, least: u32, most: u32) -> Option<u32> {
        self.get(name, |text| match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("must be a number from {least} to {most}")),
        })
    }

    fn small(&mut self, name: &str, least: u8, most: u8) -> Option<u8> {
        // The bounds are those of a u8, so the conversion keeps the number.
        self.number(name, least.into(), most.into())
            .map(|number| number as u8)
    }

    /// RFC 4271 section 4.2: zero, or at least three seconds.
    fn hold_time(&mut self, name: &str) -> Option<Duration> {
        self.get(name, |text| match parse_duration(text) {
            Some(time) if time.is_zero() || (3.0..=65535.0).contains(&time.as_secs_f64()) => {
                Ok(time)
            }
            _ => Err("must be 0 or a duration from 3s to 65535s".to_owned()),
        })
    }
}

/// A duration in its largest whole unit.
fn printed(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

fn one_of<T: Clone>(text: &str, allowed: &[(&str, T)]) -> Result<T, String> {
    let found = allowed
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, value)| value.clone());
    found.ok_or_else(|| {
        let words: Vec<_> = allowed.iter().map(|(word, _)| *word).collect();
        format!("must be {}", words.join(" or "))
    })
}

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

/// Annotations of a BGPConfiguration. Absent ones are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpConfigurationAnnotations {
    /// Hold time of mesh sessions.
    pub mesh_hold_time: Option<Duration>,
    /// Use BFD on mesh sessions.
    pub mesh_bfd: Option<bool>,
    /// Protocol number of BGP routes in the kernel.
    pub route_protocol: Option<u8>,
    /// `host:port` of a BMP station (RFC 7854).
    pub bmp_server: Option<String>,
    /// Directory of MRT dumps (RFC 6396).
    pub mrt_dir: Option<String>,
}

impl BgpConfigurationAnnotations {
    /// Reads the annotations of a BGPConfiguration.
    ///
    /// # Errors
    /// Every invalid value; the last good value of a setting stays in force.
    pub fn read(annotations: &Annotations) -> Result<Self, Vec<FieldError>> {
        let mut findings = Findings::default();
        let mut reader = Reader {
            annotations,
            findings: &mut findings,
        };
        let read = BgpConfigurationAnnotations {
            mesh_hold_time: reader.hold_time("mesh-hold-time"),
            mesh_bfd: reader.switch("mesh-bfd"),
            route_protocol: reader.get("route-protocol", |text| match text.parse::<u8>() {
                Ok(number) if ![0, 2, 3, 80].contains(&number) => Ok(number),
                _ => Err("must be a number from 1 to 255 other than 2, 3 and 80".to_owned()),
            }),
            bmp_server: reader.get("bmp-server", |text| match text.rsplit_once(':') {
                Some((host, port))
                    if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
                {
                    Ok(text.to_owned())
                }
                _ => Err("must be host:port".to_owned()),
            }),
            mrt_dir: reader.get("mrt-dir", |text| match text.starts_with('/') {
                true => Ok(text.to_owned()),
                false => Err("must be an absolute path".to_owned()),
            }),
        };
        finished(read, findings)
    }
}

/// Who serves hostPorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPortMode {
    /// The agent.
    Agent,
    /// A chained plugin.
    Chained,
    /// Nobody.
    Off,
}

/// Annotations of a FelixConfiguration. Absent ones are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FelixAnnotations {
    /// Who serves hostPorts.
    pub hostport_mode: Option<HostPortMode>,
    /// Host ports that are never served, as (IP protocol number, port).
    pub hostport_deny: Option<Vec<(u8, u16)>>,
    /// Own the nf_tables tables, so that other programs cannot change them.
    pub nft_table_owner: Option<bool>,
    /// Cut flows that policy denies from now on.
    pub cut_denied_flows: Option<bool>,
    /// Greatest number of addresses kept ready per family.
    pub ipam_reserve_max: Option<u8>,
    /// Least time before a released address is used again.
    pub ipam_reuse_floor: Option<Duration>,
    /// Write IPAMHandle objects for pods.
    pub ipam_handles: Option<bool>,
    /// Offer the CNI verb STATUS.
    pub cni_status: Option<bool>,
}

impl FelixAnnotations {
    /// Reads the annotations of a FelixConfiguration.
    ///
    /// # Errors
    /// Every invalid value; the last good value of a setting stays in force.
    pub fn read(annotations: &Annotations) -> Result<Self, Vec<FieldError>> {
        let mut findings = Findings::default();
        let mut reader = Reader {
            annotations,
            findings: &mut findings,
        };
        let read = FelixAnnotations {
            hostport_mode: reader.get("hostport-mode", |text| {
                one_of(
                    text,
                    &[
                        ("agent", HostPortMode::Agent),
                        ("chained", HostPortMode::Chained),
                        ("off", HostPortMode::Off),
                    ],
                )
            }),
            hostport_deny: reader.get("hostport-deny", host_ports),
            nft_table_owner: reader.switch("nft-table-owner"),
            cut_denied_flows: reader.switch("cut-denied-flows"),
            ipam_reserve_max: reader.small("ipam-reserve-max", 0, 32),
            ipam_reuse_floor: reader.duration(
                "ipam-reuse-floor",
                Duration::ZERO,
                Duration::from_secs(1200),
            ),
            ipam_handles: reader.get("ipam-handles", |text| {
                one_of(text, &[("Always", true), ("Never", false)])
            }),
            cni_status: reader.switch("cni-status"),
        };
        finished(read, findings)
    }
}

/// A comma-separated list of `proto:port`; empty text is an empty list.
fn host_ports(text: &str) -> Result<Vec<(u8, u16)>, String> {
    let wrong = || "must be a list of protocol:port, such as tcp:80,udp:53".to_owned();
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (protocol, port) = entry.split_once(':').ok_or_else(wrong)?;
            let protocol = one_of(
                &protocol.to_ascii_lowercase(),
                &[("tcp", 6), ("udp", 17), ("sctp", 132)],
            )?;
            let port = port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(wrong)?;
            Ok((protocol, port))
        })
        .collect()
}

fn finished<T>(read: T, findings: Findings) -> Result<T, Vec<FieldError>> {
    if findings.0.is_empty() {
        Ok(read)
    } else {
        Err(findings.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
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

    #[test]
    fn configuration_annotations_are_read_and_refused() {
        let good = annotations(&[
            ("route-protocol", "12"),
            ("bmp-server", "[fd00::1]:5000"),
            ("mesh-bfd", "Disabled"),
        ]);
        let read = BgpConfigurationAnnotations::read(&good).expect("valid");
        assert_eq!(
            (read.route_protocol, read.mesh_bfd),
            (Some(12), Some(false))
        );
        for (name, value) in [
            ("route-protocol", "3"),
            ("route-protocol", "80"),
            ("bmp-server", "host"),
            ("mrt-dir", "dumps"),
        ] {
            assert!(
                BgpConfigurationAnnotations::read(&annotations(&[(name, value)])).is_err(),
                "{name}={value}"
            );
        }
        let good = annotations(&[
            ("hostport-deny", "tcp:22, UDP:53"),
            ("hostport-mode", "chained"),
            ("ipam-reserve-max", "32"),
            ("ipam-reuse-floor", "20m"),
            ("ipam-handles", "Always"),
        ]);
        let read = FelixAnnotations::read(&good).expect("valid");
        assert_eq!(read.hostport_deny, Some(vec![(6, 22), (17, 53)]));
        assert_eq!(read.ipam_handles, Some(true));
        for (name, value) in [
            ("hostport-deny", "tcp"),
            ("hostport-deny", "icmp:1"),
            ("ipam-reserve-max", "33"),
            ("ipam-reuse-floor", "21m"),
            ("hostport-mode", "Agent"),
        ] {
            assert!(
                FelixAnnotations::read(&annotations(&[(name, value)])).is_err(),
                "{name}={value}"
            );
        }
    }

    #[test]
    fn a_misspelt_name_is_a_warning_and_foreign_annotations_are_none_of_our_business() {
        let mut found = annotations(&[("holdtime", "9s"), ("hold-time", "9s")]);
        found.insert("example.com/holdtime".into(), "9s".into());
        assert_eq!(unknown_annotations(&found, BGP_PEER), ["holdtime"]);
        assert!(BgpPeerAnnotations::read(&found).is_ok());
    }
}
