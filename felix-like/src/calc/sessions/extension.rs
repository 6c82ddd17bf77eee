//! Values of the `margay.io/<name>` annotations on a BGPPeer, and Go durations.

use std::collections::BTreeMap;
use std::time::Duration;

/// Hold time proposed when nothing is set (the value BIRD proposes).
pub(super) const DEFAULT_HOLD_TIME: Duration = Duration::from_secs(240);

const PREFIX: &str = "margay.io/";

/// What the annotations of one BGPPeer ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) hold_time: Option<Duration>,
    pub(super) passive: Option<bool>,
    pub(super) max_prefixes: Option<u32>,
}

impl Extensions {
    /// Reads the annotations; the first invalid value rejects the peer. The error is (annotation, message).
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Result<Self, (String, String)> {
        let mut read = Extensions::default();
        for (key, value) in annotations {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            let outcome = match name {
                "hold-time" => hold_time(value).map(|time| read.hold_time = Some(time)),
                "passive" => boolean(value).map(|flag| read.passive = Some(flag)),
                "max-prefixes" => match value.parse::<u32>() {
                    Ok(limit) if limit > 0 => {
                        read.max_prefixes = Some(limit);
                        Ok(())
                    }
                    _ => Err(format!("{value:?} is not a number from 1 to 4294967295")),
                },
                "auth" if value != "MD5" => Err(format!("{value:?}: only MD5 is available")),
                _ => Ok(()),
            };
            outcome.map_err(|message| (format!("metadata.annotations[{key}]"), message))?;
        }
        Ok(read)
    }
}

/// A hold time: 0, or 3 s to 65535 s (RFC 4271 section 4.2).
pub(super) fn hold_time(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Some(time) if time.is_zero() || (3..=65535).contains(&time.as_secs()) => Ok(time),
        _ => Err(format!("{text:?} is not 0 or a duration from 3s to 65535s")),
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is neither true nor false"))
}

/// Parses a Go duration: `90s`, `1m30s`, `1.5h`, `0`. Negative and empty text is refused.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let letters = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let unit = match &tail[..letters] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += value * unit;
        rest = &tail[letters..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_parse() {
        assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        assert_eq!(duration("300ms"), Some(Duration::from_millis(300)));
        for bad in ["", "90", "s", "-1s", "1x", "1..5s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_invalid_extension_names_its_annotation() {
        for (key, value) in [
            ("margay.io/hold-time", "2s"),
            ("margay.io/hold-time", "70000s"),
            ("margay.io/passive", "yes"),
            ("margay.io/max-prefixes", "0"),
            ("margay.io/auth", "AO"),
        ] {
            let map = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let (field, message) = Extensions::read(&map).expect_err(key);
            assert!(field.contains(key), "{field}");
            assert!(message.contains(value), "{message}");
        }
        assert_eq!(
            Extensions::read(&BTreeMap::new()),
            Ok(Extensions::default())
        );
    }
}
