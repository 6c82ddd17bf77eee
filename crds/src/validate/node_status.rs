//! CalicoNodeStatus and NodeReport.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name, written};
use crate::{CalicoNodeStatus, NodeReport};

impl Validate for CalicoNodeStatus {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::subdomain(&self.name_any(), &mut findings);
        if written(&self.spec.node).is_none() {
            findings.add("spec.node", "", "must name a node");
        }
        match self.spec.update_period_seconds {
            None => findings.add(
                "spec.updatePeriodSeconds",
                "",
                "must be set; 0 asks for one report",
            ),
            Some(seconds) if !(0..=86400).contains(&seconds) => {
                findings.add(
                    "spec.updatePeriodSeconds",
                    seconds,
                    "must be from 0 to 86400",
                );
            }
            Some(_) => {}
        }
        findings.0
    }
}

impl Validate for NodeReport {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::subdomain(&self.name_any(), &mut findings);
        findings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CalicoNodeStatusSpec;

    #[test]
    fn a_request_names_a_node_and_a_period() {
        let fields: Vec<_> = CalicoNodeStatus::new("a", CalicoNodeStatusSpec::default())
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(fields, ["spec.node", "spec.updatePeriodSeconds"]);
    }
}
