//! KubeControllersConfiguration.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name, written};
use crate::KubeControllersConfiguration;
use crate::values::parse_cidr;

impl Validate for KubeControllersConfiguration {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        name::only_default(&self.name_any(), &mut findings);
        let Some(node) = &self.spec.controllers.node else {
            return findings.0;
        };
        findings.duration(
            "spec.controllers.node.reconcilerPeriod",
            node.reconciler_period.as_deref(),
        );
        findings.duration(
            "spec.controllers.node.leakGracePeriod",
            node.leak_grace_period.as_deref(),
        );
        if node
            .sync_labels
            .as_ref()
            .is_some_and(|switch| switch.is_disabled())
        {
            findings.add(
                "spec.controllers.node.syncLabels",
                "Disabled",
                "cannot be switched off with Kubernetes",
            );
        }
        let templates = node
            .host_endpoint
            .as_ref()
            .and_then(|host| host.templates.as_ref());
        let mut names = BTreeSet::new();
        for (index, template) in templates.into_iter().flatten().enumerate() {
            let path = format!("spec.controllers.node.hostEndpoint.templates[{index}]");
            let name = written(&template.generate_name).unwrap_or_default();
            if name.is_empty() || !names.insert(name) {
                findings.add(
                    format!("{path}.generateName"),
                    name,
                    "must be set and differ from the other templates",
                );
            }
            let ranges = template.interface_cidrs.as_deref().unwrap_or_default();
            if ranges.is_empty() && written(&template.interface_pattern).is_none() {
                findings.add(path.clone(), "", "needs interfaceCIDRs or interfacePattern");
            }
            for (position, range) in ranges.iter().enumerate() {
                findings.take(
                    &format!("{path}.interfaceCIDRs[{position}]"),
                    range,
                    parse_cidr(range),
                );
            }
            findings.selector(
                &format!("{path}.nodeSelector"),
                template.node_selector.as_deref(),
            );
        }
        findings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_have_distinct_names_and_something_to_match() {
        let spec = json!({"controllers": {"node": {"leakGracePeriod": "never", "hostEndpoint": {"templates": [
            {"generateName": "a", "interfacePattern": "eth.*"},
            {"generateName": "a", "interfaceCIDRs": ["10.0.0.0"]},
            {"nodeSelector": "("},
        ]}}}});
        let object = KubeControllersConfiguration::new(
            "default",
            serde_json::from_value(spec).expect("decodes"),
        );
        let fields: Vec<_> = object
            .validate()
            .into_iter()
            .map(|error| error.field)
            .collect();
        let template = "spec.controllers.node.hostEndpoint.templates";
        assert_eq!(
            fields,
            [
                "spec.controllers.node.leakGracePeriod".to_owned(),
                format!("{template}[1].generateName"),
                format!("{template}[1].interfaceCIDRs[0]"),
                format!("{template}[2].generateName"),
                format!("{template}[2]"),
                format!("{template}[2].nodeSelector"),
            ]
        );
    }
}
