//! One host with an agent's CNI server, and pods.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use margay_felix::kernel::Netns;
use margay_felix::kernel::rtnl::{AddressFlags, LinkChange, Rtnl};
use margay_felix::{Dataplane, DataplaneConfig, Source};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::super::CniServer;
use super::super::deps::{Addresses, CniDeps, CniPaths, NodeState};
use super::fakes::{FakeAddresses, FakePods};
use margay_cni::attachment::{Attachment, AttachmentKey, Directory};
use margay_cni::plan::PodFacts;

/// How long anything may take that should happen soon.
pub(super) const SOON: Duration = Duration::from_secs(5);

pub(super) struct Lab {
    pub(super) host: Netns,
    pub(super) addresses: Arc<FakeAddresses>,
    pub(super) pods: Arc<FakePods>,
    pub(super) state: watch::Sender<NodeState>,
    pub(super) directory: TempDir,
    dataplane: Dataplane,
    used: Arc<dyn Addresses>,
    server: Option<CniServer>,
}

/// What the executable did.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) exit: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error's code.
    pub(super) fn code(&self) -> u64 {
        assert_eq!(self.exit, 1, "{self:?}");
        self.json()["code"]
            .as_u64()
            .unwrap_or_else(|| panic!("no code: {self:?}"))
    }

    /// Nothing printed, exit 0.
    #[track_caller]
    pub(super) fn silent(&self) {
        assert_eq!(
            (self.exit, self.stdout.as_str(), self.stderr.as_str()),
            (0, "", ""),
            "{self:?}"
        );
    }
}

/// One call of the executable, to be changed before it is run.
#[derive(Clone)]
pub(super) struct Cni {
    pub(super) vars: Vec<(String, String)>,
    pub(super) stdin: String,
    socket_wait: u64,
    directory: PathBuf,
    uid: Option<u32>,
}

impl Cni {
    pub(super) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn pod(self, name: &str) -> Self {
        let uid = format!("uid-{name}");
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}"
        );
        self.var("CNI_ARGS", &args)
    }

    pub(super) fn set(mut self, key: &str, value: Value) -> Self {
        let mut config: Value = serde_json::from_str(&self.stdin).expect("json");
        config[key] = value;
        self.stdin = config.to_string();
        self
    }

    pub(super) fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }

    pub(super) fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    pub(super) fn wait_ms(mut self, wait: u64) -> Self {
        self.socket_wait = wait;
        self
    }

    pub(super) fn spawn(&self) -> Child {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(executable());
        command
            .env_clear()
            .envs(self.vars.iter().cloned())
            .env("MARGAY_CNI_SOCKET", self.directory.join("cni.sock"))
            .env("MARGAY_CNI_STATE", self.directory.join("state"))
            .env("MARGAY_STATUS_FILE", self.directory.join("status"))
            .env("MARGAY_CNI_WAIT_MS", self.socket_wait.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(uid) = self.uid {
            command.uid(uid);
        }
        let mut child = command.spawn().expect("start the executable");
        let mut stdin = child.stdin.take().expect("piped");
        // It may exit without reading.
        let _ = stdin.write_all(self.stdin.as_bytes());
        child
    }

    pub(super) async fn run(&self) -> Answer {
        let call = self.clone();
        tokio::task::spawn_blocking(move || {
            let output = call.spawn().wait_with_output().expect("wait");
            Answer {
                exit: output.status.code().unwrap_or(-1),
                stdout: String::from_utf8(output.stdout)
                    .expect("text")
                    .trim_end()
                    .to_owned(),
                stderr: String::from_utf8(output.stderr).expect("text"),
            }
        })
        .await
        .expect("task")
    }
}

