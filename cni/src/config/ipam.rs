//! The `ipam` part of the configuration.

use ipnet::IpNet;
use serde::Deserialize;

use crate::error::CniError;

/// IPAM types the agent serves itself; every other type is an executable of its own.
pub const OWN_IPAM: [&str; 2] = ["calico-ipam", "margay-ipam"];

/// Where addresses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamConfig {
    /// Name of the IPAM plugin; see [`OWN_IPAM`].
    pub kind: String,
    /// Give the pod an IPv4 address.
    pub assign_ipv4: bool,
    /// Give the pod an IPv6 address.
    pub assign_ipv6: bool,
    /// Names or prefixes of the IPv4 pools to use; empty means all that select the pod.
    pub ipv4_pools: Vec<String>,
    /// The same for IPv6.
    pub ipv6_pools: Vec<String>,
    /// Destinations that replace the pod's default routes (`ipam.routes[].dst`).
    pub routes: Vec<IpNet>,
}

impl IpamConfig {
    /// Whether the agent assigns the addresses.
    pub fn is_own(&self) -> bool {
        OWN_IPAM.contains(&self.kind.as_str())
    }

    pub(super) fn from_document(document: IpamDocument) -> Result<IpamConfig, CniError> {
        let routes = document.routes.unwrap_or_default();
        let routes = routes.into_iter().filter_map(|route| route.dst);
        Ok(IpamConfig {
            kind: document
                .kind
                .filter(|kind| !kind.is_empty())
                .unwrap_or_else(|| OWN_IPAM[0].to_owned()),
            assign_ipv4: !document
                .assign_ipv4
                .is_some_and(|word| word.is("false", false)),
            assign_ipv6: document
                .assign_ipv6
                .is_some_and(|word| word.is("true", true)),
            ipv4_pools: document.ipv4_pools.unwrap_or_default(),
            ipv6_pools: document.ipv6_pools.unwrap_or_default(),
            routes: routes
                .map(|dst| {
                    dst.parse()
                        .map_err(|_| CniError::invalid(format!("ipam route {dst:?} is no prefix")))
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IpamDocument {
    #[serde(rename = "type")]
    kind: Option<String>,
    assign_ipv4: Option<BoolWord>,
    assign_ipv6: Option<BoolWord>,
    ipv4_pools: Option<Vec<String>>,
    ipv6_pools: Option<Vec<String>>,
    routes: Option<Vec<RouteDocument>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RouteDocument {
    dst: Option<String>,
}

/// Calico's quoted booleans; plain ones are taken as well.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum BoolWord {
    Bool(bool),
    Word(String),
}

impl BoolWord {
    fn is(&self, word: &str, value: bool) -> bool {
        match self {
            BoolWord::Bool(b) => *b == value,
            BoolWord::Word(w) => w == word,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> IpamConfig {
        IpamConfig::from_document(serde_json::from_str(text).expect("json")).expect("valid")
    }

    #[test]
    fn only_the_exact_words_change_the_families() {
        let families = |text: &str| {
            let config = parse(text);
            (config.assign_ipv4, config.assign_ipv6)
        };
        assert_eq!(families("{}"), (true, false));
        assert_eq!(
            families(r#"{"assign_ipv4":"False","assign_ipv6":"True"}"#),
            (true, false)
        );
        assert_eq!(
            families(r#"{"assign_ipv4":"false","assign_ipv6":"true"}"#),
            (false, true)
        );
        assert_eq!(
            families(r#"{"assign_ipv4":false,"assign_ipv6":true}"#),
            (false, true)
        );
    }

    #[test]
    fn other_plugins_are_recognised() {
        assert!(parse(r#"{"type":"margay-ipam"}"#).is_own());
        assert!(parse("{}").is_own());
        let config = parse(
            r#"{"type":"host-local","subnet":"usePodCidr","routes":[{"dst":"10.0.0.0/8","gw":"1.2.3.4"}]}"#,
        );
        assert!(!config.is_own());
        assert_eq!(
            config.routes,
            ["10.0.0.0/8".parse::<IpNet>().expect("prefix")]
        );
    }
}
