//! What is known about a lab, on file: `/run/margay-lab/LAB/lab.json`.

use crate::error::{Error, Kind, Result, Tried};
use crate::names::{LabName, ROOT};
use crate::process::Pid;
use crate::underlay::Families;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Version of the file's layout.
const SCHEMA: u32 = 1;

/// Which program plays the top-of-rack router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tor {
    /// `margay bgp`.
    Margay,
    /// BIRD 2.
    Bird,
    /// FRR: zebra and bgpd.
    Frr,
    /// GoBGP, with a script that writes its routes into the kernel.
    Gobgp,
}

impl Tor {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Margay => "margay",
            Self::Bird => "bird",
            Self::Frr => "frr",
            Self::Gobgp => "gobgp",
        }
    }
}

/// What a lab consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// Number of nodes.
    pub nodes: u8,
    /// The top-of-rack router, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tor: Option<Tor>,
    /// Address families.
    pub families: Families,
    /// Pods started on each node.
    pub pods_per_node: u16,
}

impl Shape {
    /// In words: `3 nodes, 4 pods each, IPv4, ToR bird`.
    pub fn words(&self) -> String {
        let tor = self
            .tor
            .map_or(String::new(), |t| format!(", ToR {}", t.as_str()));
        let (nodes, pods) = (self.nodes, self.pods_per_node);
        format!(
            "{nodes} nodes, {pods} pods each, {}{tor}",
            self.families.words()
        )
    }
}

/// How far the lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Being made by the process named in `owner`.
    Starting,
    /// Complete.
    Running,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Kubernetes node name.
    pub name: String,
    /// Network namespace.
    pub netns: String,
    /// Folder with the node's private directories as the host sees them.
    pub folder: PathBuf,
    /// Mount namespace file.
    pub mount_namespace: PathBuf,
    /// The agent's admin socket as the host sees it.
    pub admin_socket: PathBuf,
    /// Addresses on the underlay.
    pub addresses: Vec<IpAddr>,
}

/// The top-of-rack router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    /// Its name, `tor1`.
    pub name: String,
    /// Which program.
    pub kind: Tor,
    /// Network namespace.
    pub netns: String,
    /// Folder with configuration, sockets and logs.
    pub folder: PathBuf,
    /// Mount namespace file.
    pub mount_namespace: PathBuf,
    /// Addresses on the underlay.
    pub addresses: Vec<IpAddr>,
    /// Addresses of the network behind it.
    pub behind: Vec<IpAddr>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Pod name.
    pub name: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Node it runs on.
    pub node: String,
    /// Network namespace.
    pub netns: String,
    /// Sandbox id given to the CNI plugin.
    pub container_id: String,
    /// Addresses the CNI plugin returned.
    pub addresses: Vec<IpAddr>,
}

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    schema: u32,
    /// Name of the lab.
    pub name: LabName,
    /// How far it has come.
    pub phase: Phase,
    /// The process that made it.
    pub owner: Pid,
    /// Whether the lab ends with its owner: labs of tests do.
    pub bound: bool,
    /// Whether everybody has reached everybody once.
    #[serde(default)]
    pub settled: bool,
    /// What it consists of.
    pub shape: Shape,
    /// The API server as the host reaches it.
    pub api_url: String,
    /// The API server as the nodes reach it.
    pub fabric_url: String,
    /// Kubeconfig of the administrator, for the host.
    pub kubeconfig: PathBuf,
    /// The fabric's network namespace.
    pub fabric: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The router, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tor: Option<Router>,
    /// Running pods.
    pub pods: Vec<Pod>,
    /// Processes by unit: `apiserver`, `controller`, node names, `tor1`, `tor1-zebra`, `tor1-routes`.
    pub processes: BTreeMap<String, Pid>,
}

impl State {
    /// An empty lab that this process is making.
    pub(crate) fn new(name: LabName, shape: Shape, bound: bool) -> Result<Self> {
        let owner =
            Pid::own().ok_or_else(|| Error::new("cannot read /proc", "own entry missing"))?;
        let kubeconfig = name.dir().join("kubeconfig");
        let fabric = name.netns("fabric");
        Ok(Self {
            schema: SCHEMA,
            name,
            phase: Phase::Starting,
            owner,
            bound,
            settled: false,
            shape,
            api_url: String::new(),
            fabric_url: String::new(),
            kubeconfig,
            fabric,
            nodes: Vec::new(),
            tor: None,
            pods: Vec::new(),
            processes: BTreeMap::new(),
        })
    }

