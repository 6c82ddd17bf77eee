//! The network configuration list for the container runtime, written last: it makes the node ready for pods.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// The temporary file. It must not end in a suffix that runtimes read, and it must be in the same directory: containerd
/// notices a rename within its directory, but not a rename into it.
const TEMPORARY: &str = ".margay.tmp";

/// Where and what to write.
#[derive(Debug, Clone)]
pub(crate) struct Conflist {
    /// `CNI_NET_DIR`.
    pub(crate) directory: PathBuf,
    /// `CNI_CONF_NAME`.
    pub(crate) file_name: String,
    /// `CNI_OLD_CONF_NAME`: removed once the new file is in place.
    pub(crate) old_file_name: Option<String>,
    /// `CNI_NETWORK_CONFIG` or the content of `CNI_NETWORK_CONFIG_FILE`; replaces the built-in template.
    pub(crate) template: Option<String>,
    /// Replaces `__KUBERNETES_NODE_NAME__`.
    pub(crate) node: String,
    /// `CNI_MTU`; replaces `__CNI_MTU__`. 0 lets the agent decide.
    pub(crate) mtu: u32,
    /// Offer CNI 1.1, which makes newer runtimes call STATUS and GC (`MARGAY_CNI_STATUS`).
    pub(crate) offer_status: bool,
    /// Pods get an IPv4 address. The built-in list says so only when it is not the default.
    pub(crate) ipv4: bool,
    /// Pods get an IPv6 address.
    pub(crate) ipv6: bool,
}

impl Conflist {
    /// The settings of Calico's installer, from the environment.
    ///
    /// # Errors
    /// When `CNI_NETWORK_CONFIG_FILE` cannot be read or `CNI_MTU` is no number.
    pub(crate) fn from_vars(
        var: impl Fn(&str) -> Option<String>,
        node: &str,
    ) -> anyhow::Result<Conflist> {
        let get = |name: &str| var(name).filter(|value| !value.is_empty());
        let template = match get("CNI_NETWORK_CONFIG_FILE") {
            Some(path) => Some(
                fs::read_to_string(&path)
                    .with_context(|| format!("read CNI_NETWORK_CONFIG_FILE {path}"))?,
            ),
            None => get("CNI_NETWORK_CONFIG"),
        };
        let mtu = get("CNI_MTU").unwrap_or_else(|| "0".to_owned());
        Ok(Conflist {
            directory: get("CNI_NET_DIR")
                .unwrap_or_else(|| "/etc/cni/net.d".to_owned())
                .into(),
            file_name: get("CNI_CONF_NAME").unwrap_or_else(|| "10-margay.conflist".to_owned()),
            old_file_name: get("CNI_OLD_CONF_NAME"),
            template,
            node: node.to_owned(),
            mtu: mtu
                .parse()
                .with_context(|| format!("CNI_MTU {mtu:?} is no number"))?,
            offer_status: get("MARGAY_CNI_STATUS").is_some_and(|value| value == "true"),
            ipv4: true,
            ipv6: false,
        })
    }

    /// The text of the file.
    ///
    /// # Errors
    /// When the template is not valid JSON after replacement.
    pub(crate) fn render(&self) -> anyhow::Result<String> {
        let document = match &self.template {
            None => self.built_in(),
            Some(template) => {
                let text = self.replace(template);
                serde_json::from_str(&text).context("CNI_NETWORK_CONFIG is not valid JSON")?
            }
        };
        let mut text = serde_json::to_string_pretty(&document)?;
        text.push('\n');
        Ok(text)
    }

    fn built_in(&self) -> Value {
        let mut versions = vec!["0.3.1", "0.4.0", "1.0.0"];
        if self.offer_status {
            versions.push("1.1.0");
        }
        // The network's name is part of address handles and of the runtime's cache: it must never change.
        json!({
            "name": "k8s-pod-network",
            "cniVersion": "1.0.0",
            "cniVersions": versions,
            "plugins": [{
                "type": "margay",
                "log_level": "info",
                "datastore_type": "kubernetes",
                "nodename": self.node,
                "mtu": self.mtu,
                "ipam": self.ipam(),
                "policy": { "type": "k8s" },
                "capabilities": {
                    "portMappings": true,
                    "bandwidth": true,
                    "io.kubernetes.cri.pod-annotations": true
                }
            }]
        })
    }

