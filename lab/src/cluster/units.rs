//! The processes of a lab, by unit name.

use super::{Lab, blocking};
use crate::error::{Error, Kind, Result, Tried};
use crate::names::netns_path;
use crate::namespaces::{Placement, in_netns};
use crate::process::{Daemon, Pid, listener, tail};
use crate::programs::Programs;
use crate::state::{Node, Router, State};
use crate::tor;
use crate::underlay::{API_PORT, Families};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Directories a node has for itself: the places of a node agent.
pub(super) const NODE_PATHS: &[&str] = &[
    "/run/margay",
    "/var/run/calico",
    "/var/lib/margay",
    "/var/lib/calico",
    "/var/lib/cni",
    "/etc/cni",
    "/opt/cni",
    "/var/log/calico",
];

/// How long a router's daemon may take until its socket is there.
const ROUTER_READY: Duration = Duration::from_secs(15);

/// Log file of a unit.
pub(crate) fn log_of(state: &State, unit: &str) -> PathBuf {
    state.name.dir().join(format!("{unit}.log"))
}

/// Sockets of the API server: one on the host's loopback device, the others on the fabric.
pub(super) fn api_sockets(state: &State, port: Option<u16>) -> Result<(Vec<OwnedFd>, u16)> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    let host = std::net::TcpListener::bind(wanted).map_err(|e| {
        Error::new(format!("cannot listen on {wanted}"), e)
            .kind(Kind::Preflight)
            .remedy(
                "choose another port with --api-port, or leave the option out to get a free one",
            )
    })?;
    let port = host
        .local_addr()
        .tried(|| "cannot read the API server's port".to_owned())?
        .port();
    let mut sockets: Vec<OwnedFd> = vec![host.into()];
    for ip in state.shape.families.fabric() {
        let address = SocketAddr::new(ip, API_PORT);
        let opened = in_netns(&netns_path(&state.fabric), move || listener(address));
        sockets.push(
            opened
                .and_then(|r| r)
                .tried(|| format!("cannot listen on {address} in the fabric"))?,
        );
    }
    Ok((sockets, port))
}

/// `margay apiserver`.
pub(super) fn apiserver(state: &State, programs: &Programs, sockets: Vec<OwnedFd>) -> Daemon {
    let data = data_dir(state);
    let mut args: Vec<String> = [
        "apiserver",
        "--data-dir",
        &data.display().to_string(),
        "--advertise-url",
        &state.api_url,
    ]
    .map(str::to_owned)
    .into();
    for ip in state.shape.families.fabric() {
        args.extend(["--san".to_owned(), ip.to_string()]);
    }
    Daemon {
        program: programs.margay.clone(),
        args: args.into_iter().map(OsString::from).collect(),
        into: Placement {
            sockets,
            detach: true,
            ..Placement::default()
        },
        log: log_of(state, "apiserver"),
        ..Daemon::default()
    }
}

/// Folder of the API server's store and certificates.
pub(super) fn data_dir(state: &State) -> PathBuf {
    state.name.dir().join("apiserver")
}

/// Issues a client certificate and writes it as a kubeconfig for use inside the lab's fabric.
pub(super) fn issue_kubeconfig(
    state: &State,
    programs: &Programs,
    user: &str,
    group: &str,
    out: &Path,
) -> Result<()> {
    let mut command = Command::new(&programs.margay);
    command
        .args(["apiserver", "kubeconfig", "--data-dir"])
        .arg(data_dir(state));
    command
        .args([
            "--user",
            user,
            "--group",
            group,
            "--server",
            &state.fabric_url,
            "--out",
        ])
        .arg(out);
    let what = || format!("cannot issue a kubeconfig for {user}");
    let output = command.output().tried(what)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(Error::new(
            what(),
            String::from_utf8_lossy(&output.stderr).trim(),
        ))
    }
}

/// `margay controller`, in the fabric.
pub(super) fn controller(state: &State, programs: &Programs) -> Daemon {
    let kubeconfig = state.name.dir().join("controller.kubeconfig");
    Daemon {
        program: programs.margay.clone(),
        args: vec!["controller".into()],
        env: vec![("KUBECONFIG".into(), kubeconfig.display().to_string())],
        into: Placement {
            netns: Some(netns_path(&state.fabric)),
            detach: true,
            ..Placement::default()
        },
        log: log_of(state, "controller"),
    }
}

