//! Two network namespaces with a wire between them: the test thread lives in one, the peer in the
//! other. Everything disappears with the fixture.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use margay_bgp::{
    LocalRoute, PeerConfig, PeerStatus, RestartState, RouteEvents, RouteQuery, RouteView,
    SpeakerConfig, SpeakerHandle,
};
use tempfile::TempDir;

pub(crate) const OUR_V4: &str = "10.99.0.1";
pub(crate) const OUR_V6: &str = "fd99::1";
pub(crate) const PEER_V4: &str = "10.99.0.2";
pub(crate) const PEER_V6: &str = "fd99::2";
pub(crate) const OUR_AS: u32 = 65001;
pub(crate) const PEER_AS: u32 = 65002;

/// A block of ours per family.
pub(crate) const OUR_BLOCK_V4: &str = "192.168.221.64/26";
pub(crate) const OUR_BLOCK_V6: &str = "fd00:10:244::/122";

/// A program that runs in the peer's namespace. Killed when dropped.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.0.id() as i32)
    }

    /// As if the power had gone.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// The namespaces and a folder for the peer's files.
pub(crate) struct Fixture {
    name: String,
    folder: TempDir,
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .expect("program exists");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {error}");
}

impl Fixture {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "network namespaces need root"
        );
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("network namespaces");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tbgp{}x{count}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let fixture = Fixture {
            name,
            folder: tempfile::tempdir().expect("folder"),
        };
        let peer = fixture.name.clone();
        run(
            "ip",
            &[
                "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", &peer,
            ],
        );
        for (namespace, v4, v6) in [
            (None, OUR_V4, OUR_V6),
            (Some(peer.as_str()), PEER_V4, PEER_V6),
        ] {
            let ip = |args: &[&str]| {
                let in_namespace: Vec<&str> = namespace.map_or(vec![], |name| vec!["-n", name]);
                run("ip", &[&in_namespace, args].concat());
            };
            ip(&["link", "set", "lo", "up"]);
            ip(&["addr", "add", &format!("{v4}/24"), "dev", "wire"]);
            ip(&["addr", "add", &format!("{v6}/64"), "dev", "wire", "nodad"]);
            ip(&["link", "set", "wire", "up"]);
        }
        fixture
    }

    /// A file for the peer.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.path().join(name), text).expect("written");
        self.path(name)
    }

    /// A path in the peer's folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name, program])
            .args(args)
            .stdin(Stdio::null());
        command
    }

    /// Starts a daemon in the peer's namespace; it must stay in the foreground.
    pub(crate) fn start(&self, program: &str, args: &[&str]) -> Daemon {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("log");
        let mut command = self.command(program, args);
        command.stdout(log.try_clone().expect("log")).stderr(log);
        Daemon(command.spawn().expect("starts"))
    }

    /// Output of a program in the peer's namespace; empty while it does not succeed.
    pub(crate) fn ask(&self, program: &str, args: &[&str]) -> String {
        let output = self
            .command(program, args)
            .output()
            .expect("program exists");
        if output.status.success() {
            String::from_utf8_lossy(&output.stdout).into_owned()
        } else {
            String::new()
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
        if std::thread::panicking() {
            eprintln!("log of the peer:\n{}", self.log());
        }
    }
}

/// Path of an unpacked peer's program.
pub(crate) fn program(name: &str) -> String {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let path = cache.expect("HOME is set").join("margay/bin").join(name);
    assert!(
        path.exists(),
        "{} is missing: run make setup",
        path.display()
    );
    path.display().to_string()
}

/// Runs a case in fresh namespaces.
pub(crate) fn in_namespaces<F: Future<Output = ()>>(case: impl FnOnce(std::rc::Rc<Fixture>) -> F) {
    let fixture = std::rc::Rc::new(Fixture::new());
    // One thread: the namespace belongs to it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(case(fixture));
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    within(Duration::from_secs(30), what, &mut condition).await;
}

/// Waits for a condition for at most this long.
pub(crate) async fn within(limit: Duration, what: &str, condition: &mut impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Our speaker in the test thread's namespace.
pub(crate) struct Ours {
    pub(crate) handle: SpeakerHandle,
    pub(crate) events: RouteEvents,
}

pub(crate) fn prefix(text: &str) -> IpNet {
    text.parse().expect("prefix")
}

/// A peer config with quick timers.
pub(crate) fn peer(address: &str) -> PeerConfig {
    let address: IpAddr = address.parse().expect("address");
    let mut peer = PeerConfig::new(address, PEER_AS, OUR_AS);
    peer.timers.first_dial = Duration::from_millis(100);
    peer.timers.connect_retry = Duration::from_millis(500);
    peer.timers.error_wait = Duration::from_millis(500);
    peer.timers.hold = Duration::from_secs(9);
    peer
}

impl Ours {
    pub(crate) async fn start(peers: Vec<PeerConfig>, restart: RestartState) -> Self {
        let id: Ipv4Addr = OUR_V4.parse().expect("id");
        let config = SpeakerConfig {
            restart,
            ..SpeakerConfig::new(id)
        };
        let (handle, events) = margay_bgp::start(config).expect("starts");
        let routes = [OUR_BLOCK_V4, OUR_BLOCK_V6].map(|b| LocalRoute::new(prefix(b), 1000));
        handle
            .set_local_routes(routes.to_vec())
            .await
            .expect("runs");
        handle.set_peers(peers).await.expect("valid");
        Ours { handle, events }
    }

    pub(crate) async fn status(&self) -> Vec<PeerStatus> {
        self.handle.peers().await.expect("runs")
    }

    /// Every session is up.
    pub(crate) async fn up(&self) -> bool {
        self.status().await.iter().all(PeerStatus::is_established)
    }

    pub(crate) async fn wait_up(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.up().await {
            assert!(Instant::now() < end, "{:#?}", self.status().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The paths of a prefix.
    pub(crate) async fn paths(&self, text: &str) -> Vec<RouteView> {
        let query = RouteQuery {
            prefix: Some(prefix(text)),
            ..RouteQuery::default()
        };
        self.handle.routes(query).await.expect("runs")
    }

    pub(crate) async fn has(&self, text: &str) -> bool {
        self.paths(text).await.iter().any(|path| path.best)
    }
}
