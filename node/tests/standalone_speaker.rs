//! `margay bgp` between two network namespaces: kernel routes, restart under way, reload, control socket. Needs root.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two namespaces with a wire between them, and a folder.
struct Pair {
    names: [String; 2],
    folder: tempfile::TempDir,
}

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().expect("ip is there");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Pair {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "network namespaces need root"
        );
        let pid = std::process::id();
        let names = [format!("tsa{pid}a"), format!("tsa{pid}b")];
        for name in &names {
            ip(&["netns", "add", name]);
        }
        let pair = Pair {
            names,
            folder: tempfile::tempdir().expect("folder"),
        };
        let [a, b] = &pair.names;
        ip(&[
            "link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire", "netns", b,
        ]);
        for (name, host) in pair.names.iter().zip(1..) {
            for command in [
                "link set lo up".to_owned(),
                format!("addr add 10.7.0.{host}/24 dev wire"),
                format!("addr add fd07::{host}/64 dev wire nodad"),
                "link set wire up".to_owned(),
            ] {
                let words: Vec<&str> = ["-n", name].into_iter().chain(command.split(' ')).collect();
                ip(&words);
            }
        }
        pair
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file of a side: what it announces to the other.
    fn write(&self, side: usize, originate: &str) {
        let (own, other) = (side + 1, 2 - side);
        let text = format!(
            "local_as: 6500{own}\nrouter_id: 10.7.0.{own}\nfib: true\noriginate: {originate}\npeers:\n\
             - {{addr: 10.7.0.{other}, as: 6500{other}, hold: 9, import: accept, export: accept}}\n\
             - {{addr: 'fd07::{other}', as: 6500{other}, hold: 9, import: accept, export: accept}}\n"
        );
        std::fs::write(self.path(&format!("{side}.yaml")), text).expect("written");
    }

    fn start(&self, side: usize) -> Speaker {
        let child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.names[side],
                env!("CARGO_BIN_EXE_margay"),
                "bgp",
                "-f",
            ])
            .arg(self.path(&format!("{side}.yaml")))
            .arg("--socket")
            .arg(self.path(&format!("{side}.sock")))
            .stdin(Stdio::null())
            .spawn()
            .expect("starts");
        Speaker(child)
    }

    /// Routes of the speaker's protocol in the kernel of a side.
    fn routes(&self, side: usize) -> String {
        let name = &self.names[side];
        ip(&["-n", name, "route", "show", "proto", "bird"])
            + &ip(&["-n", name, "-6", "route", "show", "proto", "bird"])
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

struct Speaker(Child);

impl Speaker {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("runs");
    }

    fn end(&mut self, signal: Signal) -> bool {
        self.signal(signal);
        self.0.wait().expect("ends").success()
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Body of an answer of the control socket.
fn get(socket: &Path, path: &str) -> Option<serde_json::Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn two_speakers_program_the_kernel_and_survive_restart_and_reload() {
    let pair = Pair::new();
    pair.write(0, "[203.0.113.0/24, '2001:db8:1::/48']");
    pair.write(1, "[198.51.100.0/24, '2001:db8:2::/48']");
    let (mut first, _second) = (pair.start(0), pair.start(1));
    let complete = || {
        let (a, b) = (pair.routes(0), pair.routes(1));
        a.contains("198.51.100.0/24 via 10.7.0.2")
            && a.contains("2001:db8:2::/48 via fd07::2")
            && b.contains("203.0.113.0/24 via 10.7.0.1")
            && b.contains("2001:db8:1::/48 via fd07::1")
    };
    eventually("routes on both sides", complete);

    let up = |socket: &Path| {
        let peers = get(socket, "/v1/bgp/peers").unwrap_or_default();
        let peers = peers["peers"].as_array().cloned().unwrap_or_default();
        peers.len() == 2 && peers.iter().all(|peer| peer["state"] == "Established")
    };
    let socket = pair.path("0.sock");
    assert!(up(&socket));
    let routes = get(&socket, "/v1/bgp/routes?peer=10.7.0.2").expect("answers");
    assert_eq!(routes["routes"][0]["prefix"], "198.51.100.0/24");

    // Killed and started again: no route moves on either side.
    first.end(Signal::SIGKILL);
    assert!(complete(), "the kernel keeps the routes");
    let mut first = pair.start(0);
    eventually("sessions again", || {
        assert!(complete(), "a route moved over the restart");
        up(&socket)
    });
    assert!(complete());

    // A reload announces the difference on the running session; a file with an error changes nothing.
    pair.write(0, "[203.0.113.0/25, '2001:db8:1::/48']");
    first.signal(Signal::SIGHUP);
    eventually("the changed prefix", || {
        let routes = pair.routes(1);
        routes.contains("203.0.113.0/25 via") && !routes.contains("203.0.113.0/24 via")
    });
    let flaps = |peer: &serde_json::Value| peer["flaps"].as_u64();
    let peers = get(&socket, "/v1/bgp/peers").expect("answers");
    assert_eq!(
        peers["peers"]
            .as_array()
            .expect("list")
            .iter()
            .filter_map(flaps)
            .sum::<u64>(),
        0
    );
    pair.write(0, "[203.0.113.0/33]");
    first.signal(Signal::SIGHUP);
    assert!(first.end(Signal::SIGTERM), "a clean end");
    assert!(
        pair.routes(1).contains("203.0.113.0/25 via"),
        "the end is silent: the peer keeps the route"
    );
}

#[test]
fn a_wrong_file_ends_with_one_line_that_names_the_field() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("speaker.yaml");
    std::fs::write(
        &file,
        "local_as: 1\nrouter_id: 1.1.1.1\npeers: [{addr: tor, as: 1}]\n",
    )
    .expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_margay"))
        .args(["bgp", "-f"])
        .arg(&file)
        .output()
        .expect("runs");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("peers[0]: addr: \"tor\" is not an IP address"),
        "{error}"
    );
}