/// `margay node`, with the environment a DaemonSet would give it.
pub(super) fn agent(
    state: &State,
    programs: &Programs,
    node: &Node,
    settings: &AgentSettings,
) -> Daemon {
    let families = state.shape.families;
    let mut env = BTreeMap::from([
        ("NODENAME", node.name.clone()),
        (
            "KUBECONFIG",
            node.folder.join("kubeconfig").display().to_string(),
        ),
        (
            "IP_AUTODETECTION_METHOD",
            "kubernetes-internal-ip".to_owned(),
        ),
        (
            "IP6_AUTODETECTION_METHOD",
            "kubernetes-internal-ip".to_owned(),
        ),
        ("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT".to_owned()),
        ("CLUSTER_TYPE", "margay,lab".to_owned()),
        ("IP", source(families.v4())),
        ("IP6", source(families.v6())),
    ]);
    if settings.default_pools {
        let v4 = if families.v4() { V4_POOL } else { "none" };
        env.insert("CALICO_IPV4POOL_CIDR", v4.to_owned());
        env.insert("CALICO_IPV4POOL_IPIP", "Never".to_owned());
        env.insert(
            "CALICO_IPV4POOL_NAT_OUTGOING",
            settings.nat_outgoing.to_string(),
        );
        if families.v6() {
            env.insert("CALICO_IPV6POOL_CIDR", V6_POOL.to_owned());
        }
    } else {
        env.insert("NO_DEFAULT_POOLS", "true".to_owned());
    }
    if families == Families::V6 {
        // Without an IPv4 address there is nothing to take the BGP identifier from.
        env.insert("CALICO_ROUTER_ID", "hash".to_owned());
    }
    Daemon {
        program: programs.margay.clone(),
        args: vec!["node".into()],
        env: env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        into: inside(&node.netns, &node.mount_namespace),
        log: log_of(state, &node.name),
    }
}

/// IPv4 pool of a lab without `--pools`.
pub(super) const V4_POOL: &str = "10.88.0.0/16";
/// IPv6 pool of a lab without `--pools`.
pub(super) const V6_POOL: &str = "fd00:88::/48";

/// What the agents are told about pools; kept with the lab so that a restarted agent is told the same.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) struct AgentSettings {
    pub(super) default_pools: bool,
    pub(super) nat_outgoing: bool,
}

impl AgentSettings {
    pub(super) fn save(self, state: &State) -> Result<()> {
        let file = state.name.dir().join("agent-settings.json");
        let what = || format!("cannot write {}", file.display());
        std::fs::write(&file, serde_json::to_vec(&self).tried(what)?).tried(what)
    }

    pub(super) fn load(state: &State) -> Result<Self> {
        let file = state.name.dir().join("agent-settings.json");
        let what = || format!("cannot read {}", file.display());
        serde_json::from_slice(&std::fs::read(&file).tried(what)?).tried(what)
    }
}

fn source(on: bool) -> String {
    if on {
        "autodetect".to_owned()
    } else {
        "none".to_owned()
    }
}

fn inside(netns: &str, mount_namespace: &Path) -> Placement {
    Placement {
        netns: Some(netns_path(netns)),
        mntns: Some(mount_namespace.to_owned()),
        sockets: Vec::new(),
        detach: true,
    }
}

/// Names of the CNI executable, as `margay install-cni` installs it.
const CNI_NAMES: [&str; 4] = ["margay", "margay-ipam", "calico", "calico-ipam"];

/// Puts the CNI executable where a runtime looks for it; as links, because a copy per node would only cost memory.
pub(super) fn install_cni(programs: &Programs, node: &Node) -> Result<()> {
    let bin = node.folder.join("opt/cni/bin");
    let what = || format!("cannot install the CNI executable in {}", bin.display());
    std::fs::create_dir_all(&bin).tried(what)?;
    CNI_NAMES
        .iter()
        .try_for_each(|name| std::os::unix::fs::symlink(&programs.cni, bin.join(name)))
        .tried(what)
}

/// Starts the router's processes, one after the other is ready.
pub(super) async fn start_router(
    state: &State,
    programs: &Programs,
    router: &Router,
) -> Result<BTreeMap<String, Pid>> {
    let mut started = BTreeMap::new();
    for daemon in tor::daemons(router, &state.nodes, programs)? {
        let log = log_of(state, &daemon.unit);
        let spec = Daemon {
            program: daemon.program,
            args: daemon.args,
            env: Vec::new(),
            into: inside(&router.netns, &router.mount_namespace),
            log: log.clone(),
        };
        let pid = spec.start(state.name.as_str())?;
        started.insert(daemon.unit.clone(), pid);
        if let Some(socket) = daemon.ready {
            until(ROUTER_READY, &daemon.unit, &log, pid, || socket.exists()).await?;
        }
    }
    for words in tor::afterwards(router) {
        let (netns, mntns) = (netns_path(&router.netns), router.mount_namespace.clone());
        let log = log_of(state, &router.name);
        let pid = started.get(&router.name).copied();
        let pid = pid
            .ok_or_else(|| Error::new(format!("router {}", router.name), "has no main process"))?;
        until(ROUTER_READY, &words.join(" "), &log, pid, || {
            super::exec::run_quietly(&words, &netns, &mntns).is_ok_and(|success| success)
        })
        .await?;
    }
    Ok(started)
}

