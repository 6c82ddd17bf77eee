//! The executable with a scripted agent: what it prints, how it exits, how long it takes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_cni::frame;
use margay_cni::proto::{PROTO, Request, Response, Verb};
use margay_cni::{CniError, Code};
use serde_json::{Value, json};
use tempfile::TempDir;

const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

struct Lab {
    directory: TempDir,
}

struct Answer {
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    #[track_caller]
    fn code(&self) -> u64 {
        assert_eq!(self.exit, 1, "{}", self.stdout);
        assert_eq!(self.stdout.trim().lines().count(), 1);
        self.json()["code"].as_u64().expect("code")
    }
}

impl Lab {
    fn new() -> Lab {
        Lab {
            directory: tempfile::tempdir().expect("directory"),
        }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("cni.sock")
    }

    fn spawn(&self, vars: &[(&str, &str)]) -> Child {
        self.spawn_as(Path::new(env!("CARGO_BIN_EXE_margay-cni")), vars)
    }

    fn spawn_as(&self, program: &Path, vars: &[(&str, &str)]) -> Child {
        Command::new(program)
            .env_clear()
            .env("MARGAY_CNI_SOCKET", self.socket())
            .env("MARGAY_CNI_STATE", self.directory.path().join("state"))
            .env("MARGAY_STATUS_FILE", self.directory.path().join("status"))
            .env("MARGAY_CNI_WAIT_MS", "300")
            .envs(vars.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start")
    }

    fn run(&self, vars: &[(&str, &str)], stdin: &str) -> Answer {
        finish(self.spawn(vars), stdin)
    }

    /// Answers one request with what `script` says.
    fn agent(
        &self,
        script: impl FnOnce(&Request) -> Option<Response> + Send + 'static,
    ) -> JoinHandle<Request> {
        let listener = UnixListener::bind(self.socket()).expect("listen");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            let request = read_request(&mut stream);
            if let Some(response) = script(&request) {
                let message = serde_json::to_vec(&response).expect("json");
                let framed = frame::encode(&message).expect("short");
                stream.write_all(&framed).expect("write");
            }
            request
        })
    }

    fn tombstones(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.directory.path().join("state/pending-del")) else {
            return Vec::new();
        };
        entries
            .map(|e| e.expect("entry").file_name().into_string().expect("text"))
            .collect()
    }
}

fn read_request(stream: &mut UnixStream) -> Request {
    let message = frame::read(stream).expect("request");
    serde_json::from_slice(&message).expect("json")
}

