//! The labels selectors see on an endpoint: its own, then those it inherits from its profiles.

use std::collections::BTreeMap;

use crate::selector::{NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL};

/// Label every pod carries, with the value `k8s`.
const ORCHESTRATOR_LABEL: &str = "projectcalico.org/orchestrator";

type Labels = BTreeMap<String, String>;

/// Labels of a pod endpoint: those of the Pod without the ones that begin like inherited labels, and those that say
/// where it belongs, which the Pod cannot override.
pub fn workload_labels(pod: &Labels, namespace: &str, service_account: &str) -> Labels {
    let forged = |key: &str| key.starts_with("pcns.") || key.starts_with("pcsa.");
    let mut labels: Labels = pod
        .iter()
        .filter(|(key, _)| !forged(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert(NAMESPACE_LABEL.to_owned(), namespace.to_owned());
    labels.insert(ORCHESTRATOR_LABEL.to_owned(), "k8s".to_owned());
    if service_account.is_empty() {
        labels.remove(SERVICE_ACCOUNT_LABEL);
    } else {
        labels.insert(SERVICE_ACCOUNT_LABEL.to_owned(), service_account.to_owned());
    }
    labels
}

/// Labels the endpoints of a namespace inherit from it.
pub fn namespace_profile_labels(namespace: &str, labels: &Labels) -> Labels {
    inherited("pcns.", namespace, labels)
}

/// Labels the pods of a ServiceAccount inherit from it.
pub fn service_account_profile_labels(account: &str, labels: &Labels) -> Labels {
    inherited("pcsa.", account, labels)
}

fn inherited(prefix: &str, name: &str, labels: &Labels) -> Labels {
    let mut inherited: Labels = labels
        .iter()
        .map(|(key, value)| (format!("{prefix}{key}"), value.clone()))
        .collect();
    inherited.insert(format!("{prefix}projectcalico.org/name"), name.to_owned());
    inherited
}

/// Own labels of an endpoint and those of its profiles, in the order of the profiles; the first that has a label wins.
#[derive(Debug, Clone, Copy)]
pub struct EndpointLabels<'a> {
    /// Own labels.
    pub own: &'a Labels,
    /// Labels of the profiles.
    pub profiles: &'a [&'a Labels],
}

impl<'a> EndpointLabels<'a> {
    /// Value of a label.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let profiles = || self.profiles.iter().find_map(|labels| labels.get(key));
        self.own.get(key).or_else(profiles).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Selector;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_pod_cannot_forge_labels_of_its_namespace() {
        let pod = labels(&[
            ("pcns.env", "prod"),
            ("pcsa.role", "admin"),
            (NAMESPACE_LABEL, "other"),
            ("app", "web"),
        ]);
        let own = workload_labels(&pod, "shop", "default");
        let namespace = namespace_profile_labels("shop", &labels(&[("env", "dev")]));
        let account = service_account_profile_labels("default", &labels(&[]));
        let seen = EndpointLabels {
            own: &own,
            profiles: &[&namespace, &account],
        };
        let selects = |text: &str| {
            Selector::parse(text)
                .expect(text)
                .matches_by(&|key| seen.get(key))
        };
        assert!(!selects("pcns.env == 'prod'"));
        assert!(selects("pcns.env == 'dev' && app == 'web'"));
        assert!(!selects("has(pcsa.role)"));
        assert!(selects(
            "projectcalico.org/namespace == 'shop' && projectcalico.org/orchestrator == 'k8s'"
        ));
        assert!(selects(
            "pcns.projectcalico.org/name == 'shop' && pcsa.projectcalico.org/name == 'default'"
        ));
        assert!(selects("projectcalico.org/serviceaccount == 'default'"));
    }

    #[test]
    fn own_labels_come_before_those_of_profiles() {
        let (own, first, second) = (
            labels(&[("a", "0")]),
            labels(&[("a", "1"), ("b", "1")]),
            labels(&[("b", "2")]),
        );
        let seen = EndpointLabels {
            own: &own,
            profiles: &[&first, &second],
        };
        assert_eq!(
            (seen.get("a"), seen.get("b"), seen.get("c")),
            (Some("0"), Some("1"), None)
        );
    }
}
