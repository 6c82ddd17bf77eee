//! The file of `margay bgp`, and what it means to the speaker.
//!
//! ```yaml
//! local_as: 65010
//! router_id: 10.0.0.1
//! listen: ["0.0.0.0", "::"]     # addresses, with or without a port
//! fib: true                     # put learned routes into the kernel
//! originate: [203.0.113.0/24]
//! ebgp_requires_policy: true    # RFC 8212
//! peers:
//!   - addr: 10.0.0.2
//!     as: 64512
//!     import: accept            # accept, reject, or a list of prefixes
//!     export: [203.0.113.0/24]
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ipnet::IpNet;
use margay_bgp::policy::{Condition, Policy, Rule, Verdict};
use margay_bgp::{
    Families, Family, GracefulRestartMode, LocalRoute, MaxPrefixes, NextHopMode, Password,
    PeerConfig, PeerKey, RemoteAs, SpeakerConfig, Ttl,
};
use serde::Deserialize;

/// LOCAL_PREF of originated routes and of routes without one (RFC 4271 leaves the default open; 100 is customary).
const LOCAL_PREF: u32 = 100;

/// The whole file. Unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// AS number of this speaker.
    local_as: u32,
    /// BGP identifier.
    router_id: Ipv4Addr,
    /// Cluster id for reflection; the router id when absent.
    cluster_id: Option<Ipv4Addr>,
    /// Addresses to listen on; every address when absent.
    #[serde(default = "any_address")]
    listen: OneOrMany,
    /// Put learned routes into the kernel's main table.
    #[serde(default)]
    pub(super) fib: bool,
    /// External peers without import or export policy exchange nothing (RFC 8212).
    #[serde(default = "yes")]
    ebgp_requires_policy: bool,
    /// Peers may be routers away. `false`: TTL 1.
    #[serde(default = "yes")]
    multihop: bool,
    /// Bidirectional forwarding detection; not available, so only `null` is taken.
    #[serde(default)]
    bfd: Option<serde_json::Value>,
    /// Prefixes announced.
    #[serde(default)]
    originate: Vec<IpNet>,
    /// The neighbours.
    #[serde(default)]
    peers: Vec<Peer>,
}

/// One text or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// One neighbour.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    /// Address, with `%interface` when link-local.
    addr: String,
    /// Port dialled.
    #[serde(default = "bgp_port")]
    port: u16,
    /// AS number.
    #[serde(rename = "as")]
    as_number: u32,
    /// Name to show.
    name: Option<String>,
    /// Only wait for the peer to dial.
    #[serde(default)]
    passive: bool,
    /// Route-reflection client (RFC 4456).
    #[serde(default)]
    rr_client: bool,
    /// Hold time in seconds.
    #[serde(default = "hold_time")]
    hold: u64,
    /// Not available: only `false` is taken.
    #[serde(default)]
    bfd: bool,
    /// Families; that of the address when absent.
    families: Option<Vec<Family>>,
    /// File that holds the TCP-MD5 key, used to its last octet but for one trailing line break.
    md5_file: Option<PathBuf>,
    /// Source address.
    local_address: Option<IpAddr>,
    /// Own addresses announced as next hop where the session's address does not fit the family.
    next_hop_ipv4: Option<Ipv4Addr>,
    next_hop_ipv6: Option<Ipv6Addr>,
    /// Next-hop treatment.
    #[serde(default)]
    next_hop: NextHop,
    /// Hops of GTSM (RFC 5082).
    ttl_security: Option<u8>,
    /// IPv4 routes over IPv6 next hops (RFC 8950).
    #[serde(default)]
    extended_next_hop: bool,
    /// Most prefixes per family.
    max_prefixes: Option<u32>,
    /// Keep the peer's routes over its restart and ask it to keep ours (RFC 4724).
    #[serde(default = "yes")]
    graceful_restart: bool,
    /// What is taken.
    import: Option<Filter>,
    /// What is sent.
    export: Option<Filter>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NextHop {
    #[default]
    Auto,
    #[serde(rename = "self")]
    SelfAddress,
    Keep,
}

/// `accept`, `reject`, or the prefixes that are accepted together with what is inside them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Filter {
    Word(Word),
    Prefixes(Vec<IpNet>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Accept,
    Reject,
}

fn yes() -> bool {
    true
}

fn bgp_port() -> u16 {
    179
}

fn hold_time() -> u64 {
    240
}

fn any_address() -> OneOrMany {
    OneOrMany::Many(vec!["0.0.0.0".into(), "::".into()])
}

/// What the speaker is told.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) speaker: SpeakerConfig,
    pub(super) peers: Vec<PeerConfig>,
    pub(super) local: Vec<LocalRoute>,
    pub(super) fib: bool,
}

