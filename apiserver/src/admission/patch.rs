//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

use serde_json::Value;

use crate::status::ApiError;

/// The most operations one JSON patch may have, as in Kubernetes.
const OPERATIONS: usize = 10_000;

/// Applies a JSON patch.
pub fn json_patch(object: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let patch: json_patch::Patch = serde_json::from_slice(patch)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    if patch.0.len() > OPERATIONS {
        return Err(ApiError {
            code: 413,
            reason: "RequestEntityTooLarge",
            ..ApiError::bad_request(format!(
                "The allowed maximum operations in a JSON patch is {OPERATIONS}, got {}",
                patch.0.len()
            ))
        });
    }
    let mut next = object.clone();
    json_patch::patch(&mut next, &patch).map_err(|e| {
        ApiError::unprocessable(format!(
            "the server rejected our request due to an error in our request: {e}"
        ))
    })?;
    Ok(next)
}

/// Applies a merge patch: `null` removes, objects merge, everything else replaces.
pub fn merge_patch(object: &Value, patch: &Value) -> Value {
    let mut next = object.clone();
    json_patch::merge(&mut next, patch);
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_patch_is_all_or_nothing() {
        let object = json!({"a": 1});
        let good = br#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":2}]"#;
        assert_eq!(json_patch(&object, good).unwrap(), json!({"a": 1, "b": 2}));
        let bad = br#"[{"op":"add","path":"/b","value":2},{"op":"test","path":"/a","value":9}]"#;
        assert_eq!(json_patch(&object, bad).unwrap_err().code, 422);
        assert_eq!(json_patch(&object, b"{}").unwrap_err().code, 400);
    }

    #[test]
    fn merge_patch_removes_with_null() {
        let object = json!({"a": {"b": 1, "c": [1, 2]}});
        let next = merge_patch(&object, &json!({"a": {"b": null, "c": [3]}}));
        assert_eq!(next, json!({"a": {"c": [3]}}));
    }
}
