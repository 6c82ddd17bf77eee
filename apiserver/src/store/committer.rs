//! The thread that owns the file: checks, numbers and commits writes in groups.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::events::{Change, Event, Ring};
use super::owners::Owners;
use super::{Expect, Job, Key, OpenError, Shared, State, Stored, Table, WriteError};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Layout of the file; a newer one is refused rather than misread.
const SCHEMA: u64 = 1;
/// Writes that share one fsync at most; bounds the latency of the first.
const GROUP: usize = 512;

/// The file; `database` is absent after a disk error until it could be opened again.
pub(super) struct Disk {
    path: PathBuf,
    database: Option<Database>,
}

/// Opens the file and loads everything.
pub(super) fn open(path: &Path) -> Result<(Disk, State), OpenError> {
    let failed = |cause: String| OpenError::Database {
        path: path.display().to_string(),
        cause,
    };
    // Secrets are in it.
    let private = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path);
    private.map_err(|e| failed(e.to_string()))?;
    let database = Database::create(path).map_err(|e| failed(e.to_string()))?;
    initialise(&database).map_err(failed)?;
    let state = load(&database, &failed)?;
    Ok((
        Disk {
            path: path.to_owned(),
            database: Some(database),
        },
        state,
    ))
}

/// Makes the tables and checks the layout's number.
fn initialise(database: &Database) -> Result<(), String> {
    let txn = database.begin_write().map_err(|e| e.to_string())?;
    {
        txn.open_table(OBJECTS).map_err(|e| e.to_string())?;
        let mut meta = txn.open_table(META).map_err(|e| e.to_string())?;
        let schema = meta
            .get("schema")
            .map_err(|e| e.to_string())?
            .map(|v| v.value());
        match schema {
            Some(SCHEMA) => return Ok(()),
            Some(other) => return Err(format!("layout {other} is newer than {SCHEMA}")),
            None => {
                meta.insert("schema", SCHEMA).map_err(|e| e.to_string())?;
                meta.insert("revision", 1).map_err(|e| e.to_string())?;
            }
        }
    }
    txn.commit().map_err(|e| e.to_string())
}

fn load(database: &Database, failed: &dyn Fn(String) -> OpenError) -> Result<State, OpenError> {
    let txn = database.begin_read().map_err(|e| failed(e.to_string()))?;
    let meta = txn.open_table(META).map_err(|e| failed(e.to_string()))?;
    let revision = meta
        .get("revision")
        .map_err(|e| failed(e.to_string()))?
        .map_or(1, |v| v.value());
    let mut state = State {
        revision,
        start: revision,
        ..State::default()
    };
    let objects = txn.open_table(OBJECTS).map_err(|e| failed(e.to_string()))?;
    for entry in objects.iter().map_err(|e| failed(e.to_string()))? {
        let (text, json) = entry.map_err(|e| failed(e.to_string()))?;
        let damaged = |cause| OpenError::Damaged {
            key: text.value().to_owned(),
            cause,
        };
        let key = Key::parse(text.value()).ok_or_else(|| damaged("not a key".into()))?;
        let stored = Stored::from_json(key.clone(), json.value()).map_err(damaged)?;
        table(&mut state, &key.resource)
            .objects
            .insert(key.place(), Arc::new(stored));
    }
    let mut owners = Owners::default();
    let all = || state.tables.values().flat_map(|t| t.objects.values());
    all().for_each(|o| owners.changed(None, Some(o)));
    owners.find_gone(all().map(|o| &**o));
    state.owners = owners;
    Ok(state)
}

fn table<'a>(state: &'a mut State, resource: &Arc<str>) -> &'a mut Table {
    let floor = state.start;
    state
        .tables
        .entry(Arc::clone(resource))
        .or_insert_with(|| Table {
            ring: Ring::starting_at(floor),
            ..Table::default()
        })
}

/// A write that passed its checks.
struct Staged {
    event: Event,
    reply: tokio::sync::oneshot::Sender<Result<Arc<Stored>, WriteError>>,
}

/// Serves writes until the last handle is gone.
pub(super) fn run(mut disk: Disk, shared: &Shared, queue: &Receiver<Job>, ring: usize) {
    while let Ok(first) = queue.recv() {
        let mut group = vec![first];
        group.extend(queue.try_iter().take(GROUP - 1));
        let staged = stage(shared, group);
        if staged.is_empty() {
            continue;
        }
        match disk.commit(&staged) {
            Ok(()) => publish(shared, staged, ring),
            Err(cause) => {
                tracing::error!(%cause, writes = staged.len(), "the store cannot write");
                for write in staged {
                    let _ = write.reply.send(Err(WriteError::Disk(cause.clone())));
                }
            }
        }
    }
}

