//! What the allocator can tell about itself.

use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::admin;

use super::Ipam;
use super::state::{Local, State};
use crate::block::Holder;
use crate::pool::Verdict;
use crate::request::ATTR_NODE;

/// Something an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpamProblem {
    /// A pool is not used because of what is written in it.
    Pool {
        /// Name of the IPPool.
        pool: String,
        /// Why.
        verdict: Verdict,
    },
    /// Settings of the IPAMConfiguration contradict each other.
    Configuration(String),
    /// A block of this node is inconsistent and not used.
    Block {
        /// The block.
        cidr: IpNet,
        /// What is wrong with it.
        reason: String,
    },
    /// An address in use on this node is recorded for somebody else.
    Lost {
        /// The address.
        ip: IpAddr,
        /// Who it is recorded for.
        holder: String,
    },
}

impl Ipam {
    /// Blocks and counts, as the agent's admin API shows them.
    pub fn status(&self) -> admin::Ipam {
        let state = self.core.lock();
        let mut status = admin::Ipam {
            node: state.node.clone(),
            ..admin::Ipam::default()
        };
        for (cidr, affinity) in &state.affinities {
            let counts = state.counts(cidr);
            status.blocks.push(admin::Block {
                cidr: cidr.to_string(),
                pool: state.pools.name_of_block(cidr).map(str::to_owned),
                state: affinity.spec.state.to_string(),
                size: crate::cidr::block_len(cidr) as u64,
                used: counts.used,
                reserved: counts.reserved,
            });
            status.counts.used += counts.used;
            status.counts.reserved += counts.reserved;
        }
        status.counts.blocks = status.blocks.len() as u64;
        let others = state
            .blocks
            .iter()
            .filter(|(cidr, _)| !state.affinities.contains_key(*cidr));
        status.counts.borrowed = others.map(|(cidr, _)| state.counts(cidr).mine).sum();
        status.counts.used += status.counts.borrowed;
        status
    }

    /// Everything that is wrong at the moment.
    pub fn problems(&self) -> Vec<IpamProblem> {
        let state = self.core.lock();
        let mut found = Vec::new();
        found.extend(
            state
                .pools
                .problems()
                .map(|(pool, verdict)| IpamProblem::Pool {
                    pool: pool.to_owned(),
                    verdict: verdict.clone(),
                }),
        );
        let contradictions = state.rules.contradictions().into_iter();
        found.extend(contradictions.map(|text| IpamProblem::Configuration(text.to_owned())));
        found.extend(
            state
                .invalid
                .iter()
                .map(|(cidr, reason)| IpamProblem::Block {
                    cidr: *cidr,
                    reason: reason.clone(),
                }),
        );
        found.extend(state.lost.iter().map(|(ip, holder)| IpamProblem::Lost {
            ip: *ip,
            holder: holder.clone(),
        }));
        found
    }
}

#[derive(Debug, Default)]
struct Counts {
    used: u64,
    reserved: u64,
    /// In use by this node.
    mine: u64,
}

impl State {
    fn counts(&self, cidr: &IpNet) -> Counts {
        let mut counts = Counts::default();
        let Some(cached) = self.blocks.get(cidr) else {
            return counts;
        };
        let block = &cached.block;
        for ordinal in 0..block.len() {
            let ip = block.address(ordinal);
            let (used, mine) = match (self.locals.get(&ip), block.holder(ordinal)) {
                (Some(Local::Handed { .. }), _) => (true, true),
                (Some(Local::Cooling { .. }), _) => (false, false),
                (None, Holder::Held(entry)) if self.is_warm(entry) => (false, false),
                (None, Holder::Held(entry)) => {
                    let node = entry
                        .secondary
                        .as_ref()
                        .and_then(|attrs| attrs.get(ATTR_NODE));
                    (true, node == Some(&self.node))
                }
                (None, Holder::Free) => continue,
                (None, Holder::Cooling) => (false, false),
            };
            counts.used += u64::from(used);
            counts.reserved += u64::from(!used);
            counts.mine += u64::from(mine);
        }
        counts
    }
}
