//! Policies, and what remains of one that has invalid rules.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name, rule};
use crate::{
    EntityRule, GlobalNetworkPolicy, GlobalNetworkPolicySpec, NetworkPolicy, NetworkPolicySpec,
    PolicyType, Rule, RuleAction, StagedAction, StagedGlobalNetworkPolicy,
    StagedKubernetesNetworkPolicy, StagedNetworkPolicy,
};

/// Direction of the traffic a rule is about, as the endpoint sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the endpoint.
    Ingress,
    /// From the endpoint.
    Egress,
}

impl Validate for NetworkPolicy {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        policy_name(&self.name_any(), true, &mut findings);
        namespaced(&self.spec, &mut findings);
        findings.0
    }
}

impl Validate for GlobalNetworkPolicy {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        policy_name(&self.name_any(), false, &mut findings);
        global(&self.spec, &mut findings);
        findings.0
    }
}

impl Validate for StagedNetworkPolicy {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        policy_name(&self.name_any(), true, &mut findings);
        namespaced(&self.spec.policy, &mut findings);
        let bare = NetworkPolicySpec {
            tier: self.spec.policy.tier.clone(),
            ..NetworkPolicySpec::default()
        };
        staged(
            &self.spec.staged_action,
            self.spec.policy == bare,
            &mut findings,
        );
        findings.0
    }
}

impl Validate for StagedGlobalNetworkPolicy {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        policy_name(&self.name_any(), false, &mut findings);
        global(&self.spec.policy, &mut findings);
        let bare = GlobalNetworkPolicySpec {
            tier: self.spec.policy.tier.clone(),
            ..GlobalNetworkPolicySpec::default()
        };
        staged(
            &self.spec.staged_action,
            self.spec.policy == bare,
            &mut findings,
        );
        findings.0
    }
}

impl Validate for StagedKubernetesNetworkPolicy {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let spec = &self.spec;
        name::subdomain(&self.name_any(), &mut findings);
        let bare = spec.ingress.is_none() && spec.egress.is_none() && spec.pod_selector.is_none();
        staged(
            &spec.staged_action,
            bare && spec.policy_types.is_none(),
            &mut findings,
        );
        findings.0
    }
}

fn staged(action: &Option<StagedAction>, bare: bool, findings: &mut Findings) {
    match action {
        Some(StagedAction::Delete) if !bare => {
            findings.add(
                "spec.stagedAction",
                "Delete",
                "no other field but tier can be set together with Delete",
            );
        }
        Some(StagedAction::Other(text)) => {
            findings.add(
                "spec.stagedAction",
                text,
                "must be Set, Delete, Learn or Ignore",
            );
        }
        _ => {}
    }
}

/// Names: a label, or two joined by a dot; in a namespace also those of converted policies.
fn policy_name(name: &str, namespaced: bool, findings: &mut Findings) {
    let converted = ["knp.default.", "ossg.default."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if converted && namespaced {
        return name::subdomain(name, findings);
    }
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() > 2 || !parts.iter().all(|part| name::is_label(part)) {
        let reason =
            "must be one or two parts joined by a dot, each 1-63 lower-case letters, digits and -";
        findings.add("metadata.name", name, reason);
    }
}

fn namespaced(spec: &NetworkPolicySpec, findings: &mut Findings) {
    own_selector("spec.selector", &spec.selector, findings);
    own_selector(
        "spec.serviceAccountSelector",
        &spec.service_account_selector,
        findings,
    );
    types(&spec.types, findings);
    rules(Direction::Ingress, &spec.ingress, true, findings);
    rules(Direction::Egress, &spec.egress, true, findings);
}

fn global(spec: &GlobalNetworkPolicySpec, findings: &mut Findings) {
    own_selector("spec.selector", &spec.selector, findings);
    own_selector("spec.namespaceSelector", &spec.namespace_selector, findings);
    own_selector(
        "spec.serviceAccountSelector",
        &spec.service_account_selector,
        findings,
    );
    types(&spec.types, findings);
    let (pre_dnat, untracked) = (spec.pre_dnat == Some(true), spec.do_not_track == Some(true));
    if pre_dnat && untracked {
        findings.add(
            "spec.preDNAT",
            true,
            "preDNAT and doNotTrack cannot both be true",
        );
    }
    if pre_dnat && spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()) {
        findings.add(
            "spec.egress",
            "",
            "preDNAT policy cannot have any egress rules",
        );
    }
    if pre_dnat
        && spec
            .types
            .as_ref()
            .is_some_and(|types| types.contains(&PolicyType::Egress))
    {
        findings.add(
            "spec.types",
            "Egress",
            "preDNAT policy cannot have 'Egress' type",
        );
    }
    if (pre_dnat || untracked) && spec.apply_on_forward != Some(true) {
        let reason = "applyOnForward must be true if either preDNAT or doNotTrack is true";
        findings.add("spec.applyOnForward", "", reason);
    }
    rules(Direction::Ingress, &spec.ingress, false, findings);
    rules(Direction::Egress, &spec.egress, false, findings);
}