/// Reads and checks the file.
///
/// # Errors
/// The file cannot be read, or a value is wrong: the message names file and field.
pub(super) fn load(path: &Path) -> anyhow::Result<Settings> {
    let what = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(what)?;
    let file: File = serde_saphyr::from_str(&text).with_context(what)?;
    file.settings().with_context(what)
}

impl File {
    fn settings(self) -> anyhow::Result<Settings> {
        if self.bfd.as_ref().is_some_and(|value| !value.is_null()) {
            bail!("bfd: not available in this version");
        }
        if self.local_as == 0 {
            bail!("local_as: AS 0 must not be used (RFC 7607)");
        }
        let texts = match &self.listen {
            OneOrMany::One(text) => std::slice::from_ref(text),
            OneOrMany::Many(texts) => texts,
        };
        let listen = texts
            .iter()
            .map(|text| listen_address(text))
            .collect::<Result<_, _>>()?;
        let speaker = SpeakerConfig {
            cluster_id: self.cluster_id,
            listen,
            default_local_pref: LOCAL_PREF,
            ..SpeakerConfig::new(self.router_id)
        };
        speaker.validate()?;
        let mut peers = Vec::new();
        for (index, peer) in self.peers.iter().enumerate() {
            let config = self.peer(peer).with_context(|| format!("peers[{index}]"))?;
            if peers
                .iter()
                .any(|other: &PeerConfig| other.key == config.key)
            {
                bail!("peers[{index}].addr: {} is there twice", config.key);
            }
            peers.push(config);
        }
        let local = self
            .originate
            .iter()
            .map(|p| LocalRoute::new(*p, LOCAL_PREF))
            .collect();
        Ok(Settings {
            speaker,
            peers,
            local,
            fib: self.fib,
        })
    }

    fn peer(&self, peer: &Peer) -> anyhow::Result<PeerConfig> {
        let (address, interface) = match peer.addr.split_once('%') {
            Some((address, interface)) => (address, Some(interface.to_owned())),
            None => (peer.addr.as_str(), None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| anyhow::anyhow!("addr: {:?} is not an IP address", peer.addr))?;
        if peer.bfd {
            bail!("bfd: not available in this version");
        }
        let external = peer.as_number != self.local_as;
        let unset = if external && self.ebgp_requires_policy {
            Filter::Word(Word::Reject)
        } else {
            Filter::Word(Word::Accept)
        };
        let mut config = PeerConfig {
            key: PeerKey {
                address,
                interface,
                port: peer.port,
            },
            remote_as: RemoteAs::Is(peer.as_number),
            local_address: peer.local_address,
            self_ipv4: peer.next_hop_ipv4,
            self_ipv6: peer.next_hop_ipv6,
            passive: peer.passive,
            password: peer.md5_file.as_deref().map(password).transpose()?,
            ttl: match (peer.ttl_security, self.multihop) {
                (Some(hops), _) => Ttl::Security(hops),
                (None, true) => Ttl::Multihop,
                (None, false) => Ttl::Direct,
            },
            families: match &peer.families {
                Some(families) => families.iter().copied().collect(),
                None => Families::from(Family::of(address)),
            },
            extended_next_hop: peer.extended_next_hop,
            import: peer.import.as_ref().unwrap_or(&unset).policy(),
            export: peer.export.as_ref().unwrap_or(&unset).policy(),
            rr_client: peer.rr_client,
            next_hop: match peer.next_hop {
                NextHop::Auto => NextHopMode::Auto,
                NextHop::SelfAddress => NextHopMode::SelfAddress,
                NextHop::Keep => NextHopMode::Keep,
            },
            max_prefixes: peer.max_prefixes.map(|limit| MaxPrefixes {
                limit,
                action: Default::default(),
            }),
            ..PeerConfig::new(address, peer.as_number, self.local_as)
        };
        config.name = peer.name.clone().unwrap_or_else(|| peer.addr.clone());
        config.timers.hold = Duration::from_secs(peer.hold);
        if !peer.graceful_restart {
            config.graceful_restart.mode = GracefulRestartMode::Off;
        }
        config.validate()?;
        Ok(config)
    }
}

impl Filter {
    fn policy(&self) -> Policy {
        match self {
            Filter::Word(Word::Accept) => Policy::accept_all(),
            Filter::Word(Word::Reject) => Policy::reject_all(),
            Filter::Prefixes(prefixes) => Policy {
                rules: vec![Rule::new(
                    vec![Condition::PrefixWithin(prefixes.clone())],
                    Verdict::Accept,
                )],
                default: Verdict::Reject,
            },
        }
    }
}

fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    let with_port = text.parse::<SocketAddr>();
    let bare = text
        .parse::<IpAddr>()
        .map(|address| SocketAddr::new(address, bgp_port()));
    match with_port.or(bare) {
        Ok(address) => Ok(address),
        Err(_) => bail!("listen: {text:?} is not an address or address:port"),
    }
}

