//! Refusals as Kubernetes `Status` objects (API conventions, "Response Status Kind").

use serde_json::{Map, Value, json};

/// A request that was not carried out, ready to be sent as `v1 Status`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code, also `Status.code`.
    pub code: u16,
    /// Machine readable reason, e.g. `NotFound`.
    pub reason: &'static str,
    /// One sentence for a person.
    pub message: String,
    /// `Status.details`, when there is something to say.
    pub details: Option<Box<Map<String, Value>>>,
}

/// One field that was refused, an entry of `Status.details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldCause {
    /// Kind of complaint, e.g. `FieldValueInvalid`.
    pub reason: &'static str,
    /// Path of the field, e.g. `spec.cidr`.
    pub field: String,
    /// What is wrong, without the field.
    pub message: String,
}

impl FieldCause {
    /// A value that breaks a rule; `value` is shown as given.
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        let shown = match value {
            Value::Object(_) => "object".to_owned(),
            Value::Array(_) => "array".to_owned(),
            other => other.to_string(),
        };
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {shown}: {}", why.as_ref()),
        }
    }

    /// A required field that is absent.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    /// A field that may not be set or changed.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {why}"),
        }
    }
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: no or no valid credentials.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: understood and refused.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// 404: no such path.
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 404: no object of that name.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(plural, group);
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"))
            .with_subject(group, plural, name)
    }

    /// 405: the resource does not know the verb.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 406: nothing the client accepts can be produced.
    pub fn not_acceptable(accepted: &str) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {accepted}"),
        )
    }

    /// 409: an object of that name exists.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(plural, group);
        Self::new(
            409,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .with_subject(group, plural, name)
    }

    /// 409: somebody else was faster, or a precondition does not hold.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified(plural, group);
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .with_subject(group, plural, name)
    }

    /// 409: other field managers own what server-side apply wants to set.
    pub fn apply_conflict(message: String, causes: Vec<FieldCause>) -> Self {
        let mut error = Self::new(409, "Conflict", message);
        error
            .details_mut()
            .insert("causes".into(), causes_json(&causes));
        error
    }

    /// 410: the asked resource version is no longer known.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is larger than the server reads.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("the request body is larger than the limit of {limit} bytes"),
        )
    }

    /// 415: the body's media type is not understood here.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// 422: the object breaks its rules; one cause per field.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<FieldCause>) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let subject = qualified(kind, group);
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{subject} \"{name}\" is invalid: {list}"),
        )
        .with_subject(group, kind, name);
        error
            .details_mut()
            .insert("causes".into(), causes_json(&causes));
        error
    }

    /// 422 without field details: e.g. a JSON patch that does not apply.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// 500: a fault of the server, e.g. a disk that is full.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {}", message.into()),
        )
    }

    /// 503: the server is stopping.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    fn with_subject(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        details.insert("name".into(), name.into());
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        details.insert("kind".into(), kind.into());
        self
    }

    fn details_mut(&mut self) -> &mut Map<String, Value> {
        self.details.get_or_insert_default()
    }

    /// The `v1 Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        });
        if let Some(details) = &self.details {
            status["details"] = Value::Object((**details).clone());
        }
        status["code"] = self.code.into();
        status
    }
}

/// `plural.group`, or only `plural` in the core group.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

fn causes_json(causes: &[FieldCause]) -> Value {
    causes
        .iter()
        .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_object_field_and_value() {
        let error = ApiError::invalid(
            "projectcalico.org",
            "IPPool",
            "p",
            vec![FieldCause::invalid("spec.cidr", &json!("x"), "not a CIDR")],
        );
        assert_eq!(
            error.message,
            r#"IPPool.projectcalico.org "p" is invalid: spec.cidr: Invalid value: "x": not a CIDR"#
        );
        let status = error.to_status();
        assert_eq!(status["code"], 422);
        assert_eq!(status["details"]["causes"][0]["field"], "spec.cidr");
    }

    #[test]
    fn core_group_has_no_suffix() {
        assert_eq!(
            ApiError::not_found("", "pods", "a").message,
            r#"pods "a" not found"#
        );
    }
}