fn own_selector(field: &str, text: &Option<String>, findings: &mut Findings) {
    let text = text.as_deref().unwrap_or_default();
    match crate::selector::Selector::parse(text) {
        Ok(selector) if selector.mentions_global() => {
            findings.add(
                field,
                text,
                "global() can only be used in an EntityRule namespaceSelector",
            );
        }
        _ => findings.selector(field, Some(text)),
    }
}

fn types(types: &Option<Vec<PolicyType>>, findings: &mut Findings) {
    for (index, one) in types.iter().flatten().enumerate() {
        if let PolicyType::Other(text) = one {
            findings.add(
                format!("spec.types[{index}]"),
                text,
                "must be Ingress or Egress",
            );
        }
    }
}

fn path(direction: Direction, index: usize) -> String {
    match direction {
        Direction::Ingress => format!("spec.ingress[{index}]"),
        Direction::Egress => format!("spec.egress[{index}]"),
    }
}

fn rules(
    direction: Direction,
    rules: &Option<Vec<Rule>>,
    namespaced: bool,
    findings: &mut Findings,
) {
    for (index, one) in rules.iter().flatten().enumerate() {
        rule::check(
            &path(direction, index),
            one,
            rule::Place {
                direction,
                namespaced,
            },
            findings,
        );
    }
}

/// Rules that can be enforced, and what was wrong with the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RepairedRules {
    /// The rules.
    pub rules: Vec<Rule>,
    /// What was wrong.
    pub errors: Vec<FieldError>,
}

