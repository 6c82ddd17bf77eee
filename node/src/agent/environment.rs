//! The environment of `margay node`, read once at start. Names and meanings are those of the Calico node container, so
//! that an existing manifest works.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use margay_crds::selector::Selector;

use super::autodetect::Method;

/// Where the address of one family comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// `autodetect`: detect at every start and keep detecting.
    Detect,
    /// Unset: keep the stored address, detect only when there is none.
    DetectIfAbsent,
    /// `none`, or unset for IPv6: use what is stored.
    Stored,
    /// A literal address; without prefix length the owning interface supplies it.
    Literal(IpAddr),
    /// A literal address with prefix length.
    LiteralNet(IpNet),
}

/// Which networking this node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// BGP.
    Bgp,
    /// Tunnels only: addresses are published, no BGP session is made.
    Vxlan,
    /// Policy only: no BGP data is written.
    None,
}

/// One default pool, as the environment describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolSettings {
    /// CIDR; `None` leaves the choice to the agent.
    pub(crate) cidr: Option<IpNet>,
    /// `CIDR=none`: never create one.
    pub(crate) never: bool,
    pub(crate) block_size: u8,
    pub(crate) ipip: &'static str,
    pub(crate) vxlan: &'static str,
    pub(crate) nat_outgoing: bool,
    pub(crate) disable_bgp_export: bool,
    pub(crate) node_selector: String,
}

/// Everything `margay node` takes from its environment.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) node_name: Option<String>,
    pub(crate) nodename_file: PathBuf,
    pub(crate) shutdown_timestamp_file: PathBuf,
    pub(crate) ip: AddressSource,
    pub(crate) ip6: AddressSource,
    pub(crate) method: Method,
    pub(crate) method6: Method,
    pub(crate) poll_interval: Duration,
    pub(crate) check_conflicts: bool,
    pub(crate) as_number: Option<u32>,
    pub(crate) router_id: String,
    pub(crate) backend: Backend,
    pub(crate) namespace: String,
    pub(crate) default_pools: bool,
    pub(crate) pool4: PoolSettings,
    pub(crate) pool6: PoolSettings,
    /// `IP6` or an IPv6 pool variable asks for IPv6 pods.
    pub(crate) wants_ipv6_pool: bool,
    pub(crate) cluster_type: String,
    pub(crate) health_host: String,
    pub(crate) health_port: u16,
    pub(crate) metrics_enabled: Option<bool>,
    pub(crate) metrics_host: Option<String>,
    pub(crate) metrics_port: Option<u16>,
    pub(crate) log_level: Option<String>,
    pub(crate) manage_cni: bool,
}

