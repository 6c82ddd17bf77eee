//! Which endpoints a policy applies to, and which ones a side of a rule means, as one selector over the labels of
//! endpoints.
//!
//! Selectors over Namespaces and ServiceAccounts become selectors over what endpoints inherit from them, by a prefix on
//! every label: `pcns.` and `pcsa.`. `all()` there means "has a namespace" and "has an account". This works on parsed
//! selectors, never on text, so nothing a user writes can leak into the rest of the expression.

use super::{Comparison, Expression, Selector, SelectorError};
use crate::EntityRule;

/// Label every endpoint of a namespace carries, with the namespace as value.
pub const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";
/// Label every pod carries, with its ServiceAccount as value.
pub const SERVICE_ACCOUNT_LABEL: &str = "projectcalico.org/serviceaccount";

const NAMESPACE_PREFIX: &str = "pcns.";
const SERVICE_ACCOUNT_PREFIX: &str = "pcsa.";

/// Endpoints a policy applies to. `namespace` is that of the policy, absent for a GlobalNetworkPolicy; empty texts are
/// like absent ones.
///
/// # Errors
/// One of the texts is not a selector.
pub fn policy_selector(
    namespace: Option<&str>,
    selector: Option<&str>,
    namespace_selector: Option<&str>,
    service_account_selector: Option<&str>,
) -> Result<Selector, SelectorError> {
    let mut parts = Vec::new();
    if let Some(text) = written(selector) {
        parts.push(Selector::parse(text)?.0);
    }
    if let Some(namespace) = namespace {
        parts.push(in_namespace(namespace));
    }
    if let Some(text) = written(namespace_selector) {
        parts.push(inherited(
            &Selector::parse(text)?,
            NAMESPACE_PREFIX,
            NAMESPACE_LABEL,
        ));
    }
    if let Some(text) = written(service_account_selector) {
        parts.push(inherited(
            &Selector::parse(text)?,
            SERVICE_ACCOUNT_PREFIX,
            SERVICE_ACCOUNT_LABEL,
        ));
    }
    Ok(Selector(
        parts.into_iter().reduce(both).unwrap_or(Expression::All),
    ))
}

/// What the selectors of one side of a rule mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntitySelection {
    /// The address belongs to an endpoint or network set that matches this.
    pub member_of: Option<Selector>,
    /// The address does not belong to an endpoint or network set that matches this; it may lie outside the cluster.
    pub not_member_of: Option<Selector>,
}

/// What the selectors of one side of a rule mean. `namespace` is that of the policy, absent for a GlobalNetworkPolicy.
///
/// # Errors
/// One of the texts is not a selector.
pub fn entity_selection(
    entity: &EntityRule,
    namespace: Option<&str>,
) -> Result<EntitySelection, SelectorError> {
    let parse = |text: Option<&str>| written(text).map(Selector::parse).transpose();
    let selector = parse(entity.selector.as_deref())?;
    let not_selector = parse(entity.not_selector.as_deref())?;
    let accounts = accounts(entity)?;
    let namespaces = match parse(entity.namespace_selector.as_deref())? {
        Some(selector) if selector.is_global() => {
            Some(Expression::Has(NAMESPACE_LABEL.to_owned()).negated())
        }
        Some(selector) => Some(inherited(&selector, NAMESPACE_PREFIX, NAMESPACE_LABEL)),
        None if selector.is_some() || not_selector.is_some() || accounts.is_some() => {
            namespace.map(in_namespace)
        }
        None => None,
    };
    let rest = join(accounts, selector.map(|selector| selector.0));
    let mut selection = EntitySelection {
        member_of: join(namespaces, rest).map(Selector),
        not_member_of: None,
    };
    match (selection.member_of.take(), not_selector) {
        (Some(positive), Some(not)) => selection.member_of = Some(positive.and(not.negated())),
        (None, not) => selection.not_member_of = not,
        (positive, None) => selection.member_of = positive,
    }
    Ok(selection)
}

fn accounts(entity: &EntityRule) -> Result<Option<Expression>, SelectorError> {
    let Some(accounts) = &entity.service_accounts else {
        return Ok(None);
    };
    let by_label = match written(accounts.selector.as_deref()) {
        Some(text) => Some(inherited(
            &Selector::parse(text)?,
            SERVICE_ACCOUNT_PREFIX,
            SERVICE_ACCOUNT_LABEL,
        )),
        None => None,
    };
    let names = accounts.names.as_ref().filter(|names| !names.is_empty());
    let by_name = names.map(|names| Expression::In {
        label: SERVICE_ACCOUNT_LABEL.to_owned(),
        values: names.iter().cloned().collect(),
    });
    Ok(join(by_label, by_name))
}