fn finish(mut child: Child, stdin: &str) -> Answer {
    let mut pipe = child.stdin.take().expect("piped");
    let _ = pipe.write_all(stdin.as_bytes());
    drop(pipe);
    let output = child.wait_with_output().expect("wait");
    Answer {
        exit: output.status.code().expect("not killed"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn vars<'a>(command: &'a str, netns: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
}

/// Variables of a call whose namespace may be the test's own.
fn here(command: &str) -> Vec<(&str, &str)> {
    let mut vars = vars(command, "/proc/self/ns/net");
    vars.push(("CNI_NETNS_OVERRIDE", "1"));
    vars
}

const CONFIG: &str =
    r#"{"cniVersion":"1.0.0","name":"n","type":"margay","ipam":{"type":"calico-ipam"}}"#;

#[test]
fn version_answers_without_reading_stdin_or_an_agent() {
    let mut child = Lab::new().spawn(&[("CNI_COMMAND", "VERSION")]);
    let _open = child.stdin.take();
    let mut stdout = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut stdout)
        .expect("read");
    assert!(child.wait().expect("wait").success());
    let report: Value = serde_json::from_str(&stdout).expect("json");
    assert_eq!(
        report,
        json!({"cniVersion":"1.1.0","supportedVersions":VERSIONS})
    );
}

#[test]
fn people_are_told_what_this_is() {
    let answer = Lab::new().run(&[], "");
    assert_eq!((answer.exit, answer.stdout.as_str()), (0, ""));
    assert!(answer.stderr.contains("Margay") && answer.stderr.contains("1.1.0"));
}

#[test]
fn bad_environment_is_refused() {
    let lab = Lab::new();
    let answer = lab.run(&[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c1")], CONFIG);
    assert_eq!(answer.code(), 4);
    assert_eq!(
        answer.json()["msg"],
        "required env variables [CNI_NETNS,CNI_IFNAME] missing"
    );
    for (name, value) in [
        ("CNI_IFNAME", "abcdefghijklmnop"),
        ("CNI_IFNAME", "a:b"),
        ("CNI_IFNAME", ".."),
        ("CNI_CONTAINERID", "-x"),
        ("CNI_COMMAND", "add"),
    ] {
        let mut vars = vars("ADD", "/run/netns/x");
        vars.push((name, value));
        assert_eq!(lab.run(&vars, CONFIG).code(), 4, "{name}={value}");
    }
}

#[test]
fn bad_configuration_is_refused_in_its_own_version() {
    let lab = Lab::new();
    for (stdin, code) in [
        ("{{{", 6),
        ("", 6),
        ("{}", 7),
        (r#"{"name":"a b"}"#, 7),
        (r#"{"name":"n","cniVersion":"9.9.9"}"#, 1),
    ] {
        assert_eq!(
            lab.run(&vars("ADD", "/run/netns/x"), stdin).code(),
            code,
            "{stdin}"
        );
    }
    let answer = lab.run(
        &vars("CHECK", "/run/netns/x"),
        r#"{"name":"n","cniVersion":"0.3.1"}"#,
    );
    assert_eq!(
        (answer.code(), answer.json()["cniVersion"].as_str()),
        (1, Some("0.3.1"))
    );
    for command in ["GC", "STATUS"] {
        assert_eq!(lab.run(&[("CNI_COMMAND", command)], CONFIG).code(), 1);
    }
}

#[test]
fn namespaces_that_are_none_are_refused() {
    let lab = Lab::new();
    for path in ["/proc/self/ns/net", "/etc/hostname", "/nonexistent"] {
        assert_eq!(lab.run(&vars("ADD", path), CONFIG).code(), 8, "{path}");
    }
}

#[test]
fn result_is_printed_in_the_configurations_version() {
    let result = json!({"cniVersion":"1.1.0","interfaces":[{"name":"cali1"}],
        "ips":[{"interface":0,"address":"10.65.0.2/32"}]});
    for (version, key) in [("0.2.0", "ip4"), ("0.4.0", "ips"), ("1.0.0", "ips")] {
        let lab = Lab::new();
        let result = result.clone();
        let agent = lab.agent(move |_| Some(Response::success(Some(result))));
        let answer = lab.run(&here("ADD"), &CONFIG.replace("1.0.0", version));
        assert_eq!(
            (answer.exit, answer.stderr.as_str()),
            (0, ""),
            "{}",
            answer.stdout
        );
        assert_eq!(answer.json()["cniVersion"], version);
        assert!(answer.json().get(key).is_some());
        let request = agent.join().expect("agent");
        assert_eq!((request.proto, request.cmd), (PROTO, Verb::Add));
        assert!(
            (50_000..=55_000).contains(&request.deadline_ms),
            "{}",
            request.deadline_ms
        );
        assert_eq!(request.var("CNI_CONTAINERID"), "c1");
    }
}

#[test]
fn error_of_the_agent_is_passed_on() {
    let lab = Lab::new();
    let error = CniError::new(Code::NO_ADDRESS, "none left").with_details("pools: a");
    let agent = lab.agent(move |_| Some(Response::failure(error)));
    let answer = lab.run(&here("ADD"), CONFIG);
    assert_eq!(answer.code(), 101);
    assert_eq!(
        answer.json(),
        json!({"cniVersion":"1.0.0","code":101,"msg":"none left","details":"pools: a"})
    );
    agent.join().expect("agent");
}

#[test]
fn add_waits_for_the_agent_only_so_long() {
    let lab = Lab::new();
    let started = Instant::now();
    let answer = lab.run(&here("ADD"), CONFIG);
    assert_eq!(answer.code(), 11);
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(lab.tombstones().is_empty());
}

#[test]
fn agent_that_breaks_off_is_to_be_tried_again() {
    for command in ["ADD", "CHECK"] {
        let lab = Lab::new();
        let agent = lab.agent(|_| None);
        assert_eq!(lab.run(&here(command), CONFIG).code(), 11);
        agent.join().expect("agent");
    }
}

#[test]
fn answer_that_is_none_is_to_be_tried_again() {
    for bytes in [&b"\0\0\0\x02{}"[..], b"\xff\xff\xff\xff", b"\0\0\0\x09no"] {
        let lab = Lab::new();
        let listener = UnixListener::bind(lab.socket()).expect("listen");
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            read_request(&mut stream);
            stream.write_all(bytes).expect("write");
        });
        assert_eq!(lab.run(&here("ADD"), CONFIG).code(), 11);
        agent.join().expect("agent");
    }
}

#[test]
fn del_leaves_a_tombstone_when_the_agent_is_away_or_fails() {
    let lab = Lab::new();
    let answer = lab.run(&vars("DEL", ""), CONFIG);
    assert_eq!(
        (answer.exit, answer.stdout.as_str(), answer.stderr.as_str()),
        (0, "", "")
    );
    assert_eq!(lab.tombstones(), ["c1@eth0.json"]);
    let lab = Lab::new();
    let agent = lab.agent(|_| Some(Response::failure(CniError::kernel("broken"))));
    assert_eq!(lab.run(&vars("DEL", ""), CONFIG).exit, 0);
    agent.join().expect("agent");
    assert_eq!(lab.tombstones(), ["c1@eth0.json"]);
}

#[test]
fn del_gets_through_with_anything_on_stdin() {
    for stdin in ["", "{{{", "[]", "\u{0}\u{7f}", r#"{"name":7}"#] {
        let lab = Lab::new();
        let agent = lab.agent(|_| Some(Response::success(None)));
        let answer = lab.run(&vars("DEL", "/nonexistent"), stdin);
        assert_eq!((answer.exit, answer.stdout.as_str()), (0, ""), "{stdin:?}");
        assert_eq!(agent.join().expect("agent").conf, stdin);
        assert!(lab.tombstones().is_empty());
    }
}

#[test]
fn del_fails_only_when_nothing_can_be_noted_down() {
    let lab = Lab::new();
    std::fs::write(lab.directory.path().join("state"), "a file in the way").expect("write");
    let answer = lab.run(&vars("DEL", ""), CONFIG);
    assert_eq!(answer.code(), 5);
    // Runtimes take such words for success and never ask again.
    for words in ["not found", "no such file or directory"] {
        assert!(
            !answer.stdout.to_lowercase().contains(words),
            "{}",
            answer.stdout
        );
    }
}

#[test]
fn status_trusts_a_recent_sign_of_health() {
    let lab = Lab::new();
    let config = CONFIG.replace("1.0.0", "1.1.0");
    let started = Instant::now();
    assert_eq!(lab.run(&[("CNI_COMMAND", "STATUS")], &config).code(), 50);
    assert!(started.elapsed() < Duration::from_secs(2));
    std::fs::write(lab.directory.path().join("status"), "").expect("write");
    let answer = lab.run(&[("CNI_COMMAND", "STATUS")], &config);
    assert_eq!((answer.exit, answer.stdout.as_str()), (0, ""));
}

#[test]
fn silent_agent_does_not_hold_status() {
    let lab = Lab::new();
    // Accepts by its backlog and never answers.
    let _listener = UnixListener::bind(lab.socket()).expect("listen");
    let started = Instant::now();
    let answer = lab.run(
        &[("CNI_COMMAND", "STATUS")],
        &CONFIG.replace("1.0.0", "1.1.0"),
    );
    assert_eq!(answer.code(), 50);
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn connection_test() {
    let lab = Lab::new();
    let run = |lab: &Lab| {
        let child = Command::new(env!("CARGO_BIN_EXE_margay-cni"))
            .arg("-t")
            .env_clear()
            .env("MARGAY_CNI_SOCKET", lab.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start");
        finish(child, CONFIG)
    };
    let answer = run(&lab);
    assert_eq!(
        (answer.code(), answer.json()["msg"].as_str()),
        (100, Some("data store connection failed"))
    );
    let agent = lab.agent(|_| Some(Response::success(None)));
    assert_eq!(run(&lab).exit, 0);
    assert_eq!(agent.join().expect("agent").cmd, Verb::Ping);
}

#[test]
fn ipam_names_ask_for_the_ipam_half() {
    let lab = Lab::new();
    let program = lab.directory.path().join("calico-ipam");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_margay-cni"), &program).expect("link");
    let result = json!({"cniVersion":"1.1.0","ips":[{"address":"10.65.0.2/32"}]});
    let agent = lab.agent(move |_| Some(Response::success(Some(result))));
    let answer = finish(lab.spawn_as(&program, &vars("ADD", "/run/netns/x")), CONFIG);
    assert_eq!(answer.json()["ips"], json!([{"address":"10.65.0.2/32"}]));
    assert_eq!(agent.join().expect("agent").cmd, Verb::IpamAdd);
}

/// Writes an IPAM plugin that notes its commands.
fn ipam_plugin(lab: &Lab, answer: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let directory = lab.directory.path();
    let path = directory.join("other-ipam");
    let script = format!(
        "#!/bin/sh\nread line\necho \"$CNI_COMMAND $line\" >> {}\n[ $CNI_COMMAND = ADD ] && {answer}\nexit 0\n",
        directory.join("log").display()
    );
    std::fs::write(&path, script).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    format!("/nonexistent:{}", directory.display())
}

#[test]
fn other_ipam_plugin_is_run_and_undone() {
    let config = CONFIG.replace("calico-ipam", "other-ipam");
    let print =
        r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.5/24","gateway":"10.9.0.1"}]}'"#;
    for fails in [false, true] {
        let lab = Lab::new();
        let path = ipam_plugin(&lab, print);
        let agent = lab.agent(move |request| {
            let error = CniError::kernel("broken");
            let result = request.ipam_result.clone();
            Some(if fails {
                Response::failure(error)
            } else {
                Response::success(result)
            })
        });
        let mut vars = here("ADD");
        vars.push(("CNI_PATH", &path));
        vars.push(("PATH", "/usr/bin:/bin"));
        let answer = lab.run(&vars, &config);
        let request = agent.join().expect("agent");
        assert_eq!(
            request.ipam_result.expect("result")["ips"][0]["address"],
            "10.9.0.5/24"
        );
        let log = std::fs::read_to_string(lab.directory.path().join("log")).expect("log");
        if fails {
            assert_eq!(answer.code(), 103);
            assert_eq!(log, format!("ADD {config}\nDEL {config}\n"));
        } else {
            assert_eq!(answer.exit, 0, "{}", answer.stdout);
            assert_eq!(log, format!("ADD {config}\n"));
        }
    }
}

#[test]
fn failing_ipam_plugin_speaks_for_itself() {
    let lab = Lab::new();
    let config = CONFIG.replace("calico-ipam", "other-ipam");
    let path = ipam_plugin(&lab, r#"{ echo '{"code":101,"msg":"full"}'; exit 1; }"#);
    let mut vars = here("ADD");
    vars.push(("CNI_PATH", &path));
    vars.push(("PATH", "/usr/bin:/bin"));
    let answer = lab.run(&vars, &config);
    assert_eq!(
        (answer.code(), answer.json()["msg"].as_str()),
        (101, Some("full"))
    );
    vars.push(("CNI_PATH", "/nonexistent"));
    assert_eq!(lab.run(&vars, &config).code(), 7);
    vars.push(("CNI_PATH", ""));
    assert_eq!(lab.run(&vars, &config).code(), 4);
}

#[test]
fn closed_stdout_is_a_failure_and_not_a_crash() {
    let mut child = Lab::new().spawn(&[("CNI_COMMAND", "ADD")]);
    drop(child.stdout.take());
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("wait").code(), Some(1));
}