/// A variable that cannot be used; the process exits with this text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name}={value}: {message}")]
pub(crate) struct InvalidVariable {
    name: &'static str,
    value: String,
    message: String,
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Environment {
    /// Reads the variables through `lookup`; set but empty counts as unset.
    ///
    /// # Errors
    /// The first variable whose value makes no sense. A wrong value at start stops the agent, so that a roll-out stops
    /// at the first node.
    pub(crate) fn read(lookup: Lookup<'_>) -> Result<Self, InvalidVariable> {
        let get = |name: &str| {
            lookup(name)
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let default_pools =
            !get("NO_DEFAULT_POOLS").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let pool4 = pool(&get, true)?;
        let pool6 = pool(&get, false)?;
        if !default_pools {
            for name in ["CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"] {
                if let Some(value) = get(name) {
                    return Err(invalid(
                        name,
                        value,
                        "must not be set together with NO_DEFAULT_POOLS=true",
                    ));
                }
            }
        }
        let ip6 = address(&get, "IP6", false)?;
        let wants_ipv6_pool = get("CALICO_IPV6POOL_CIDR").is_some() || ip6 != AddressSource::Stored;
        Ok(Environment {
            node_name: get("NODENAME"),
            nodename_file: get("CALICO_NODENAME_FILE")
                .unwrap_or_else(|| "/var/lib/calico/nodename".into())
                .into(),
            shutdown_timestamp_file: get("CALICO_SHUTDOWN_TIMESTAMP_FILE")
                .unwrap_or_else(|| "/var/lib/calico/shutdownTS".into())
                .into(),
            ip: address(&get, "IP", true)?,
            ip6,
            method: method(&get, "IP_AUTODETECTION_METHOD")?,
            method6: method(&get, "IP6_AUTODETECTION_METHOD")?,
            poll_interval: get("AUTODETECT_POLL_INTERVAL")
                .and_then(|text| margay_felix::calc::sessions::go_duration(&text))
                .filter(|interval| !interval.is_zero())
                .unwrap_or(Duration::from_secs(60)),
            check_conflicts: get("DISABLE_NODE_IP_CHECK").as_deref() != Some("true"),
            as_number: as_number(&get)?,
            router_id: router_id(&get)?,
            backend: match get("CALICO_NETWORKING_BACKEND").as_deref() {
                Some("none") => Backend::None,
                Some("vxlan") => Backend::Vxlan,
                _ => Backend::Bgp,
            },
            namespace: get("NAMESPACE").unwrap_or_else(|| "kube-system".into()),
            default_pools,
            pool4,
            pool6,
            wants_ipv6_pool,
            cluster_type: get("CLUSTER_TYPE").unwrap_or_default(),
            health_host: get("FELIX_HEALTHHOST").unwrap_or_else(|| "127.0.0.1".into()),
            health_port: port(&get, "FELIX_HEALTHPORT")?.unwrap_or(9099),
            metrics_enabled: get("FELIX_PROMETHEUSMETRICSENABLED").map(|value| truth(&value)),
            metrics_host: get("FELIX_PROMETHEUSMETRICSHOST"),
            metrics_port: port(&get, "FELIX_PROMETHEUSMETRICSPORT")?,
            log_level: get("MARGAY_LOG")
                .or_else(|| get("FELIX_LOGSEVERITYSCREEN"))
                .or_else(|| get("BGP_LOGSEVERITYSCREEN")),
            manage_cni: get("CALICO_MANAGE_CNI").is_none_or(|value| truth(&value)),
        })
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

fn invalid(name: &'static str, value: String, message: impl Into<String>) -> InvalidVariable {
    InvalidVariable {
        name,
        value,
        message: message.into(),
    }
}

/// `false`, `0`, `no`, `n`, `f` in any case are false, everything else is true.
fn truth(text: &str) -> bool {
    !["false", "0", "no", "n", "f"].contains(&text.to_ascii_lowercase().as_str())
}

fn address(get: Get<'_>, name: &'static str, v4: bool) -> Result<AddressSource, InvalidVariable> {
    let Some(text) = get(name) else {
        return Ok(if v4 {
            AddressSource::DetectIfAbsent
        } else {
            AddressSource::Stored
        });
    };
    let family = if v4 { "IPv4" } else { "IPv6" };
    let source = match text.as_str() {
        "autodetect" => return Ok(AddressSource::Detect),
        "none" => return Ok(AddressSource::Stored),
        _ => text
            .parse::<IpNet>()
            .map(AddressSource::LiteralNet)
            .or_else(|_| text.parse().map(AddressSource::Literal)),
    };
    match source {
        Ok(AddressSource::LiteralNet(net)) if net.addr().is_ipv4() == v4 => {
            Ok(AddressSource::LiteralNet(net))
        }
        Ok(AddressSource::Literal(ip)) if ip.is_ipv4() == v4 => Ok(AddressSource::Literal(ip)),
        _ => Err(invalid(
            name,
            text,
            format!("is not an {family} address, `autodetect` or `none`"),
        )),
    }
}

fn method(get: Get<'_>, name: &'static str) -> Result<Method, InvalidVariable> {
    let text = get(name).unwrap_or_default();
    Method::parse(&text).map_err(|message| invalid(name, text, message))
}

fn as_number(get: Get<'_>) -> Result<Option<u32>, InvalidVariable> {
    let Some(text) = get("AS") else {
        return Ok(None);
    };
    match margay_felix::calc::sessions::parse_as(&text) {
        Some(number) if number != 0 => Ok(Some(number)),
        _ => Err(invalid("AS", text, "is not an AS number")),
    }
}

fn router_id(get: Get<'_>) -> Result<String, InvalidVariable> {
    let text = get("CALICO_ROUTER_ID").unwrap_or_default();
    let literal = text
        .parse::<std::net::Ipv4Addr>()
        .is_ok_and(|ip| !ip.is_unspecified());
    if text.is_empty() || text == "hash" || literal {
        Ok(text)
    } else {
        Err(invalid(
            "CALICO_ROUTER_ID",
            text,
            "is neither `hash` nor an IPv4 address other than 0.0.0.0",
        ))
    }
}

fn port(get: Get<'_>, name: &'static str) -> Result<Option<u16>, InvalidVariable> {
    let Some(text) = get(name) else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| invalid(name, text, "is not a port"))
}

fn pool(get: Get<'_>, v4: bool) -> Result<PoolSettings, InvalidVariable> {
    let name = |v4_name: &'static str, v6_name: &'static str| if v4 { v4_name } else { v6_name };
    let cidr_name = name("CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR");
    let cidr_text = get(cidr_name);
    let never = cidr_text.as_deref() == Some("none");
    let cidr = match cidr_text.filter(|_| !never) {
        None => None,
        Some(text) => match text.parse::<IpNet>() {
            Ok(net) if net.addr().is_ipv4() == v4 => Some(net.trunc()),
            _ => return Err(invalid(cidr_name, text, "is not a CIDR of this family")),
        },
    };
    let size_name = name("CALICO_IPV4POOL_BLOCK_SIZE", "CALICO_IPV6POOL_BLOCK_SIZE");
    let (default_size, sizes) = if v4 { (26, 20..=32) } else { (122, 116..=128) };
    let block_size = match get(size_name) {
        None => default_size,
        Some(text) => match text.parse::<u8>() {
            Ok(size) if sizes.contains(&size) => size,
            _ => {
                let message = format!("is not a number from {} to {}", sizes.start(), sizes.end());
                return Err(invalid(size_name, text, message));
            }
        },
    };
    let ipip = if v4 {
        encapsulation(get, "CALICO_IPV4POOL_IPIP")?
    } else {
        "Never"
    };
    let vxlan = encapsulation(get, name("CALICO_IPV4POOL_VXLAN", "CALICO_IPV6POOL_VXLAN"))?;
    let selector_name = name(
        "CALICO_IPV4POOL_NODE_SELECTOR",
        "CALICO_IPV6POOL_NODE_SELECTOR",
    );
    let node_selector = get(selector_name).unwrap_or_else(|| "all()".into());
    if let Err(error) = Selector::parse(&node_selector) {
        return Err(invalid(selector_name, node_selector, error.to_string()));
    }
    Ok(PoolSettings {
        cidr,
        never,
        block_size,
        ipip,
        vxlan,
        nat_outgoing: get(name(
            "CALICO_IPV4POOL_NAT_OUTGOING",
            "CALICO_IPV6POOL_NAT_OUTGOING",
        ))
        .map_or(v4, |text| truth(&text)),
        disable_bgp_export: get(name(
            "CALICO_IPV4POOL_DISABLE_BGP_EXPORT",
            "CALICO_IPV6POOL_DISABLE_BGP_EXPORT",
        ))
        .is_some_and(|text| truth(&text)),
        node_selector,
    })
}

fn encapsulation(get: Get<'_>, name: &'static str) -> Result<&'static str, InvalidVariable> {
    let text = get(name).unwrap_or_default();
    match text.to_ascii_lowercase().as_str() {
        "" | "off" | "never" => Ok("Never"),
        "crosssubnet" | "cross-subnet" => Ok("CrossSubnet"),
        "always" => Ok("Always"),
        _ => Err(invalid(name, text, "is none of Never, CrossSubnet, Always")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, InvalidVariable> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        Environment::read(&move |name| {
            pairs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn an_empty_environment_detects_ipv4_only_and_makes_default_pools() {
        let env = read(&[]).expect("valid");
        assert_eq!(env.ip, AddressSource::DetectIfAbsent);
        assert_eq!(env.ip6, AddressSource::Stored);
        assert_eq!(env.backend, Backend::Bgp);
        assert!(env.default_pools && !env.wants_ipv6_pool && env.check_conflicts && env.manage_cni);
        assert!(env.pool4.nat_outgoing && !env.pool6.nat_outgoing);
        assert_eq!((env.pool4.block_size, env.pool6.block_size), (26, 122));
        assert_eq!(env.poll_interval, Duration::from_secs(60));
        assert_eq!(env.health_port, 9099);
    }

    #[test]
    fn addresses_take_every_form() {
        for (text, expected) in [
            ("autodetect", AddressSource::Detect),
            ("none", AddressSource::Stored),
            (
                "10.0.0.1",
                AddressSource::Literal("10.0.0.1".parse().expect("ip")),
            ),
            (
                "10.0.0.1/24",
                AddressSource::LiteralNet("10.0.0.1/24".parse().expect("net")),
            ),
        ] {
            assert_eq!(read(&[("IP", text)]).expect(text).ip, expected);
        }
    }

    #[test]
    fn values_that_make_no_sense_are_named() {
        for (name, value) in [
            ("IP", "fd00::1"),
            ("IP", "eth0"),
            ("IP6", "10.0.0.1"),
            ("IP_AUTODETECTION_METHOD", "guess"),
            ("AS", "0"),
            ("AS", "x"),
            ("CALICO_ROUTER_ID", "0.0.0.0"),
            ("CALICO_IPV4POOL_CIDR", "fd00::/48"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "33"),
            ("CALICO_IPV6POOL_BLOCK_SIZE", "26"),
            ("CALICO_IPV4POOL_IPIP", "sometimes"),
            ("CALICO_IPV4POOL_NODE_SELECTOR", "has("),
            ("FELIX_HEALTHPORT", "70000"),
        ] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name}={value}")), "{error}");
        }
    }

    #[test]
    fn no_default_pools_excludes_a_pool_cidr() {
        assert!(read(&[("NO_DEFAULT_POOLS", "TRUE")]).is_ok());
        assert!(
            read(&[
                ("NO_DEFAULT_POOLS", "true"),
                ("CALICO_IPV4POOL_CIDR", "10.0.0.0/16")
            ])
            .is_err()
        );
    }

    #[test]
    fn booleans_follow_the_words_people_use() {
        for (text, expected) in [
            ("false", false),
            ("0", false),
            ("No", false),
            ("true", true),
            ("1", true),
        ] {
            let env = read(&[("CALICO_IPV4POOL_NAT_OUTGOING", text)]).expect(text);
            assert_eq!(env.pool4.nat_outgoing, expected, "{text}");
        }
    }
}
