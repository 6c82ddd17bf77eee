//! `margay bgp` as the router: the example's peer is repeated for every node.

use crate::error::{Error, Result, Tried};
use crate::state::Node;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../examples/tor/margay.yaml");

/// The example with one peer per node and family.
pub(super) fn configuration(nodes: &[Node]) -> Result<String> {
    let what = || "examples/tor/margay.yaml".to_owned();
    let mut document: Value = serde_saphyr::from_str(EXAMPLE).tried(what)?;
    let examples = document
        .get("peers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let example = |v6: bool| {
        let fits = |p: &&Value| p["addr"].as_str().is_some_and(|a| a.contains(':') == v6);
        let found = examples.iter().find(fits).cloned();
        found.ok_or_else(|| Error::new(what(), "it has no example peer of each family"))
    };
    let mut peers = Vec::new();
    for (node, address) in nodes
        .iter()
        .flat_map(|n| n.addresses.iter().map(move |ip| (n, ip)))
    {
        let mut peer = example(address.is_ipv6())?;
        peer["addr"] = json!(address.to_string());
        peer["name"] = json!(node.name);
        peers.push(peer);
    }
    document["peers"] = Value::Array(peers);
    serde_saphyr::to_string(&document).tried(what)
}
