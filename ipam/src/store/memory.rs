//! A store in memory, for simulations and tests: deterministic, with faults on request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Change, Filter, Kind, Result, Store, StoreError};

/// An operation, for counting and for faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read of one object.
    Get,
    /// Read of many, or of their names.
    List,
    /// Creation.
    Create,
    /// Replacement.
    Update,
    /// Deletion.
    Delete,
}

/// A failure to produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The write is refused as if somebody had been faster.
    Conflict,
    /// The write takes effect, and the reply is lost.
    LostReply,
    /// The write has no effect, and the caller cannot know.
    LostRequest,
    /// The server says it is not available.
    Unavailable,
    /// The caller never gets an answer: what a process sees that is killed at this moment. The write takes effect.
    Hang,
}

/// Objects in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<(Kind, String), Value>,
    revision: u64,
    watchers: Vec<Watcher>,
    faults: VecDeque<(Verb, Kind, Fault)>,
    random: Option<(StdRng, f64)>,
    outage: bool,
    counts: BTreeMap<(Verb, Kind), u64>,
}

#[derive(Debug)]
struct Watcher {
    kind: Kind,
    filter: Filter,
    events: mpsc::UnboundedSender<Change>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// The next operation of this sort fails this way; several are used up in order.
    pub fn inject(&self, verb: Verb, kind: Kind, fault: Fault) {
        self.lock().faults.push_back((verb, kind, fault));
    }

    /// From now on each write fails with the given probability, in one of the ways of [`Fault`] except `Hang`, and each
    /// operation lets others run first. The seed decides everything.
    pub fn misbehave(&self, seed: u64, probability: f64) {
        self.lock().random = Some((StdRng::seed_from_u64(seed), probability));
    }

    /// Behaves from now on.
    pub fn behave(&self) {
        let mut inner = self.lock();
        inner.random = None;
        inner.faults.clear();
    }

    /// While true every operation fails as if the server were gone; watches stay silent.
    pub fn set_outage(&self, outage: bool) {
        self.lock().outage = outage;
    }

    /// Operations so far, failed ones included.
    pub fn count(&self, verb: Verb, kind: Kind) -> u64 {
        self.lock().counts.get(&(verb, kind)).copied().unwrap_or(0)
    }

    /// All operations so far.
    pub fn total(&self) -> u64 {
        self.lock().counts.values().sum()
    }

    /// Writes an object as an outside party would, without faults and without regard to revisions.
    pub fn force(&self, kind: Kind, mut object: Value) {
        let mut inner = self.lock();
        let name = name_of(&object);
        if let Some(old) = inner.objects.get(&(kind, name.clone())) {
            let uid = old["metadata"]["uid"].clone();
            object["metadata"]["uid"] = uid;
            inner.store(kind, name, object);
        } else {
            let uid = format!("uid-{}", inner.revision + 1);
            object["metadata"]["uid"] = uid.into();
            inner.store(kind, name, object);
        }
    }

