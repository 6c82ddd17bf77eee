//! Who has one address.

use super::blocks::BlockView;
use super::{Lists, Show};
use crate::failure::Failure;
use crate::output::print_document;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::io::Write;
use std::net::IpAddr;

/// Prints who has an address, or why nobody does.
pub(super) async fn show(client: &kube::Client, ip: IpAddr, show: &Show) -> Result<u8, Failure> {
    let lists = Lists::read(client).await?;
    let pool = lists.pools.iter().find(|p| {
        p.spec
            .cidr
            .parse::<IpNet>()
            .is_ok_and(|net| net.contains(&ip))
    });
    let block = lists
        .blocks
        .iter()
        .filter_map(BlockView::new)
        .find(|b| b.cidr.contains(&ip));
    let holder = block
        .as_ref()
        .and_then(|b| b.allocated().find(|a| a.ip == ip));
    let reserved = lists.reserved().iter().any(|net| net.contains(&ip));
    let state = match (&holder, reserved, pool) {
        (Some(a), ..) if a.is_warm() => "kept ready by its node",
        (Some(a), ..) if a.holder.is_some_and(|h| h.released_at.is_some()) => "cooling down",
        (Some(_), ..) => "in use",
        (None, true, _) => "reserved by an IPReservation",
        (None, false, Some(_)) => "not assigned",
        (None, false, None) => "outside every pool",
    };
    let attributes = holder.and_then(|a| a.holder);
    let value = json!({
        "apiVersion": "cli.margay.io/v1",
        "kind": "IpamAddress",
        "ip": ip,
        "state": state,
        "pool": pool.and_then(|p| p.metadata.name.clone()),
        "block": block.as_ref().map(|b| b.cidr.to_string()),
        "blockOwner": block.as_ref().and_then(BlockView::owner),
        "handle": attributes.and_then(|a| a.handle_id.clone()),
        "attributes": attributes.and_then(|a| a.secondary.clone()),
    });
    let mut out = std::io::stdout().lock();
    if !print_document(&mut out, &show.output, &value)? {
        writeln!(out, "{ip} is {state}")?;
        for (label, key) in [
            ("Pool", "pool"),
            ("Block", "block"),
            ("Block owner", "blockOwner"),
            ("Handle", "handle"),
        ] {
            if let Some(text) = value.get(key).and_then(Value::as_str) {
                writeln!(out, "{label}: {text}")?;
            }
        }
        for (key, text) in attributes
            .and_then(|a| a.secondary.as_ref())
            .into_iter()
            .flatten()
        {
            writeln!(out, "  {key}: {text}")?;
        }
    }
    Ok(0)
}
