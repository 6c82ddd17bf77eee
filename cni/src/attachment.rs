//! Attachment records: what ADD made, on disk, so that DEL, CHECK and a restarted agent know it.
//!
//! One JSON file per attachment, `<container id>@<interface>.json`, mode 0600. A file is replaced by rename, so a crash
//! leaves the old or the new record; fsync is the writer's choice ([`Directory::save`] returns the open file).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::PodArgs;
use crate::config::{Bandwidth, PortMapping};
use crate::file;
use crate::names;
use crate::result::AddResult;

/// Layout of the records written here. A record with a larger number is left alone.
pub const SCHEMA: u32 = 1;

/// Default place of all CNI state files.
pub const STATE_DIRECTORY: &str = "/var/lib/margay/cni";

/// What identifies an attachment (CNI specification, section "Attachment").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentKey {
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl AttachmentKey {
    /// A key.
    pub fn new(container_id: impl Into<String>, ifname: impl Into<String>) -> Self {
        AttachmentKey {
            container_id: container_id.into(),
            ifname: ifname.into(),
        }
    }

    /// File name below a state directory. Neither part may contain `/`; a container ID cannot contain `@` either, so the
    /// name is unambiguous.
    pub fn file_name(&self) -> String {
        format!("{}@{}.json", self.container_id, self.ifname)
    }
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.container_id, self.ifname)
    }
}

/// How far an attachment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// ADD has an address and is wiring.
    Preparing,
    /// ADD has answered, or is about to.
    Ready,
    /// Something of it is still to be removed.
    Deleting,
}

/// The pod an attachment belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the API object; empty when the runtime did not say and the API was not asked.
    #[serde(default)]
    pub uid: String,
}

/// Who assigned the addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamRef {
    /// IPAM type of the configuration.
    #[serde(rename = "type")]
    pub kind: String,
    /// Handle the addresses are held under; empty when they are not held in IPAM.
    pub handle: String,
}

/// One attachment record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Layout, see [`SCHEMA`].
    pub schema: u32,
    /// How far it has come.
    pub state: State,
    /// Grows with every attachment of this node; later claims to a host port win.
    pub seq: u64,
    /// `/proc/sys/kernel/random/boot_id` when it was made; in another boot nothing of it is in the kernel.
    pub boot_id: String,
    /// Network name of the configuration.
    pub network: String,
    /// Container and interface.
    #[serde(flatten)]
    pub key: AttachmentKey,
    /// Namespace path as the runtime gave it.
    pub netns_path: String,
    /// Device number of the namespace file.
    #[serde(default)]
    pub netns_dev: u64,
    /// Inode of the namespace file.
    #[serde(default)]
    pub netns_ino: u64,
    /// `SO_NETNS_COOKIE`, unique within a boot; 0 when the kernel has none.
    #[serde(default)]
    pub netns_cookie: u64,
    /// The pod; `None` for containers without Kubernetes.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// Host-side interface.
    pub host_if: String,
    /// Its index; 0 while it does not exist.
    #[serde(default)]
    pub host_ifindex: u32,
    /// Its MAC.
    #[serde(default)]
    pub host_mac: String,
    /// Index of the container-side interface inside the container; 0 while it does not exist.
    #[serde(default)]
    pub pod_ifindex: u32,
    /// MAC of the container-side interface; on the way there, the requested one.
    #[serde(default)]
    pub pod_mac: String,
    /// MTU of both ends; 0 for the kernel's default.
    #[serde(default)]
    pub mtu: u32,
    /// Queues of both ends.
    #[serde(default = "one")]
    pub num_queues: u32,
    /// The pod may forward packets.
    #[serde(default)]
    pub allow_ip_forwarding: bool,
    /// Addresses, /32 and /128.
    #[serde(default)]
    pub ips: Vec<IpNet>,
    /// Destinations routed to the host inside the pod.
    #[serde(default)]
    pub routes: Vec<IpNet>,
    /// Who assigned the addresses.
    #[serde(default)]
    pub ipam: IpamRef,
    /// Host ports that lead to the pod.
    #[serde(default)]
    pub host_ports: Vec<PortMapping>,
    /// Limits the runtime asked for.
    #[serde(default)]
    pub bandwidth: Option<Bandwidth>,
    /// Source prefixes the pod may use beside its addresses.
    #[serde(default)]
    pub allowed_source_prefixes: Vec<IpNet>,
    /// External addresses translated to the pod.
    #[serde(default)]
    pub floating_ips: Vec<std::net::IpAddr>,
    /// A newer sandbox of the same pod took the interface name over.
    #[serde(default)]
    pub superseded: bool,
    /// The pod's annotations carry these addresses.
    #[serde(default)]
    pub annotations_patched: bool,
    /// Answer to ADD, in the layout of 1.1.0.
    #[serde(default)]
    pub result: Option<AddResult>,
    /// Seconds since 1970 when ADD ran.
    #[serde(default)]
    pub created: u64,
    /// Fields a later version wrote.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

fn one() -> u32 {
    1
}

impl Attachment {
    /// The pod as `CNI_ARGS` would name it.
    pub fn pod_args(&self) -> PodArgs {
        self.pod
            .as_ref()
            .map_or_else(PodArgs::default, |pod| PodArgs {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                ..PodArgs::default()
            })
    }

    /// The alias its host interface carries.
    pub fn alias(&self) -> String {
        names::alias(&self.key.container_id, &self.key.ifname)
    }

    /// What serialises calls: the pod, or the container when there is no pod.
    pub fn lock_name(&self) -> String {
        lock_name(&self.pod_args(), &self.key.container_id)
    }
}

