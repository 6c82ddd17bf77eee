//! What is stored and under which key.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// Identity of an object. The version it is asked for in is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// `plural.group`, or `plural` in the core group.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl Key {
    /// A key.
    pub fn new(resource: impl Into<Arc<str>>, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(super) fn place(&self) -> (Box<str>, Box<str>) {
        (self.namespace.clone(), self.name.clone())
    }

    /// Text form used in the file; names cannot contain the separator (RFC 1123 labels).
    pub(super) fn to_text(&self) -> String {
        format!("{}/{}/{}", self.resource, self.namespace, self.name)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        Some(Self::new(parts.next()?, parts.next()?, parts.next()?))
    }
}

/// An object as stored.
#[derive(Debug)]
pub struct Stored {
    /// Its identity.
    pub key: Key,
    /// Revision of its last write; `metadata.resourceVersion` says the same.
    pub revision: u64,
    /// The object.
    pub object: Value,
    /// `object` as JSON, encoded once for all readers and watchers.
    pub json: Bytes,
}

impl Stored {
    pub(super) fn new(key: Key, revision: u64, mut object: Value) -> Self {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        let json = Bytes::from(object.to_string());
        Self {
            key,
            revision,
            object,
            json,
        }
    }

    pub(super) fn from_json(key: Key, json: &[u8]) -> Result<Self, String> {
        let object: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let revision = object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse().ok())
            .ok_or("no metadata.resourceVersion")?;
        Ok(Self {
            key,
            revision,
            object,
            json: Bytes::copy_from_slice(json),
        })
    }
}
