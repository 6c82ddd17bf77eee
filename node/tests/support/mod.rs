//! Two or more nodes in network namespaces around one bridge, an embedded API server beside the bridge.
//!
//! Everything is named after the process, and removed when the value is dropped, also by a failing test.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_felix::kernel::{Netns, NetnsError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::{Value, json};

/// Address of the bridge, and of the API server.
const FABRIC: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 254);

/// A running cluster.
pub(crate) struct Cluster {
    prefix: String,
    directory: tempfile::TempDir,
    apiserver: Option<Child>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
}

struct Node {
    name: String,
    agent: Option<Child>,
    environment: Vec<(String, String)>,
}

/// A pod's namespace, held open by a process that sleeps in it.
pub(crate) struct Pod {
    addresses: Vec<IpAddr>,
    sleeper: Child,
}

impl Pod {
    fn netns(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.sleeper.id()))
    }
}

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Calls `check` until it gives a value, or fails with what was awaited.
pub(crate) fn eventually<T>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn in_netns<T: Send + 'static>(
    netns: &Path,
    act: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<Result<T, NetnsError>> {
    let netns = Netns::open(netns).expect("namespace");
    netns.spawn("pod", act).expect("thread")
}

impl Cluster {
    /// Namespaces, API server and Node objects; no agent runs yet.
    pub(crate) fn start(tag: &str, nodes: usize) -> Self {
        assert!(
            Uid::effective().is_root(),
            "this test makes network namespaces and needs root"
        );
        let prefix = format!("tn{}{tag}", std::process::id());
        let mut cluster = Cluster {
            directory: tempfile::tempdir().expect("directory"),
            apiserver: None,
            nodes: Vec::new(),
            pods: Vec::new(),
            prefix,
        };
        let fabric = cluster.fabric();
        run("ip", &["netns", "add", &fabric]);
        run("ip", &["-n", &fabric, "link", "set", "lo", "up"]);
        run(
            "ip",
            &["-n", &fabric, "link", "add", "br0", "type", "bridge"],
        );
        run("ip", &["-n", &fabric, "link", "set", "br0", "up"]);
        run(
            "ip",
            &[
                "-n",
                &fabric,
                "address",
                "add",
                &format!("{FABRIC}/24"),
                "dev",
                "br0",
            ],
        );
        cluster.start_apiserver();
        for index in 1..=nodes {
            cluster.add_node(index);
        }
        cluster
    }

    fn fabric(&self) -> String {
        format!("{}-f", self.prefix)
    }

    fn netns(&self, node: usize) -> String {
        format!("{}-n{node}", self.prefix)
    }

    fn path(&self, part: &str) -> PathBuf {
        self.directory.path().join(part)
    }

    fn margay() -> PathBuf {
        PathBuf::from(env!("CARGO_BIN_EXE_margay"))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.path("api/admin.kubeconfig")
    }

