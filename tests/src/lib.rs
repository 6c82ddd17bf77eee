//! Tests that need namespaces, BGP peers or an API server.
//!
//! Each test makes a lab of its own ([`margay_lab::Lab::builder`]) that goes with the test, in a panic too. They need
//! root, the executables of this workspace (`cargo build --workspace --bins`) and, for other routers, what
//! `make setup` unpacks; what is missing is told by the first line of the failure.

use margay_lab::{Builder, Lab, Result};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long something may take that a test waits for.
pub const SOON: Duration = Duration::from_secs(20);

/// Brings a lab up, or fails with cause and remedy.
pub async fn up(builder: Builder) -> Lab {
    match Box::pin(builder.up()).await {
        Ok(lab) => lab,
        Err(e) => panic!(
            "{e}{}",
            e.remedy
                .as_ref()
                .map(|r| format!("; remedy: {r}"))
                .unwrap_or_default()
        ),
    }
}

/// A file of this repository.
pub fn repository_file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
}

/// Text of a file of this repository.
pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository_file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// An executable of this workspace.
pub fn executable(name: &str) -> PathBuf {
    let programs = margay_lab::Programs::find().unwrap_or_else(|e| panic!("{e}"));
    programs.margay.with_file_name(name)
}

/// Destinations in the kernel table of a member whose next hop is one of these addresses.
pub fn destinations_via(lab: &Lab, member: &str, next_hops: &[IpAddr]) -> Result<BTreeSet<String>> {
    let routes = lab.kernel_routes(member)?.into_iter();
    let via = routes.filter(|r| r.gateways.iter().any(|g| next_hops.contains(g)));
    Ok(via.map(|r| r.destination.to_string()).collect())
}

/// Underlay addresses of all nodes.
pub fn node_addresses(lab: &Lab) -> Result<Vec<IpAddr>> {
    Ok(lab
        .state()?
        .nodes
        .into_iter()
        .flat_map(|n| n.addresses)
        .collect())
}

/// Underlay addresses of the router.
pub fn router_addresses(lab: &Lab) -> Result<Vec<IpAddr>> {
    Ok(lab.state()?.tor.map(|t| t.addresses).unwrap_or_default())
}