    /// Deletes an object as an outside party would.
    pub fn force_delete(&self, kind: Kind, name: &str) {
        self.lock().erase(kind, name);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in a test must not hide the state from the other tasks' assertions.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other tasks run for a while, when misbehaving.
    async fn pause(&self) {
        let turns = self
            .lock()
            .random
            .as_mut()
            .map_or(0, |(random, _)| random.random_range(0..4));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// One operation: counts it, applies faults, and runs `act` unless a fault forbids.
    async fn operate<T>(
        &self,
        verb: Verb,
        kind: Kind,
        act: impl FnOnce(&mut Inner) -> Result<T>,
    ) -> Result<T> {
        self.pause().await;
        let fault = self.lock().admit(verb, kind)?;
        let result = match fault {
            Some(Fault::Conflict) => return Err(StoreError::Conflict),
            Some(Fault::LostRequest) => return Err(StoreError::Ambiguous("lost request".into())),
            Some(Fault::Unavailable) => return Err(StoreError::Unavailable("unavailable".into())),
            Some(Fault::LostReply) => {
                // What the server answered is what got lost.
                let _ = act(&mut self.lock());
                return Err(StoreError::Ambiguous("lost reply".into()));
            }
            Some(Fault::Hang) => {
                let _ = act(&mut self.lock());
                std::future::pending().await
            }
            None => act(&mut self.lock()),
        };
        self.pause().await;
        result
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Equality requirements and existence, as far as label selectors are used here: `a=b,!c`.
fn selected(filter: &Filter, object: &Value) -> bool {
    match filter {
        Filter::All => true,
        Filter::Name(name) => name_of(object) == *name,
        Filter::Labels(selector) => selector.split(',').all(|requirement| {
            let label = |key: &str| {
                object["metadata"]["labels"][key]
                    .as_str()
                    .map(str::to_owned)
            };
            match requirement.split_once('=') {
                Some((key, value)) => label(key).as_deref() == Some(value),
                None => match requirement.strip_prefix('!') {
                    Some(key) => label(key).is_none(),
                    None => label(requirement).is_some(),
                },
            }
        }),
    }
}

impl Inner {
    fn admit(&mut self, verb: Verb, kind: Kind) -> Result<Option<Fault>> {
        *self.counts.entry((verb, kind)).or_default() += 1;
        if self.outage {
            return Err(StoreError::Unavailable("outage".into()));
        }
        if let Some(at) = self
            .faults
            .iter()
            .position(|(v, k, _)| *v == verb && *k == kind)
        {
            return Ok(self.faults.remove(at).map(|(_, _, fault)| fault));
        }
        let write = matches!(verb, Verb::Create | Verb::Update | Verb::Delete);
        let Some((random, probability)) = self.random.as_mut().filter(|_| write) else {
            return Ok(None);
        };
        if !random.random_bool(*probability) {
            return Ok(None);
        }
        Ok(Some(match random.random_range(0..4) {
            0 if verb != Verb::Create => Fault::Conflict,
            1 => Fault::LostReply,
            2 => Fault::LostRequest,
            _ => Fault::Unavailable,
        }))
    }

    fn store(&mut self, kind: Kind, name: String, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let before = self.objects.insert((kind, name), object.clone());
        self.notify(kind, &object, before.as_ref(), false);
        object
    }

    fn erase(&mut self, kind: Kind, name: &str) {
        if let Some(mut object) = self.objects.remove(&(kind, name.to_owned())) {
            self.revision += 1;
            object["metadata"]["resourceVersion"] = self.revision.to_string().into();
            self.notify(kind, &object, None, true);
        }
    }

    fn notify(&mut self, kind: Kind, object: &Value, before: Option<&Value>, deleted: bool) {
        self.watchers.retain(|watcher| {
            if watcher.kind != kind {
                return !watcher.events.is_closed();
            }
            let now = !deleted && selected(&watcher.filter, object);
            let was = before.is_some_and(|before| selected(&watcher.filter, before))
                || (deleted && selected(&watcher.filter, object));
            let change = match (was, now) {
                (_, true) => Change::Applied(object.clone()),
                (true, false) => Change::Deleted(object.clone()),
                (false, false) => return !watcher.events.is_closed(),
            };
            watcher.events.send(change).is_ok()
        });
    }

    fn current(&self, kind: Kind, name: &str) -> Result<&Value> {
        self.objects
            .get(&(kind, name.to_owned()))
            .ok_or(StoreError::NotFound)
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Value>> {
        Box::pin(self.operate(Verb::Get, kind, move |inner| {
            inner.current(kind, name).cloned()
        }))
    }

    fn list<'a>(&'a self, kind: Kind, filter: &'a Filter) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(self.operate(Verb::List, kind, move |inner| {
            let objects = inner.objects.iter().filter(|((k, _), _)| *k == kind);
            Ok(objects
                .map(|(_, object)| object)
                .filter(|o| selected(filter, o))
                .cloned()
                .collect())
        }))
    }

    fn names(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(self.operate(Verb::List, kind, move |inner| {
            let keys = inner.objects.keys().filter(|(k, _)| *k == kind);
            Ok(keys.map(|(_, name)| name.clone()).collect())
        }))
    }

    fn create(&self, kind: Kind, mut object: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(self.operate(Verb::Create, kind, move |inner| {
            let name = name_of(&object);
            if inner.current(kind, &name).is_ok() {
                return Err(StoreError::AlreadyExists);
            }
            object["metadata"]["uid"] = format!("uid-{}", inner.revision + 1).into();
            Ok(inner.store(kind, name, object))
        }))
    }

    fn update(&self, kind: Kind, mut object: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(self.operate(Verb::Update, kind, move |inner| {
            let name = name_of(&object);
            let current = inner.current(kind, &name)?;
            if current["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                return Err(StoreError::Conflict);
            }
            object["metadata"]["uid"] = current["metadata"]["uid"].clone();
            Ok(inner.store(kind, name, object))
        }))
    }

    fn delete<'a>(
        &'a self,
        kind: Kind,
        name: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.operate(Verb::Delete, kind, move |inner| {
            let meta = &inner.current(kind, name)?["metadata"];
            if meta["uid"] != uid {
                return Err(StoreError::NotFound);
            }
            if meta["resourceVersion"] != version {
                return Err(StoreError::Conflict);
            }
            inner.erase(kind, name);
            Ok(())
        }))
    }

    fn watch(&self, kind: Kind, filter: Filter) -> BoxStream<'static, Change> {
        let (events, changes) = mpsc::unbounded_channel();
        let mut inner = self.lock();
        let objects = inner.objects.iter().filter(|((k, _), _)| *k == kind);
        let now = objects
            .map(|(_, object)| object)
            .filter(|o| selected(&filter, o))
            .cloned();
        let restart = Change::Restart(now.collect());
        inner.watchers.push(Watcher {
            kind,
            filter,
            events,
        });
        drop(inner);
        let later = stream::unfold(changes, |mut changes| async move {
            Some((changes.recv().await?, changes))
        });
        stream::once(async { restart })
            .chain(later)
            .chain(stream::pending())
            .boxed()
    }
}
