//! `validate`, and the checks that run before anything is written: what the API server cannot
//! see (a selector that does not parse, a pool that overlaps another one) is refused here.

use crate::api::{Api, Connection, Method, Request};
use crate::failure::Failure;
use crate::manifest::{Document, Files};
use margay_crds::validate::{self, DocumentError, FieldError};
use margay_crds::{BGPFilter, BGPPeer, IPAMBlock, IPPool};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Group and version of the kinds that are checked against each other.
const CALICO: &str = "projectcalico.org/v3";

/// Check manifests without writing anything
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl validate -f pools/\n  margayctl validate --with-cluster -f pool.yaml"
)]
pub(crate) struct Validate {
    #[command(flatten)]
    files: Files,
    /// Check against the objects of the cluster too
    #[arg(long)]
    with_cluster: bool,
}

impl Validate {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let documents = self.files.read()?;
        let cluster = if self.with_cluster {
            Cluster::read(&Api::connect(connection).await?, &documents).await?
        } else {
            Cluster::default()
        };
        check(&documents, &cluster)?;
        println!("{} valid", count(documents.len()));
        Ok(0)
    }
}

fn count(n: usize) -> String {
    if n == 1 {
        "1 object is".to_owned()
    } else {
        format!("{n} objects are")
    }
}

/// Refuses documents that must not be written: nothing of a file is sent when one object is bad.
pub(super) async fn before_writing(api: &Api, documents: &[Document]) -> Result<(), Failure> {
    let cluster = Cluster::read(api, documents).await?;
    check(documents, &cluster)
}

/// The objects of the cluster that documents are checked against.
#[derive(Default)]
struct Cluster {
    pools: Vec<IPPool>,
    blocks: Vec<IPAMBlock>,
    filters: Vec<BGPFilter>,
}

impl Cluster {
    /// Reads only the lists that the documents need.
    async fn read(api: &Api, documents: &[Document]) -> Result<Self, Failure> {
        let any = |kind: &str| {
            documents
                .iter()
                .any(|d| d.api_version() == CALICO && d.kind() == kind)
        };
        let mut cluster = Self::default();
        if any("IPPool") {
            cluster.pools = list(api, "IPPool").await?;
            cluster.blocks = list(api, "IPAMBlock").await?;
        }
        if any("BGPPeer") {
            cluster.filters = list(api, "BGPFilter").await?;
        }
        Ok(cluster)
    }
}

/// A list of the cluster; empty when the server does not have the kind.
async fn list<K: DeserializeOwned>(api: &Api, kind: &str) -> Result<Vec<K>, Failure> {
    let Some(kind) = api.kinds().find_for(CALICO, kind) else {
        return Ok(Vec::new());
    };
    let answer = api
        .send(Request::new(Method::Get, kind, None, None))
        .await?;
    let items = answer
        .get("items")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    Ok(items
        .into_iter()
        .filter_map(|item| serde_json::from_value(item).ok())
        .collect())
}

/// The documents of a kind, with those of the cluster that they do not replace.
fn together<K: DeserializeOwned>(
    documents: &[Document],
    kind: &str,
    cluster: Vec<K>,
    name: impl Fn(&K) -> Option<&str>,
) -> Vec<K> {
    let own: Vec<K> = documents
        .iter()
        .filter(|d| d.api_version() == CALICO && d.kind() == kind)
        .filter_map(|d| serde_json::from_value(d.object.clone()).ok())
        .collect();
    let mut all: Vec<K> = cluster
        .into_iter()
        .filter(|theirs| {
            !own.iter()
                .any(|ours| name(ours).is_some() && name(ours) == name(theirs))
        })
        .collect();
    all.extend(own);
    all
}

fn check(documents: &[Document], cluster: &Cluster) -> Result<(), Failure> {
    let pools = together(documents, "IPPool", cluster.pools.clone(), |p| {
        p.metadata.name.as_deref()
    });
    let filters = together(documents, "BGPFilter", cluster.filters.clone(), |f| {
        f.metadata.name.as_deref()
    });
    let mut failures = Vec::new();
    for document in documents {
        let (mut errors, warnings) = match validate::document(&document.object) {
            Ok(found) => found,
            Err(DocumentError::UnknownKind { .. }) => continue,
            Err(DocumentError::Shape { field, reason }) => {
                (vec![FieldError::new(field, "", reason)], Vec::new())
            }
        };
        for warning in warnings {
            eprintln!("warning: {}: {warning}", label(document));
        }
        if errors.is_empty() {
            errors.extend(against_others(document, &pools, &cluster.blocks, &filters));
        }
        failures.extend(errors.into_iter().map(|error| {
            Failure::new(
                format!("{} ({}) is invalid", label(document), document.origin),
                error,
            )
        }));
    }
    Failure::all(failures)
}

fn against_others(
    document: &Document,
    pools: &[IPPool],
    blocks: &[IPAMBlock],
    filters: &[BGPFilter],
) -> Vec<FieldError> {
    match document.kind() {
        "IPPool" => serde_json::from_value::<IPPool>(document.object.clone())
            .map(|pool| validate::pool_conflicts(&pool, pools, blocks))
            .unwrap_or_default(),
        "BGPPeer" => serde_json::from_value::<BGPPeer>(document.object.clone())
            .map(|peer| validate::peer_references(&peer, filters))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn label(document: &Document) -> String {
    format!(
        "{} \"{}\"",
        document.kind(),
        document.name().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let documents = crate::manifest::parse(text, "f.yaml").unwrap();
        check(&documents, &Cluster::default()).map_err(|e| e.to_string())
    }

    fn pool(name: &str, cidr: &str) -> String {
        format!(
            "---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n"
        )
    }

    #[test]
    fn pools_of_one_file_must_not_overlap() {
        assert_eq!(
            checked(&(pool("a", "10.0.0.0/16") + &pool("b", "10.1.0.0/16"))),
            Ok(())
        );
        let error = checked(&(pool("a", "10.0.0.0/16") + &pool("b", "10.0.128.0/17"))).unwrap_err();
        assert!(
            error.contains("IPPool \"b\"")
                && error.contains("spec.cidr")
                && error.contains("\"a\""),
            "{error}"
        );
    }

    #[test]
    fn a_selector_typo_is_refused_with_object_and_field() {
        let text = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.0.0.0/16, nodeSelector: \"rack = 'r1'\"}\n";
        let error = checked(text).unwrap_err();
        assert!(
            error.contains("IPPool \"a\"") && error.contains("spec.nodeSelector"),
            "{error}"
        );
    }

    #[test]
    fn core_kinds_are_left_to_the_server() {
        assert_eq!(
            checked("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"),
            Ok(())
        );
    }
}
