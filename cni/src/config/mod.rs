//! The network configuration on standard input: Calico's keys, with Calico's defaults.
//!
//! Keys that are not listed here are ignored, among them everything about reaching a datastore (`kubernetes.*`,
//! `etcd_*`, `policy.k8s_*`): the agent has its own connection, and secrets among these keys are never looked at.

mod document;
mod ipam;
mod lenient;
mod runtime;

pub use ipam::{IpamConfig, OWN_IPAM};
pub use lenient::LenientConfig;
pub use runtime::{Bandwidth, PortMapping, Protocol, RuntimeConfig};

use serde_json::{Map, Value};

use crate::attachment::AttachmentKey;
use crate::environment::{Command, is_identifier};
use crate::error::{CniError, Code};
use crate::version::CniVersion;
use document::Document;

/// Longest configuration read from standard input.
pub const MAX_STDIN: usize = 4 << 20;

/// A parsed and checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkConfig {
    /// The version to answer in.
    pub cni_version: CniVersion,
    /// Name of the network; first part of IPAM handles.
    pub name: String,
    /// Name of this node, if the configuration says it.
    pub nodename: Option<String>,
    /// File with the name of this node.
    pub nodename_file: String,
    /// ADD goes on without that file.
    pub nodename_file_optional: bool,
    /// Addresses: whose plugin, which families and pools.
    pub ipam: IpamConfig,
    /// Keep the default routes although the IPAM plugin gave others.
    pub include_default_routes: bool,
    /// MTU of both interface ends; 0 means the agent's value.
    pub mtu: u32,
    /// ADD fails until the agent has written its MTU file.
    pub require_mtu_file: bool,
    /// Queues of the interface pair, at least 1.
    pub num_queues: u32,
    /// The pod may forward packets.
    pub allow_ip_forwarding: bool,
    /// The annotation `ipAddrsNoIpam` is honoured.
    pub ip_addrs_no_ipam: bool,
    /// The annotation `floatingIPs` is honoured.
    pub floating_ips: bool,
    /// URLs that must answer before ADD does anything.
    pub readiness_gates: Vec<String>,
    /// How long ADD may wait for the endpoint's status file, in seconds.
    pub policy_setup_timeout_seconds: u32,
    /// Directory of endpoint status files.
    pub endpoint_status_dir: String,
    /// What the runtime adds per container.
    pub runtime: RuntimeConfig,
    /// Result of the plugin before us, or on CHECK and DEL of the whole chain.
    pub prev_result: Option<Value>,
    /// GC: what is still in use. `None` when the runtime did not say.
    pub valid_attachments: Option<Vec<AttachmentKey>>,
    /// Oddities worth a line in the log.
    pub warnings: Vec<String>,
}

impl NetworkConfig {
    /// Parses and checks a configuration, in the order of the reference skeleton: JSON, name, version, command's
    /// minimum version, values.
    ///
    /// # Errors
    /// Codes 6, 7, 1 and 2 in that order.
    pub fn parse(command: Command, stdin: &[u8]) -> Result<NetworkConfig, CniError> {
        let map = parse_object(stdin)?;
        let name = check_name(&map)?;
        let cni_version = version_of(&map)?;
        check_minimum(command, cni_version)?;
        let mut warnings = odd_keys(&map);
        let document: Document = serde_json::from_value(Value::Object(map))
            .map_err(|error| CniError::invalid(format!("failed to load netconf: {error}")))?;
        let mut config = document.into_config(name, cni_version, &mut warnings)?;
        if command == Command::Add && config.prev_result.is_some() {
            return Err(CniError::invalid(
                "margay must be the first plugin of the network",
            ));
        }
        config.warnings = warnings;
        Ok(config)
    }
}

/// Standard input as a JSON object.
///
/// # Errors
/// Code 6 when it is too long, not JSON, or not an object.
pub fn parse_object(stdin: &[u8]) -> Result<Map<String, Value>, CniError> {
    let decode = |why: String| {
        CniError::new(Code::DECODE, "cannot read the network configuration").with_details(why)
    };
    if stdin.len() > MAX_STDIN {
        return Err(decode(format!("longer than {MAX_STDIN} bytes")));
    }
    match serde_json::from_slice(stdin) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(decode("not a JSON object".to_owned())),
        Err(error) => Err(decode(error.to_string())),
    }
}

/// `cniVersion` of a configuration.
///
/// # Errors
/// Code 1 when it is not supported; code 7 when it is not a string.
pub fn version_of(map: &Map<String, Value>) -> Result<CniVersion, CniError> {
    match map.get("cniVersion") {
        None | Some(Value::Null) => CniVersion::of_config(None),
        Some(Value::String(text)) => CniVersion::of_config(Some(text)),
        Some(_) => Err(CniError::invalid(
            "failed to load netconf: cniVersion must be a string",
        )),
    }
}

fn check_name(map: &Map<String, Value>) -> Result<String, CniError> {
    match map.get("name").and_then(Value::as_str).unwrap_or("") {
        "" => Err(CniError::invalid("missing network name")),
        name if is_identifier(name) => Ok(name.to_owned()),
        name => {
            Err(CniError::invalid("invalid characters found in network name").with_details(name))
        }
    }
}