impl Lab {
    pub(super) async fn new() -> Lab {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test makes network namespaces and needs root"
        );
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .try_init();
        let host = Netns::create().expect("a host namespace");
        let loopback = host.clone();
        tokio::task::spawn_blocking(move || {
            let mut rtnl = Rtnl::open_in(&loopback).expect("netlink");
            let up = LinkChange {
                up: Some(true),
                ..LinkChange::default()
            };
            rtnl.change_link(1, &up).expect("loopback up");
            let address = "192.0.2.1/32".parse().expect("prefix");
            rtnl.add_address(1, address, AddressFlags::default())
                .expect("an address");
        })
        .await
        .expect("task");
        let dataplane = start_dataplane(&host).await;
        let (state, _) = watch::channel(NodeState {
            mtu: Some(1450),
            has_v4_pool: true,
            ..NodeState::default()
        });
        let addresses: Arc<FakeAddresses> = Arc::default();
        let mut lab = Lab {
            host,
            used: Arc::clone(&addresses) as _,
            addresses,
            pods: Arc::default(),
            state,
            directory: tempfile::tempdir().expect("directory"),
            dataplane,
            server: None,
        };
        lab.start().await;
        lab
    }

    pub(super) async fn start(&mut self) {
        self.start_in_boot("boot-1").await;
    }

    pub(super) async fn start_in_boot(&mut self, boot_id: &str) {
        let deps = CniDeps {
            node: "node-1".to_owned(),
            netns: self.host.clone(),
            interface_prefix: "cali".to_owned(),
            boot_id: boot_id.to_owned(),
            dataplane: self.dataplane.clone(),
            addresses: Arc::clone(&self.used),
            pods: Arc::clone(&self.pods) as _,
            state: self.state.subscribe(),
            paths: CniPaths {
                socket: self.path("cni.sock"),
                state: self.path("state"),
                status_file: self.path("status"),
                endpoint_status: self.path("endpoint-status"),
            },
        };
        self.server = Some(CniServer::start(deps).await.expect("server"));
    }

    /// A new server with other addresses.
    pub(super) async fn use_addresses(&mut self, addresses: Arc<dyn Addresses>) {
        self.stop().await;
        self.used = addresses;
        self.start().await;
    }

    /// Stops the server as SIGTERM would.
    pub(super) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    /// A new agent: server and dataplane start anew, the kernel stays.
    pub(super) async fn restart(&mut self) {
        self.stop().await;
        self.dataplane.stop();
        self.dataplane = start_dataplane(&self.host).await;
        self.start().await;
    }

    pub(super) fn server(&self) -> &CniServer {
        self.server.as_ref().expect("running")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A pod bound to this node, known to the API.
    pub(super) fn add_pod(&self, name: &str) -> PodFacts {
        let facts = PodFacts {
            uid: format!("uid-{name}"),
            node: "node-1".to_owned(),
            ..PodFacts::default()
        };
        self.set_pod(name, facts.clone());
        facts
    }

    pub(super) fn set_pod(&self, name: &str, facts: PodFacts) {
        self.pods
            .pods
            .lock()
            .expect("lock")
            .insert(format!("default/{name}"), facts);
    }

    /// A call for pod `nginx` with the usual configuration.
    pub(super) fn cni(&self, command: &str, id: &str, netns: Option<&Netns>) -> Cni {
        let config = json!({"cniVersion":"1.0.0","name":"k8s-pod-network","type":"margay","nodename":"node-1",
            "mtu":1450,"ipam":{"type":"calico-ipam"},"policy":{"type":"k8s"}});
        let cni = Cni {
            vars: Vec::new(),
            stdin: config.to_string(),
            socket_wait: 5000,
            directory: self.directory.path().to_owned(),
            uid: None,
        };
        cni.var("CNI_COMMAND", command)
            .var("CNI_CONTAINERID", id)
            .var("CNI_IFNAME", "eth0")
            .var("CNI_PATH", "/opt/cni/bin")
            .var("CNI_NETNS", &netns.map(netns_path).unwrap_or_default())
            .pod("nginx")
    }

    /// ADD that must succeed; returns the pod's first address.
    pub(super) async fn attach(&self, id: &str, pod: &str, netns: &Netns) -> IpAddr {
        self.add_pod(pod);
        let answer = self.cni("ADD", id, Some(netns)).pod(pod).run().await;
        assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
        first_address(&answer)
    }

    pub(super) fn record(&self, id: &str) -> Option<Attachment> {
        let directory = Directory::open(&self.path("state")).expect("directory");
        directory.load(&AttachmentKey::new(id, "eth0"))
    }

    /// Names of the host's pod interfaces.
    pub(super) async fn host_interfaces(&self) -> Vec<String> {
        let host = self.host.clone();
        let links = tokio::task::spawn_blocking(move || {
            Rtnl::open_in(&host)
                .expect("netlink")
                .links()
                .expect("links")
        });
        let names = links.await.expect("task").into_iter().map(|link| link.name);
        names.filter(|name| name.starts_with("cali")).collect()
    }

    pub(super) async fn host_command(&self, words: &[&str]) -> String {
        run_in(&self.host, words).await
    }

    /// Nothing of any pod is left, or soon will not be.
    pub(super) async fn is_clean_soon(&self) {
        let deadline = Instant::now() + SOON;
        loop {
            let interfaces = self.host_interfaces().await;
            let held = self.addresses.held().clone();
            let records = std::fs::read_dir(self.path("state/attachments"))
                .expect("directory")
                .count();
            if interfaces.is_empty() && held.is_empty() && records == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{interfaces:?} {held:?} {records} records"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.dataplane.stop();
    }
}

async fn start_dataplane(host: &Netns) -> Dataplane {
    let mut config = DataplaneConfig::new("node-1", host.clone());
    config.monitor_buffer = 1 << 20;
    let dataplane = tokio::task::spawn_blocking(move || Dataplane::start(config))
        .await
        .expect("task")
        .expect("dataplane");
    // Nothing is committed before the pools are known.
    dataplane.set_pools(Vec::new());
    dataplane.in_sync(Source::Pools);
    dataplane
}

pub(super) fn first_address(answer: &Answer) -> IpAddr {
    let text = answer.json()["ips"][0]["address"]
        .as_str()
        .expect("address")
        .to_owned();
    text.split('/')
        .next()
        .expect("address")
        .parse()
        .expect("address")
}

/// A path the executable can open while this process lives.
pub(super) fn netns_path(netns: &Netns) -> String {
    format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        netns.as_fd().as_raw_fd()
    )
}

