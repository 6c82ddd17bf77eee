//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::status::ApiError;

/// Body of an answer: complete, or a stream.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A complete answer.
pub(super) fn bytes(code: u16, content_type: &'static str, content: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(content).boxed_unsync());
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// JSON with a status code.
pub(super) fn with_code(code: u16, value: &Value) -> Response<Body> {
    bytes(code, "application/json", Bytes::from(value.to_string()))
}

/// 200 with JSON.
pub(super) fn json(value: &Value) -> Response<Body> {
    with_code(200, value)
}

/// 200 with plain text.
pub(super) fn text(text: &'static str) -> Response<Body> {
    bytes(
        200,
        "text/plain; charset=utf-8",
        Bytes::from_static(text.as_bytes()),
    )
}

/// A refusal.
pub(super) fn error(error: &ApiError) -> Response<Body> {
    let mut response = with_code(error.code, &error.to_status());
    let headers = response.headers_mut();
    match error.code {
        401 => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        503 => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

/// Adds `Warning` headers (RFC 9110 removed them; Kubernetes uses code 299).
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
