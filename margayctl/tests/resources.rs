//! The executable against a real API server: grammar, output, exit codes.
#![allow(clippy::unwrap_used)]

use assert_cmd::Command;
use margay_apiserver::{Config, Server};
use std::io::Write as _;
use std::path::PathBuf;

/// An API server of its own for one test.
struct Cluster {
    dir: tempfile::TempDir,
    server: Option<Server>,
    runtime: tokio::runtime::Runtime,
}

impl Cluster {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("data"));
        config.listen = vec!["127.0.0.1:0".parse().unwrap()];
        config.crds = margay_crds::manifests::ALL;
        let server = runtime.block_on(Server::start(config)).unwrap();
        Self {
            dir,
            server: Some(server),
            runtime,
        }
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with_input(args, "")
    }

    fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        let output = Command::cargo_bin("margayctl")
            .unwrap()
            .args(args)
            .env("KUBECONFIG", self.dir.path().join("data/admin.kubeconfig"))
            .write_stdin(input)
            .output()
            .unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path.display().to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

const POOL: &str = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: pods-v4\nspec:\n  cidr: 10.88.0.0/16\n  natOutgoing: yes\n";

#[test]
fn apply_creates_then_says_unchanged_then_configured() {
    let cluster = Cluster::start();
    let pool = cluster.file("pool.yaml", POOL);
    let created = cluster.run(&["apply", "-f", &pool]);
    assert_eq!(
        (created.code, created.out.as_str()),
        (0, "ippool.projectcalico.org/pods-v4 created\n"),
        "{created:?}"
    );
    let same = cluster.run(&["apply", "-f", &pool]);
    assert_eq!(
        same.out, "ippool.projectcalico.org/pods-v4 unchanged\n",
        "{same:?}"
    );
    let changed = cluster.run_with_input(&["apply", "-f", "-"], &POOL.replace("yes", "no"));
    assert_eq!(
        changed.out, "ippool.projectcalico.org/pods-v4 configured\n",
        "{changed:?}"
    );
    let read = cluster.run(&[
        "get",
        "ippool",
        "pods-v4",
        "-o",
        "jsonpath={.spec.natOutgoing}",
    ]);
    assert_eq!(read.out, "false");
}

#[test]
fn a_field_taken_out_of_the_file_is_taken_out_of_the_object() {
    let cluster = Cluster::start();
    cluster.run_with_input(&["apply", "-f", "-"], POOL);
    let without = POOL.replace("  natOutgoing: yes\n", "");
    assert_eq!(
        cluster.run_with_input(&["apply", "-f", "-"], &without).code,
        0
    );
    let read = cluster.run(&["get", "ippool", "pods-v4", "-o", "json"]);
    assert!(!read.out.contains("\"natOutgoing\": true"), "{}", read.out);
}

#[test]
fn get_prints_tables_documents_names_and_columns() {
    let cluster = Cluster::start();
    cluster.run_with_input(&["apply", "-f", "-"], POOL);
    let table = cluster.run(&["get", "ippools"]);
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(
        lines[0].starts_with("NAME ") && lines[0].contains("CIDR") && lines[0].ends_with("AGE"),
        "{table:?}"
    );
    assert!(
        lines[1].starts_with("pods-v4 ") && lines[1].contains("10.88.0.0/16"),
        "{table:?}"
    );
    let yaml = cluster.run(&["get", "ippool/pods-v4", "-o", "yaml"]);
    assert!(
        yaml.out.contains("kind: IPPool") && yaml.out.contains("cidr: 10.88.0.0/16"),
        "{yaml:?}"
    );
    assert!(!yaml.out.contains("managedFields"), "{yaml:?}");
    assert_eq!(
        cluster.run(&["get", "ippools", "-o", "name"]).out,
        "ippool.projectcalico.org/pods-v4\n"
    );
    let columns = cluster.run(&[
        "get",
        "ippools",
        "-o",
        "custom-columns=N:.metadata.name,C:.spec.cidr",
    ]);
    assert_eq!(columns.out, "N        C\npods-v4  10.88.0.0/16\n");
    let json = cluster.run(&["get", "ippools", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0]["kind"], "IPPool");
}

#[test]
fn nothing_found_is_said_on_standard_error_and_is_no_failure() {
    let cluster = Cluster::start();
    let empty = cluster.run(&["get", "ippools"]);
    assert_eq!(
        (empty.code, empty.out.as_str(), empty.err.as_str()),
        (0, "", "No resources found\n")
    );
    let pods = cluster.run(&["get", "pods"]);
    assert_eq!(pods.err, "No resources found in default namespace.\n");
}