    fn log(&self, name: &str) -> fs::File {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(name))
            .expect("log file")
    }

    fn start_apiserver(&mut self) {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.fabric()])
            .arg(Self::margay())
            .args([
                "apiserver",
                "--listen",
                &format!("{FABRIC}:6443"),
                "--san",
                &FABRIC.to_string(),
            ])
            .arg("--data-dir")
            .arg(self.path("api"))
            .stdout(Stdio::null())
            .stderr(self.log("apiserver.log"))
            .spawn()
            .expect("API server");
        self.apiserver = Some(child);
        eventually("the API server is ready", Duration::from_secs(30), || {
            self.kubeconfig().exists().then_some(())?;
            self.kubectl_output(&["get", "--raw", "/readyz"], None)
                .status
                .success()
                .then_some(())
        });
    }

    fn add_node(&mut self, index: usize) {
        let (fabric, netns) = (self.fabric(), self.netns(index));
        let port = format!("v{index}");
        run("ip", &["netns", "add", &netns]);
        run(
            "ip",
            &[
                "-n", &fabric, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", &netns,
            ],
        );
        run(
            "ip",
            &["-n", &fabric, "link", "set", &port, "master", "br0", "up"],
        );
        run("ip", &["-n", &netns, "link", "set", "lo", "up"]);
        run("ip", &["-n", &netns, "link", "set", "eth0", "up"]);
        run(
            "ip",
            &[
                "-n",
                &netns,
                "address",
                "add",
                &format!("{}/24", Self::address(index)),
                "dev",
                "eth0",
            ],
        );
        let v6 = format!("fd20::{index}/64");
        run(
            "ip",
            &["-n", &netns, "address", "add", &v6, "dev", "eth0", "nodad"],
        );
        run(
            "ip",
            &[
                "-n",
                &netns,
                "route",
                "add",
                "default",
                "via",
                &FABRIC.to_string(),
            ],
        );
        let name = format!("n{index}");
        self.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        self.nodes.push(Node {
            name,
            agent: None,
            environment: Vec::new(),
        });
    }

    /// Address of a node.
    pub(crate) fn address(index: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 20, 0, u8::try_from(index).expect("few nodes"))
    }

    /// Sets a variable of a node's agent for its next start.
    pub(crate) fn set(&mut self, node: usize, name: &str, value: &str) {
        self.nodes[node - 1]
            .environment
            .push((name.into(), value.into()));
    }

    /// Starts a node's agent with its own mounts, so that every path is the canonical one.
    pub(crate) fn start_agent(&mut self, index: usize) {
        let base = self.path(&format!("n{index}"));
        let places = [
            ("run", "/run/margay"),
            ("state", "/var/lib/margay"),
            ("calico", "/var/lib/calico"),
            ("run-calico", "/var/run/calico"),
            ("net.d", "/etc/cni/net.d"),
            ("bin", "/opt/cni/bin"),
        ];
        let mut script = String::from("set -e\nmount -t sysfs sysfs /sys\n");
        for (name, place) in places {
            fs::create_dir_all(base.join(name)).expect("directory");
            script.push_str(&format!(
                "mkdir -p {place}; mount --bind {} {place}\n",
                base.join(name).display()
            ));
        }
        script.push_str("exec \"$0\" node\n");
        let node = &self.nodes[index - 1];
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.netns(index)))
            .args([
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                &script,
            ])
            .arg(Self::margay())
            .env("NODENAME", &node.name)
            .env("KUBECONFIG", self.kubeconfig())
            .env("IP", "autodetect")
            .env("CALICO_IPV4POOL_CIDR", "10.88.0.0/16")
            .envs(node.environment.iter().cloned())
            .stdout(Stdio::null())
            .stderr(self.log(&format!("n{index}.log")))
            .spawn()
            .expect("agent");
        self.nodes[index - 1].agent = Some(child);
    }

    /// Waits until pods can be added on a node.
    pub(crate) fn wait_ready(&self, index: usize) {
        eventually(
            &format!("node {index} is ready:\n{}", self.tail(index)),
            Duration::from_secs(30),
            || {
                let parts = self.admin(index, "status")?["health"].as_array()?.clone();
                let cni = parts.iter().find(|part| part["name"] == "CNI")?;
                (cni["ready"] == true).then_some(())
            },
        );
    }

    /// The end of an agent's log, for messages.
    pub(crate) fn tail(&self, index: usize) -> String {
        let log = fs::read_to_string(self.path(&format!("n{index}.log"))).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Sends a signal to an agent and waits for its end.
    pub(crate) fn end_agent(&mut self, index: usize, signal: Signal) {
        let mut agent = self.nodes[index - 1].agent.take().expect("the agent runs");
        kill(
            Pid::from_raw(i32::try_from(agent.id()).expect("pid")),
            signal,
        )
        .expect("kill");
        agent.wait().expect("wait");
    }

    /// `GET /v1/PATH` on an agent's admin socket; `None` while it does not answer.
    pub(crate) fn admin(&self, index: usize, path: &str) -> Option<Value> {
        use std::io::Read;
        let socket = self.path(&format!("n{index}/run/admin.sock"));
        let mut stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(
            stream,
            "GET /v1/{path} HTTP/1.1\r\nHost: margay\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        serde_json::from_str(body).ok()
    }

    /// Number of sessions of a node that are up.
    pub(crate) fn sessions_up(&self, index: usize) -> usize {
        let answer = self.admin(index, "bgp/peers").unwrap_or_default();
        let peers = answer["peers"].as_array().cloned().unwrap_or_default();
        peers
            .iter()
            .filter(|peer| peer["state"] == "Established")
            .count()
    }

    fn kubectl_output(&self, args: &[&str], stdin: Option<&str>) -> Output {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.fabric(), "kubectl", "--kubeconfig"])
            .arg(self.kubeconfig())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl is installed (make setup)");
        let mut input = child.stdin.take().expect("piped");
        input
            .write_all(stdin.unwrap_or_default().as_bytes())
            .expect("stdin");
        drop(input);
        child.wait_with_output().expect("kubectl")
    }

    /// Runs kubectl; fails with its message.
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let output = self.kubectl_output(args, None);
        assert!(
            output.status.success(),
            "kubectl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Applies one object.
    pub(crate) fn apply(&self, object: &Value) {
        let output = self.kubectl_output(&["apply", "-f", "-"], Some(&object.to_string()));
        assert!(
            output.status.success(),
            "{object}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Routes of a node's kernel.
    pub(crate) fn routes(&self, index: usize) -> String {
        String::from_utf8_lossy(&run("ip", &["-n", &self.netns(index), "route"]).stdout)
            .into_owned()
    }

    /// Creates a Pod object and wires its namespace with the real CNI executable and the list the agent wrote.
    pub(crate) fn add_pod(&mut self, node: usize, name: &str) -> usize {
        self.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": format!("n{node}"), "containers": [{"name": "c", "image": "none"}]}}));
        let sleeper = Command::new("unshare")
            .args(["--net", "sleep", "1000"])
            .spawn()
            .expect("sleeper");
        let own = fs::read_link("/proc/self/ns/net").expect("own namespace");
        let netns = format!("/proc/{}/ns/net", sleeper.id());
        eventually("the pod has its namespace", Duration::from_secs(5), || {
            (fs::read_link(&netns).ok()? != own).then_some(())
        });
        let list = fs::read_to_string(self.path(&format!("n{node}/net.d/10-margay.conflist")))
            .expect("conflist");
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let mut configuration = list["plugins"][0].clone();
        configuration["name"] = list["name"].clone();
        configuration["cniVersion"] = list["cniVersion"].clone();
        let agent = self.nodes[node - 1]
            .agent
            .as_ref()
            .expect("the agent runs")
            .id();
        let mut child = Command::new("nsenter")
            .args(["--target", &agent.to_string(), "--mount", "--net"])
            .arg(Self::margay().with_file_name("margay-cni"))
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", format!("sandbox-{name}"))
            .env("CNI_NETNS", &netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}"),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("margay-cni is built beside margay");
        let mut stdin = child.stdin.take().expect("piped");
        stdin
            .write_all(configuration.to_string().as_bytes())
            .expect("stdin");
        drop(stdin);
        let output = child.wait_with_output().expect("CNI");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "ADD of {name}: {text}\n{}",
            self.tail(node)
        );
        let result: Value = serde_json::from_str(&text).expect("CNI result");
        let texts = result["ips"].as_array().expect("addresses").iter();
        let texts = texts.filter_map(|ip| ip["address"].as_str()?.split('/').next());
        let addresses = texts
            .map(|text| text.parse().expect("an address"))
            .collect();
        self.pods.push(Pod { addresses, sleeper });
        self.pods.len() - 1
    }

    /// Sends datagrams from one pod to another, which returns them, until stopped.
    pub(crate) fn stream(&self, from: usize, to: usize) -> Stream {
        self.stream_over(from, to, true)
    }

    fn stream_over(&self, from: usize, to: usize, v4: bool) -> Stream {
        let mut addresses = self.pods[to].addresses.iter();
        let address = addresses
            .find(|address| address.is_ipv4() == v4)
            .expect("an address of the family");
        Stream::start(self.pods[from].netns(), self.pods[to].netns(), *address)
    }

    /// True when a datagram from one pod to another comes back.
    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        self.reaches_over(from, to, true)
    }

    /// The same over IPv4 or IPv6.
    pub(crate) fn reaches_over(&self, from: usize, to: usize, v4: bool) -> bool {
        let stream = self.stream_over(from, to, v4);
        let deadline = Instant::now() + Duration::from_secs(1);
        while stream.received() == 0 && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let (_, received) = stream.stop();
        received > 0
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for index in 1..=self.nodes.len() {
                eprintln!(
                    "--- agent {index}\n{}\n{}",
                    self.tail(index),
                    self.routes(index)
                );
            }
        }
        let agents = self.nodes.iter_mut().filter_map(|node| node.agent.take());
        let pods = self.pods.drain(..).map(|pod| pod.sleeper);
        for mut child in agents.chain(pods).chain(self.apiserver.take()) {
            // Already gone is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
        let names = (1..=self.nodes.len())
            .map(|index| self.netns(index))
            .chain([self.fabric()]);
        for name in names.collect::<Vec<_>>() {
            let _ = Command::new("ip")
                .args(["netns", "delete", &name])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// A thread in a pod's namespace.
type Worker = JoinHandle<Result<(), NetnsError>>;

/// A stream of numbered datagrams between two pods.
pub(crate) struct Stream {
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    /// Client, then echo: late answers need the echo.
    threads: Vec<(Arc<AtomicBool>, Worker)>,
}

/// Pause between datagrams.
const PACE: Duration = Duration::from_millis(5);

impl Stream {
    fn start(from: PathBuf, to: PathBuf, address: IpAddr) -> Self {
        let (stop_client, stop_echo) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (port_sender, port) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop_echo);
        let echo = in_netns(&to, move || {
            let socket = UdpSocket::bind((address, 0)).expect("the pod has its address");
            socket
                .set_read_timeout(Some(Duration::from_millis(50)))
                .expect("timeout");
            port_sender
                .send(socket.local_addr().expect("bound").port())
                .expect("the sender waits");
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], peer);
                }
            }
        });
        let target = SocketAddr::new(address, port.recv().expect("the echo runs"));
        let (stopped, counts) = (
            Arc::clone(&stop_client),
            (Arc::clone(&sent), Arc::clone(&received)),
        );
        let client = in_netns(&from, move || {
            let any: SocketAddr = if target.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any).expect("socket");
            socket.set_read_timeout(Some(PACE)).expect("timeout");
            let mut buffer = [0; 64];
            let mut number = 0u64;
            let mut drain = |limit: Instant| {
                while Instant::now() < limit {
                    if socket.recv_from(&mut buffer).is_ok() {
                        counts.1.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                if socket.send_to(&number.to_be_bytes(), target).is_ok() {
                    counts.0.fetch_add(1, Ordering::Relaxed);
                }
                drain(Instant::now() + PACE);
            }
            drain(Instant::now() + Duration::from_millis(300));
        });
        Stream {
            sent,
            received,
            threads: vec![(stop_client, client), (stop_echo, echo)],
        }
    }

    /// Answers so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends the stream: datagrams sent and answers received.
    pub(crate) fn stop(mut self) -> (u64, u64) {
        for (stop, thread) in self.threads.drain(..) {
            stop.store(true, Ordering::Relaxed);
            thread
                .join()
                .expect("stream thread")
                .expect("the pod has a namespace");
        }
        (self.sent.load(Ordering::Relaxed), self.received())
    }
}
