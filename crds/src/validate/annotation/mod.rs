//! The `margay.io/<name>` annotations: settings the kinds have no fields for, on the object they refine.
//!
//! Values are short scalars. An invalid value makes [`FieldError`]s; a name that is not known makes a warning.

mod bgp_configuration;
mod bgp_peer;
mod felix;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FieldError, Findings};
use crate::values::parse_duration;

pub use bgp_configuration::BgpConfigurationAnnotations;
pub use bgp_peer::{
    BgpPeerAnnotations, Families, GracefulRestart, MaxPrefixesAction, PeerAuth, Role,
};
pub use felix::{FelixAnnotations, HostPortMode};

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
            .map(|(name, value)| (format!("margay.io/{name}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_misspelt_name_is_a_warning_and_foreign_annotations_are_none_of_our_business() {
        let mut found = annotations(&[("holdtime", "9s"), ("hold-time", "9s")]);
        found.insert("example.com/holdtime".into(), "9s".into());
        assert_eq!(unknown_annotations(&found, BGP_PEER), ["holdtime"]);
        assert!(BgpPeerAnnotations::read(&found).is_ok());
    }
}
