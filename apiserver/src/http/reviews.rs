//! Questions about oneself (`kubectl auth whoami`, `kubectl auth can-i`). Nothing is stored. The answer to "may I" is
//! always yes: whoever is known here may do everything.

use http::{Method, Response};
use hyper::body::Incoming;
use serde_json::json;

use super::reply::{self, Body};
use super::target::ResourcePath;
use super::{Call, body};
use crate::status::ApiError;

/// Answers a review.
pub(super) async fn review(
    call: &Call,
    path: &ResourcePath,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    if call.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    // The answer depends on the caller alone.
    body::read(incoming).await?;
    let (kind, status) = match path.plural.as_str() {
        "selfsubjectreviews" => (
            "SelfSubjectReview",
            json!({"userInfo": {"username": call.identity.user, "groups": call.identity.groups}}),
        ),
        _ => ("SelfSubjectAccessReview", json!({"allowed": true})),
    };
    let mut answer = json!({
        "kind": kind,
        "apiVersion": format!("{}/{}", path.group, path.version),
        "metadata": {},
        "status": status,
    });
    if kind == "SelfSubjectAccessReview" {
        answer["spec"] = json!({});
    }
    Ok(reply::with_code(201, &answer))
}

/// Whether the path is a review.
pub(super) fn is_review(path: &ResourcePath) -> bool {
    matches!(
        (
            path.group.as_str(),
            path.version.as_str(),
            path.plural.as_str(),
            &path.name
        ),
        ("authentication.k8s.io", "v1", "selfsubjectreviews", None)
            | (
                "authorization.k8s.io",
                "v1",
                "selfsubjectaccessreviews",
                None
            )
    )
}
