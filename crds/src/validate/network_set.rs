//! NetworkSet and GlobalNetworkSet.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name};
use crate::values::parse_address_or_cidr;
use crate::{GlobalNetworkSet, NetworkSet};

/// Label the agent itself gives to sets.
const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";

impl Validate for NetworkSet {
    fn validate(&self) -> Vec<FieldError> {
        check(&self.name_any(), self.labels(), &self.spec.nets)
    }
}

impl Validate for GlobalNetworkSet {
    fn validate(&self) -> Vec<FieldError> {
        check(&self.name_any(), self.labels(), &self.spec.nets)
    }
}

fn check(
    name: &str,
    labels: &BTreeMap<String, String>,
    nets: &Option<Vec<String>>,
) -> Vec<FieldError> {
    let mut findings = Findings::default();
    name::subdomain(name, &mut findings);
    if let Some(value) = labels.get(NAMESPACE_LABEL) {
        findings.add(
            format!("metadata.labels[{NAMESPACE_LABEL}]"),
            value,
            "cannot be set on a network set",
        );
    }
    for (index, net) in nets.iter().flatten().enumerate() {
        findings.take(
            &format!("spec.nets[{index}]"),
            net,
            parse_address_or_cidr(net),
        );
    }
    findings.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetworkSetSpec;

    #[test]
    fn addresses_ranges_and_host_bits_are_fine_but_not_the_namespace_label() {
        let nets = ["10.0.0.1", "10.0.0.1/8", "fd00::/8", "0.0.0.0/0", "host"]
            .map(str::to_owned)
            .to_vec();
        let mut set = NetworkSet::new("s", NetworkSetSpec { nets: Some(nets) });
        set.labels_mut().insert(NAMESPACE_LABEL.into(), "x".into());
        let fields: Vec<_> = set
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(
            fields,
            [
                "metadata.labels[projectcalico.org/namespace]",
                "spec.nets[4]"
            ]
        );
    }
}
