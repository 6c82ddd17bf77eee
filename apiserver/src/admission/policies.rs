//! ValidatingAdmissionPolicies (Kubernetes "Validating Admission Policy"): CEL rules of the operator on any write.
//!
//! Supported: match constraints with resource rules, namespace and object selectors, match conditions, validations
//! with message, messageExpression and reason, bindings with Deny and Warn. Parameters and variables are not; a
//! policy that uses them is refused when it is written ([`unsupported`]), not ignored.

use kube_cel::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, VapEvaluator, VapExpression,
};
use serde_json::Value;

use crate::auth::Identity;
use crate::resource::Resource;
use crate::status::{ApiError, FieldCause, qualified};

/// Storage key of policies.
pub const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Storage key of bindings.
pub const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// A write to be reviewed.
#[derive(Debug)]
pub struct Review<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// What is written.
    pub resource: &'a Resource,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Its namespace object, if it lives in one.
    pub namespace: Option<&'a Value>,
    /// The object to be; none for a removal.
    pub object: Option<&'a Value>,
    /// The object as it is; none for a new one.
    pub old: Option<&'a Value>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Who asks.
    pub identity: &'a Identity,
}

impl Review<'_> {
    /// Lets every bound policy see the write. Returns warnings.
    ///
    /// # Errors
    /// The first refusal of a policy whose binding denies.
    pub fn run<'p>(
        &self,
        policies: impl Iterator<Item = &'p Value>,
        bindings: &[&Value],
    ) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        for policy in policies {
            let name = text(&policy["metadata"]["name"]);
            for binding in bindings.iter().filter(|b| b["spec"]["policyName"] == name) {
                let within = self.matches(&policy["spec"]["matchConstraints"], true)
                    && self.matches(&binding["spec"]["matchResources"], false);
                if !within || !self.conditions_hold(policy) {
                    continue;
                }
                let action =
                    |wanted: &str| list(&binding["spec"]["validationActions"]).any(|a| a == wanted);
                for (reason, message) in self.violations(policy) {
                    let full = format!(
                        "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {message}",
                        text(&binding["metadata"]["name"])
                    );
                    if action("Deny") {
                        return Err(self.refusal(&reason, &full));
                    }
                    if action("Warn") {
                        warnings.push(full);
                    }
                }
            }
        }
        Ok(warnings)
    }

    /// Whether match resources include the write; `strict` = at least one rule must name it.
    fn matches(&self, constraints: &Value, strict: bool) -> bool {
        let included = match constraints["resourceRules"].as_array() {
            Some(rules) if !rules.is_empty() => rules.iter().any(|r| self.rule_matches(r)),
            _ => !strict,
        };
        included
            && !list(&constraints["excludeResourceRules"]).any(|r| self.rule_matches(r))
            && self.namespace.is_none_or(|n| {
                selects(&constraints["namespaceSelector"], &n["metadata"]["labels"])
            })
            && [self.object, self.old]
                .into_iter()
                .flatten()
                .any(|o| selects(&constraints["objectSelector"], &o["metadata"]["labels"]))
    }

    fn rule_matches(&self, rule: &Value) -> bool {
        let Resource {
            group,
            version,
            plural,
            namespaced,
            ..
        } = self.resource;
        let any = |field: &str, wanted: &str| list(&rule[field]).any(|v| v == "*" || v == wanted);
        let resource = if self.subresource.is_empty() {
            any("resources", plural) || any("resources", "*/*")
        } else {
            let full = format!("{plural}/{}", self.subresource);
            [
                full.as_str(),
                &format!("{plural}/*"),
                &format!("*/{}", self.subresource),
                "*/*",
            ]
            .iter()
            .any(|wanted| list(&rule["resources"]).any(|v| v == wanted))
        };
        let names = &rule["resourceNames"];
        let scope = match rule["scope"].as_str() {
            Some("Cluster") => !namespaced,
            Some("Namespaced") => *namespaced,
            _ => true,
        };
        resource
            && scope
            && any("apiGroups", group)
            && any("apiVersions", version)
            && any("operations", self.operation)
            && (list(names).next().is_none() || list(names).any(|n| n == self.name))
    }

    fn conditions_hold(&self, policy: &Value) -> bool {
        let conditions: Vec<VapExpression> = list(&policy["spec"]["matchConditions"])
            .map(expression)
            .collect();
        conditions.is_empty()
            || self
                .evaluator()
                .evaluate(&conditions)
                .iter()
                .all(|r| r.passed)
    }

    /// Reason and message of each rule that does not hold.
    fn violations(&self, policy: &Value) -> Vec<(String, String)> {
        let validations: Vec<&Value> = list(&policy["spec"]["validations"]).collect();
        let expressions: Vec<VapExpression> = validations.iter().map(|v| expression(v)).collect();
        let ignore_failures = policy["spec"]["failurePolicy"] == "Ignore";
        self.evaluator()
            .evaluate(&expressions)
            .into_iter()
            .zip(validations)
            .filter(|(result, _)| !result.passed)
            .filter_map(|(result, validation)| {
                let message = result.message.unwrap_or_default();
                let failed = message.starts_with("evaluation error");
                (!(failed && ignore_failures)).then(|| (text(&validation["reason"]), message))
            })
            .collect()
    }

    fn evaluator(&self) -> VapEvaluator {
        let Resource {
            group,
            version,
            kind,
            plural,
            ..
        } = self.resource;
        let namespace = self
            .namespace
            .map(|n| text(&n["metadata"]["name"]))
            .unwrap_or_default();
        let request = AdmissionRequest {
            operation: self.operation.to_owned(),
            username: self.identity.user.clone(),
            uid: String::new(),
            groups: self.identity.groups.clone(),
            name: self.name.to_owned(),
            namespace,
            dry_run: self.dry_run,
            kind: GroupVersionKind {
                group: group.clone(),
                version: version.clone(),
                kind: kind.clone(),
            },
            resource: GroupVersionResource {
                group: group.clone(),
                version: version.clone(),
                resource: plural.clone(),
            },
        };
        let mut builder = VapEvaluator::builder()
            .object(self.object.cloned().unwrap_or(Value::Null))
            .old_object(self.old.cloned().unwrap_or(Value::Null))
            .request(request);
        if let Some(namespace) = self.namespace {
            builder = builder.namespace_object(namespace.clone());
        }
        builder.build()
    }

    fn refusal(&self, reason: &str, message: &str) -> ApiError {
        let Resource {
            group,
            plural,
            kind,
            ..
        } = self.resource;
        let subject = qualified(plural, group);
        let (code, reason) = match reason {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => {
                let cause = FieldCause {
                    reason: "FieldValueInvalid",
                    field: String::new(),
                    message: message.to_owned(),
                };
                return ApiError::invalid(group, kind, self.name, vec![cause]);
            }
        };
        let message = format!("{subject} \"{}\" is forbidden: {message}", self.name);
        ApiError {
            code,
            reason,
            ..ApiError::forbidden(message)
        }
    }
}

