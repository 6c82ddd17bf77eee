//! Who depends on whom, kept up to date with every write so that nobody has to search.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Key, Stored};

/// Dependents by owner.
#[derive(Debug, Default)]
pub(super) struct Owners {
    dependents: HashMap<String, HashSet<Key>>,
    gone: Vec<String>,
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let list = object["metadata"]["ownerReferences"].as_array();
    list.into_iter().flatten().filter_map(|o| o["uid"].as_str())
}

impl Owners {
    /// Takes notice of a write: `before` and `after` are the object's content around it.
    pub(super) fn changed(&mut self, before: Option<&Stored>, after: Option<&Stored>) {
        if let Some(before) = before {
            for owner in owners(&before.object) {
                if let Some(keys) = self.dependents.get_mut(owner) {
                    keys.remove(&before.key);
                    if keys.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
            }
        }
        if let Some(after) = after {
            for owner in owners(&after.object) {
                self.dependents
                    .entry(owner.to_owned())
                    .or_default()
                    .insert(after.key.clone());
            }
        } else if let Some(uid) = before.and_then(|b| b.object["metadata"]["uid"].as_str())
            && self.dependents.contains_key(uid)
        {
            self.gone.push(uid.to_owned());
        }
    }

    /// Finds owners that are not among the objects, e.g. because the process ended before it could clean up.
    pub(super) fn find_gone<'a>(&mut self, objects: impl Iterator<Item = &'a Stored>) {
        let mut missing: HashSet<String> = self.dependents.keys().cloned().collect();
        for object in objects {
            if let Some(uid) = object.object["metadata"]["uid"].as_str() {
                missing.remove(uid);
            }
        }
        self.gone.extend(missing);
    }

    pub(super) fn dependents(&self, owner: &str) -> Vec<Key> {
        self.dependents
            .get(owner)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    pub(super) fn none_gone(&self) -> bool {
        self.gone.is_empty()
    }

    pub(super) fn take_gone(&mut self) -> Vec<String> {
        std::mem::take(&mut self.gone)
    }
}
