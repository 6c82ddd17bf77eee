//! Objects and field sets, guided by the schema: which lists have identifiable elements, which objects are one value.
//! Below what no schema describes, objects are open and lists are one value.

use serde_json::{Map, Value};

use super::fields::FieldSet;
use crate::schema::{Compiled, ListKind, Node};

/// The difference between two objects.
#[derive(Debug, Default)]
pub struct Difference {
    /// Paths only the new one has.
    pub added: FieldSet,
    /// Paths only the old one has.
    pub removed: FieldSet,
    /// Paths with another value.
    pub modified: FieldSet,
}

impl Difference {
    /// Added and modified paths.
    pub fn changed(&self) -> FieldSet {
        let mut all = self.added.clone();
        all.add(&self.modified);
        all
    }
}

/// What a value looks like to writers.
enum Shape<'a> {
    /// One value.
    Leaf,
    /// Fields.
    Fields(&'a Map<String, Value>),
    /// Elements with their path elements.
    Elements(Vec<(String, &'a Value)>),
}

fn shape<'a>(schema: &Compiled, node: Option<&Node>, value: &'a Value) -> Shape<'a> {
    match value {
        Value::Object(map) if !node.is_some_and(|n| n.atomic) => Shape::Fields(map),
        Value::Array(list) => {
            let kind = node.map(|n| &n.list);
            let items = item(schema, node);
            let elements: Option<Vec<_>> = list
                .iter()
                .map(|v| Some((element(kind?, items, v)?, v)))
                .collect();
            elements.map_or(Shape::Leaf, Shape::Elements)
        }
        _ => Shape::Leaf,
    }
}

/// The path element of a list element; `None` when the list is one value or the element lacks all keys. A key that
/// is left out counts with its default.
fn element(kind: &ListKind, items: Option<&Node>, value: &Value) -> Option<String> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(format!("v:{value}")),
        ListKind::Map(keys) => {
            let default = |key: &str| items?.properties.get(key)?.default.as_ref();
            let mut found: Vec<(&String, &Value)> = keys
                .iter()
                .filter_map(|k| Some((k, value.get(k).or_else(|| default(k))?)))
                .collect();
            found.sort_by_key(|(k, _)| *k);
            let keys: Map<String, Value> = found
                .into_iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            (!keys.is_empty()).then(|| format!("k:{}", Value::Object(keys)))
        }
    }
}

fn field<'a>(schema: &'a Compiled, node: Option<&'a Node>, name: &str) -> Option<&'a Node> {
    schema.field(node?, name)
}

fn item<'a>(schema: &'a Compiled, node: Option<&'a Node>) -> Option<&'a Node> {
    schema.element(node?)
}

/// The paths a configuration names.
pub fn field_set(schema: &Compiled, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(
        schema,
        Some(schema.root()),
        object,
        &mut Vec::new(),
        &mut set,
        false,
    );
    set
}

/// Adds the paths of `value`; `containers` adds those of non-empty objects and lists as well.
fn collect(
    schema: &Compiled,
    node: Option<&Node>,
    value: &Value,
    path: &mut Vec<String>,
    set: &mut FieldSet,
    containers: bool,
) {
    let children: Vec<(String, Option<&Node>, &Value, bool)> = match shape(schema, node, value) {
        Shape::Leaf => {
            set.insert(path);
            return;
        }
        Shape::Fields(map) => map
            .iter()
            .map(|(name, v)| (format!("f:{name}"), field(schema, node, name), v, false))
            .collect(),
        Shape::Elements(list) => list
            .into_iter()
            .map(|(e, v)| (e, item(schema, node), v, true))
            .collect(),
    };
    if children.is_empty() || containers {
        set.insert(path);
    }
    for (element, node, value, is_item) in children {
        path.push(element);
        if is_item {
            set.insert(path);
        }
        if !is_item || value.is_object() {
            collect(schema, node, value, path, set, containers);
        }
        path.pop();
    }
}

/// What changed from `old` to `new`.
pub fn compare(schema: &Compiled, old: &Value, new: &Value) -> Difference {
    let mut difference = Difference::default();
    differ(
        schema,
        Some(schema.root()),
        Some(old),
        Some(new),
        &mut Vec::new(),
        &mut difference,
    );
    difference
}

