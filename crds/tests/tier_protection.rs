//! The shipped ValidatingAdmissionPolicy.

use kube_cel::{VapEvaluator, VapExpression};
use serde_json::{Value, json};

/// Messages for the deletion of a tier.
fn deletion_of(tier: &str) -> Vec<String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(margay_crds::manifests::VALIDATING_ADMISSION)
            .expect("the documents are YAML");
    let validation = &documents[0]["spec"]["validations"][0];
    let text = |key: &str| validation[key].as_str().expect("is set").to_owned();
    let evaluator = VapEvaluator::builder()
        .old_object(json!({"metadata": {"name": tier}, "spec": {}}))
        .build();
    let expression = VapExpression {
        expression: text("expression"),
        message: None,
        message_expression: Some(text("messageExpression")),
    };
    evaluator
        .evaluate(&[expression])
        .into_iter()
        .filter(|result| !result.passed)
        .map(|result| result.message.unwrap_or_default())
        .collect()
}

#[test]
fn a_built_in_tier_cannot_be_deleted() {
    for tier in ["default", "kube-admin", "kube-baseline"] {
        assert_eq!(
            deletion_of(tier),
            [format!("The built-in tier {tier} cannot be deleted")]
        );
    }
    assert!(deletion_of("security").is_empty());
}