/// Looks again and again until `done`; a process that ends meanwhile is reported with the end of its log.
pub(super) async fn until(
    limit: Duration,
    what: &str,
    log: &Path,
    pid: Pid,
    mut done: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        if done() {
            return Ok(());
        }
        if !pid.is_alive() {
            return Err(Error::new(
                format!("{what} ended"),
                format!("its log says: {}", tail(log, 5)),
            ));
        }
        if Instant::now() >= deadline {
            let why = format!(
                "not ready after {} s; its log says: {}",
                limit.as_secs(),
                tail(log, 5)
            );
            return Err(Error::new(what, why).kind(Kind::Timeout));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Lab {
    /// The process of a unit: `apiserver`, `controller`, a node's agent by node name, `tor1`.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn process(&self, unit: &str) -> Result<Pid> {
        let state = self.state()?;
        state.processes.get(unit).copied().ok_or_else(|| {
            let known: Vec<&str> = state.processes.keys().map(String::as_str).collect();
            Error::new(
                format!("process {unit}"),
                format!("lab {} has {}", self.name, known.join(", ")),
            )
            .kind(Kind::NotFound)
        })
    }

    /// Log file of a unit.
    pub fn log(&self, unit: &str) -> PathBuf {
        self.name.dir().join(format!("{unit}.log"))
    }

    /// Kills a unit without warning (SIGKILL) and waits until it has gone.
    ///
    /// # Errors
    /// There is no such unit, or the kernel does not end it.
    pub async fn kill(&self, unit: &str) -> Result<()> {
        let pid = self.process(unit)?;
        let unit = unit.to_owned();
        blocking(move || {
            if pid.kill() {
                Ok(())
            } else {
                Err(Error::new(format!("cannot kill {unit}"), "it still runs"))
            }
        })
        .await
    }

    /// Asks a unit to stop (SIGTERM) and waits until it has gone.
    ///
    /// # Errors
    /// There is no such unit, or it does not end within 20 s.
    pub async fn terminate(&self, unit: &str) -> Result<()> {
        let pid = self.process(unit)?;
        let unit = unit.to_owned();
        blocking(move || {
            pid.signal(nix::sys::signal::Signal::SIGTERM);
            let limit = Duration::from_secs(20);
            if pid.wait_gone(limit) {
                Ok(())
            } else {
                Err(Error::new(
                    format!("cannot stop {unit}"),
                    "it did not end 20 s after SIGTERM",
                )
                .kind(Kind::Timeout))
            }
        })
        .await
    }

    /// Starts a unit again whose process has ended. A running one is left alone.
    ///
    /// # Errors
    /// There is no such unit, or it cannot be started.
    pub async fn start(&self, unit: &str) -> Result<()> {
        if self.process(unit)?.is_alive() {
            return Ok(());
        }
        let state = self.state()?;
        let lab = self.name.as_str();
        let mut started = BTreeMap::new();
        if let Some(router) = state.tor.as_ref().filter(|t| unit.starts_with(&t.name)) {
            // The daemons of one router belong together.
            for (_, pid) in state
                .processes
                .iter()
                .filter(|(name, _)| name.starts_with(&router.name))
            {
                pid.kill();
            }
            started = start_router(&state, &self.programs, router).await?;
        } else {
            let daemon = match unit {
                "apiserver" => {
                    let port = state
                        .api_url
                        .rsplit(':')
                        .next()
                        .and_then(|p| p.parse().ok());
                    let (sockets, _) = api_sockets(&state, port)?;
                    apiserver(&state, &self.programs, sockets)
                }
                "controller" => controller(&state, &self.programs),
                node => agent(
                    &state,
                    &self.programs,
                    state.node(node)?,
                    &AgentSettings::load(&state)?,
                ),
            };
            started.insert(unit.to_owned(), daemon.start(lab)?);
        }
        State::update(&self.name, |s| s.processes.extend(started))
    }

    /// Kills the agent of a node (SIGKILL); nodes count from 1.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn kill_agent(&self, node: u8) -> Result<()> {
        self.kill(&format!("n{node}")).await
    }

    /// Starts the agent of a node again.
    ///
    /// # Errors
    /// There is no such node, or the agent cannot be started.
    pub async fn start_agent(&self, node: u8) -> Result<()> {
        self.start(&format!("n{node}")).await
    }

    /// Underlay addresses of a member, for tests that look at packets.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node_addresses(&self, node: &str) -> Result<Vec<IpAddr>> {
        Ok(self.state()?.node(node)?.addresses.clone())
    }
}
