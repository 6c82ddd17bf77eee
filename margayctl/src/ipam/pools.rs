//! Use of pools and blocks.

use super::blocks::{BlockView, size};
use super::{Lists, Show};
use crate::failure::Failure;
use crate::output::{Table, document, print_document};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::io::Write;

/// Numbers of one pool or block.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Use {
    total: u128,
    in_use: u128,
    reserved: u128,
    free: u128,
}

/// One line of the table.
struct Row {
    grouping: &'static str,
    name: String,
    cidr: String,
    owner: Option<String>,
    numbers: Use,
}

/// Prints pools, with `--show-blocks` their blocks too, or borrowed addresses.
pub(super) async fn show(client: &kube::Client, show: &Show) -> Result<u8, Failure> {
    let lists = Lists::read(client).await?;
    let mut out = std::io::stdout().lock();
    if show.show_borrowed {
        let borrowed = borrowed(&lists);
        let items = borrowed.iter().map(|row| json!({
            "ip": row[0], "borrowingNode": row[1], "block": row[2], "blockOwner": row[3], "type": row[4], "allocatedTo": row[5],
        }));
        if !print_document(
            &mut out,
            &show.output,
            &document("IpamBorrowedList", items.collect()),
        )? {
            let mut table = Table::new(&[
                "IP",
                "BORROWING-NODE",
                "BLOCK",
                "BLOCK-OWNER",
                "TYPE",
                "ALLOCATED-TO",
            ]);
            borrowed.into_iter().for_each(|row| table.row(row.to_vec()));
            if table.is_empty() {
                eprintln!("No borrowed addresses found");
            } else {
                table.print(&mut out, !show.no_headers)?;
            }
        }
        return Ok(0);
    }
    let rows = rows(&lists, show.show_blocks);
    let items = rows.iter().map(item).collect();
    if !print_document(&mut out, &show.output, &document("IpamUseList", items))? {
        let mut table = Table::new(&[
            "GROUPING",
            "NAME",
            "CIDR",
            "OWNER",
            "TOTAL#",
            "IN-USE#",
            "RESERVED#",
            "FREE#",
        ]);
        for row in &rows {
            let of_total = |n: u128| format!("{} ({}%)", count(n), percent(n, row.numbers.total));
            table.row(vec![
                row.grouping.to_owned(),
                row.name.clone(),
                row.cidr.clone(),
                row.owner.clone().unwrap_or_default(),
                count(row.numbers.total),
                of_total(row.numbers.in_use),
                of_total(row.numbers.reserved),
                of_total(row.numbers.free),
            ]);
        }
        if table.is_empty() {
            eprintln!("No pools found");
        } else {
            table.print(&mut out, !show.no_headers)?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn item(row: &Row) -> Value {
    json!({
        "grouping": row.grouping,
        "name": row.name,
        "cidr": row.cidr,
        "owner": row.owner,
        "total": row.numbers.total.to_string(),
        "inUse": row.numbers.in_use.to_string(),
        "reserved": row.numbers.reserved.to_string(),
        "free": row.numbers.free.to_string(),
    })
}

fn rows(lists: &Lists, with_blocks: bool) -> Vec<Row> {
    let reservations = lists.reserved();
    let blocks: Vec<BlockView<'_>> = lists.blocks.iter().filter_map(BlockView::new).collect();
    let mut rows = Vec::new();
    let mut homeless: Vec<&BlockView<'_>> = blocks.iter().collect();
    for pool in &lists.pools {
        let Ok(cidr) = pool.spec.cidr.parse::<IpNet>() else {
            continue;
        };
        let (own, others): (Vec<_>, Vec<_>) =
            homeless.into_iter().partition(|b| cidr.contains(&b.cidr));
        homeless = others;
        rows.push(Row {
            grouping: "IP Pool",
            name: pool.metadata.name.clone().unwrap_or_default(),
            cidr: cidr.to_string(),
            owner: None,
            numbers: use_of_pool(&cidr, &own, &reservations),
        });
        if with_blocks {
            rows.extend(
                own.into_iter()
                    .map(|b| block_row("Block", b, &reservations)),
            );
        }
    }
    rows.extend(
        homeless
            .into_iter()
            .map(|b| block_row("Orphan Block", b, &reservations)),
    );
    rows
}

fn block_row(grouping: &'static str, block: &BlockView<'_>, reservations: &[IpNet]) -> Row {
    Row {
        grouping,
        name: String::new(),
        cidr: block.cidr.to_string(),
        owner: block.owner().map(str::to_owned),
        numbers: use_of_block(block, reservations),
    }
}

/// Addresses a node keeps ready count as reserved, like those of IPReservations.
fn use_of_block(block: &BlockView<'_>, reservations: &[IpNet]) -> Use {
    let (warm, used) =
        block.allocated().fold(
            (0, 0),
            |(w, u), a| if a.is_warm() { (w + 1, u) } else { (w, u + 1) },
        );
    let is_reserved = |ip: &std::net::IpAddr| reservations.iter().any(|net| net.contains(ip));
    Use {
        total: block.size(),
        in_use: used,
        reserved: warm + overlap(&block.cidr, reservations),
        free: block.free().filter(|ip| !is_reserved(ip)).count() as u128,
    }
}

fn use_of_pool(cidr: &IpNet, blocks: &[&BlockView<'_>], reservations: &[IpNet]) -> Use {
    let mut sum = Use {
        total: size(cidr),
        reserved: overlap(cidr, reservations),
        ..Use::default()
    };
    let (mut blocks_size, mut blocks_reserved) = (0_u128, 0_u128);
    for block in blocks {
        let numbers = use_of_block(block, reservations);
        let listed = overlap(&block.cidr, reservations);
        sum.in_use += numbers.in_use;
        sum.reserved = sum.reserved.saturating_add(numbers.reserved - listed);
        sum.free += numbers.free;
        blocks_size = blocks_size.saturating_add(numbers.total);
        blocks_reserved += listed;
    }
    let outside = sum.total.saturating_sub(blocks_size);
    let reserved_outside = overlap(cidr, reservations).saturating_sub(blocks_reserved);
    sum.free = sum
        .free
        .saturating_add(outside.saturating_sub(reserved_outside));
    sum
}

/// How many addresses of a range the (disjoint) reservations cover.
fn overlap(net: &IpNet, reservations: &[IpNet]) -> u128 {
    reservations
        .iter()
        .map(|r| {
            if net.contains(r) {
                size(r)
            } else if r.contains(net) {
                size(net)
            } else {
                0
            }
        })
        .fold(0, u128::saturating_add)
}

fn borrowed(lists: &Lists) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for block in lists.blocks.iter().filter_map(BlockView::new) {
        let Some(owner) = block.owner() else { continue };
        for address in block.allocated() {
            let Some(node) = address.attribute("node").filter(|n| *n != owner) else {
                continue;
            };
            let kind = address.attribute("type").unwrap_or("pod").to_owned();
            rows.push([
                address.ip.to_string(),
                node.to_owned(),
                block.cidr.to_string(),
                owner.to_owned(),
                kind,
                address.purpose(),
            ]);
        }
    }
    rows
}

/// A count as people read it: exact, or a power of two when it is astronomically large.
fn count(n: u128) -> String {
    if n >= 1 << 53 && n.is_power_of_two() {
        format!("2^{}", n.trailing_zeros())
    } else if n >= 1 << 53 {
        format!("~2^{}", 128 - n.leading_zeros())
    } else {
        n.to_string()
    }
}

fn percent(part: u128, whole: u128) -> u128 {
    if whole == 0 {
        0
    } else {
        (part as f64 * 100.0 / whole as f64).round() as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_crds::{AllocationAttribute, IPAMBlock, IPAMBlockSpec};

    fn block(cidr: &str, handles: &[Option<&str>]) -> IPAMBlock {
        let mut spec = IPAMBlockSpec {
            cidr: cidr.into(),
            affinity: Some("host:edge-a".into()),
            ..Default::default()
        };
        for handle in handles {
            spec.allocations.push(handle.map(|h| {
                spec.attributes.push(AllocationAttribute {
                    handle_id: Some(h.into()),
                    ..Default::default()
                });
                spec.attributes.len() as i64 - 1
            }));
        }
        IPAMBlock {
            spec,
            ..Default::default()
        }
    }

    #[test]
    fn used_reserved_and_free_addresses_of_a_block_are_told_apart() {
        let block = block(
            "10.0.0.0/30",
            &[
                Some("k8s-pod-network.a"),
                Some("margay-warm.edge-a"),
                None,
                None,
            ],
        );
        let view = BlockView::new(&block).unwrap();
        let reserved: Vec<IpNet> = vec!["10.0.0.3/32".parse().unwrap()];
        assert_eq!(
            use_of_block(&view, &reserved),
            Use {
                total: 4,
                in_use: 1,
                reserved: 2,
                free: 1
            }
        );
    }

    #[test]
    fn a_pool_counts_free_space_inside_and_outside_its_blocks() {
        let block = block("10.0.0.0/30", &[Some("a"), None, None, None]);
        let view = BlockView::new(&block).unwrap();
        let numbers = use_of_pool(
            &"10.0.0.0/28".parse().unwrap(),
            &[&view],
            &["10.0.0.8/31".parse().unwrap()],
        );
        assert_eq!(
            numbers,
            Use {
                total: 16,
                in_use: 1,
                reserved: 2,
                free: 13
            }
        );
    }

    #[test]
    fn counts_and_percentages_read_as_documented() {
        assert_eq!(count(64), "64");
        assert_eq!(count(1 << 80), "2^80");
        assert_eq!(percent(23, 64), 36);
        assert_eq!(percent(41, 64), 64);
    }
}