/// Makes the rules of one direction enforceable without widening access: an invalid Allow, Pass or Log rule is left
/// out, an invalid Deny rule becomes one that denies everything. So does a rule whose action is not known, since what it
/// was meant to do is not known either.
pub fn repair_rules(rules: &[Rule], direction: Direction, namespaced: bool) -> RepairedRules {
    let mut repaired = RepairedRules::default();
    for (index, one) in rules.iter().enumerate() {
        let mut findings = Findings::default();
        rule::check(
            &path(direction, index),
            one,
            rule::Place {
                direction,
                namespaced,
            },
            &mut findings,
        );
        if findings.0.is_empty() {
            repaired.rules.push(one.clone());
            continue;
        }
        repaired.errors.append(&mut findings.0);
        if matches!(one.action, RuleAction::Deny | RuleAction::Other(_)) {
            repaired.rules.push(Rule {
                action: RuleAction::Deny,
                source: Some(EntityRule::default()),
                destination: Some(EntityRule::default()),
                metadata: one.metadata.clone(),
                ..Rule::default()
            });
        }
    }
    repaired
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(spec: Value) -> NetworkPolicy {
        let mut policy = NetworkPolicy::new("p", serde_json::from_value(spec).expect("decodes"));
        policy.metadata.namespace = Some("x".into());
        policy
    }

    fn found(spec: Value) -> Vec<(String, String)> {
        policy(spec)
            .validate()
            .into_iter()
            .map(|error| (error.field, error.reason))
            .collect()
    }

    /// Reasons for one ingress rule.
    fn ingress(rule: Value) -> Vec<String> {
        found(json!({ "ingress": [rule] }))
            .into_iter()
            .map(|(_, reason)| reason)
            .collect()
    }

    /// Reasons for one egress rule.
    fn egress(rule: Value) -> Vec<String> {
        found(json!({ "egress": [rule] }))
            .into_iter()
            .map(|(_, reason)| reason)
            .collect()
    }

    #[test]
    fn ports_need_a_protocol_that_has_ports() {
        let rule = |ports: Value, protocol: Value| {
            let mut rule = json!({"action": "Allow", "destination": {"ports": ports}});
            if !protocol.is_null() {
                rule["protocol"] = protocol;
            }
            ingress(rule)
        };
        assert_eq!(
            rule(json!([80]), Value::Null),
            ["rules with numeric port or port range must set protocol to TCP or UDP or SCTP"]
        );
        assert!(rule(json!(["web"]), Value::Null).is_empty());
        assert!(rule(json!([80, "web", "1:2"]), json!("TCP")).is_empty());
        assert!(rule(json!([80]), json!(132)).is_empty());
        assert_eq!(
            rule(json!(["web"]), json!("ICMP")),
            ["rules that specify ports must set protocol to TCP or UDP or SCTP"]
        );
        for port in [json!("2000:1000"), json!(0), json!(65536)] {
            assert_eq!(rule(json!([port]), json!("TCP")).len(), 1, "{port}");
        }
    }

    #[test]
    fn services_stand_on_the_far_side_only() {
        let services = json!({"services": {"name": "dns"}});
        assert!(egress(json!({"action": "Allow", "destination": services})).is_empty());
        assert!(ingress(json!({"action": "Allow", "source": services})).is_empty());
        assert_eq!(
            ingress(json!({"action": "Allow", "destination": services})).len(),
            1
        );
        assert_eq!(
            egress(
                json!({"action": "Allow", "protocol": "UDP", "destination": {"services": {"name": "dns"}, "ports": [53]}})
            ),
            ["ports and notPorts cannot be specified with services"]
        );
        let global = GlobalNetworkPolicy::new(
            "p",
            serde_json::from_value(
                json!({"egress": [{"action": "Allow", "destination": services}]}),
            )
            .expect("decodes"),
        );
        assert_eq!(
            global.validate()[0].field,
            "spec.egress[0].destination.services.namespace"
        );
    }

    #[test]
    fn addresses_are_masked_of_one_family_and_never_exclude_everything() {
        let nets = |nets: Value| ingress(json!({"action": "Allow", "source": {"nets": nets}}));
        assert!(nets(json!(["10.0.0.0/8", "192.168.0.0/16"])).is_empty());
        assert_eq!(
            nets(json!(["10.0.0.0/8", "fd00::/8"])),
            ["rule contains both IPv4 and IPv6 CIDRs"]
        );
        assert!(nets(json!(["10.0.0.1/24"]))[0].starts_with("invalid CIDR"));
        assert!(nets(json!(["10.0.0.1"]))[0].starts_with("invalid CIDR"));
        assert!(nets(json!(["bogus"]))[0].starts_with("invalid CIDR"));
        assert_eq!(
            ingress(json!({"action": "Allow", "source": {"notNets": ["0.0.0.0/0"]}})),
            ["catch-all CIDR in negation creates logical contradiction (matches no traffic)"]
        );
        assert_eq!(
            ingress(json!({"action": "Allow", "ipVersion": 6, "source": {"nets": ["10.0.0.0/8"]}})),
            ["rule IP version doesn't match CIDR version"]
        );
    }

    #[test]
    fn global_stands_alone_and_for_namespaces_only() {
        let side = |side: Value| ingress(json!({"action": "Allow", "source": side}));
        assert!(side(json!({"namespaceSelector": "global()"})).is_empty());
        assert_eq!(
            side(json!({"namespaceSelector": "global() && a == 'b'"})),
            ["global() cannot be combined with other selectors"]
        );
        assert_eq!(side(json!({"selector": "has(a) || global()"})).len(), 1);
        assert_eq!(found(json!({"selector": "global()"}))[0].0, "spec.selector");
    }

    #[test]
    fn an_http_match_is_an_error_because_it_is_never_enforced() {
        let reasons =
            ingress(json!({"action": "Allow", "protocol": "TCP", "http": {"methods": ["GET"]}}));
        assert_eq!(
            reasons,
            ["HTTP match is not supported; the rule never matches"]
        );
        assert_eq!(
            ingress(json!({"action": "Deny", "protocol": 17, "http": {}})).len(),
            3
        );
    }

    #[test]
    fn a_fault_names_the_entry_of_the_rule() {
        let found = found(json!({"egress": [
            {"action": "Allow"},
            {"action": "Allow", "protocol": "tcp", "destination": {"nets": ["10.0.0.0/8", "10.0.0.300/8"]}},
        ]}));
        let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.egress[1].protocol",
                "spec.egress[1].destination.nets[1]"
            ]
        );
    }

    #[test]
    fn names_have_at_most_two_parts_unless_converted() {
        let bad = |name: &str| {
            let mut policy = policy(json!({}));
            policy.metadata.name = Some(name.into());
            !policy.validate().is_empty()
        };
        assert!(!bad("allow-dns") && !bad("security.allow-dns") && !bad("knp.default.a.b.c"));
        assert!(bad("a.b.c") && bad("A") && bad("a."));
        assert!(
            !GlobalNetworkPolicy::new("knp.default.x", Default::default())
                .validate()
                .is_empty()
        );
    }

    #[test]
    fn a_staged_deletion_carries_nothing_else() {
        let staged = |spec: Value| {
            StagedNetworkPolicy::new("p", serde_json::from_value(spec).expect("decodes"))
                .validate()
                .len()
        };
        assert_eq!(
            staged(json!({"stagedAction": "Delete", "tier": "default"})),
            0
        );
        assert_eq!(
            staged(json!({"stagedAction": "Delete", "selector": "all()"})),
            1
        );
        assert_eq!(
            staged(json!({"stagedAction": "Learn", "selector": "all()"})),
            0
        );
    }

    #[test]
    fn repair_never_widens_access() {
        let rules: Vec<Rule> = serde_json::from_value(json!([
            {"action": "Allow", "source": {"nets": ["bogus"]}},
            {"action": "Log", "protocol": "nonsense"},
            {"action": "Allow", "source": {"selector": "has(a)"}},
            {"action": "Deny", "source": {"nets": ["bogus"]}},
            {"action": "Permit", "source": {"selector": "has(b)"}},
        ]))
        .expect("decodes");
        let repaired = repair_rules(&rules, Direction::Ingress, true);
        let actions: Vec<_> = repaired
            .rules
            .iter()
            .map(|rule| rule.action.as_str())
            .collect();
        assert_eq!(actions, ["Allow", "Deny", "Deny"]);
        assert_eq!(repaired.rules[0], rules[2]);
        let everything = &repaired.rules[1];
        assert!(everything.protocol.is_none() && everything.source == Some(EntityRule::default()));
        let fields: Vec<_> = repaired
            .errors
            .iter()
            .map(|error| error.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "spec.ingress[0].source.nets[0]",
                "spec.ingress[1].protocol",
                "spec.ingress[3].source.nets[0]",
                "spec.ingress[4].action",
            ]
        );
    }
}