/// Checks each write against what the ones before it will leave; refused ones are answered at once.
fn stage(shared: &Shared, group: Vec<Job>) -> Vec<Staged> {
    let state = shared.read();
    let mut revision = state.revision;
    let mut pending: HashMap<Key, Option<Arc<Stored>>> = HashMap::new();
    let mut staged = Vec::with_capacity(group.len());
    for Job { write, reply } in group {
        let find = |key: &Key| match pending.get(key) {
            Some(pending) => pending.clone(),
            None => {
                let table = state.tables.get(&key.resource);
                table.and_then(|t| t.objects.get(&key.place())).cloned()
            }
        };
        let current = find(&write.key);
        let outdated = write.requires.as_ref().is_some_and(|(key, revision)| {
            find(key).is_none_or(|other| other.revision != *revision)
        });
        let refusal = match (&write.expect, &current) {
            _ if outdated => Some(WriteError::Outdated),
            (Expect::Absent, Some(_)) => Some(WriteError::Exists),
            (Expect::Revision(_), None) => Some(WriteError::Changed),
            (Expect::Revision(r), Some(c)) if *r != c.revision => Some(WriteError::Changed),
            _ => None,
        };
        if let Some(refusal) = refusal {
            let _ = reply.send(Err(refusal));
            continue;
        }
        revision += 1;
        let removed = write.object.is_none();
        let content = match (write.object, &current) {
            (Some(object), _) => object,
            (None, Some(current)) => current.object.clone(),
            (None, None) => serde_json::Value::Null,
        };
        let object = Arc::new(Stored::new(write.key.clone(), revision, content));
        let change = match (removed, &current) {
            (true, _) => Change::Deleted,
            (false, None) => Change::Added,
            (false, Some(_)) => Change::Modified,
        };
        pending.insert(write.key, (!removed).then(|| Arc::clone(&object)));
        staged.push(Staged {
            event: Event {
                revision,
                change,
                object,
                previous: current,
            },
            reply,
        });
    }
    staged
}

/// Shows durable writes to readers and watches, then answers their authors.
fn publish(shared: &Shared, staged: Vec<Staged>, ring: usize) {
    let mut answers = Vec::with_capacity(staged.len());
    let mut state = shared.write();
    for Staged { event, reply } in staged {
        let object = Arc::clone(&event.object);
        let after = (event.change != Change::Deleted).then_some(&*object);
        state.owners.changed(event.previous.as_deref(), after);
        state.revision = event.revision;
        let table = table(&mut state, &object.key.resource);
        match event.change {
            Change::Deleted => table.objects.remove(&object.key.place()),
            _ => table
                .objects
                .insert(object.key.place(), Arc::clone(&object)),
        };
        table.ring.push(event, ring);
        answers.push((reply, object));
    }
    let revision = state.revision;
    drop(state);
    shared.published.send_replace(revision);
    for (reply, object) in answers {
        let _ = reply.send(Ok(object));
    }
}

impl Disk {
    fn commit(&mut self, staged: &[Staged]) -> Result<(), String> {
        let Some(last) = staged.last().map(|s| s.event.revision) else {
            return Ok(());
        };
        if self.database.is_none() {
            let database = Database::open(&self.path).map_err(|e| e.to_string())?;
            let expected = staged.first().map(|s| s.event.revision - 1);
            if durable_revision(&database) != expected {
                return Err("a write reported as failed is on disk: restart the server".into());
            }
            self.database = Some(database);
        }
        let Some(database) = &self.database else {
            return Err("closed".into());
        };
        let Err(cause) = write(database, staged, last) else {
            return Ok(());
        };
        // After an I/O error redb refuses further work until reopened; what is then on disk decides.
        self.database = None;
        if let Ok(database) = Database::open(&self.path) {
            let durable = durable_revision(&database) == Some(last);
            self.database = Some(database);
            if durable {
                return Ok(());
            }
        }
        Err(cause)
    }
}

fn write(database: &Database, staged: &[Staged], last: u64) -> Result<(), String> {
    let txn = database.begin_write().map_err(|e| e.to_string())?;
    {
        let mut objects = txn.open_table(OBJECTS).map_err(|e| e.to_string())?;
        for Staged { event, .. } in staged {
            let key = event.object.key.to_text();
            match event.change {
                Change::Deleted => objects.remove(key.as_str()).map(drop),
                _ => objects.insert(key.as_str(), &*event.object.json).map(drop),
            }
            .map_err(|e| e.to_string())?;
        }
        let mut meta = txn.open_table(META).map_err(|e| e.to_string())?;
        meta.insert("revision", last).map_err(|e| e.to_string())?;
    }
    txn.commit().map_err(|e| e.to_string())
}

fn durable_revision(database: &Database) -> Option<u64> {
    let txn = database.begin_read().ok()?;
    let meta = txn.open_table(META).ok()?;
    meta.get("revision").ok()?.map(|v| v.value())
}