    /// IPv4 alone is what the plugin does unasked.
    fn ipam(&self) -> Value {
        match (self.ipv4, self.ipv6) {
            (true, false) | (false, false) => json!({ "type": "calico-ipam" }),
            (v4, v6) => json!({
                "type": "calico-ipam",
                "assign_ipv4": v4.to_string(),
                "assign_ipv6": v6.to_string()
            }),
        }
    }

    fn replace(&self, template: &str) -> String {
        let kubeconfig = self
            .directory
            .join("calico-kubeconfig")
            .display()
            .to_string();
        [
            ("__KUBERNETES_NODE_NAME__", self.node.as_str()),
            ("__CNI_MTU__", &self.mtu.to_string()),
            ("__KUBECONFIG_FILEPATH__", &kubeconfig),
            ("__LOG_LEVEL__", "info"),
            ("__LOG_FILE_PATH__", "/var/log/calico/cni/cni.log"),
            ("__LOG_FILE_MAX_SIZE__", "100"),
            ("__LOG_FILE_MAX_AGE__", "30"),
            ("__LOG_FILE_MAX_COUNT__", "10"),
            ("__DATASTORE_TYPE__", "kubernetes"),
            ("__CALICO_API_GROUP__", "projectcalico.org/v3"),
            ("__REQUIRE_MTU_FILE__", "false"),
        ]
        .into_iter()
        .fold(template.to_owned(), |text, (placeholder, value)| {
            text.replace(placeholder, value)
        })
    }
}

/// Writes the list if its content differs; returns whether it did. A reader sees the old or the new file, whole.
///
/// # Errors
/// When the template is bad or the directory cannot be written.
pub(crate) fn write_conflist(conflist: &Conflist) -> anyhow::Result<bool> {
    if conflist.file_name.contains('/') {
        bail!("CNI_CONF_NAME {:?} must be a file name", conflist.file_name);
    }
    let text = conflist.render()?;
    let directory = &conflist.directory;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let path = directory.join(&conflist.file_name);
    let changed = fs::read_to_string(&path).ok().as_deref() != Some(&text);
    if changed {
        replace(directory, &path, &text).with_context(|| format!("write {}", path.display()))?;
    }
    if let Some(old) = &conflist.old_file_name
        && *old != conflist.file_name
        && !old.contains('/')
    {
        let _ = fs::remove_file(directory.join(old));
    }
    if let Some(first) = first_file(directory)
        && first != conflist.file_name
    {
        tracing::warn!(
            file = first,
            ours = conflist.file_name,
            "container runtimes use the first file of {}, which is not ours; set CNI_CONF_NAME to replace it",
            directory.display()
        );
    }
    Ok(changed)
}

