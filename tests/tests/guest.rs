//! A lab is a good guest: it leaves nothing, changes nothing on the host, and says what is in its way.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::cluster::Condition;
use margay_lab::{Kind, Lab, LabName};
use margay_tests::up;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What of a lab can be seen on the host: namespaces, mounts, processes, folder.
fn traces(name: &LabName) -> Vec<String> {
    let prefix = name.netns_prefix();
    let netns = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let netns = netns
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| n.starts_with(&prefix));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = name.dir().display().to_string();
    let mounts: Vec<String> = mounts
        .lines()
        .filter(|l| {
            l.contains(&prefix) || l.contains(&format!("{dir} ")) || l.contains(&format!("{dir}/"))
        })
        .map(str::to_owned)
        .collect();
    let mark = format!("MARGAY_LAB={name}");
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(|e| {
        let environ = fs::read(e.path().join("environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|v| v == mark.as_bytes())
    });
    let processes = processes.map(|e| format!("process {}", e.file_name().display()));
    let folder = name.dir().exists().then(|| dir.clone());
    netns.chain(mounts).chain(processes).chain(folder).collect()
}

/// What must not change on the host: links, addresses, routes, rules, forwarding, files of agents.
fn host() -> Vec<String> {
    let output = |words: &[&str]| {
        let out = std::process::Command::new(words[0])
            .args(&words[1..])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let read = |file: &str| format!("{file}: {:?}", fs::read_to_string(file).ok());
    let listing = |dir: &str| {
        let names: BTreeSet<String> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().display().to_string())
            .collect();
        format!("{dir}: {names:?}")
    };
    vec![
        output(&["ip", "-o", "link", "show", "type", "veth"]),
        output(&["ip", "route", "show", "table", "all"]),
        output(&["ip", "rule"]),
        read("/proc/sys/net/ipv4/ip_forward"),
        read("/proc/sys/net/ipv4/conf/all/rp_filter"),
        read("/proc/sys/net/ipv6/conf/all/forwarding"),
        listing("/etc/cni/net.d"),
        listing("/opt/cni/bin"),
        listing("/var/lib/calico"),
        listing("/var/lib/margay"),
    ]
}

fn name(word: &str) -> LabName {
    LabName::new(&format!("g{word}{}", std::process::id())).unwrap()
}

/// Takes the lab down whatever happens to the test.
struct Cleanup(LabName);

impl Drop for Cleanup {
    fn drop(&mut self) {
        margay_lab::down(&self.0).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn down_leaves_nothing_and_may_be_repeated_and_the_host_is_as_before() {
    let name = name("a");
    let _cleanup = Cleanup(name.clone());
    let before = host();
    let lab = up(Lab::named(name.clone())
        .nodes(2)
        .pods_per_node(2)
        .tor(margay_lab::Tor::Bird))
    .await;
    assert!(traces(&name).len() > 10);
    assert_eq!(host(), before);
    drop(lab);
    assert!(
        name.dir().join("lab.json").exists(),
        "a named lab stays when the value is dropped"
    );
    margay_lab::down(&name).unwrap();
    assert_eq!(traces(&name), Vec::<String>::new());
    assert_eq!(host(), before);
    margay_lab::down(&name).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_of_a_test_goes_with_the_test_even_in_a_panic() {
    let lab = up(Lab::builder().nodes(1)).await;
    let name = lab.name().clone();
    let test = tokio::spawn(async move {
        let _lab = lab;
        panic!("as a failed assertion would");
    });
    assert!(test.await.unwrap_err().is_panic());
    assert_eq!(traces(&name), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn up_on_a_healthy_lab_of_the_same_shape_changes_nothing_and_another_shape_is_refused() {
    let name = name("b");
    let _cleanup = Cleanup(name.clone());
    let builder = || Lab::named(name.clone()).nodes(2).pods_per_node(1);
    let first = up(builder()).await.state().unwrap();
    let second = up(builder()).await.state().unwrap();
    assert_eq!(first.processes, second.processes);
    assert_eq!(first.pods, second.pods);
    let error = Box::pin(builder().nodes(1).up()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Exists);
    assert!(
        error.to_string().contains("2 nodes")
            && error.remedy.is_some_and(|r| r.contains("lab down")),
        "no remedy"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_lab_is_reported_with_the_remedy_and_recreate_replaces_it() {
    let name = name("c");
    let _cleanup = Cleanup(name.clone());
    let builder = || Lab::named(name.clone()).nodes(1).pods_per_node(1);
    let lab = up(builder()).await;
    lab.kill("apiserver").await.unwrap();
    let listed = margay_lab::list()
        .into_iter()
        .find(|l| l.name == name)
        .unwrap();
    assert_eq!(
        listed.condition,
        Condition::Broken("apiserver no longer runs".into())
    );
    let error = Box::pin(builder().up()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Leftover);
    assert!(
        error.to_string().contains("apiserver")
            && error.remedy.is_some_and(|r| r.contains("--recreate")),
        "no remedy"
    );
    let old = lab.process("n1").unwrap();
    let lab = up(builder().recreate(true)).await;
    assert!(!old.is_alive() && lab.process("n1").unwrap().is_alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_without_a_folder_are_a_leftover_that_down_removes() {
    let name = name("d");
    let _cleanup = Cleanup(name.clone());
    let netns = name.netns("n1");
    let made = std::process::Command::new("ip")
        .args(["netns", "add", &netns])
        .status()
        .unwrap();
    assert!(made.success());
    let listed = margay_lab::list()
        .into_iter()
        .find(|l| l.name == name)
        .unwrap();
    assert!(matches!(listed.condition, Condition::Broken(_)));
    margay_lab::down(&name).unwrap();
    assert_eq!(traces(&name), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_port_is_told_with_the_remedy_and_leaves_nothing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let name = name("e");
    let _cleanup = Cleanup(name.clone());
    let error = Box::pin(Lab::named(name.clone()).nodes(1).api_port(port).up())
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Preflight);
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    assert!(error.remedy.is_some_and(|r| r.contains("--api-port")));
    assert_eq!(traces(&name), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_listens_on_one_loopback_port_of_the_host_and_nothing_else_does() {
    let lab = up(Lab::builder().nodes(2)).await;
    let state = lab.state().unwrap();
    let port = state.api_url.rsplit(':').next().unwrap().to_owned();
    let out = std::process::Command::new("ss")
        .args(["-Hltnup"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let ours = |line: &&str| {
        state
            .processes
            .values()
            .any(|p| line.contains(&format!("pid={},", p.pid)))
    };
    let lines: Vec<&str> = text.lines().filter(ours).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains(&format!("127.0.0.1:{port} ")),
        "{lines:?}"
    );
    assert_eq!(
        fs::metadata(&state.kubeconfig)
            .map(|m| std::os::unix::fs::PermissionsExt::mode(&m.permissions()) & 0o777)
            .unwrap(),
        0o600
    );
    assert!(Path::new(&state.kubeconfig).exists());
}