/// Parts of a policy this server does not have.
pub(super) fn unsupported(policy: &Value) -> Vec<FieldCause> {
    ["paramKind", "variables"]
        .into_iter()
        .filter(|f| {
            policy["spec"]
                .get(*f)
                .is_some_and(|v| v.as_array().is_none_or(|l| !l.is_empty()))
        })
        .map(|f| FieldCause::forbidden(format!("spec.{f}"), "not supported by this server"))
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn expression(value: &Value) -> VapExpression {
    let optional = |field: &str| value[field].as_str().map(str::to_owned);
    VapExpression {
        expression: text(&value["expression"]),
        message: optional("message"),
        message_expression: optional("messageExpression"),
    }
}

/// A `LabelSelector` object on labels; an absent one selects everything.
fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(k, v)| label(k) == v.as_str());
    equal
        && list(&selector["matchExpressions"]).all(|e| {
            let value = label(e["key"].as_str().unwrap_or_default());
            let among = value.is_some_and(|value| list(&e["values"]).any(|v| v == value));
            match e["operator"].as_str() {
                Some("In") => among,
                Some("NotIn") => !among,
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::catalog::Live;
    use serde_json::json;

    fn policy() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["*"],
                "operations": ["DELETE"], "resources": ["configmaps"]}]},
            "matchConditions": [{"name": "n", "expression": "request.userInfo.username != 'root'"}],
            "validations": [{"expression": "oldObject.metadata.name != 'keep'",
                "messageExpression": "oldObject.metadata.name + ' stays'", "reason": "Forbidden"}]}})
    }

    fn binding(action: &str, selector: Value) -> Value {
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": [action],
            "matchResources": {"namespaceSelector": selector}}})
    }

    fn review(user: &str, name: &str, binding: &Value) -> Result<Vec<String>, ApiError> {
        let live = Live::default().current();
        let old = json!({"metadata": {"name": name}});
        let namespace = json!({"metadata": {"name": "default", "labels": {"env": "prod"}}});
        let identity = Identity {
            user: user.into(),
            groups: Vec::new(),
        };
        let review = Review {
            operation: "DELETE",
            resource: live.find("", "v1", "configmaps").unwrap(),
            subresource: "",
            name,
            namespace: Some(&namespace),
            object: None,
            old: Some(&old),
            dry_run: false,
            identity: &identity,
        };
        review.run([policy()].iter(), &[binding])
    }

    #[test]
    fn a_bound_policy_denies_or_warns_where_it_matches() {
        let deny = binding("Deny", json!({}));
        let error = review("ada", "keep", &deny).unwrap_err();
        assert_eq!(error.code, 403);
        assert_eq!(
            error.message,
            "configmaps \"keep\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: keep stays"
        );
        assert_eq!(review("ada", "other", &deny), Ok(vec![]));
        assert_eq!(
            review("root", "keep", &deny),
            Ok(vec![]),
            "a match condition does not hold"
        );
        assert_eq!(
            review("ada", "keep", &binding("Warn", json!({})))
                .unwrap()
                .len(),
            1
        );
        let elsewhere =
            json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]});
        assert_eq!(
            review("ada", "keep", &binding("Deny", elsewhere)),
            Ok(vec![])
        );
    }

    #[test]
    fn what_is_not_supported_is_said() {
        let mut policy = policy();
        policy["spec"]["variables"] = json!([{"name": "x", "expression": "1"}]);
        assert_eq!(unsupported(&policy)[0].field, "spec.variables");
    }
}
