//! `margayctl lab` and kubectl, as a user calls them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::LabName;
use margay_tests::executable;
use serde_json::Value;
use std::process::{Command, Output};

struct Cleanup(String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        margay_lab::down(&LabName::new(&self.0).unwrap()).unwrap();
    }
}

fn margayctl(words: &[&str]) -> Output {
    Command::new(executable("margayctl"))
        .args(words)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

fn text(out: &Output) -> String {
    format!(
        "exit {:?}\n{}{}",
        out.status.code(),
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

fn good(words: &[&str]) -> String {
    let out = margayctl(words);
    assert!(out.status.success(), "{words:?}: {}", text(&out));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_demo_prints_everything_and_is_safe_to_repeat_and_down_ends_it() {
    let lab = format!("d{}", std::process::id());
    let _cleanup = Cleanup(lab.clone());
    let first = good(&["lab", "demo", &lab]);
    for heading in [
        "NODES",
        "BGP SESSIONS",
        "ROUTES LEARNED BY BGP",
        "PODS",
        "WHO REACHES WHOM",
        "(100 %)",
        "WHAT TO TRY NEXT",
    ] {
        assert!(first.contains(heading), "{heading} is missing in:\n{first}");
    }
    assert_eq!(first.matches(" Established").count(), 9, "{first}");
    good(&["lab", "demo", &lab]);
    let status: Value =
        serde_json::from_str(&good(&["lab", "status", &lab, "-o", "json"])).unwrap();
    assert_eq!(status["members"].as_array().unwrap().len(), 4);
    assert_eq!(status["kind"], "LabStatus");

    let kubeconfig = good(&["lab", "kubeconfig", &lab]);
    let kubectl = |words: &[&str]| {
        let out = Command::new("kubectl")
            .args(words)
            .env("KUBECONFIG", kubeconfig.trim())
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", text(&out));
        String::from_utf8(out.stdout).unwrap()
    };
    let pods = kubectl(&["get", "pods", "-o", "wide", "--no-headers"]);
    assert_eq!(
        pods.lines()
            .filter(|l| l.contains("Running") && l.contains("10.88."))
            .count(),
        12,
        "{pods}"
    );
    assert_eq!(
        kubectl(&["get", "nodes", "--no-headers"])
            .matches(" Ready ")
            .count(),
        3
    );

    let added: Value =
        serde_json::from_str(&good(&["lab", "pod", "add", "n1", &lab, "-o", "json"])).unwrap();
    let pod = added["items"][0]["name"].as_str().unwrap().to_owned();
    good(&["lab", "exec", &pod, "--lab", &lab, "--", "true"]);
    assert_eq!(
        margayctl(&[
            "lab", "exec", &pod, "--lab", &lab, "--", "sh", "-c", "exit 7"
        ])
        .status
        .code(),
        Some(7)
    );
    good(&["lab", "pod", "rm", &pod, "--lab", &lab]);
    assert_eq!(
        margayctl(&["lab", "exec", &pod, "--lab", &lab, "--", "true"])
            .status
            .code(),
        Some(1)
    );

    let report = good(&[
        "lab", "fault", "kill", "n2", "agent", &lab, "--for", "1s", "-o", "json",
    ]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["packetsLost"], 0, "{report}");
    assert_eq!(margayctl(&["lab", "matrix", &lab]).status.code(), Some(0));

    good(&["lab", "down", &lab]);
    good(&["lab", "down", &lab]);
    assert!(!good(&["lab", "ls"]).contains(&lab));
}

#[test]
fn an_unreachable_pod_makes_the_matrix_exit_with_3() {
    let lab = format!("m{}", std::process::id());
    let _cleanup = Cleanup(lab.clone());
    good(&["lab", "up", &lab, "-n", "2", "--pods-per-node", "1"]);
    good(&["lab", "fault", "link-down", "n1", &lab]);
    let out = margayctl(&["lab", "matrix", &lab, "--limit", "200"]);
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    assert!(
        text(&out).contains("UNREACHABLE  n1-p1 -> n2-p1"),
        "{}",
        text(&out)
    );
    good(&["lab", "fault", "heal", &lab]);
}

#[test]
fn mistakes_are_told_in_one_line_with_the_right_exit_code() {
    let code = |words: &[&str]| {
        let out = margayctl(words);
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let (exit, error) = code(&["lab", "up", "Not-A-Name"]);
    assert_eq!(exit, Some(2), "{error}");
    let (exit, error) = code(&["lab", "status", "nosuchlab"]);
    assert_eq!(exit, Some(1));
    assert!(
        error.contains("no such lab") && error.contains("hint: "),
        "{error}"
    );
    let (exit, error) = code(&["lab", "up", "x", "--topology", "mesh", "--tor", "bird"]);
    assert_eq!(exit, Some(2), "{error}");
    let (exit, error) = code(&["lab", "fault", "delay", "n1", "10ms"]);
    assert_eq!(exit, Some(1), "{error}");
    assert_eq!(code(&["lab", "down", "nosuchlab"]).0, Some(0));
}

#[test]
fn without_root_a_lab_is_refused_with_the_remedy() {
    let (_dir, copy) = copy_for_everybody();
    let out = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy)
        .args(["lab", "up", "x"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(
        text(&out).contains("needs root") && text(&out).contains("hint: run the command with sudo"),
        "{}",
        text(&out)
    );
}

/// A copy of the executable at a place other users may read.
fn copy_for_everybody() -> (tempfile::TempDir, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let to = dir.path().join("margayctl");
    std::fs::copy(executable("margayctl"), &to).unwrap();
    (dir, to)
}