    /// Reads a lab's file; `None` if there is none.
    ///
    /// # Errors
    /// It exists and cannot be understood.
    pub fn load(lab: &LabName) -> Result<Option<Self>> {
        let file = file_of(lab);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).tried(|| format!("cannot read {}", file.display())),
        };
        let state: Self = serde_json::from_slice(&text).map_err(|e| broken(&file, e))?;
        if state.schema > SCHEMA {
            return Err(broken(
                &file,
                format!("schema {} is newer than this program", state.schema),
            ));
        }
        Ok(Some(state))
    }

    /// Reads a lab's file.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub fn require(lab: &LabName) -> Result<Self> {
        Self::load(lab)?.ok_or_else(|| {
            Error::new(format!("lab {lab}"), "there is no such lab")
                .kind(Kind::NotFound)
                .remedy(format!("margayctl lab ls, or margayctl lab up {lab}"))
        })
    }

    /// Replaces the file.
    pub(crate) fn save(&self) -> Result<()> {
        let file = file_of(&self.name);
        let fresh = file.with_extension("new");
        let what = || format!("cannot write {}", file.display());
        let text = serde_json::to_vec_pretty(self).tried(what)?;
        fs::write(&fresh, text).tried(what)?;
        fs::rename(&fresh, &file).tried(what)
    }

    /// Changes the file while no other process does.
    pub(crate) fn update<T>(lab: &LabName, change: impl FnOnce(&mut Self) -> T) -> Result<T> {
        let _lock = lock(&lab.dir().join(".lock"))?;
        let mut state = Self::require(lab)?;
        let result = change(&mut state);
        state.save()?;
        Ok(result)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|n| n.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|n| n.name.as_str()).collect();
            Error::new(
                format!("node {name}"),
                format!("lab {} has {}", self.name, known.join(", ")),
            )
            .kind(Kind::NotFound)
        })
    }

    /// The pod of this name.
    pub fn pod(&self, name: &str) -> Result<&Pod> {
        let name = name.strip_prefix("default/").unwrap_or(name);
        self.pods.iter().find(|p| p.name == name).ok_or_else(|| {
            Error::new(
                format!("pod {name}"),
                format!("lab {} has no such pod", self.name),
            )
            .kind(Kind::NotFound)
            .remedy(format!("margayctl lab status {}", self.name))
        })
    }

    /// Names of the units whose process has gone.
    pub fn dead_units(&self) -> Vec<String> {
        self.processes
            .iter()
            .filter(|(_, p)| !p.is_alive())
            .map(|(unit, _)| unit.clone())
            .collect()
    }
}

fn file_of(lab: &LabName) -> PathBuf {
    lab.dir().join("lab.json")
}

fn broken(file: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(format!("cannot understand {}", file.display()), why).kind(Kind::Leftover)
}

/// Waits for an exclusive lock on a file, which is made if missing.
fn lock(file: &Path) -> Result<Flock<File>> {
    let what = || format!("cannot lock {}", file.display());
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .tried(what)?;
    Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, e)| Error::new(what(), e))
}

/// Waits for the lock under which labs appear and disappear. Makes the folder of all labs.
pub(crate) fn lock_all() -> Result<Flock<File>> {
    let file = Path::new(ROOT).join(".lock");
    let what = || format!("cannot lock {}", file.display());
    loop {
        fs::create_dir_all(ROOT).tried(what)?;
        let locked = match lock(&file) {
            Ok(locked) => locked,
            // The last lab went between the two steps and took the folder with it.
            Err(_) if !Path::new(ROOT).exists() => continue,
            Err(e) => return Err(e),
        };
        // Whoever removes the file holds its lock: a waiter must not go on with the removed one.
        let current = fs::metadata(&file).map(|m| m.ino()).ok();
        if current == Some(locked.metadata().tried(what)?.ino()) {
            return Ok(locked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_survives_a_round_trip_and_keeps_camel_case() {
        let shape = Shape {
            nodes: 3,
            tor: Some(Tor::Bird),
            families: Families::Dual,
            pods_per_node: 2,
        };
        let state = State::new(LabName::new("x").unwrap(), shape.clone(), true).unwrap();
        let text = serde_json::to_string(&state).unwrap();
        assert!(
            text.contains("\"podsPerNode\":2") && text.contains("\"tor\":\"bird\""),
            "{text}"
        );
        let again: State = serde_json::from_str(&text).unwrap();
        assert_eq!(again.shape, shape);
        assert!(again.owner.is_alive());
    }
}
