//! What a write means: from (old object, request) to the object to be stored, or a refusal.
//!
//! Order, as in Kubernetes: type check, unknown fields, what only the server may set, defaults, schema, CEL, kind
//! rules, generation, field ownership. Everything here is a function of its arguments; nothing is stored.

pub mod kinds;
pub mod metadata;
pub mod ownership;
pub mod patch;
pub mod policies;
pub mod strategic;

use serde_json::Value;

use crate::resource::{Resource, StatusRule};
use crate::schema::{check, defaults, prune};
use crate::status::{ApiError, FieldCause};

/// What happens to unknown fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// The write is refused.
    Strict,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// They are dropped.
    Ignore,
}

/// Which part of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object without its status (if that is separate).
    Main,
    /// The status.
    Status,
    /// A namespace's own finalizers.
    Finalize,
}

/// How a writer comes to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// By changing them.
    Updates,
    /// By naming them in its configuration.
    Applies,
}

/// Circumstances of a write.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is written.
    pub resource: &'a Resource,
    /// Namespace of the path, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Which part.
    pub part: Part,
    /// Treatment of unknown fields.
    pub validation: FieldValidation,
    /// Field manager of the writer.
    pub manager: &'a str,
    /// Current time, RFC 3339 in seconds.
    pub now: &'a str,
}

/// An accepted write.
#[derive(Debug)]
pub struct Admitted {
    /// The object, in the served version.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// The last finalizer of an object being deleted is gone: remove it.
    pub remove: bool,
}

/// The current time as Kubernetes writes it.
pub fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

