//! kubectl 1.37, unmodified, on custom resources.

use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::harness::{PATIENCE, TestServer, start};

/// kubectl with its own home.
pub(crate) struct Kubectl<'a> {
    server: &'a TestServer,
    home: tempfile::TempDir,
}

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// Fails unless kubectl succeeded; returns its output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

impl<'a> Kubectl<'a> {
    pub(crate) fn new(server: &'a TestServer) -> Self {
        Self {
            server,
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(std::path::PathBuf::from)
            .unwrap_or_else(|| {
                std::path::PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache")
            });
        let kubectl = cache.join("margay/bin/kubectl");
        assert!(
            kubectl.exists(),
            "{} is missing: run `make setup`",
            kubectl.display()
        );
        let mut command = Command::new(kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("HOME", self.home.path())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Printed {
        self.run_with(arguments, "").await
    }

    /// Runs with `input` on standard input.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: &str) -> Printed {
        let mut command = self.command(arguments);
        self.finish(&mut command, input).await
    }

    pub(crate) async fn finish(&self, command: &mut Command, input: &str) -> Printed {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output());
        let Output {
            status,
            stdout,
            stderr,
        } = output.await.expect("kubectl hangs").unwrap();
        Printed {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    pub(crate) async fn apply(&self, manifest: &str) -> Printed {
        self.run_with(&["apply", "-f", "-"], manifest).await
    }
}

const POOL: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: p1
spec:
  cidr: 10.1.0.0/16
  natOutgoing: true
";

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_then_leaves_unchanged_then_configures() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    assert_eq!(
        kubectl.apply(POOL).await.ok(),
        "ippool.projectcalico.org/p1 created\n"
    );
    assert_eq!(
        kubectl.apply(POOL).await.ok(),
        "ippool.projectcalico.org/p1 unchanged\n"
    );
    let other = POOL.replace("natOutgoing: true", "natOutgoing: false");
    assert_eq!(
        kubectl.apply(&other).await.ok(),
        "ippool.projectcalico.org/p1 configured\n"
    );
    let dropped = POOL.replace("  natOutgoing: true\n", "");
    kubectl.apply(&dropped).await.ok();
    let left = kubectl
        .run(&["get", "ippool", "p1", "-o", "jsonpath={.spec.natOutgoing}"])
        .await;
    assert_eq!(left.ok(), "");
    let dry = kubectl
        .run_with(&["apply", "--dry-run=server", "-f", "-"], POOL)
        .await
        .ok();
    assert_eq!(
        dry,
        "ippool.projectcalico.org/p1 configured (server dry run)\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_what_would_change() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    assert_eq!(kubectl.run_with(&["diff", "-f", "-"], POOL).await.code, 0);
    let other = POOL.replace("natOutgoing: true", "natOutgoing: false");
    let diff = kubectl.run_with(&["diff", "-f", "-"], &other).await;
    assert_eq!(diff.code, 1);
    assert!(
        diff.out
            .contains("-  natOutgoing: true\n+  natOutgoing: false"),
        "{}",
        diff.out
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_reports_conflicts_and_takes_over() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let apply = ["apply", "--server-side", "-f", "-"];
    let done = kubectl.run_with(&apply, POOL).await.ok();
    assert_eq!(done, "ippool.projectcalico.org/p1 serverside-applied\n");
    let other = POOL.replace("natOutgoing: true", "natOutgoing: false");
    let mut as_bob = apply.to_vec();
    as_bob.push("--field-manager=bob");
    let conflict = kubectl.run_with(&as_bob, &other).await;
    assert_eq!(conflict.code, 1);
    let text = "conflict with \"kubectl\": .spec.natOutgoing";
    assert!(conflict.err.contains(text), "{}", conflict.err);
    as_bob.push("--force-conflicts");
    kubectl.run_with(&as_bob, &other).await.ok();
    let managers = [
        "get",
        "ippool",
        "p1",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ];
    let managers = kubectl.run(&managers).await.ok();
    let mut managers: Vec<&str> = managers.split(' ').collect();
    managers.sort_unstable();
    assert_eq!(managers, ["bob", "kubectl"]);
    // From client-side to server-side apply and back.
    kubectl.run(&["delete", "ippool", "p1"]).await.ok();
    kubectl.apply(POOL).await.ok();
    kubectl.run_with(&apply, POOL).await.ok();
    kubectl.apply(POOL).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_refused_by_name_and_pruned_without_validation() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let odd = POOL.replace("natOutgoing", "natOutgoin");
    for verb in ["apply", "create"] {
        let refused = kubectl.run_with(&[verb, "-f", "-"], &odd).await;
        assert_eq!(refused.code, 1);
        assert!(
            refused.err.contains(r#"unknown field "spec.natOutgoin""#),
            "{}",
            refused.err
        );
    }
    kubectl
        .run_with(&["apply", "--validate=false", "-f", "-"], &odd)
        .await
        .ok();
    let spec = kubectl
        .run(&["get", "ippool", "p1", "-o", "jsonpath={.spec}"])
        .await
        .ok();
    assert!(!spec.contains("natOutgoin"), "{spec}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_read_like_any_cluster() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let bad = POOL.replace("10.1.0.0/16", "10.1.0.1/16");
    let refused = kubectl.apply(&bad).await;
    assert!(
        refused
            .err
            .starts_with("The IPPool \"p1\" is invalid: spec"),
        "{}",
        refused.err
    );
    let both = POOL.replace("natOutgoing: true", "ipipMode: Always\n  vxlanMode: Always");
    let refused = kubectl.apply(&both).await;
    assert!(
        refused
            .err
            .contains("ipipMode and vxlanMode cannot both be enabled"),
        "{}",
        refused.err
    );
    let gone = kubectl.run(&["get", "ippool", "none"]).await;
    assert_eq!(
        gone.err,
        "Error from server (NotFound): ippools.projectcalico.org \"none\" not found\n"
    );
    kubectl.apply(POOL).await.ok();
    let twice = kubectl.run_with(&["create", "-f", "-"], POOL).await;
    assert!(twice.err.contains("(AlreadyExists)"), "{}", twice.err);
    let strategic = kubectl
        .run(&["patch", "ippool", "p1", "-p", "{\"spec\":{}}"])
        .await;
    assert!(
        strategic
            .err
            .contains("is not supported by projectcalico.org/v3, Kind=IPPool"),
        "{}",
        strategic.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn get_prints_columns_ages_and_wide_output() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    let table = kubectl.run(&["get", "ippools"]).await.ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[0].contains("CIDR") && lines[0].ends_with("AGE"));
    assert!(
        lines[1].starts_with("p1") && lines[1].contains("10.1.0.0/16"),
        "{table}"
    );
    let age = lines[1].split_whitespace().last().unwrap();
    assert!(
        age.strip_suffix('s').unwrap().parse::<u32>().is_ok(),
        "{age}"
    );
    let wide = kubectl.run(&["get", "ippool", "-o", "wide"]).await.ok();
    assert!(wide.lines().next().unwrap().len() >= lines[0].len());
    let names = kubectl.run(&["get", "ippools", "-o", "name"]).await.ok();
    assert_eq!(names, "ippool.projectcalico.org/p1\n");
    assert_eq!(
        kubectl.run(&["get", "bgppeers"]).await.err,
        "No resources found\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_print_one_line_per_change() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    let mut command = kubectl.command(&["get", "ippools", "-w"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .expect("no line")
            .unwrap()
            .unwrap()
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.starts_with("p1"));
    kubectl.run(&["label", "ippool", "p1", "a=b"]).await.ok();
    assert!(next().await.starts_with("p1"));
    kubectl
        .apply(&POOL.replace("p1", "p2").replace("10.1.", "10.2."))
        .await
        .ok();
    assert!(next().await.starts_with("p2"));
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_label_annotate_patch_replace_and_delete() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    let mut edit = kubectl.command(&["edit", "ippool", "p1"]);
    edit.env(
        "KUBE_EDITOR",
        "sed -i s/natOutgoing:.true/natOutgoing:\\ false/",
    );
    let edited = kubectl.finish(&mut edit, "").await.ok();
    assert_eq!(edited, "ippool.projectcalico.org/p1 edited\n");
    let nat = ["get", "ippool", "p1", "-o", "jsonpath={.spec.natOutgoing}"];
    assert_eq!(kubectl.run(&nat).await.ok(), "false");
    let mut bad = kubectl.command(&["edit", "ippool", "p1"]);
    bad.env("KUBE_EDITOR", "sed -i s/natOutgoing/natOut/");
    assert_ne!(kubectl.finish(&mut bad, "").await.code, 0);
    let labelled = kubectl.run(&["label", "ippool", "p1", "zone=a"]).await.ok();
    assert_eq!(labelled, "ippool.projectcalico.org/p1 labeled\n");
    let selected = kubectl
        .run(&["get", "ippools", "-l", "zone=a", "-o", "name"])
        .await
        .ok();
    assert_eq!(selected, "ippool.projectcalico.org/p1\n");
    let annotated = kubectl
        .run(&["annotate", "ippool", "p1", "note=x"])
        .await
        .ok();
    assert_eq!(annotated, "ippool.projectcalico.org/p1 annotated\n");
    let merge = r#"{"spec":{"natOutgoing":true}}"#;
    kubectl
        .run(&["patch", "ippool", "p1", "--type=merge", "-p", merge])
        .await
        .ok();
    assert_eq!(kubectl.run(&nat).await.ok(), "true");
    let json = r#"[{"op":"replace","path":"/spec/natOutgoing","value":false}]"#;
    let patched = kubectl
        .run(&["patch", "ippool", "p1", "--type=json", "-p", json])
        .await
        .ok();
    assert_eq!(patched, "ippool.projectcalico.org/p1 patched\n");
    let again = kubectl
        .run(&["patch", "ippool", "p1", "--type=json", "-p", json])
        .await
        .ok();
    assert_eq!(again, "ippool.projectcalico.org/p1 patched (no change)\n");
    let replaced = kubectl.run_with(&["replace", "-f", "-"], POOL).await.ok();
    assert_eq!(replaced, "ippool.projectcalico.org/p1 replaced\n");
    let deleted = kubectl.run(&["delete", "ippool", "p1"]).await.ok();
    assert!(
        deleted.starts_with("ippool.projectcalico.org \"p1\" deleted"),
        "{deleted}"
    );
    assert_eq!(kubectl.run(&["get", "ippool", "p1"]).await.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_sees_conditions_values_and_deletion() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    let wait = [
        "wait",
        "ippool/p1",
        "--for=jsonpath={.spec.disabled}=true",
        "--timeout=15s",
    ];
    let path = "/apis/projectcalico.org/v3/ippools/p1";
    let change = async {
        let patch = serde_json::json!({"spec": {"disabled": true}});
        server.merge(path, &patch).await.expect(200);
    };
    let (waited, ()) = tokio::join!(kubectl.run(&wait), change);
    assert_eq!(waited.ok(), "ippool.projectcalico.org/p1 condition met\n");
    let mut gone = kubectl.command(&["wait", "ippool/p1", "--for=delete", "--timeout=15s"]);
    let (gone, _) = tokio::join!(kubectl.finish(&mut gone, ""), server.delete(path));
    assert_eq!(gone.code, 0, "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_and_explain() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.apply(POOL).await.ok();
    let made = server
        .get("/apis/projectcalico.org/v3/ippools/p1")
        .await
        .expect(200);
    let event = serde_json::json!({"metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": {"kind": "IPPool", "name": "p1", "uid": made["metadata"]["uid"], "apiVersion": "projectcalico.org/v3"},
        "reason": "Overlap", "message": "overlaps p0", "type": "Warning",
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"});
    server
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .expect(201);
    let described = kubectl.run(&["describe", "ippool", "p1"]).await.ok();
    assert!(
        described.contains("Nat Outgoing:") && described.contains("overlaps p0"),
        "{described}"
    );
    let explained = kubectl.run(&["explain", "ippool.spec.cidr"]).await.ok();
    assert!(explained.contains("FIELD: cidr <string>"), "{explained}");
    let spec = kubectl.run(&["explain", "ippool.spec"]).await.ok();
    assert!(spec.contains("cidr\t<string> -required-"), "{spec}");
    let meta = kubectl
        .run(&["explain", "ippool.metadata.labels"])
        .await
        .ok();
    assert!(meta.contains("FIELD: labels <map[string]string>"), "{meta}");
}
