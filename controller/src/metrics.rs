//! Gauges of address usage, with the names Calico's dashboards use.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use margay_ipam::block::Owner;
use metrics::gauge;

use crate::cluster::{Cluster, Purpose};

/// Value of `ippool` for blocks outside all pools.
const NO_POOL: &str = "no_ippool";
/// Value of `node` for blocks nobody owns.
const NO_AFFINITY: &str = "no_affinity";
/// Value of `node` for addresses whose node is not recorded.
const UNKNOWN_NODE: &str = "unknown_node";

/// The gauges this replica has set. Dropping them sets all to zero: another replica reports from then on.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    known: BTreeSet<(String, String)>,
}

impl Gauges {
    /// Sets the gauges to the state of the cluster.
    pub(crate) fn record(&mut self, cluster: &Cluster) {
        gauge!("margay_controller_leading").set(1.0);
        let counts = counts(cluster);
        for key in std::mem::take(&mut self.known) {
            if !counts.contains_key(&key) {
                set(&key, &Counts::default());
            }
        }
        counts.iter().for_each(|(key, counts)| set(key, counts));
        self.known = counts.into_keys().collect();
        for (name, pool) in cluster.pools.objects() {
            if let Ok(cidr) = pool.spec.cidr.parse::<IpNet>() {
                let bits = i32::from(cidr.max_prefix_len() - cidr.prefix_len());
                gauge!("ipam_ippool_size", "ippool" => name.clone()).set(2f64.powi(bits));
            }
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        gauge!("margay_controller_leading").set(0.0);
        self.known
            .iter()
            .for_each(|key| set(key, &Counts::default()));
    }
}

fn set((pool, node): &(String, String), counts: &Counts) {
    let labels = [("ippool", pool.clone()), ("node", node.clone())];
    gauge!("ipam_allocations_in_use", &labels).set(counts.in_use as f64);
    gauge!("ipam_allocations_borrowed", &labels).set(counts.borrowed as f64);
    gauge!("ipam_blocks", &labels).set(counts.blocks as f64);
}

/// Counts by pool and node.
fn counts(cluster: &Cluster) -> BTreeMap<(String, String), Counts> {
    let mut counts: BTreeMap<(String, String), Counts> = BTreeMap::new();
    for block in cluster.blocks.objects().values() {
        let pool = cluster
            .pool_of(block.cidr.network())
            .unwrap_or(NO_POOL)
            .to_owned();
        let owner = match &block.owner {
            Some(Owner::Host(name) | Owner::Virtual(name)) => name.clone(),
            None => NO_AFFINITY.to_owned(),
        };
        counts
            .entry((pool.clone(), owner.clone()))
            .or_default()
            .blocks += 1;
        for held in block
            .uses
            .iter()
            .filter(|held| held.purpose != Purpose::Reserve)
        {
            let node = held.node.clone().unwrap_or_else(|| UNKNOWN_NODE.to_owned());
            let borrowed = node != owner;
            let counts = counts.entry((pool.clone(), node)).or_default();
            counts.in_use += 1;
            counts.borrowed += u64::from(borrowed);
        }
    }
    counts
}

#[derive(Debug, Default)]
struct Counts {
    in_use: u64,
    borrowed: u64,
    blocks: u64,
}