#[test]
fn refusals_name_the_object_the_field_and_the_reason() {
    let cluster = Cluster::start();
    let missing = cluster.run(&["get", "ippool", "nope"]);
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.err,
        "Error from server (NotFound): ippools.projectcalico.org \"nope\" not found\n"
    );
    let wrong_type =
        cluster.run_with_input(&["apply", "-f", "-"], &POOL.replace("10.88.0.0/16", "no"));
    assert_eq!(wrong_type.code, 1);
    assert!(wrong_type.err.contains("spec.cidr"), "{wrong_type:?}");
    let unknown = cluster.run_with_input(&["apply", "-f", "-"], &format!("{POOL}  foo: 1\n"));
    assert!(unknown.err.contains("spec.foo"), "{unknown:?}");
    let both = format!("{POOL}  ipipMode: Always\n  vxlanMode: Always\n");
    let both = cluster.run_with_input(&["apply", "-f", "-"], &both);
    assert!(both.err.contains("ipipMode and vxlanMode"), "{both:?}");
    assert_eq!(cluster.run(&["get", "ippools"]).err, "No resources found\n");
}

#[test]
fn create_refuses_what_exists_and_replace_what_does_not() {
    let cluster = Cluster::start();
    let pool = cluster.file("pool.yaml", POOL);
    assert_eq!(cluster.run(&["replace", "-f", &pool]).code, 1);
    assert_eq!(
        cluster.run(&["create", "-f", &pool]).out,
        "ippool.projectcalico.org/pods-v4 created\n"
    );
    let again = cluster.run(&["create", "-f", &pool]);
    assert!(
        again.code == 1 && again.err.contains("AlreadyExists"),
        "{again:?}"
    );
    assert_eq!(
        cluster.run(&["create", "--skip-exists", "-f", &pool]).code,
        0
    );
    assert_eq!(
        cluster.run(&["replace", "-f", &pool]).out,
        "ippool.projectcalico.org/pods-v4 replaced\n"
    );
    let stale = POOL.replace("name: pods-v4", "name: pods-v4\n  resourceVersion: \"1\"");
    let stale = cluster.run_with_input(&["replace", "-f", "-"], &stale);
    assert!(
        stale.code == 1 && stale.err.contains("Conflict"),
        "{stale:?}"
    );
}

#[test]
fn patch_merges_by_default_and_knows_json_patches() {
    let cluster = Cluster::start();
    cluster.run_with_input(&["apply", "-f", "-"], POOL);
    let merged = cluster.run(&[
        "patch",
        "ippool",
        "pods-v4",
        "-p",
        "{\"spec\":{\"natOutgoing\":false}}",
    ]);
    assert_eq!(
        merged.out, "ippool.projectcalico.org/pods-v4 patched\n",
        "{merged:?}"
    );
    let same = cluster.run(&[
        "patch",
        "ippool",
        "pods-v4",
        "-p",
        "spec: {natOutgoing: false}",
    ]);
    assert_eq!(
        same.out, "ippool.projectcalico.org/pods-v4 patched (no change)\n",
        "{same:?}"
    );
    let json = r#"[{"op":"replace","path":"/spec/natOutgoing","value":true}]"#;
    assert_eq!(
        cluster
            .run(&["patch", "ippool/pods-v4", "--type", "json", "-p", json])
            .code,
        0
    );
    assert_eq!(
        cluster
            .run(&[
                "get",
                "ippool",
                "pods-v4",
                "-o",
                "jsonpath={.spec.natOutgoing}"
            ])
            .out,
        "true"
    );
    let strategic = cluster.run(&[
        "patch",
        "ippool",
        "pods-v4",
        "--type",
        "strategic",
        "-p",
        "{}",
    ]);
    assert!(
        strategic.code == 1 && strategic.err.contains("UnsupportedMediaType"),
        "{strategic:?}"
    );
}

#[test]
fn delete_waits_and_forgives_when_asked() {
    let cluster = Cluster::start();
    cluster.run_with_input(&["apply", "-f", "-"], POOL);
    let deleted = cluster.run(&["delete", "ippool", "pods-v4"]);
    assert_eq!(
        (deleted.code, deleted.out.as_str()),
        (0, "ippool.projectcalico.org \"pods-v4\" deleted\n"),
        "{deleted:?}"
    );
    assert_eq!(cluster.run(&["delete", "ippool", "pods-v4"]).code, 1);
    assert_eq!(
        cluster
            .run(&["delete", "ippool", "pods-v4", "--ignore-not-found"])
            .code,
        0
    );
}

