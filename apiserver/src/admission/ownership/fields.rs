//! Sets of field paths, in the shape of `FieldsV1`: `f:name` a field, `k:{...}` a list element by keys, `v:x` a set
//! element by value, `.` the place itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<String, Entry>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    /// The path ending here is in the set.
    member: bool,
    below: FieldSet,
}

impl FieldSet {
    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path of elements.
    pub fn insert(&mut self, path: &[String]) {
        let [first, rest @ ..] = path else { return };
        let entry = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.below.insert(rest);
        }
    }

    /// Removes a path and all below it.
    pub fn remove(&mut self, path: &[&str]) {
        let [first, rest @ ..] = path else { return };
        if rest.is_empty() {
            self.0.remove(*first);
        } else if let Some(entry) = self.0.get_mut(*first) {
            entry.below.remove(rest);
            if entry.below.is_empty() && !entry.member {
                self.0.remove(*first);
            }
        }
    }

    /// Adds all paths of `other`.
    pub fn add(&mut self, other: &Self) {
        for (element, theirs) in &other.0 {
            let ours = self.0.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            ours.below.add(&theirs.below);
        }
    }

    /// Removes exactly the paths of `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.0.retain(|element, ours| {
            if let Some(theirs) = other.0.get(element) {
                ours.member &= !theirs.member;
                ours.below.subtract(&theirs.below);
            }
            ours.member || !ours.below.is_empty()
        });
    }

    /// Paths in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self::default();
        for (element, ours) in &self.0 {
            let Some(theirs) = other.0.get(element) else {
                continue;
            };
            let entry = Entry {
                member: ours.member && theirs.member,
                below: ours.below.intersection(&theirs.below),
            };
            if entry.member || !entry.below.is_empty() {
                result.0.insert(element.clone(), entry);
            }
        }
        result
    }

    /// First elements with: is the path itself in the set, and what is below.
    pub fn entries(&self) -> impl Iterator<Item = (&str, bool, &Self)> {
        self.0
            .iter()
            .map(|(element, entry)| (element.as_str(), entry.member, &entry.below))
    }

    /// All paths as people read them, e.g. `.spec.ports[port=80].name`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(String::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: String, paths: &mut Vec<String>) {
        for (element, entry) in &self.0 {
            let path = format!("{prefix}{}", shown(element));
            if entry.member {
                paths.push(path.clone());
            }
            entry.below.collect(path, paths);
        }
    }

    /// The `FieldsV1` form.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (element, entry) in &self.0 {
            let mut below = match entry.below.to_json() {
                Value::Object(below) => below,
                _ => Map::new(),
            };
            if entry.member && !below.is_empty() {
                below.shift_insert(0, ".".into(), Value::Object(Map::new()));
            }
            map.insert(element.clone(), Value::Object(below));
        }
        Value::Object(map)
    }

    /// Reads the `FieldsV1` form.
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (element, below) in value.as_object()? {
            if element == "." {
                continue;
            }
            let member = below.as_object()?.is_empty() || below.get(".").is_some();
            set.0.insert(
                element.clone(),
                Entry {
                    member,
                    below: Self::from_json(below)?,
                },
            );
        }
        Some(set)
    }
}

fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, index)) => format!("[{index}]"),
        None => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set() -> impl Strategy<Value = FieldSet> {
        let path = prop::collection::vec("f:[abc]", 1..4);
        prop::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|p| set.insert(p));
            set
        })
    }

    proptest! {
        #[test]
        fn json_round_trip(set in set()) {
            prop_assert_eq!(FieldSet::from_json(&set.to_json()), Some(set));
        }

        #[test]
        fn a_set_is_its_difference_and_intersection(a in set(), b in set()) {
            let mut rest = a.clone();
            rest.subtract(&b);
            prop_assert!(rest.intersection(&b).is_empty());
            rest.add(&a.intersection(&b));
            prop_assert_eq!(rest, a);
        }
    }

    #[test]
    fn paths_are_readable() {
        let json = json!({"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}}}});
        let set = FieldSet::from_json(&json).unwrap();
        assert_eq!(
            set.paths(),
            [".spec.ports[port=80]", ".spec.ports[port=80].name"]
        );
        assert_eq!(set.to_json(), json);
    }
}