/// Reads a key; the file's name may be shown, its content never.
fn password(path: &Path) -> anyhow::Result<Password> {
    let what = || format!("md5_file: {}", path.display());
    let mut octets = std::fs::read(path).with_context(what)?;
    if octets.last() == Some(&b'\n') {
        octets.pop();
    }
    Password::new(octets).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Settings> {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("speaker.yaml");
        std::fs::write(&path, text).expect("written");
        load(&path)
    }

    const HEAD: &str = "local_as: 65010\nrouter_id: 10.0.0.1\n";

    #[test]
    fn a_small_file_gets_the_usual_values() {
        let settings =
            read(&format!("{HEAD}peers:\n- {{addr: 10.0.0.2, as: 64512}}\n")).expect("valid");
        assert_eq!(settings.speaker.listen.len(), 2);
        let peer = &settings.peers[0];
        assert_eq!(peer.timers.hold, Duration::from_secs(240));
        assert_eq!(peer.families, Families::IPV4);
        assert_eq!(peer.import, Policy::reject_all(), "RFC 8212");
        assert!(!settings.fib);
    }

    #[test]
    fn internal_peers_need_no_policy_and_the_rule_can_be_switched_off() {
        let internal =
            read(&format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 65010}}]")).expect("valid");
        assert_eq!(internal.peers[0].export, Policy::accept_all());
        let open = read(&format!(
            "{HEAD}ebgp_requires_policy: false\npeers: [{{addr: 'fd00::2', as: 1, bfd: false}}]"
        ));
        assert_eq!(open.expect("valid").peers[0].import, Policy::accept_all());
    }

    #[test]
    fn a_scenario_of_the_benches_is_a_valid_file() {
        let text = r#"{"local_as": 65000, "router_id": "10.99.0.1", "listen": "10.99.0.1", "fib": false, "bfd": null,
            "ebgp_requires_policy": false,
            "peers": [{"addr": "10.99.1.1", "as": 65001, "rr_client": false, "hold": 180, "bfd": false}]}"#;
        let settings = read(text).expect("valid");
        assert_eq!(
            settings.speaker.listen,
            ["10.99.0.1:179".parse().expect("address")]
        );
    }

    #[test]
    fn every_wrong_value_names_its_field() {
        for (text, words) in [
            ("local_as: 0\nrouter_id: 1.1.1.1\n".to_owned(), "local_as"),
            ("local_as: 1\nrouter_id: 0.0.0.0\n".to_owned(), "router_id"),
            (format!("{HEAD}colour: blue\n"), "colour"),
            (format!("{HEAD}bfd: {{tx_ms: 50}}\n"), "bfd"),
            (format!("{HEAD}listen: [somewhere]\n"), "listen"),
            (format!("{HEAD}originate: [10.0.0.0/33]\n"), "originate"),
            (
                format!("{HEAD}peers: [{{addr: tor, as: 1}}]\n"),
                "peers[0]: addr",
            ),
            (
                format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 1, hold: 2}}]\n"),
                "hold",
            ),
            (
                format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 1, bfd: true}}]\n"),
                "bfd",
            ),
            (
                format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 1, rr_client: true}}]\n"),
                "rr_client",
            ),
            (format!("{HEAD}peers: [{{addr: 10.0.0.2}}]\n"), "as"),
            (
                format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 1, md5_file: /no/such/file}}]\n"),
                "md5_file",
            ),
            (
                format!("{HEAD}peers: [{{addr: 10.0.0.2, as: 1}}, {{addr: 10.0.0.2, as: 2}}]\n"),
                "peers[1].addr",
            ),
        ] {
            let error = format!("{:#}", read(&text).expect_err(&text));
            assert!(error.contains(words), "{words}: {error}");
            assert!(error.contains("speaker.yaml"), "{error}");
        }
    }

    #[test]
    fn a_key_file_loses_one_line_break_and_never_its_secret() {
        let directory = tempfile::tempdir().expect("directory");
        let key = directory.path().join("key");
        std::fs::write(&key, "s3cret\n").expect("written");
        let text = format!(
            "{HEAD}peers: [{{addr: 10.0.0.2, as: 1, md5_file: {}}}]\n",
            key.display()
        );
        let settings = read(&text).expect("valid");
        assert_eq!(
            settings.peers[0].password,
            Some(Password::new(*b"s3cret").expect("key"))
        );
        assert!(!format!("{settings:?}").contains("s3cret"));
    }
}
