//! A local copy of one kind, kept from a watch.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

/// Objects of one kind by name (`namespace/name` for namespaced kinds), reduced to what the agent needs of them.
#[derive(Debug)]
pub(crate) struct Mirror<V> {
    objects: BTreeMap<String, V>,
    /// Objects of a list in progress; the copy in use changes only when the list is complete.
    listing: Option<BTreeMap<String, V>>,
    synced: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Mirror {
            objects: BTreeMap::new(),
            listing: None,
            synced: false,
        }
    }
}

impl<V: PartialEq> Mirror<V> {
    /// Takes one event of the watch in. `reduce` gives the name and what is kept of an object. Returns true when the
    /// copy changed, so that an update of nothing the agent reads costs nothing further.
    pub(crate) fn apply<K>(&mut self, event: Event<K>, reduce: impl Fn(K) -> (String, V)) -> bool {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                let (name, value) = reduce(object);
                self.listing.get_or_insert_default().insert(name, value);
                false
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                let changed = listed != self.objects || !self.synced;
                self.objects = listed;
                self.synced = true;
                changed
            }
            Event::Apply(object) => {
                let (name, value) = reduce(object);
                if self.objects.get(&name) == Some(&value) {
                    return false;
                }
                self.objects.insert(name, value);
                true
            }
            Event::Delete(object) => self.objects.remove(&reduce(object).0).is_some(),
        }
    }

    /// True once a whole list has been seen.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The objects by name.
    pub(crate) fn objects(&self) -> &BTreeMap<String, V> {
        &self.objects
    }

    /// One object.
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.objects.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(mirror: &mut Mirror<u32>, event: Event<(&str, u32)>) -> bool {
        mirror.apply(event, |(name, value)| (name.to_owned(), value))
    }

    #[test]
    fn a_list_takes_effect_only_when_complete_and_drops_what_is_gone() {
        let mut mirror = Mirror::default();
        apply(&mut mirror, Event::Init);
        assert!(!apply(&mut mirror, Event::InitApply(("a", 1))));
        assert!(mirror.objects().is_empty() && !mirror.is_synced());
        assert!(apply(&mut mirror, Event::InitDone));
        assert!(mirror.is_synced());
        assert_eq!(mirror.get("a"), Some(&1));

        apply(&mut mirror, Event::Init);
        apply(&mut mirror, Event::InitApply(("b", 2)));
        assert_eq!(
            mirror.get("a"),
            Some(&1),
            "the old copy serves until the new one is whole"
        );
        assert!(apply(&mut mirror, Event::InitDone));
        assert_eq!(mirror.objects().keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn an_update_without_difference_is_no_change() {
        let mut mirror = Mirror::default();
        apply(&mut mirror, Event::Init);
        assert!(
            apply(&mut mirror, Event::InitDone),
            "an empty list is news the first time"
        );
        assert!(apply(&mut mirror, Event::Apply(("a", 1))));
        assert!(!apply(&mut mirror, Event::Apply(("a", 1))));
        assert!(apply(&mut mirror, Event::Apply(("a", 2))));
        assert!(apply(&mut mirror, Event::Delete(("a", 2))));
        assert!(!apply(&mut mirror, Event::Delete(("a", 2))));
        apply(&mut mirror, Event::Init);
        assert!(
            !apply(&mut mirror, Event::InitDone),
            "a second equal list is none"
        );
    }
}