fn check_minimum(command: Command, version: CniVersion) -> Result<(), CniError> {
    let minimum = match command {
        Command::Check => CniVersion::V0_4_0,
        Command::Gc | Command::Status => CniVersion::V1_1_0,
        Command::Add | Command::Del | Command::Version => return Ok(()),
    };
    if version >= minimum {
        return Ok(());
    }
    let msg = format!("config version does not allow {}", command.as_str());
    Err(
        CniError::new(Code::INCOMPATIBLE_VERSION, msg).with_details(format!(
            "config is {:?}, at least {:?} is needed",
            version.as_str(),
            minimum.as_str()
        )),
    )
}

/// Known keys in another spelling: Go reads them, we do not, so someone should know.
fn odd_keys(map: &Map<String, Value>) -> Vec<String> {
    map.keys()
        .filter_map(|key| {
            let known = Document::KEYS
                .iter()
                .find(|known| known.eq_ignore_ascii_case(key))?;
            (known != key).then(|| format!("key {key:?} is ignored; write {known:?}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(text: &str) -> Result<NetworkConfig, CniError> {
        NetworkConfig::parse(Command::Add, text.as_bytes())
    }

    #[test]
    fn errors_come_in_order() {
        for (text, code) in [
            ("{{{", Code::DECODE),
            ("[]", Code::DECODE),
            ("", Code::DECODE),
            ("{}", Code::INVALID_CONFIG),
            (r#"{"name":"a b"}"#, Code::INVALID_CONFIG),
            (
                r#"{"name":"n","cniVersion":"9.9.9"}"#,
                Code::INCOMPATIBLE_VERSION,
            ),
            (r#"{"name":"n","mtu":"many"}"#, Code::INVALID_CONFIG),
            (
                r#"{"name":"n","device_type":"tun"}"#,
                Code::UNSUPPORTED_FIELD,
            ),
            (
                r#"{"name":"n","datastore_type":"etcdv3"}"#,
                Code::UNSUPPORTED_FIELD,
            ),
            (
                r#"{"name":"n","dataplane_options":{"type":"grpc"}}"#,
                Code::UNSUPPORTED_FIELD,
            ),
            (
                r#"{"name":"n","policy_setup_timeout_seconds":-1}"#,
                Code::INVALID_CONFIG,
            ),
            (
                r#"{"name":"n","prevResult":{"cniVersion":"1.0.0"}}"#,
                Code::INVALID_CONFIG,
            ),
        ] {
            assert_eq!(add(text).expect_err(text).code, code, "{text}");
        }
        assert_eq!(add("{}").expect_err("no name").msg, "missing network name");
    }

    #[test]
    fn commands_have_minimum_versions() {
        let parse = |command, version: &str| {
            let text = format!(r#"{{"name":"n","cniVersion":"{version}"}}"#);
            NetworkConfig::parse(command, text.as_bytes()).map_err(|error| error.code)
        };
        assert_eq!(
            parse(Command::Check, "0.3.1"),
            Err(Code::INCOMPATIBLE_VERSION)
        );
        assert!(parse(Command::Check, "0.4.0").is_ok());
        for command in [Command::Gc, Command::Status] {
            assert_eq!(parse(command, "1.0.0"), Err(Code::INCOMPATIBLE_VERSION));
            assert!(parse(command, "1.1.0").is_ok());
        }
    }

    #[test]
    fn calicos_configuration_is_understood() {
        let config = add(
            r#"{"cniVersion":"0.3.1","name":"k8s-pod-network","type":"calico","log_level":"info",
            "log_file_path":"/var/log/calico/cni/cni.log","datastore_type":"kubernetes","nodename":"node-1","mtu":0,
            "ipam":{"type":"calico-ipam","assign_ipv4":"true","assign_ipv6":true,"ipv4_pools":["default-ipv4-ippool"]},
            "policy":{"type":"k8s","k8s_auth_token":"secret"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/k"},
            "container_settings":{"allow_ip_forwarding":true},"feature_control":{"ip_addrs_no_ipam":true},
            "num_queues":-1,"unknown":{"a":1},"MTU":9000,"capabilities":{"portMappings":true}}"#,
        )
        .expect("valid");
        assert_eq!(config.cni_version, CniVersion::V0_3_1);
        assert_eq!(config.nodename.as_deref(), Some("node-1"));
        assert!(config.ipam.assign_ipv4 && config.ipam.assign_ipv6 && config.ipam.is_own());
        assert_eq!(config.ipam.ipv4_pools, ["default-ipv4-ippool"]);
        assert!(config.allow_ip_forwarding && config.ip_addrs_no_ipam && !config.floating_ips);
        assert_eq!((config.mtu, config.num_queues), (0, 1));
        assert_eq!(config.warnings, [r#"key "MTU" is ignored; write "mtu""#]);
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn valid_attachments_absent_and_empty_differ() {
        let gc = |extra: &str| {
            let text = format!(r#"{{"name":"n","cniVersion":"1.1.0"{extra}}}"#);
            NetworkConfig::parse(Command::Gc, text.as_bytes())
                .expect("valid")
                .valid_attachments
        };
        assert_eq!(gc(""), None);
        assert_eq!(gc(r#","cni.dev/valid-attachments":[]"#), Some(vec![]));
        assert_eq!(
            gc(r#","cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"}]"#),
            Some(vec![AttachmentKey::new("c2", "eth0")])
        );
    }
}
