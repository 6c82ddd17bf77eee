//! All resources served at this moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;
use tokio::sync::watch;

use super::{Resource, core, crd};

/// A version of a group and its resources by plural.
pub type Version = (String, Vec<Arc<Resource>>);

/// A definition's revision and what it serves.
type Compiled = (u64, Vec<Arc<Resource>>);

/// One immutable picture of what is served.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Counts the pictures; caches of what was made from one go with it.
    pub generation: u64,
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    /// group -> versions in order of preference -> resources by plural.
    pub groups: BTreeMap<String, Vec<Version>>,
}

impl Catalog {
    fn new(resources: Vec<Arc<Resource>>) -> Self {
        let mut catalog = Self::default();
        for resource in resources {
            let path = (
                resource.group.clone(),
                resource.version.clone(),
                resource.plural.clone(),
            );
            if catalog.by_path.contains_key(&path) {
                continue;
            }
            let versions = catalog.groups.entry(resource.group.clone()).or_default();
            match versions.iter_mut().find(|(v, _)| *v == resource.version) {
                Some((_, list)) => list.push(Arc::clone(&resource)),
                None => versions.push((resource.version.clone(), vec![Arc::clone(&resource)])),
            }
            catalog.by_path.insert(path, resource);
        }
        for versions in catalog.groups.values_mut() {
            versions.sort_by_key(|(version, _)| std::cmp::Reverse(version_order(version)));
            for (_, list) in versions {
                list.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        catalog
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Every resource.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flatten().flat_map(|(_, list)| list)
    }
}

/// Orders versions as Kubernetes prefers them: GA before beta before alpha, higher numbers first.
fn version_order(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else {
        return (0, 0, 0);
    };
    let number = |s: &str| s.parse::<u32>().unwrap_or(0);
    for (word, rank) in [("alpha", 1), ("beta", 2)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (rank, number(major), number(minor));
        }
    }
    (3, number(rest), 0)
}

/// The current catalog; replaced as a whole when a CRD changes.
#[derive(Debug)]
pub struct Live {
    core: Vec<Arc<Resource>>,
    /// Compiled CRDs by (name, revision), so that one change does not recompile all.
    compiled: Mutex<HashMap<String, Compiled>>,
    current: RwLock<Arc<Catalog>>,
    changed: watch::Sender<()>,
}

impl Default for Live {
    fn default() -> Self {
        let core: Vec<_> = core::resources().into_iter().map(Arc::new).collect();
        let current = RwLock::new(Arc::new(Catalog::new(core.clone())));
        Self {
            core,
            compiled: Mutex::default(),
            current,
            changed: watch::Sender::new(()),
        }
    }
}

impl Live {
    /// What is served now.
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes when something else is served.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Takes over the stored CRDs, given with their revisions.
    pub fn set_crds<'a>(&self, crds: impl Iterator<Item = (u64, &'a Value)>) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = HashMap::new();
        let mut all = self.core.clone();
        for (revision, object) in crds {
            let name = object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let entry = match compiled.remove(&name) {
                Some(known) if known.0 == revision => known,
                _ => (
                    revision,
                    crd::resources(object).into_iter().map(Arc::new).collect(),
                ),
            };
            all.extend(entry.1.iter().cloned());
            next.insert(name, entry);
        }
        *compiled = next;
        let generation = self.current().generation + 1;
        let catalog = Arc::new(Catalog {
            generation,
            ..Catalog::new(all)
        });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        self.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_then_number() {
        let mut versions = ["v1beta1", "v10", "v2", "v1alpha1", "v1beta2", "v1"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_order(v)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]
        );
    }

    #[test]
    fn both_event_groups_share_one_storage() {
        let live = Live::default();
        let catalog = live.current();
        let core = catalog.find("", "v1", "events").unwrap();
        let events = catalog.find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.storage, events.storage);
    }
}