fn written(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

fn in_namespace(namespace: &str) -> Expression {
    Expression::Compare {
        label: NAMESPACE_LABEL.to_owned(),
        operator: Comparison::Equal,
        value: namespace.to_owned(),
    }
}

/// A selector over the labels of a parent object, as one over what endpoints inherit from it.
fn inherited(selector: &Selector, prefix: &str, own_label: &str) -> Expression {
    if selector.is_all() {
        Expression::Has(own_label.to_owned())
    } else {
        selector.with_label_prefix(prefix).0
    }
}

fn join(first: Option<Expression>, second: Option<Expression>) -> Option<Expression> {
    match (first, second) {
        (Some(first), Some(second)) => Some(both(first, second)),
        (first, second) => first.or(second),
    }
}

fn both(first: Expression, second: Expression) -> Expression {
    Expression::And(vec![first, second])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selection(entity: Value, namespace: Option<&str>) -> EntitySelection {
        let entity: EntityRule = serde_json::from_value(entity).expect("decodes");
        entity_selection(&entity, namespace).expect("parses")
    }

    fn members(entity: Value, namespace: Option<&str>) -> String {
        let selection = selection(entity, namespace);
        assert_eq!(selection.not_member_of, None);
        selection.member_of.expect("there are members").to_string()
    }

    fn normal(text: &str) -> String {
        Selector::parse(text).expect(text).to_string()
    }

    #[test]
    fn a_rule_of_a_namespace_means_its_namespace_unless_told_otherwise() {
        let cases = [
            (
                json!({"selector": "has(a)"}),
                "(projectcalico.org/namespace == 'x') && (has(a))",
            ),
            (
                json!({"selector": "has(a)", "namespaceSelector": "all()"}),
                "(has(projectcalico.org/namespace)) && (has(a))",
            ),
            (
                json!({"selector": "has(a)", "namespaceSelector": "global()"}),
                "(!has(projectcalico.org/namespace)) && (has(a))",
            ),
            (
                json!({"notSelector": "has(a)"}),
                "(projectcalico.org/namespace == 'x') && (!(has(a)))",
            ),
            (
                json!({"namespaceSelector": "nskey == 'nsvalue'", "selector": "has(label1)",
                    "serviceAccounts": {"names": ["sa3"], "selector": "key == 'value2'"}}),
                "(pcns.nskey == 'nsvalue') && (((pcsa.key == 'value2') && (projectcalico.org/serviceaccount in {'sa3'})) \
                 && (has(label1)))",
            ),
        ];
        for (entity, expected) in cases {
            assert_eq!(
                members(entity.clone(), Some("x")),
                normal(expected),
                "{entity}"
            );
        }
        assert_eq!(
            selection(json!({"nets": ["10.0.0.0/8"]}), Some("x")),
            EntitySelection::default()
        );
        assert_eq!(
            selection(json!({"serviceAccounts": {}}), Some("x")),
            EntitySelection::default()
        );
    }

    #[test]
    fn not_selector_alone_in_a_global_policy_also_matches_what_lies_outside() {
        let selection = selection(json!({"notSelector": "has(a)"}), None);
        assert_eq!(selection.member_of, None);
        assert_eq!(
            selection.not_member_of,
            Some(Selector::parse("has(a)").expect("parses"))
        );
        assert_eq!(
            members(json!({"selector": "has(a)", "notSelector": "has(b)"}), None),
            "(has(a) && !has(b))"
        );
    }

    #[test]
    fn a_name_cannot_break_out_of_the_expression() {
        let text = members(
            json!({"serviceAccounts": {"names": ["a'} || all() || b in {'"]}}),
            None,
        );
        assert_eq!(
            text,
            "projectcalico.org/serviceaccount in {\"a'} || all() || b in {'\"}"
        );
    }

    #[test]
    fn a_policy_applies_to_its_namespace_and_accounts() {
        let policy = |namespace, selector, namespaces, accounts| {
            policy_selector(namespace, selector, namespaces, accounts)
                .expect("parses")
                .to_string()
        };
        assert_eq!(
            policy(Some("n"), Some(""), None, None),
            normal("projectcalico.org/namespace == 'n'")
        );
        assert_eq!(
            policy(Some("n"), Some("has(a)"), None, None),
            normal("(has(a)) && projectcalico.org/namespace == 'n'")
        );
        assert_eq!(policy(None, None, None, None), "all()");
        assert_eq!(
            policy(None, Some("all()"), Some("all()"), None),
            normal("all() && has(projectcalico.org/namespace)")
        );
        assert_eq!(
            policy(Some("n"), None, None, Some("all()")),
            normal("projectcalico.org/namespace == 'n' && has(projectcalico.org/serviceaccount)")
        );
        assert_eq!(
            policy(None, None, Some("env == 'prod'"), None),
            normal("pcns.env == 'prod'")
        );
    }
}
