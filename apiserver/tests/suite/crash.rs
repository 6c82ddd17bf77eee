//! Processes that are killed, stopped, or out of disk space.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, header};
use margay_apiserver::{Config, Server};
use serde_json::json;

use crate::harness::{CONFIG_MAPS, PATIENCE, client, config_map, send};

/// Where a child process keeps its data; makes [`child`] a server instead of a test.
const DATA: &str = "MARGAY_TEST_SERVER_DATA";

/// The body of child processes.
#[test]
#[ignore = "started by other tests in processes of their own"]
fn child() {
    let Some(data) = std::env::var_os(DATA) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let mut config = Config::new(data);
        config.inherit = true;
        if std::env::var_os("LISTEN_FDS").is_none() {
            config.listen.push(([127, 0, 0, 1], 0).into());
        }
        match Server::start(config).await {
            Ok(server) => {
                println!("\nready {}", server.url());
                terminate.recv().await;
                server.stop().await;
            }
            Err(error) => println!("\nfailed {error}"),
        }
    });
}

struct Process {
    child: Child,
    _output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(data: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::spawn(Command::new(program), data)
    }

    fn spawn(mut command: Command, data: &Path) -> Self {
        let mut child = command
            .args(["--exact", "crash::child", "--ignored", "--nocapture"])
            .env(DATA, data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            let length = output.read_line(&mut line).unwrap();
            assert!(
                length > 0 && !line.starts_with("failed"),
                "the server did not start: {line}"
            );
        }
        Self {
            child,
            _output: output,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn create(client: &kube::Client, name: &str) -> Result<u16, ()> {
    let body = config_map(name).to_string().into_bytes();
    let request = http::Request::post(CONFIG_MAPS)
        .header(header::CONTENT_TYPE, "application/json")
        .body(kube::client::Body::from(body))
        .unwrap();
    let answer = tokio::time::timeout(PATIENCE, client.send(request))
        .await
        .expect("hangs");
    answer.map(|r| r.status().as_u16()).map_err(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_when_the_server_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let kubeconfig = data.path().join("admin.kubeconfig");
    let mut acknowledged: Vec<String> = Vec::new();
    let mut last_revision = 0;
    for round in 0..8 {
        let mut process = Process::start(data.path());
        let client = client(&kubeconfig).await;
        let list = send(&client, Method::GET, CONFIG_MAPS, &[], Vec::new())
            .await
            .expect(200);
        let revision: u64 = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(revision >= last_revision, "revisions never go back");
        last_revision = revision;
        let present: std::collections::HashSet<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["metadata"]["name"].as_str().unwrap())
            .collect();
        for name in &acknowledged {
            assert!(
                present.contains(name.as_str()),
                "round {round}: {name} is lost"
            );
        }
        let count = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let (client, count) = (client.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    for i in 0.. {
                        let name = format!("r{round}-w{writer}-{i}");
                        match create(&client, &name).await {
                            Ok(201) => done.push(name),
                            _ => break,
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        // Kill in the middle of the work, each round at another point.
        while count.load(Ordering::Relaxed) < 15 + round * 11 {
            tokio::task::yield_now().await;
        }
        process.child.kill().unwrap();
        process.child.wait().unwrap();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
    }
    assert!(acknowledged.len() > 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_damages_nothing() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test mounts a small file system: run as root"
    );
    let data = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o size=3m tmpfs \"$MARGAY_TEST_SERVER_DATA\" && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.arg(std::env::current_exe().unwrap());
    let process = Process::spawn(command, data.path());
    // The file system is visible through the process only.
    let inside = format!("/proc/{}/root{}", process.child.id(), data.path().display());
    let client = client(&Path::new(&inside).join("admin.kubeconfig")).await;
    let headers = [(header::CONTENT_TYPE, "application/json")];
    let mut stored = Vec::new();
    let refused = loop {
        let name = format!("m{}", stored.len());
        let mut map = config_map(&name);
        map["data"] = json!({"x": "y".repeat(100_000)});
        let body = map.to_string().into_bytes();
        let answer = send(&client, Method::POST, CONFIG_MAPS, &headers, body).await;
        if answer.code != 201 {
            break answer;
        }
        stored.push(name);
        assert!(stored.len() < 100, "the disk never fills");
    };
    assert!(refused.code >= 500, "{refused:?}");
    assert_eq!(refused.body["kind"], "Status");
    // Reads go on, and writes as soon as there is room.
    let path = format!("{CONFIG_MAPS}/{}", stored[0]);
    send(&client, Method::GET, &path, &[], Vec::new())
        .await
        .expect(200);
    remount(process.child.id(), data.path());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let body = config_map("after").to_string().into_bytes();
        let answer = send(&client, Method::POST, CONFIG_MAPS, &headers, body).await;
        if answer.code == 201 {
            break;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
    }
    let list = send(&client, Method::GET, CONFIG_MAPS, &[], Vec::new())
        .await
        .expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), stored.len() + 1);
}

/// Gives the file system of the process more room.
fn remount(pid: u32, path: &Path) {
    let status = Command::new("nsenter")
        .args([
            "--mount",
            "--target",
            &pid.to_string(),
            "mount",
            "-o",
            "remount,size=16m",
        ])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_process_within_a_second() {
    let data = tempfile::tempdir().unwrap();
    let mut process = Process::start(data.path());
    let client = client(&data.path().join("admin.kubeconfig")).await;
    let request = http::Request::get(format!("{CONFIG_MAPS}?watch=true"))
        .body(kube::client::Body::from(Vec::new()))
        .unwrap();
    let _watch = client.send(request).await.unwrap();
    let pid = nix::unistd::Pid::from_raw(process.child.id().try_into().unwrap());
    let started = Instant::now();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = process.child.wait().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_data_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let _first = Process::start(data.path());
    let mut config = Config::new(data.path());
    config.listen.push(([127, 0, 0, 1], 0).into());
    let error = Server::start(config).await.unwrap_err().to_string();
    assert!(error.contains("store.redb"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_handed_over_by_the_parent_is_served() {
    let data = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap());
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
    let _process = Process::spawn(command, data.path());
    let config = crate::harness::client_config(&data.path().join("admin.kubeconfig")).await;
    assert_eq!(
        config.cluster_url.authority().unwrap().as_str(),
        address.to_string()
    );
    let client = kube::Client::try_from(config).unwrap();
    send(&client, Method::GET, CONFIG_MAPS, &[], Vec::new())
        .await
        .expect(200);
}
