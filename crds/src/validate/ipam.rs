//! IPAMConfiguration, IPReservation and the objects agents write.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, annotation, name};
use crate::values::{parse_cidr, parse_masked_cidr};
use crate::{
    AffinityState, BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPAMHandle,
    IPReservation,
};

impl Validate for IPAMConfiguration {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::only_default(&self.name_any(), &mut findings);
        if !spec.strict_affinity && !spec.auto_allocate_blocks {
            let reason = "without new blocks a node can only borrow, which strictAffinity false would make the rule";
            findings.add("spec.autoAllocateBlocks", false, reason);
        }
        if let Some(blocks) = spec.max_blocks_per_host.filter(|blocks| *blocks > 0)
            && !spec.strict_affinity
        {
            findings.add("spec.maxBlocksPerHost", blocks, "needs strictAffinity true");
        }
        findings.0
    }
}

impl Validate for IPReservation {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::subdomain(&self.name_any(), &mut findings);
        for (index, range) in self.spec.reserved_cidrs.iter().flatten().enumerate() {
            findings.take(
                &format!("spec.reservedCIDRs[{index}]"),
                range,
                parse_cidr(range),
            );
        }
        findings.0
    }
}

impl Validate for IPAMBlock {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        let Some(cidr) = findings.take("spec.cidr", &spec.cidr, parse_masked_cidr(&spec.cidr))
        else {
            return findings.0;
        };
        let size = 1u128
            .checked_shl(u32::from(cidr.max_prefix_len() - cidr.prefix_len()))
            .unwrap_or(u128::MAX);
        if spec.allocations.len() as u128 != size {
            let count = spec.allocations.len();
            findings.add(
                "spec.allocations",
                count,
                format!("must have one entry per address, {size}"),
            );
        }
        for (ordinal, index) in spec.allocations.iter().enumerate() {
            let known = |index: i64| {
                usize::try_from(index).is_ok_and(|index| index < spec.attributes.len())
            };
            if let Some(index) = index.filter(|index| !known(*index)) {
                findings.add(
                    format!("spec.allocations[{ordinal}]"),
                    index,
                    "is not an index into attributes",
                );
            }
        }
        for (position, ordinal) in spec.unallocated.iter().enumerate() {
            let entry = usize::try_from(*ordinal)
                .ok()
                .and_then(|ordinal| spec.allocations.get(ordinal));
            let reason = match entry {
                None => "is not the ordinal of an address",
                Some(Some(_)) => "is allocated",
                Some(None) if spec.unallocated[..position].contains(ordinal) => "is listed twice",
                Some(None) => continue,
            };
            findings.add(format!("spec.unallocated[{position}]"), ordinal, reason);
        }
        findings.0
    }
}

impl Validate for BlockAffinity {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        findings.take("spec.cidr", &spec.cidr, parse_masked_cidr(&spec.cidr));
        if spec.node.is_empty() {
            findings.add("spec.node", "", "must name a node");
        }
        if let AffinityState::Other(text) = &spec.state {
            findings.add(
                "spec.state",
                text,
                "must be pending, confirmed or pendingDeletion",
            );
        }
        if let Some(kind) = spec
            .kind
            .as_deref()
            .filter(|kind| !["", "host", "virtual"].contains(kind))
        {
            findings.add("spec.type", kind, "must be host or virtual");
        }
        findings.0
    }
}

impl Validate for IPAMHandle {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        if self.name_any() != spec.handle_id.to_lowercase() {
            findings.add(
                "metadata.name",
                self.name_any(),
                "must be spec.handleID in lower case",
            );
        }
        for (block, count) in &spec.block {
            findings.take(
                &format!("spec.block[{block}]"),
                block,
                parse_masked_cidr(block),
            );
            if *count < 1 {
                findings.add(format!("spec.block[{block}]"), count, "must be at least 1");
            }
        }
        findings.0
    }
}

impl Validate for ClusterInformation {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::only_default(&self.name_any(), &mut findings);
        findings.0
    }

    fn warnings(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        annotation::warn_unknown(
            self.annotations(),
            annotation::CLUSTER_INFORMATION,
            &mut findings,
        );
        findings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_block_limit_needs_strict_affinity() {
        let fields = |spec: serde_json::Value| {
            let object =
                IPAMConfiguration::new("default", serde_json::from_value(spec).expect("decodes"));
            object
                .validate()
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        assert!(fields(json!({})).is_empty());
        assert!(fields(json!({"strictAffinity": true, "maxBlocksPerHost": 4})).is_empty());
        assert_eq!(
            fields(json!({"maxBlocksPerHost": 4})),
            ["spec.maxBlocksPerHost"]
        );
        assert_eq!(
            fields(json!({"autoAllocateBlocks": false})),
            ["spec.autoAllocateBlocks"]
        );
    }

    #[test]
    fn an_inconsistent_block_is_described_without_panic() {
        let block = |spec: serde_json::Value| {
            let block = IPAMBlock::new("b", serde_json::from_value(spec).expect("decodes"));
            block
                .validate()
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        let good = json!({"cidr": "10.0.0.0/30", "allocations": [0, null, null, null], "unallocated": [2, 1, 3],
            "attributes": [{}], "strictAffinity": false});
        assert!(block(good).is_empty());
        let bad = json!({"cidr": "10.0.0.0/30", "allocations": [7, -1, null], "unallocated": [0, 9, 2, 2, -1],
            "attributes": [{}, {}], "strictAffinity": false});
        assert_eq!(
            block(bad),
            [
                "spec.allocations",
                "spec.allocations[0]",
                "spec.allocations[1]",
                "spec.unallocated[0]",
                "spec.unallocated[1]",
                "spec.unallocated[3]",
                "spec.unallocated[4]",
            ]
        );
        assert_eq!(block(json!({"cidr": "::/0"})), ["spec.allocations"]);
    }
}
