//! The durable object store: every acknowledged write is on disk, every read comes from memory.
//!
//! One redb file holds `resource, namespace, name -> JSON` and the last revision. One thread owns it and commits
//! writes in groups: while one `fsync` runs, the next writes queue up and share the following one. A write is
//! checked, numbered and made durable before readers, watchers or its author see it, so a crash at any moment can
//! lose only what nobody was told about. Revisions are one global sequence and never go back, also over restarts.

mod committer;
mod events;
mod owners;
mod record;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;
use tokio::sync::{oneshot, watch};

pub use events::{Change, Event, Gone};
pub use record::{Key, Stored};

use events::Ring;
use owners::Owners;

/// Why a write was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object exists although it must not.
    #[error("the object exists")]
    Exists,
    /// The object changed or vanished since it was read.
    #[error("the object has been modified")]
    Changed,
    /// The other object the write depends on changed or vanished.
    #[error("an object it depends on has been modified")]
    Outdated,
    /// The disk refused (full, broken); nothing was written.
    #[error("the store cannot write: {0}")]
    Disk(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened, is locked by another process, or is damaged.
    #[error("cannot open the store {path}: {cause}")]
    Database {
        /// The file.
        path: String,
        /// What the database says.
        cause: String,
    },
    /// A stored object is not JSON.
    #[error("the stored object {key} is damaged: {cause}")]
    Damaged {
        /// Key of the object.
        key: String,
        /// What the JSON parser says.
        cause: String,
    },
}

/// What must be true of the object at the moment of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// There is no such object.
    Absent,
    /// The object is still at this revision.
    Revision(u64),
}

/// One write.
#[derive(Debug)]
pub struct Write {
    /// Which object.
    pub key: Key,
    /// Optimistic lock.
    pub expect: Expect,
    /// New content, or `None` to remove it. `metadata.resourceVersion` is filled in by the store.
    pub object: Option<Value>,
    /// Another object that must still be at a revision, e.g. the namespace of a new object.
    pub requires: Option<(Key, u64)>,
}

impl Write {
    /// A write that depends on nothing else.
    pub fn new(key: Key, expect: Expect, object: Option<Value>) -> Self {
        Self {
            key,
            expect,
            object,
            requires: None,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<(Box<str>, Box<str>), Arc<Stored>>,
    ring: Ring,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// Revision this process began with: no watch can be complete from before it.
    start: u64,
    tables: HashMap<Arc<str>, Table>,
    owners: Owners,
}

#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    /// Last published revision; wakes every watch.
    published: watch::Sender<u64>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Job {
    write: Write,
    reply: oneshot::Sender<Result<Arc<Stored>, WriteError>>,
}

/// Handle of the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish()
    }
}

impl Store {
    /// Opens or creates the store in file `path` and starts its writer thread, which ends with the last handle.
    /// `ring` is how many events per resource a watch may lag behind.
    pub fn open(path: &Path, ring: usize) -> Result<Self, OpenError> {
        let (disk, state) = committer::open(path)?;
        let published = watch::Sender::new(state.revision);
        let shared = Arc::new(Shared {
            state: RwLock::new(state),
            published,
        });
        let (jobs, queue) = mpsc::channel();
        let writer = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("store".into())
            .spawn(move || committer::run(disk, &writer, &queue, ring))
            .map_err(|e| OpenError::Database {
                path: path.display().to_string(),
                cause: e.to_string(),
            })?;
        Ok(Self { shared, jobs })
    }

    /// Revision of the newest visible write.
    pub fn revision(&self) -> u64 {
        self.shared.read().revision
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.shared
            .read()
            .tables
            .get(&key.resource)?
            .objects
            .get(&key.place())
            .cloned()
    }