pub(super) fn new_netns() -> Netns {
    Netns::create().expect("a pod namespace")
}

/// Runs a program inside a namespace; it must succeed.
pub(super) async fn run_in(netns: &Netns, words: &[&str]) -> String {
    let path = netns_path(netns);
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    tokio::task::spawn_blocking(move || {
        let output = Command::new("nsenter")
            .arg(format!("--net={path}"))
            .args(&words)
            .output()
            .expect("nsenter");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    })
    .await
    .expect("task")
}

/// Whether a datagram from one namespace is answered by a socket bound in another.
pub(super) async fn reaches(from: &Netns, to: &Netns, address: IpAddr) -> bool {
    let (from, to) = (from.clone(), to.clone());
    tokio::task::spawn_blocking(move || {
        let server = to
            .run(move || UdpSocket::bind((address, 7007)))
            .expect("enter")
            .expect("bind");
        server
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("timeout");
        let any: IpAddr = if address.is_ipv4() {
            [0, 0, 0, 0].into()
        } else {
            [0u16; 8].into()
        };
        let client = from
            .run(move || UdpSocket::bind((any, 0)))
            .expect("enter")
            .expect("bind");
        client
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("timeout");
        let mut buffer = [0; 16];
        if client.send_to(b"hello", (address, 7007)).is_err() {
            return false;
        }
        let Ok((length, sender)) = server.recv_from(&mut buffer) else {
            return false;
        };
        server.send_to(&buffer[..length], sender).is_ok() && client.recv_from(&mut buffer).is_ok()
    })
    .await
    .expect("task")
}

/// The built executable; builds it when it is missing or older than its source.
pub(super) fn executable() -> PathBuf {
    static PATH: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("own path");
        let directory = test
            .parent()
            .and_then(Path::parent)
            .expect("target directory");
        let path = directory.join("margay-cni");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cni");
        if modified(&path).is_none_or(|built| newest(&source.join("src")) > built) {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--bin", "margay-cni", "--manifest-path"])
                .arg(source.join("Cargo.toml"))
                .status();
            assert!(
                built.is_ok_and(|status| status.success()),
                "margay-cni cannot be built"
            );
        }
        path
    })
    .clone()
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn newest(directory: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(directory).expect("source") {
        let path = entry.expect("entry").path();
        let time = if path.is_dir() {
            newest_in(&path)
        } else {
            modified(&path)
        };
        newest = newest.max(time.unwrap_or(SystemTime::UNIX_EPOCH));
    }
    newest
}

fn newest_in(path: &Path) -> Option<SystemTime> {
    Some(newest(path))
}