fn differ(
    schema: &Compiled,
    node: Option<&Node>,
    old: Option<&Value>,
    new: Option<&Value>,
    path: &mut Vec<String>,
    out: &mut Difference,
) {
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (None, Some(new)) => return collect(schema, node, new, path, &mut out.added, true),
        (Some(old), None) => return collect(schema, node, old, path, &mut out.removed, true),
        (None, None) => return,
    };
    if old == new {
        return;
    }
    let mut descend =
        |element: String, node: Option<&Node>, old: Option<&Value>, new: Option<&Value>| {
            path.push(element);
            differ(schema, node, old, new, path, out);
            path.pop();
        };
    match (shape(schema, node, old), shape(schema, node, new)) {
        (Shape::Fields(old), Shape::Fields(new)) => {
            for (name, value) in old {
                let node = field(schema, node, name);
                descend(format!("f:{name}"), node, Some(value), new.get(name));
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                descend(
                    format!("f:{name}"),
                    field(schema, node, name),
                    None,
                    Some(value),
                );
            }
        }
        (Shape::Elements(old), Shape::Elements(new)) => {
            let node = item(schema, node);
            let find = |list: &[(String, &Value)], element: &str| {
                list.iter().position(|(e, _)| e == element)
            };
            for (element, value) in &old {
                let other = find(&new, element).map(|at| new[at].1);
                descend(element.clone(), node, Some(value), other);
            }
            for (element, value) in &new {
                if find(&old, element).is_none() {
                    descend(element.clone(), node, None, Some(value));
                }
            }
        }
        _ => out.modified.insert(path),
    }
}

/// `live` with everything `config` names set to its value.
pub fn merge(schema: &Compiled, live: &Value, config: &Value) -> Value {
    merged(schema, Some(schema.root()), live, config)
}

fn merged(schema: &Compiled, node: Option<&Node>, live: &Value, config: &Value) -> Value {
    match (shape(schema, node, live), shape(schema, node, config)) {
        (Shape::Fields(live), Shape::Fields(config)) => {
            let mut next = live.clone();
            for (name, value) in config {
                let value = match live.get(name) {
                    Some(live) => merged(schema, field(schema, node, name), live, value),
                    None => value.clone(),
                };
                next.insert(name.clone(), value);
            }
            Value::Object(next)
        }
        (Shape::Elements(live), Shape::Elements(config)) => {
            let node = item(schema, node);
            let mut next: Vec<(String, Value)> =
                live.into_iter().map(|(e, v)| (e, v.clone())).collect();
            for (element, value) in config {
                match next.iter_mut().find(|(e, _)| *e == element) {
                    Some((_, live)) => *live = merged(schema, node, live, value),
                    None => next.push((element, value.clone())),
                }
            }
            next.into_iter().map(|(_, v)| v).collect()
        }
        _ => config.clone(),
    }
}

/// Removes paths; objects and lists emptied by that go as well.
pub fn remove(schema: &Compiled, object: &mut Value, paths: &FieldSet) {
    removed(schema, Some(schema.root()), object, paths);
}

fn removed(schema: &Compiled, node: Option<&Node>, value: &mut Value, paths: &FieldSet) {
    for (element, member, below) in paths.entries() {
        // Removes or keeps a child after looking below it.
        let gone = |node: Option<&Node>, child: &mut Value| {
            let leaf = matches!(shape(schema, node, child), Shape::Leaf);
            if member && (leaf || below.is_empty()) {
                return true;
            }
            removed(schema, node, child, below);
            match child {
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            }
        };
        match value {
            Value::Object(map) => {
                let Some(name) = element.strip_prefix("f:") else {
                    continue;
                };
                let Some(child) = map.get_mut(name) else {
                    continue;
                };
                if gone(field(schema, node, name), child) {
                    map.shift_remove(name);
                }
            }
            Value::Array(list) => {
                let Some(kind) = node.map(|n| n.list.clone()) else {
                    continue;
                };
                let items = item(schema, node);
                let at = list
                    .iter()
                    .position(|v| self::element(&kind, items, v).as_deref() == Some(element));
                // An element whose keys are all that is left belongs to nobody any more.
                if let Some(at) = at
                    && (member || gone(items, &mut list[at]))
                {
                    list.remove(at);
                }
            }
            _ => {}
        }
    }
}