/// What serialises calls for a pod or a container without one.
pub fn lock_name(pod: &PodArgs, container_id: &str) -> String {
    if pod.is_pod() {
        format!("{}/{}", pod.namespace, pod.name)
    } else {
        container_id.to_owned()
    }
}

/// A directory of records.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The records below a state directory; creates it (mode 0700).
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn open(state: &Path) -> io::Result<Directory> {
        use std::os::unix::fs::DirBuilderExt;
        let path = state.join("attachments");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Directory { path })
    }

    /// Where the records are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a record. It is visible at once and durable after fsync of the returned file and [`Directory::sync`].
    ///
    /// # Errors
    /// Those of open(2), write(2) and rename(2).
    pub fn save(&self, attachment: &Attachment) -> io::Result<File> {
        let content = serde_json::to_vec(attachment)?;
        file::replace(&self.path.join(attachment.key.file_name()), &content)
    }

    /// Removes a record; it not being there is fine.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self, key: &AttachmentKey) -> io::Result<()> {
        file::remove(&self.path.join(key.file_name()))
    }

    /// Reads one record; `None` if there is none that can be used.
    pub fn load(&self, key: &AttachmentKey) -> Option<Attachment> {
        parse(&fs::read(self.path.join(key.file_name())).ok()?)
            .ok()
            .flatten()
    }

    /// Reads all records. Unreadable ones are moved aside (`.bad`) and reported; their addresses are for IPAM's garbage
    /// collection to find. Records of a later layout are left alone.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn load_all(&self) -> io::Result<(Vec<Attachment>, Vec<String>)> {
        let (mut records, mut problems) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match fs::read(&path).and_then(|content| parse(&content)) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {
                    problems.push(format!("{}: of a later version, ignored", path.display()))
                }
                Err(error) => {
                    problems.push(format!("{}: {error}, moved aside", path.display()));
                    let _ = fs::rename(&path, path.with_extension("bad"));
                }
            }
        }
        records.sort_by_key(|record| record.seq);
        Ok((records, problems))
    }

    /// Makes renames and removals so far durable.
    ///
    /// # Errors
    /// Those of fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        file::sync_directory(&self.path)
    }
}

fn parse(content: &[u8]) -> io::Result<Option<Attachment>> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let head: Head = serde_json::from_slice(content)?;
    if head.schema > SCHEMA {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(content)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A complete record of pod `default/nginx` in container `c1`.
    pub(crate) fn sample(container_id: &str) -> Attachment {
        Attachment {
            schema: SCHEMA,
            state: State::Ready,
            seq: 7,
            boot_id: "b1".into(),
            network: "k8s-pod-network".into(),
            key: AttachmentKey::new(container_id, "eth0"),
            netns_path: "/run/netns/p1".into(),
            netns_dev: 4,
            netns_ino: 4_026_532_000,
            netns_cookie: 99,
            pod: Some(PodRef {
                namespace: "default".into(),
                name: "nginx".into(),
                uid: "u1".into(),
            }),
            host_if: "calic440f455693".into(),
            host_ifindex: 12,
            host_mac: "ee:ee:ee:ee:ee:ee".into(),
            pod_ifindex: 2,
            pod_mac: "02:00:00:00:00:01".into(),
            mtu: 1450,
            num_queues: 1,
            allow_ip_forwarding: false,
            ips: vec!["10.65.0.2/32".parse().expect("prefix")],
            routes: vec!["0.0.0.0/0".parse().expect("prefix")],
            ipam: IpamRef {
                kind: "calico-ipam".into(),
                handle: format!("k8s-pod-network.{container_id}"),
            },
            host_ports: Vec::new(),
            bandwidth: None,
            allowed_source_prefixes: Vec::new(),
            floating_ips: Vec::new(),
            superseded: false,
            annotations_patched: false,
            result: Some(AddResult::default()),
            created: 1_700_000_000,
            unknown: Map::new(),
        }
    }

    #[test]
    fn records_keep_fields_of_later_versions() {
        let state = tempfile::tempdir().expect("directory");
        let directory = Directory::open(state.path()).expect("open");
        let mut record = sample("c1");
        record.unknown.insert("future".into(), 1.into());
        directory.save(&record).expect("save");
        assert_eq!(directory.load(&record.key), Some(record.clone()));
        let (records, problems) = directory.load_all().expect("load");
        assert_eq!((records, problems.len()), (vec![record.clone()], 0));
        directory.remove(&record.key).expect("remove");
        directory.remove(&record.key).expect("remove twice");
        assert_eq!(directory.load(&record.key), None);
    }

    #[test]
    fn records_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().expect("directory");
        let directory = Directory::open(state.path()).expect("open");
        let file = directory.save(&sample("c1")).expect("save");
        assert_eq!(
            file.metadata().expect("metadata").permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn torn_record_is_moved_aside_and_a_newer_one_is_kept() {
        let state = tempfile::tempdir().expect("directory");
        let directory = Directory::open(state.path()).expect("open");
        fs::write(
            directory.path().join("c1@eth0.json"),
            b"{\"schema\":1,\"sta",
        )
        .expect("write");
        fs::write(directory.path().join("c2@eth0.json"), b"{\"schema\":99}").expect("write");
        fs::write(directory.path().join(".c3@eth0.json.1.tmp"), b"").expect("write");
        let (records, problems) = directory.load_all().expect("load");
        assert!(records.is_empty());
        assert_eq!(problems.len(), 2);
        assert!(directory.path().join("c1@eth0.bad").exists());
        assert!(directory.path().join("c2@eth0.json").exists());
    }
}