fn replace(directory: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = directory.join(TEMPORARY);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// The file a runtime takes: the first by name among those with the suffixes it reads.
fn first_file(directory: &Path) -> Option<String> {
    let names = fs::read_dir(directory).ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let read = [".conf", ".conflist", ".json"]
            .iter()
            .any(|suffix| name.ends_with(suffix));
        read.then_some(name)
    });
    names.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflist(directory: &Path, pairs: &[(&str, &str)]) -> Conflist {
        let mut conflist = Conflist::from_vars(
            |name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, v)| (*v).to_owned())
            },
            "node-1",
        )
        .expect("settings");
        conflist.directory = directory.to_owned();
        conflist
    }

    #[test]
    fn built_in_list_is_ours_without_portmap() {
        let directory = tempfile::tempdir().expect("directory");
        let conflist = conflist(directory.path(), &[]);
        assert!(write_conflist(&conflist).expect("written"));
        let text = fs::read_to_string(directory.path().join("10-margay.conflist")).expect("file");
        let list: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(list["cniVersion"], "1.0.0");
        assert_eq!(list["plugins"].as_array().map(Vec::len), Some(1));
        assert_eq!(list["plugins"][0]["type"], "margay");
        assert_eq!(list["plugins"][0]["nodename"], "node-1");
        let plugin = list["plugins"][0].as_object().expect("plugin").clone();
        let mut stdin = plugin;
        stdin.insert("name".into(), list["name"].clone());
        stdin.insert("cniVersion".into(), list["cniVersion"].clone());
        let stdin = serde_json::to_vec(&stdin).expect("json");
        margay_cni::config::NetworkConfig::parse(margay_cni::Command::Add, &stdin).expect("ours");
    }

    #[test]
    fn unchanged_list_is_not_written_again_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().expect("directory");
        let conflist = conflist(directory.path(), &[]);
        assert!(write_conflist(&conflist).expect("written"));
        assert!(!write_conflist(&conflist).expect("the same"));
        assert_eq!(
            fs::read_dir(directory.path()).expect("directory").count(),
            1
        );
    }

    #[test]
    fn running_calico_is_not_overwritten_unless_its_name_is_given() {
        let directory = tempfile::tempdir().expect("directory");
        let calico = directory.path().join("10-calico.conflist");
        fs::write(&calico, "{}").expect("write");
        write_conflist(&conflist(directory.path(), &[])).expect("written");
        assert_eq!(fs::read_to_string(&calico).expect("file"), "{}");
        assert_eq!(
            first_file(directory.path()).as_deref(),
            Some("10-calico.conflist")
        );
        let named = conflist(
            directory.path(),
            &[
                ("CNI_CONF_NAME", "10-calico.conflist"),
                ("CNI_OLD_CONF_NAME", "10-margay.conflist"),
            ],
        );
        write_conflist(&named).expect("written");
        assert!(
            fs::read_to_string(&calico)
                .expect("file")
                .contains("margay")
        );
        assert!(!directory.path().join("10-margay.conflist").exists());
    }

    #[test]
    fn template_is_filled_in_and_checked() {
        let directory = tempfile::tempdir().expect("directory");
        let template = r#"{"name":"x","plugins":[{"type":"calico","nodename":"__KUBERNETES_NODE_NAME__","mtu":__CNI_MTU__}]}"#;
        let filled = conflist(
            directory.path(),
            &[("CNI_NETWORK_CONFIG", template), ("CNI_MTU", "1400")],
        );
        let text = filled.render().expect("rendered");
        assert!(text.contains("\"node-1\"") && text.contains("1400"));
        let bad = conflist(directory.path(), &[("CNI_NETWORK_CONFIG", "{")]);
        assert!(write_conflist(&bad).is_err());
        assert_eq!(
            fs::read_dir(directory.path()).expect("directory").count(),
            0
        );
    }

    #[test]
    fn status_is_offered_on_request_only() {
        let directory = tempfile::tempdir().expect("directory");
        let versions = |pairs: &[(&str, &str)]| {
            conflist(directory.path(), pairs).built_in()["cniVersions"].to_string()
        };
        assert!(!versions(&[]).contains("1.1.0"));
        assert!(versions(&[("MARGAY_CNI_STATUS", "true")]).contains("1.1.0"));
    }

    #[test]
    fn reader_never_sees_half_a_list() {
        let directory = tempfile::tempdir().expect("directory");
        let mut conflist = conflist(directory.path(), &[]);
        write_conflist(&conflist).expect("written");
        let done = std::sync::atomic::AtomicBool::new(false);
        let (done, path) = (&done, directory.path());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for mtu in 1400..1500 {
                    conflist.mtu = mtu;
                    write_conflist(&conflist).expect("written");
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let name = first_file(path).expect("always one list");
                let text = fs::read_to_string(path.join(name)).expect("readable");
                serde_json::from_str::<Value>(&text).expect("whole");
            }
        });
    }
}