#[test]
fn dry_runs_check_and_store_nothing() {
    let cluster = Cluster::start();
    let server = cluster.run_with_input(&["apply", "--dry-run=server", "-f", "-"], POOL);
    assert_eq!(
        server.out, "ippool.projectcalico.org/pods-v4 created (server dry run)\n",
        "{server:?}"
    );
    let client = cluster.run_with_input(&["create", "--dry-run=client", "-f", "-"], POOL);
    assert_eq!(
        client.out, "ippool.projectcalico.org/pods-v4 created (dry run)\n",
        "{client:?}"
    );
    assert_eq!(cluster.run(&["get", "ippools"]).err, "No resources found\n");
}

#[test]
fn server_side_apply_reports_conflicts_with_other_managers() {
    let cluster = Cluster::start();
    let first = cluster.run_with_input(
        &[
            "apply",
            "--server-side",
            "--field-manager",
            "one",
            "-f",
            "-",
        ],
        POOL,
    );
    assert_eq!(
        first.out, "ippool.projectcalico.org/pods-v4 serverside-applied\n",
        "{first:?}"
    );
    let other = POOL.replace("yes", "no");
    let conflict = cluster.run_with_input(
        &[
            "apply",
            "--server-side",
            "--field-manager",
            "two",
            "-f",
            "-",
        ],
        &other,
    );
    assert!(
        conflict.code == 1 && conflict.err.contains("natOutgoing"),
        "{conflict:?}"
    );
    let forced = [
        "apply",
        "--server-side",
        "--field-manager",
        "two",
        "--force-conflicts",
        "-f",
        "-",
    ];
    assert_eq!(cluster.run_with_input(&forced, &other).code, 0);
}

#[test]
fn a_server_that_is_not_there_is_one_line_with_a_hint() {
    let cluster = Cluster::start();
    let kubeconfig =
        std::fs::read_to_string(cluster.dir.path().join("data/admin.kubeconfig")).unwrap();
    let at = kubeconfig.find("https://127.0.0.1:").unwrap() + "https://127.0.0.1:".len();
    let digits = kubeconfig[at..]
        .chars()
        .take_while(char::is_ascii_digit)
        .count();
    let moved = format!(
        "{}{}{}",
        &kubeconfig[..at],
        free_port(),
        &kubeconfig[at + digits..]
    );
    let path = cluster.file("moved.kubeconfig", &moved);
    let ran = cluster.run(&["--kubeconfig", &path, "get", "ippools"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .starts_with("error: cannot talk to the Kubernetes API")
            && ran.err.contains("hint:"),
        "{ran:?}"
    );
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn an_unknown_kind_a_missing_file_and_bad_words_have_their_exit_codes() {
    let cluster = Cluster::start();
    let kind = cluster.run(&["get", "ippols"]);
    assert!(
        kind.code == 1 && kind.err.contains("did you mean"),
        "{kind:?}"
    );
    let file = cluster.run(&["apply", "-f", "/nonexistent.yaml"]);
    assert!(
        file.code == 1 && file.err.contains("/nonexistent.yaml"),
        "{file:?}"
    );
    assert_eq!(cluster.run(&["get"]).code, 2);
    assert_eq!(cluster.run(&["get", "ippools", "-o", "nope"]).code, 2);
    assert_eq!(cluster.run(&["statsu"]).code, 2);
}

#[test]
fn version_and_completion_need_no_agent() {
    let cluster = Cluster::start();
    let version = cluster.run(&["version", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&version.out).unwrap();
    assert!(
        value["serverVersion"]
            .as_str()
            .is_some_and(|v| v.starts_with('v')),
        "{version:?}"
    );
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = cluster.run(&["completion", shell]);
        assert!(
            script.code == 0 && script.out.contains("margayctl"),
            "{shell}"
        );
    }
}

#[test]
fn what_the_api_server_cannot_see_is_refused_before_anything_is_written() {
    let cluster = Cluster::start();
    cluster.run_with_input(&["apply", "-f", "-"], POOL);
    let overlap = POOL
        .replace("pods-v4", "other")
        .replace("10.88.0.0/16", "10.88.128.0/17");
    let overlap = cluster.run_with_input(&["apply", "-f", "-"], &overlap);
    assert!(
        overlap.code == 1 && overlap.err.contains("spec.cidr") && overlap.err.contains("pods-v4"),
        "{overlap:?}"
    );
    let typo = "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {peerIP: 10.0.0.1, asNumber: 65010, nodeSelector: \"rack == r1\"}\n";
    let typo = cluster.run_with_input(&["create", "-f", "-"], typo);
    assert!(
        typo.code == 1 && typo.err.contains("spec.nodeSelector"),
        "{typo:?}"
    );
    assert_eq!(
        cluster.run(&["get", "bgppeers"]).err,
        "No resources found\n"
    );
}