impl Request<'_> {
    /// Admits a new object.
    pub fn create(&self, body: Value) -> Result<Admitted, ApiError> {
        let mut object = self.typed(body)?;
        let warnings = self.known_fields(&mut object)?;
        let object = self.finish_create(object, Writer::Updates)?;
        Ok(Admitted {
            object,
            warnings,
            remove: false,
        })
    }

    /// Admits a change of `old` (served version) to `body`.
    pub fn update(&self, old: &Value, body: Value) -> Result<Admitted, ApiError> {
        let mut object = self.typed(body)?;
        let warnings = self.known_fields(&mut object)?;
        self.finish_update(old, object, warnings, Writer::Updates)
    }

    /// Admits a server-side apply of a configuration over `old`, or as a new object.
    pub fn apply(
        &self,
        old: Option<&Value>,
        name: &str,
        config: Value,
        force: bool,
    ) -> Result<Admitted, ApiError> {
        let mut config = self.typed(config)?;
        if !config["metadata"]["managedFields"].is_null() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let given = config["metadata"]["name"].as_str().unwrap_or(name);
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        config["metadata"]["name"] = name.into();
        let warnings = self.known_fields(&mut config)?;
        defaults::drop_nulls(self.resource.schema.compiled(), &mut config);
        let other = match self.part {
            Part::Status => "spec",
            _ if self.resource.has_status() => "status",
            _ => "",
        };
        if let Some(map) = config.as_object_mut() {
            map.shift_remove(other);
        }
        let next = ownership::apply(old, &config, self, force)?;
        match old {
            Some(old) => self.finish_update(old, next, warnings, Writer::Applies),
            None => {
                let object = self.finish_create(next, Writer::Applies)?;
                Ok(Admitted {
                    object,
                    warnings,
                    remove: false,
                })
            }
        }
    }

    fn finish_create(&self, mut object: Value, writer: Writer) -> Result<Value, ApiError> {
        metadata::prepare_create(&mut object, self)?;
        self.drop_status_on_create(&mut object);
        self.complete(&mut object);
        self.check_types(&object)?;
        kinds::prepare(&mut object, None, self);
        if self.resource.generation {
            object["metadata"]["generation"] = 1.into();
        }
        self.validate(&object, None)?;
        if writer == Writer::Updates {
            ownership::record_update(&mut object, None, self);
        }
        Ok(object)
    }

    fn finish_update(
        &self,
        old: &Value,
        mut object: Value,
        warnings: Vec<String>,
        writer: Writer,
    ) -> Result<Admitted, ApiError> {
        metadata::prepare_update(old, &mut object, self)?;
        let owners = object["metadata"].get("managedFields").cloned();
        self.keep_other_part(old, &mut object);
        if let Some(owners) = owners {
            object["metadata"]["managedFields"] = owners;
        }
        self.complete(&mut object);
        self.check_types(&object)?;
        kinds::prepare(&mut object, Some(old), self);
        if self.resource.generation {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            let next = generation + i64::from(desired_changed(old, &object));
            object["metadata"]["generation"] = next.into();
        }
        self.validate(&object, Some(old))?;
        if writer == Writer::Updates {
            ownership::record_update(&mut object, Some(old), self);
        }
        let remove =
            old["metadata"]["deletionTimestamp"].is_string() && !metadata::has_finalizers(&object);
        Ok(Admitted {
            object,
            warnings,
            remove,
        })
    }

    /// Checks apiVersion and kind, filling them in when absent.
    fn typed(&self, mut body: Value) -> Result<Value, ApiError> {
        let Some(map) = body.as_object_mut() else {
            return Err(ApiError::bad_request("the body is not a JSON object"));
        };
        let expected = [
            ("apiVersion", self.resource.api_version()),
            ("kind", self.resource.kind.clone()),
        ];
        for (field, wanted) in expected {
            match map.get(field) {
                None | Some(Value::Null) => {
                    map.insert(field.into(), wanted.into());
                }
                Some(Value::String(given)) if *given == wanted => {}
                Some(given) => {
                    let given = given.as_str().unwrap_or("?");
                    return Err(ApiError::bad_request(format!(
                        "the {field} in the data ({given}) does not match the expected {field} ({wanted})"
                    )));
                }
            }
        }
        if !map.get("metadata").is_some_and(Value::is_object) {
            map.insert("metadata".into(), serde_json::json!({}));
        }
        Ok(body)
    }

    fn known_fields(&self, object: &mut Value) -> Result<Vec<String>, ApiError> {
        let unknown = prune::prune(self.resource.schema.compiled(), object);
        if unknown.is_empty() || self.validation == FieldValidation::Ignore {
            return Ok(Vec::new());
        }
        let texts: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        if self.validation == FieldValidation::Warn {
            return Ok(texts);
        }
        let Resource { kind, version, .. } = self.resource;
        Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
            texts.join(", ")
        )))
    }

    fn complete(&self, object: &mut Value) {
        let schema = self.resource.schema.compiled();
        defaults::apply(schema, object);
        defaults::drop_nulls(schema, object);
    }

    /// Core kinds are refused at once when a field has the wrong type, as by a typed decoder.
    fn check_types(&self, object: &Value) -> Result<(), ApiError> {
        let Resource {
            kind,
            version,
            custom,
            ..
        } = self.resource;
        if *custom {
            return Ok(());
        }
        let violations = check::check(self.resource.schema.compiled(), object);
        match violations.iter().find(|c| c.reason == check::WRONG_TYPE) {
            None => Ok(()),
            Some(FieldCause { field, message, .. }) => Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {field}: {message}"
            ))),
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let mut causes = metadata::check(object, self.resource);
        causes.extend(check::check(self.resource.schema.compiled(), object));
        // CEL rules assume that the schema holds.
        if causes.is_empty() {
            causes.extend(self.resource.schema.cel(object, old));
        }
        causes.extend(kinds::check(object, old, self.resource));
        if causes.is_empty() {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::invalid(
            &self.resource.group,
            &self.resource.kind,
            name,
            causes,
        ))
    }

    fn drop_status_on_create(&self, object: &mut Value) {
        if self.resource.status == StatusRule::Separate
            && let Some(map) = object.as_object_mut()
        {
            map.shift_remove("status");
        }
    }

    /// A write of the status changes nothing else, and the other way round.
    fn keep_other_part(&self, old: &Value, object: &mut Value) {
        if !self.resource.has_status() {
            return;
        }
        let take = |from: &Value, to: &mut Value, field: &str| match from.get(field) {
            Some(value) => to[field] = value.clone(),
            None => {
                if let Some(map) = to.as_object_mut() {
                    map.shift_remove(field);
                }
            }
        };
        match self.part {
            Part::Main | Part::Finalize => take(old, object, "status"),
            Part::Status => {
                let mut next = old.clone();
                take(object, &mut next, "status");
                if !self.resource.custom {
                    // Core kinds let the writer of a status set labels and annotations (kubelets do).
                    next["metadata"] = object["metadata"].take();
                }
                *object = next;
            }
        }
    }
}

/// Whether anything but metadata and status differs.
fn desired_changed(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let counts = |name: &str| !matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    old.iter().any(|(k, v)| counts(k) && new.get(k) != Some(v))
        || new.keys().any(|k| counts(k) && !old.contains_key(k))
}

/// Whether storing `new` over `old` would change anything but bookkeeping.
pub fn unchanged(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let same_metadata = || {
        let empty = serde_json::Map::new();
        let metadata = |o: &serde_json::Map<String, Value>| -> serde_json::Map<String, Value> {
            let mut m = o
                .get("metadata")
                .and_then(Value::as_object)
                .unwrap_or(&empty)
                .clone();
            m.shift_remove("resourceVersion");
            if let Some(fields) = m.get_mut("managedFields").and_then(Value::as_array_mut) {
                for entry in fields {
                    if let Some(entry) = entry.as_object_mut() {
                        entry.shift_remove("time");
                    }
                }
            }
            m
        };
        metadata(old) == metadata(new)
    };
    old.len() == new.len()
        && old
            .iter()
            .all(|(k, v)| k == "metadata" || new.get(k) == Some(v))
        && same_metadata()
}