    /// All objects of a resource, of one namespace or (`None`) of all, in order of namespace and name, together
    /// with the revision at which this is the complete truth.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> (Vec<Arc<Stored>>, u64) {
        let state = self.shared.read();
        let Some(table) = state.tables.get(resource) else {
            return (Vec::new(), state.revision);
        };
        let objects = match namespace {
            None => table.objects.values().cloned().collect(),
            Some(ns) => {
                let from: (Box<str>, Box<str>) = (ns.into(), "".into());
                table
                    .objects
                    .range((Bound::Included(from), Bound::Unbounded))
                    .take_while(|((n, _), _)| &**n == ns)
                    .map(|(_, o)| Arc::clone(o))
                    .collect()
            }
        };
        (objects, state.revision)
    }

    /// Makes one write durable. Returns the object as stored; for a removal, the object as it was, with the
    /// removal's revision.
    pub async fn write(&self, write: Write) -> Result<Arc<Stored>, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.jobs
            .send(Job { write, reply })
            .map_err(|_| WriteError::Closed)?;
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    /// Up to `max` events of `resource` after revision `after`, and the revision up to which the caller is then
    /// complete. `Gone` when events in between were already dropped.
    pub fn events_after(
        &self,
        resource: &str,
        after: u64,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), Gone> {
        let state = self.shared.read();
        match state.tables.get(resource) {
            None if after < state.start => Err(Gone),
            None => Ok((Vec::new(), state.revision.max(after))),
            Some(table) => table.ring.after(after, max, state.revision),
        }
    }

    /// Objects whose `ownerReferences` name an owner.
    pub fn dependents(&self, owner: &str) -> Vec<Key> {
        self.shared.read().owners.dependents(owner)
    }

    /// Owners that went away since the last call and left dependents behind.
    pub fn take_gone_owners(&self) -> Vec<String> {
        if self.shared.read().owners.none_gone() {
            return Vec::new();
        }
        self.shared.write().owners.take_gone()
    }

    /// Wakes when anything was written.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.published.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str) -> Key {
        Key::new("things", "", name)
    }

    async fn put(store: &Store, name: &str, expect: Expect, n: u64) -> Result<u64, WriteError> {
        let object = json!({"metadata": {"name": name}, "n": n});
        let write = Write::new(key(name), expect, Some(object));
        store.write(write).await.map(|o| o.revision)
    }

    #[tokio::test]
    async fn stale_revision_is_refused_and_fresh_one_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), 10).unwrap();
        let first = put(&store, "a", Expect::Absent, 1).await.unwrap();
        assert_eq!(
            put(&store, "a", Expect::Absent, 2).await,
            Err(WriteError::Exists)
        );
        let second = put(&store, "a", Expect::Revision(first), 2).await.unwrap();
        assert!(second > first);
        assert_eq!(
            put(&store, "a", Expect::Revision(first), 3).await,
            Err(WriteError::Changed)
        );
        assert_eq!(store.get(&key("a")).unwrap().object["n"], 2);
    }

    #[tokio::test]
    async fn a_write_can_depend_on_another_object() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), 10).unwrap();
        let base = put(&store, "base", Expect::Absent, 1).await.unwrap();
        let depending = |name: &str| Write {
            requires: Some((key("base"), base)),
            ..Write::new(key(name), Expect::Absent, Some(json!({"metadata": {}})))
        };
        store.write(depending("a")).await.unwrap();
        put(&store, "base", Expect::Revision(base), 2)
            .await
            .unwrap();
        assert_eq!(
            store.write(depending("b")).await.unwrap_err(),
            WriteError::Outdated
        );
        assert!(store.get(&key("b")).is_none());
    }

    #[tokio::test]
    async fn reopening_keeps_objects_and_never_reuses_a_revision() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let store = Store::open(&path, 10).unwrap();
        let made = put(&store, "a", Expect::Absent, 1).await.unwrap();
        let gone = Write::new(key("a"), Expect::Revision(made), None);
        let removed = store.write(gone).await.unwrap().revision;
        put(&store, "b", Expect::Absent, 1).await.unwrap();
        let last = store.revision();
        drop(store);
        let store = open_when_free(&path);
        assert!(store.get(&key("a")).is_none());
        assert_eq!(store.get(&key("b")).unwrap().revision, last);
        assert!(removed < last);
        assert_eq!(put(&store, "c", Expect::Absent, 1).await.unwrap(), last + 1);
        assert_eq!(store.events_after("things", removed, 10).unwrap_err(), Gone);
    }

    /// The writer thread closes the file a moment after the last handle is dropped.
    fn open_when_free(path: &Path) -> Store {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        loop {
            match Store::open(path, 10) {
                Ok(store) => return store,
                Err(e) if std::time::Instant::now() > deadline => panic!("{e}"),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    #[tokio::test]
    async fn a_watch_that_lags_more_than_the_ring_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), 3).unwrap();
        let start = store.revision();
        for i in 0..5 {
            put(&store, &format!("o{i}"), Expect::Absent, i)
                .await
                .unwrap();
        }
        assert_eq!(store.events_after("things", start, 100).unwrap_err(), Gone);
        let (events, upto) = store.events_after("things", start + 2, 100).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!(upto, start + 5);
        let (events, upto) = store.events_after("things", start + 2, 1).unwrap();
        assert_eq!((events.len(), upto), (1, start + 3));
    }

    #[tokio::test]
    async fn concurrent_writers_of_one_object_win_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), 100).unwrap();
        put(&store, "a", Expect::Absent, 0).await.unwrap();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    loop {
                        let now = store.get(&key("a")).unwrap();
                        let n = now.object["n"].as_u64().unwrap();
                        if put(&store, "a", Expect::Revision(now.revision), n + 1)
                            .await
                            .is_ok()
                        {
                            return;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(store.get(&key("a")).unwrap().object["n"], 20);
    }
}
