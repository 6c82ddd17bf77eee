//! The configuration as it is written. Every key is optional and may be `null`, as for Go's decoder.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::NetworkConfig;
use super::ipam::{IpamConfig, IpamDocument};
use super::runtime::{RuntimeConfig, RuntimeDocument};
use crate::attachment::AttachmentKey;
use crate::error::{CniError, Code};
use crate::version::CniVersion;

/// Where Calico's node agent leaves the node's name.
pub(super) const NODENAME_FILE: &str = "/var/lib/calico/nodename";
/// Where endpoint status files are.
const STATUS_DIR: &str = "/var/run/calico/endpoint-status";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    nodename: Option<String>,
    nodename_file: Option<String>,
    nodename_file_optional: Option<bool>,
    hostname: Option<String>,
    datastore_type: Option<String>,
    policy: Option<Policy>,
    ipam: Option<IpamDocument>,
    include_default_routes: Option<bool>,
    mtu: Option<i64>,
    require_mtu_file: Option<bool>,
    num_queues: Option<i64>,
    device_type: Option<String>,
    container_settings: Option<ContainerSettings>,
    feature_control: Option<FeatureControl>,
    readiness_gates: Option<Vec<String>>,
    policy_setup_timeout_seconds: Option<i64>,
    endpoint_status_dir: Option<String>,
    dataplane_options: Option<Map<String, Value>>,
    #[serde(rename = "runtimeConfig")]
    runtime_config: Option<RuntimeDocument>,
    #[serde(rename = "prevResult")]
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<AttachmentKey>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerSettings {
    allow_ip_forwarding: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FeatureControl {
    ip_addrs_no_ipam: Option<bool>,
    floating_ips: Option<bool>,
}

impl Document {
    /// Top-level keys that are read; the spelling counts.
    pub(super) const KEYS: [&'static str; 24] = [
        "cniVersion",
        "name",
        "type",
        "nodename",
        "nodename_file",
        "nodename_file_optional",
        "hostname",
        "datastore_type",
        "policy",
        "ipam",
        "include_default_routes",
        "mtu",
        "require_mtu_file",
        "num_queues",
        "device_type",
        "container_settings",
        "feature_control",
        "readiness_gates",
        "policy_setup_timeout_seconds",
        "endpoint_status_dir",
        "dataplane_options",
        "runtimeConfig",
        "prevResult",
        "cni.dev/valid-attachments",
    ];

    pub(super) fn into_config(
        self,
        name: String,
        cni_version: CniVersion,
        warnings: &mut Vec<String>,
    ) -> Result<NetworkConfig, CniError> {
        self.check_supported()?;
        let ipam = IpamConfig::from_document(self.ipam.unwrap_or_default())?;
        if let Some(hostname) = self.hostname.as_deref().filter(|text| !text.is_empty()) {
            warnings.push(format!(
                "key \"hostname\" ({hostname}) is deprecated; write \"nodename\""
            ));
        }
        match self.policy.and_then(|policy| policy.kind).as_deref() {
            None | Some("k8s") => {}
            Some(other) => warnings.push(format!("policy type {other:?} is treated as \"k8s\"")),
        }
        let containers = self.container_settings.unwrap_or_default();
        let features = self.feature_control.unwrap_or_default();
        Ok(NetworkConfig {
            cni_version,
            name,
            nodename: self
                .nodename
                .or(self.hostname)
                .filter(|text| !text.is_empty()),
            nodename_file: non_empty(self.nodename_file, NODENAME_FILE),
            nodename_file_optional: self.nodename_file_optional.unwrap_or(false),
            ipam,
            include_default_routes: self.include_default_routes.unwrap_or(false),
            mtu: unsigned("mtu", self.mtu, 65535)?,
            require_mtu_file: self.require_mtu_file.unwrap_or(false),
            num_queues: unsigned("num_queues", self.num_queues.map(|n| n.max(1)), 4096)?.max(1),
            allow_ip_forwarding: containers.allow_ip_forwarding.unwrap_or(false),
            ip_addrs_no_ipam: features.ip_addrs_no_ipam.unwrap_or(false),
            floating_ips: features.floating_ips.unwrap_or(false),
            readiness_gates: self.readiness_gates.unwrap_or_default(),
            policy_setup_timeout_seconds: unsigned(
                "policy_setup_timeout_seconds",
                self.policy_setup_timeout_seconds,
                600,
            )?,
            endpoint_status_dir: non_empty(self.endpoint_status_dir, STATUS_DIR),
            runtime: RuntimeConfig::from_document(self.runtime_config.unwrap_or_default())?,
            prev_result: self.prev_result.filter(|result| !result.is_null()),
            valid_attachments: self.valid_attachments,
            warnings: Vec::new(),
        })
    }

    fn check_supported(&self) -> Result<(), CniError> {
        let unsupported = |key: &str, value: &str| {
            CniError::new(
                Code::UNSUPPORTED_FIELD,
                format!("{key} {value:?} is not supported"),
            )
        };
        match self.datastore_type.as_deref() {
            None | Some("" | "kubernetes") => {}
            Some(other) => return Err(unsupported("datastore_type", other)),
        }
        match self.device_type.as_deref() {
            None | Some("" | "veth") => {}
            Some(other) => {
                return Err(CniError::new(
                    Code::UNSUPPORTED_FIELD,
                    format!("unknown device_type {other:?}"),
                ));
            }
        }
        if let Some(options) = self
            .dataplane_options
            .as_ref()
            .filter(|options| !options.is_empty())
        {
            let kind = options.get("type").and_then(Value::as_str).unwrap_or("");
            return Err(unsupported("dataplane_options.type", kind));
        }
        Ok(())
    }
}

fn non_empty(text: Option<String>, default: &str) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| default.to_owned())
}

fn unsigned(key: &str, value: Option<i64>, max: u32) -> Result<u32, CniError> {
    let value = value.unwrap_or(0);
    u32::try_from(value)
        .ok()
        .filter(|value| *value <= max)
        .ok_or_else(|| CniError::invalid(format!("{key} must be between 0 and {max}, not {value}")))
}
