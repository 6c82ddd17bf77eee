//! Request bodies in Kubernetes' protobuf encoding, for the kinds `kubectl create KIND` and event recorders send that
//! way. Answers are always JSON, which every client takes.
//!
//! A body is the magic `k8s\0`, then a `runtime.Unknown` with apiVersion, kind and the encoded object. The tables
//! below name fields by number (the `protobuf` tags of the Kubernetes API types). A field that is not in a table is
//! refused, never dropped.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::status::ApiError;

mod kinds;

use kinds::{Field, Type, one, table};

/// The media type.
pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Decodes a body into the object it stands for.
pub(super) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let broken = || ApiError::bad_request("the body is not valid Kubernetes protobuf");
    let envelope = body.strip_prefix(MAGIC).ok_or_else(broken)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader(envelope);
    while let Some((number, value)) = reader.next().ok_or_else(broken)? {
        match (number, value) {
            (1, Wire::Bytes(meta)) => {
                let mut reader = Reader(meta);
                while let Some((number, value)) = reader.next().ok_or_else(broken)? {
                    match (number, value) {
                        (1, Wire::Bytes(text)) => api_version = utf8(text).ok_or_else(broken)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text).ok_or_else(broken)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let unknown = || ApiError::unsupported_media_type("application/json, application/yaml");
    let fields = table(&api_version, &kind).ok_or_else(unknown)?;
    let mut object = message(fields, raw).map_err(|failure| match failure {
        Failure::Broken => broken(),
        Failure::Unknown => unknown(),
    })?;
    object.shift_insert(0, "kind".into(), kind.into());
    object.shift_insert(1, "apiVersion".into(), api_version.into());
    Ok(Value::Object(object))
}

enum Failure {
    Broken,
    /// A field that is in no table.
    Unknown,
}

fn message(fields: &[Field], bytes: &[u8]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next().ok_or(Failure::Broken)? {
        let field = fields
            .iter()
            .find(|f| f.number == number)
            .ok_or(Failure::Unknown)?;
        if let (Type::TextMap | Type::BytesMap, Wire::Bytes(entry)) = (field.kind, wire) {
            let map = object.entry(field.name).or_insert_with(|| json!({}));
            let (key, value) = map_entry(entry, field.kind).ok_or(Failure::Broken)?;
            map[key] = value;
            continue;
        }
        let value = scalar(field.kind, wire)?;
        if field.repeated {
            let list = object.entry(field.name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value.unwrap_or_else(|| json!("")));
            }
        } else if let Some(value) = value {
            object.insert(field.name.into(), value);
        }
    }
    Ok(object)
}

/// A single value; `None` for what Go would leave out of JSON.
fn scalar(kind: Type, wire: Wire<'_>) -> Result<Option<Value>, Failure> {
    Ok(match (kind, wire) {
        (Type::Text, Wire::Bytes(b)) => {
            let text = utf8(b).ok_or(Failure::Broken)?;
            (!text.is_empty()).then(|| text.into())
        }
        (Type::Int, Wire::Varint(n)) => (n != 0).then(|| n.cast_signed().into()),
        (Type::IntPointer, Wire::Varint(n)) => Some(n.cast_signed().into()),
        (Type::Bool, Wire::Varint(n)) => (n != 0).then(|| true.into()),
        (Type::BoolPointer, Wire::Varint(n)) => Some((n != 0).into()),
        (Type::Time | Type::MicroTime, Wire::Bytes(b)) => time(kind, b)?,
        (Type::IntOrText, Wire::Bytes(b)) => Some(int_or_text(b)?),
        (Type::Message(fields), Wire::Bytes(b)) => {
            let object = message(fields, b)?;
            (!object.is_empty()).then_some(Value::Object(object))
        }
        _ => return Err(Failure::Broken),
    })
}

fn time(kind: Type, bytes: &[u8]) -> Result<Option<Value>, Failure> {
    let fields = message(&[one(1, "s", Type::Int), one(2, "n", Type::Int)], bytes)?;
    let part = |name: &str| fields.get(name).and_then(Value::as_i64).unwrap_or(0);
    if fields.is_empty() {
        return Ok(None);
    }
    let nanoseconds = i32::try_from(part("n")).map_err(|_| Failure::Broken)?;
    let time = jiff::Timestamp::new(part("s"), nanoseconds).map_err(|_| Failure::Broken)?;
    let format = match kind {
        Type::MicroTime => "%Y-%m-%dT%H:%M:%S.%6fZ",
        _ => "%Y-%m-%dT%H:%M:%SZ",
    };
    Ok(Some(time.strftime(format).to_string().into()))
}

fn int_or_text(bytes: &[u8]) -> Result<Value, Failure> {
    let fields = [
        one(1, "type", Type::Int),
        one(2, "int", Type::Int),
        one(3, "text", Type::Text),
    ];
    let parts = message(&fields, bytes)?;
    Ok(match parts.get("type") {
        None => parts.get("int").cloned().unwrap_or_else(|| 0.into()),
        Some(_) => parts.get("text").cloned().unwrap_or_else(|| "".into()),
    })
}

fn map_entry(bytes: &[u8], kind: Type) -> Option<(String, Value)> {
    let (mut key, mut value) = (String::new(), &[][..]);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(b)) => key = utf8(b)?,
            (2, Wire::Bytes(b)) => value = b,
            _ => return None,
        }
    }
    let value = match kind {
        Type::BytesMap => encode(value),
        _ => utf8(value)?.into(),
    };
    Some((key, value))
}

fn utf8(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn encode(bytes: &[u8]) -> Value {
    base64::engine::general_purpose::STANDARD
        .encode(bytes)
        .into()
}

#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// Reads fields of a message (protobuf encoding: varint, length-delimited; Kubernetes uses no others here).
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field, `Some(None)` at the end, `None` if malformed.
    fn next(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            _ => return None,
        };
        Some(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend(content);
        out
    }

    fn body(kind: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, object)].concat()
    }

    #[test]
    fn a_config_map_is_decoded() {
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let meta = [field(1, b"a"), field(2, b""), field(8, b"")].concat();
        let object = [field(1, &meta), field(2, &entry), vec![4 << 3, 0]].concat();
        assert_eq!(
            decode(&body("ConfigMap", &object)).unwrap(),
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"},
                "data": {"k": "v"}, "immutable": false})
        );
    }

    #[test]
    fn what_is_not_in_a_table_is_refused() {
        let unknown_field = body("ConfigMap", &field(9, b"x"));
        assert_eq!(decode(&unknown_field).unwrap_err().code, 415);
        assert_eq!(decode(&body("Pod", b"")).unwrap_err().code, 415);
        assert_eq!(decode(b"{}").unwrap_err().code, 400);
        assert_eq!(decode(&[MAGIC, &[10, 200]].concat()).unwrap_err().code, 400);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&[MAGIC.to_vec(), bytes.clone()].concat());
            let _ = decode(&body("Service", &bytes));
        }
    }
}
