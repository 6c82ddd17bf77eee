//! What DEL takes from standard input: hints only. DEL must work with a configuration that is missing, broken, renamed
//! or written for another plugin.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::config::OWN_IPAM;
use crate::result::AddResult;

/// Hints for DEL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LenientConfig {
    /// The network's name, if any.
    pub name: Option<String>,
    /// Addresses of `prevResult`, if it could be read.
    pub prev_addresses: Vec<IpAddr>,
    /// The IPAM plugin, when it is an executable of its own.
    pub external_ipam: Option<String>,
}

impl LenientConfig {
    /// Reads whatever can be read; never fails.
    pub fn parse(stdin: &[u8]) -> LenientConfig {
        let map: Map<String, Value> = serde_json::from_slice(stdin).unwrap_or_default();
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let previous = map
            .get("prevResult")
            .and_then(|value| AddResult::from_json(value).ok());
        LenientConfig {
            name: text(map.get("name")),
            prev_addresses: previous
                .map(|result| result.ips.iter().map(|ip| ip.address.addr()).collect())
                .unwrap_or_default(),
            external_ipam: text(map.get("ipam").and_then(|ipam| ipam.get("type")))
                .filter(|kind| !OWN_IPAM.contains(&kind.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_gives_no_hints() {
        for text in [
            "",
            "{{{",
            "[]",
            "null",
            r#"{"name":7,"prevResult":"x","ipam":[]}"#,
        ] {
            assert_eq!(
                LenientConfig::parse(text.as_bytes()),
                LenientConfig::default(),
                "{text}"
            );
        }
    }

    #[test]
    fn hints_are_found() {
        let config = LenientConfig::parse(
            br#"{"name":"n","cniVersion":"9.9.9","ipam":{"type":"host-local"},
            "prevResult":{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.65.0.2/32"}]}}"#,
        );
        assert_eq!(config.name.as_deref(), Some("n"));
        assert_eq!(config.external_ipam.as_deref(), Some("host-local"));
        assert_eq!(
            config.prev_addresses,
            ["10.65.0.2".parse::<IpAddr>().expect("address")]
        );
    }
}
