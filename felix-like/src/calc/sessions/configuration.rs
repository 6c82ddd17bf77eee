//! The effective BGPConfiguration: `default` for the cluster, `node.<name>` over it for one node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use margay_crds::BGPConfigurationSpec;

use super::extension;
use super::{Networks, SecretRef, hashed_router_id};

/// AS number of a cluster that sets none.
pub const DEFAULT_AS: u32 = 64512;
/// BGP port.
pub const DEFAULT_PORT: u16 = 179;
/// Kernel metric of a pod route in normal state; LOCAL_PREF carries [`MAX_METRIC`] minus the metric.
pub const NORMAL_PRIORITY: u32 = 1024;
/// LOCAL_PREF is this minus the kernel metric.
pub const MAX_METRIC: u32 = 2_147_483_647;
/// Graceful-restart time when nothing is set.
pub(super) const DEFAULT_RESTART_TIME: Duration = Duration::from_secs(120);

/// All BGPConfigurations that count: the one named `default` and the `node.<name>` ones.
#[derive(Debug, Clone, Default)]
pub struct Configurations {
    default: BGPConfigurationSpec,
    mesh_hold_time: Option<Duration>,
    nodes: BTreeMap<String, BGPConfigurationSpec>,
}

impl Configurations {
    /// Takes one object in. Returns false when its name is neither `default` nor `node.<name>`: such an object has no
    /// effect.
    pub fn insert(
        &mut self,
        name: &str,
        annotations: &BTreeMap<String, String>,
        spec: &BGPConfigurationSpec,
    ) -> bool {
        if name == "default" {
            self.default = spec.clone();
            self.mesh_hold_time = annotations
                .get("margay.io/mesh-hold-time")
                .and_then(|text| extension::hold_time(text).ok());
            return true;
        }
        match name.strip_prefix("node.") {
            Some(node) if !node.is_empty() => {
                self.nodes.insert(node.to_owned(), spec.clone());
                true
            }
            _ => false,
        }
    }

    /// AS number of nodes that carry none of their own.
    pub fn global_as(&self) -> u32 {
        self.default.as_number.unwrap_or(DEFAULT_AS)
    }

    /// True unless the mesh is switched off.
    pub fn mesh_enabled(&self) -> bool {
        self.default.node_to_node_mesh_enabled.unwrap_or(true)
    }

    /// Port the given node listens on.
    pub fn listen_port(&self, node: &str) -> u16 {
        let own = self.nodes.get(node).and_then(|spec| spec.listen_port);
        own.or(self.default.listen_port)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(DEFAULT_PORT)
    }

    /// True when the given node listens on its BGP addresses only.
    pub fn bind_node_ip(&self, node: &str) -> bool {
        let own = self
            .nodes
            .get(node)
            .and_then(|spec| spec.bind_mode.as_ref());
        own.or(self.default.bind_mode.as_ref())
            .is_some_and(|mode| mode.is_node_ip())
    }

    /// Secret of the mesh password.
    pub fn mesh_password(&self) -> Option<(SecretRef, bool)> {
        self.default
            .node_mesh_password
            .as_ref()
            .and_then(super::expand::secret_of)
    }

    /// Graceful-restart time of mesh sessions.
    pub fn mesh_restart_time(&self) -> Duration {
        let text = self.default.node_mesh_max_restart_time.as_deref();
        text.and_then(extension::duration)
            .unwrap_or(DEFAULT_RESTART_TIME)
    }

    /// Hold time proposed on mesh sessions.
    pub fn mesh_hold_time(&self) -> Duration {
        self.mesh_hold_time.unwrap_or(extension::DEFAULT_HOLD_TIME)
    }

    /// Log level asked for by `logSeverityScreen`, for this node. `Info` in the object of the node does not count: the
    /// CRDs of Calico stamp it on every object, so it would always hide the level of `default`.
    pub fn log_severity(&self, node: &str) -> Option<String> {
        let own = self
            .nodes
            .get(node)
            .and_then(|spec| spec.log_severity_screen.clone())
            .filter(|severity| severity != "Info");
        own.or_else(|| self.default.log_severity_screen.clone())
    }
}

/// BGP identifier of a node: `setting` is the `CALICO_ROUTER_ID` variable (empty, `hash` or an address), else the IPv4
/// address, else the hash of the name.
pub(super) fn router_id(setting: &str, node: &str, addresses: &Networks) -> Ipv4Addr {
    if let Ok(literal) = setting.parse::<Ipv4Addr>()
        && !literal.is_unspecified()
    {
        return literal;
    }
    match addresses.v4.map(|address| address.ip()) {
        Some(std::net::IpAddr::V4(ip)) if setting != "hash" => ip,
        _ => hashed_router_id(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_log_level_does_not_hide_the_one_of_default() {
        let spec = |level: &str| BGPConfigurationSpec {
            log_severity_screen: Some(level.to_owned()),
            ..BGPConfigurationSpec::default()
        };
        let none = BTreeMap::new();
        let mut configurations = Configurations::default();
        configurations.insert("default", &none, &spec("Debug"));
        configurations.insert("node.a", &none, &spec("Info"));
        configurations.insert("node.b", &none, &spec("Error"));
        let level = |node: &str| configurations.log_severity(node);
        assert_eq!(level("a").as_deref(), Some("Debug"));
        assert_eq!(level("b").as_deref(), Some("Error"));
        assert_eq!(level("c").as_deref(), Some("Debug"));
    }
}
