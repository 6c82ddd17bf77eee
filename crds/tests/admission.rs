//! Objects the API server accepts or refuses with the shipped documents: the tables in `cases/`.

use serde::Deserialize;
use serde_json::{Value, json};

mod schema;

/// One row of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What the row shows.
    case: String,
    /// Name of the object, `x` when absent.
    #[serde(default)]
    name: Option<String>,
    /// Specification.
    spec: Value,
    /// Specification it replaces; a creation when absent.
    #[serde(default)]
    old: Option<Value>,
    /// Specification as stored.
    #[serde(default)]
    stored: Option<Value>,
    /// One piece of text per expected reason; accepted when absent.
    #[serde(default)]
    refused: Option<Vec<String>>,
}

fn check(plural: &str) {
    let file = format!("{}/tests/cases/{plural}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).expect("the table exists");
    let cases: Vec<Case> =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(!cases.is_empty());
    let document = margay_crds::manifests::by_plural(plural).expect("the kind has a document");
    let schema = schema::of(document);
    let mut failures = Vec::new();
    for case in cases {
        let name = case.name.as_deref().unwrap_or("x");
        let object = |spec: &Value| json!({ "metadata": { "name": name }, "spec": spec });
        let old = case.old.as_ref().map(object);
        let outcome = schema::admit(&schema, &object(&case.spec), old.as_ref());
        match (outcome, case.refused) {
            (Ok(object), None) => {
                if let Some(stored) = case.stored
                    && stored != object["spec"]
                {
                    failures.push(format!("{}: stored as {}", case.case, object["spec"]));
                }
            }
            (Ok(_), Some(expected)) => {
                failures.push(format!("{}: accepted, expected {expected:?}", case.case))
            }
            (Err(reasons), None) => {
                failures.push(format!("{}: refused with {reasons:?}", case.case))
            }
            (Err(reasons), Some(expected)) => {
                let matched =
                    |piece: &String| reasons.iter().any(|reason| reason.contains(piece.as_str()));
                if reasons.len() != expected.len() || !expected.iter().all(matched) {
                    failures.push(format!(
                        "{}: refused with {reasons:?}, expected {expected:?}",
                        case.case
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{plural}:\n{}", failures.join("\n"));
}

macro_rules! tables {
    ($($name:ident => $plural:literal,)+) => {
        $(
            #[test]
            fn $name() {
                check($plural);
            }
        )+

        #[test]
        fn every_table_is_read() {
            let read = [$($plural),+];
            for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")).expect("the folder exists") {
                let name = entry.expect("readable").file_name().into_string().expect("text");
                assert!(read.contains(&name.trim_end_matches(".yaml")), "{name} is not read");
            }
        }
    };
}

tables! {
    bgp_configurations => "bgpconfigurations",
    bgp_filters => "bgpfilters",
    bgp_peers => "bgppeers",
    felix_configurations => "felixconfigurations",
    global_network_policies => "globalnetworkpolicies",
    host_endpoints => "hostendpoints",
    ip_pools => "ippools",
    ipam_blocks => "ipamblocks",
    ipam_configurations => "ipamconfigurations",
    ip_reservations => "ipreservations",
    kube_controllers_configurations => "kubecontrollersconfigurations",
    network_policies => "networkpolicies",
    staged_kubernetes_network_policies => "stagedkubernetesnetworkpolicies",
    staged_network_policies => "stagednetworkpolicies",
    tiers => "tiers",
}
