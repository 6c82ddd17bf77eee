//! BGPFilter.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name, syntax};
use crate::values::parse_masked_cidr;
use crate::{BGPFilter, BGPFilterAction, BGPFilterRuleV4, BGPFilterRuleV6};

impl Validate for BGPFilter {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::subdomain(&self.name_any(), &mut findings);
        for (list, rules) in [
            ("exportV4", &self.spec.export_v4),
            ("importV4", &self.spec.import_v4),
        ] {
            for (index, rule) in rules.iter().flatten().enumerate() {
                check(
                    &format!("spec.{list}[{index}]"),
                    &View::from(rule),
                    &mut findings,
                );
            }
        }
        for (list, rules) in [
            ("exportV6", &self.spec.export_v6),
            ("importV6", &self.spec.import_v6),
        ] {
            for (index, rule) in rules.iter().flatten().enumerate() {
                check(
                    &format!("spec.{list}[{index}]"),
                    &View::from(rule),
                    &mut findings,
                );
            }
        }
        findings.0
    }
}

/// A rule of either family.
struct View<'a> {
    action: &'a BGPFilterAction,
    cidr: Option<&'a str>,
    v4: bool,
    has_operator: bool,
    lengths: Option<(Option<i32>, Option<i32>)>,
    interface: Option<&'a str>,
    communities: &'a [String],
    operations: &'a [crate::BGPFilterOperation],
}

macro_rules! view {
    ($rule:ty, $v4:literal) => {
        impl<'a> From<&'a $rule> for View<'a> {
            fn from(rule: &'a $rule) -> Self {
                View {
                    action: &rule.action,
                    cidr: rule.cidr.as_deref().filter(|cidr| !cidr.is_empty()),
                    v4: $v4,
                    has_operator: rule.match_operator.is_some(),
                    lengths: rule.prefix_length.map(|lengths| (lengths.min, lengths.max)),
                    interface: rule
                        .interface
                        .as_deref()
                        .filter(|interface| !interface.is_empty()),
                    communities: rule
                        .communities
                        .as_ref()
                        .map_or(&[], |communities| communities.values.as_slice()),
                    operations: rule.operations.as_deref().unwrap_or_default(),
                }
            }
        }
    };
}

view!(BGPFilterRuleV4, true);
view!(BGPFilterRuleV6, false);

fn check(field: &str, rule: &View<'_>, findings: &mut Findings) {
    if let BGPFilterAction::Other(text) = rule.action {
        findings.add(format!("{field}.action"), text, "must be Accept or Reject");
    }
    let prefix = rule.cidr.and_then(|text| {
        let path = format!("{field}.cidr");
        let prefix = findings.take(&path, text, parse_masked_cidr(text))?;
        if prefix.addr().is_ipv4() == rule.v4 {
            return Some(prefix);
        }
        findings.add(
            path,
            text,
            format!("is not an IPv{} range", if rule.v4 { 4 } else { 6 }),
        );
        None
    });
    if rule.cidr.is_some() != rule.has_operator {
        findings.add(
            format!("{field}.matchOperator"),
            "",
            "cidr and matchOperator must both be set or both be empty",
        );
    }
    if let Some((min, max)) = rule.lengths {
        if rule.cidr.is_none() {
            findings.add(
                format!("{field}.prefixLength"),
                "",
                "cidr is required when prefixLength is set",
            );
        }
        let greatest = if rule.v4 { 32 } else { 128 };
        let least = prefix.map_or(0, |prefix| i32::from(prefix.prefix_len()));
        if min.unwrap_or(least) > max.unwrap_or(greatest) {
            findings.add(
                format!("{field}.prefixLength"),
                "",
                "min is greater than max",
            );
        }
    }
    if let Some(interface) = rule
        .interface
        .filter(|interface| !syntax::is_interface(interface, "*"))
    {
        let reason = "is not an interface name of 1-15 characters [a-zA-Z0-9_.*-]";
        findings.add(format!("{field}.interface"), interface, reason);
    }
    for (index, community) in rule.communities.iter().enumerate() {
        let path = format!("{field}.communities.values[{index}]");
        findings.take(&path, community, syntax::community(community));
    }
    if !rule.operations.is_empty() && !rule.action.is_accept() {
        findings.add(
            format!("{field}.operations"),
            "",
            "operations may only be used with action Accept",
        );
    }
    for (index, operation) in rule.operations.iter().enumerate() {
        let path = format!("{field}.operations[{index}]");
        let set = [
            operation.add_community.is_some(),
            operation.prepend_as_path.is_some(),
            operation.set_priority.is_some(),
        ];
        if set.iter().filter(|set| **set).count() != 1 {
            let reason = "exactly one of addCommunity, prependASPath and setPriority must be set";
            findings.add(path.clone(), "", reason);
        }
        if let Some(add) = &operation.add_community {
            findings.take(
                &format!("{path}.addCommunity.value"),
                &add.value,
                syntax::community(&add.value),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_the_rule_it_is_in() {
        let spec = serde_json::json!({
            "exportV4": [
                {"action": "Accept", "cidr": "10.0.0.0/8", "matchOperator": "In", "prefixLength": {"min": 16, "max": 24}},
                {"action": "Accept", "cidr": "10.0.0.1/8", "matchOperator": "In"},
                {"action": "Accept", "cidr": "fd00::/8", "matchOperator": "In"},
                {"action": "Accept", "prefixLength": {"min": 24}},
                {"action": "Accept", "cidr": "10.0.0.0/8", "matchOperator": "In", "prefixLength": {"min": 24, "max": 16}},
            ],
            "importV6": [
                {"action": "Reject", "interface": "eth0 "},
                {"action": "Reject", "operations": [{"addCommunity": {"value": "1:2"}}]},
                {"action": "Drop"},
            ],
        });
        let filter = BGPFilter::new("f", serde_json::from_value(spec).expect("decodes"));
        let fields: Vec<_> = filter
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(
            fields,
            [
                "spec.exportV4[1].cidr",
                "spec.exportV4[2].cidr",
                "spec.exportV4[3].prefixLength",
                "spec.exportV4[4].prefixLength",
                "spec.importV6[0].interface",
                "spec.importV6[1].operations",
                "spec.importV6[2].action",
            ]
        );
    }
}
