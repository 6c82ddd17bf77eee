//! Request bodies.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use super::{Call, protobuf};
use crate::status::ApiError;

/// The largest body read, in bytes; Kubernetes' own limit.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// How long a client may take to send it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the whole body.
pub(super) async fn read(incoming: Incoming) -> Result<bytes::Bytes, ApiError> {
    let reading = Limited::new(incoming, MAX_BODY).collect();
    let read = tokio::time::timeout(PATIENCE, reading)
        .await
        .map_err(|_| ApiError::bad_request("the body did not arrive in time"))?;
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::too_large(MAX_BODY))
        }
        Err(error) => Err(ApiError::bad_request(format!(
            "cannot read the body: {error}"
        ))),
    }
}

/// Media type without parameters.
pub(super) fn media_type(call: &Call) -> &str {
    call.content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

/// Decodes an object by the request's content type.
pub(super) fn decode(call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    match media_type(call) {
        "" | "application/json" => json(body),
        "application/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => protobuf::decode(body),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Decodes JSON.
pub(super) fn json(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("the body is not valid JSON: {e}")))
}

/// Decodes YAML (and so JSON).
pub(super) fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    if body.first() == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(body)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::bad_request("the body is not valid UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|e| ApiError::bad_request(format!("the body is not valid YAML: {e}")))
}
