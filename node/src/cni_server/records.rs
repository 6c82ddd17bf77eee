//! The attachment records: in memory for reading, on disk for the next run.
//!
//! A record is renamed into place before the call goes on, so a crash of the agent loses nothing. It is made durable in
//! the background, many at a time: after a crash of the machine there are no pods left that a record would describe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use margay_cni::attachment::{Attachment, AttachmentKey, Directory, State};
use margay_cni::tombstone::Graveyard;
use tokio::sync::{mpsc, oneshot, watch};

/// How long writes are gathered before fsync.
const GATHER: Duration = Duration::from_millis(100);

/// All records of this node.
pub(super) struct Records {
    directory: Directory,
    graveyard: Graveyard,
    state: Mutex<Inner>,
    syncer: mpsc::UnboundedSender<SyncRequest>,
    /// Counts changes, for those who follow them.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    by_key: BTreeMap<AttachmentKey, Attachment>,
    last_seq: u64,
}

enum SyncRequest {
    File(File),
    Flush(oneshot::Sender<()>),
}

impl Records {
    /// Reads all records below a state directory.
    pub(super) fn open(state: &Path) -> io::Result<Records> {
        let directory = Directory::open(state)?;
        let graveyard = Graveyard::open(state)?;
        let (records, problems) = directory.load_all()?;
        for problem in problems {
            tracing::warn!(%problem, "attachment record not usable");
        }
        let last_seq = records.iter().map(|record| record.seq).max().unwrap_or(0);
        let by_key = records
            .into_iter()
            .map(|record| (record.key.clone(), record))
            .collect();
        let (syncer, requests) = mpsc::unbounded_channel();
        tokio::spawn(sync_in_background(directory.clone(), requests));
        let state = Mutex::new(Inner { by_key, last_seq });
        Ok(Records {
            directory,
            graveyard,
            state,
            syncer,
            changes: watch::Sender::new(0),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn graveyard(&self) -> &Graveyard {
        &self.graveyard
    }

    /// The next attachment number. It also grows from run to run when there is no record left: it starts at the time.
    pub(super) fn next_seq(&self, now_millis: u64) -> u64 {
        let mut inner = self.inner();
        inner.last_seq = now_millis.max(inner.last_seq + 1);
        inner.last_seq
    }

    pub(super) fn all(&self) -> Vec<Attachment> {
        self.inner().by_key.values().cloned().collect()
    }

    /// Notices of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn get(&self, key: &AttachmentKey) -> Option<Attachment> {
        self.inner().by_key.get(key).cloned()
    }

    /// Addresses of complete attachments other than this one.
    pub(super) fn addresses_of_others(&self, key: &AttachmentKey) -> Vec<IpAddr> {
        let inner = self.inner();
        let others = inner.by_key.values().filter(|record| record.key != *key);
        let ready = others.filter(|record| record.state == State::Ready);
        ready
            .flat_map(|record| record.ips.iter().map(ipnet::IpNet::addr))
            .collect()
    }

    /// Writes a record. It counts from now on even if the disk does not take it.
    pub(super) fn save(&self, record: &Attachment) -> io::Result<()> {
        self.inner()
            .by_key
            .insert(record.key.clone(), record.clone());
        self.changes.send_modify(|count| *count += 1);
        let file = self.directory.save(record)?;
        let _ = self.syncer.send(SyncRequest::File(file));
        Ok(())
    }

    /// Removes a record.
    pub(super) fn forget(&self, key: &AttachmentKey) -> io::Result<()> {
        self.inner().by_key.remove(key);
        self.changes.send_modify(|count| *count += 1);
        self.directory.remove(key)
    }

    /// Makes everything written so far durable.
    pub(super) async fn sync(&self) {
        let (done, wait) = oneshot::channel();
        if self.syncer.send(SyncRequest::Flush(done)).is_ok() {
            let _ = wait.await;
        }
    }
}

async fn sync_in_background(
    directory: Directory,
    mut requests: mpsc::UnboundedReceiver<SyncRequest>,
) {
    while let Some(first) = requests.recv().await {
        let (mut files, mut waiting) = (Vec::new(), Vec::new());
        let mut take = |request| match request {
            SyncRequest::File(file) => files.push(file),
            SyncRequest::Flush(done) => waiting.push(done),
        };
        let flush = matches!(first, SyncRequest::Flush(_));
        take(first);
        if !flush {
            tokio::time::sleep(GATHER).await;
        }
        while let Ok(request) = requests.try_recv() {
            take(request);
        }
        let directory = directory.clone();
        let synced = tokio::task::spawn_blocking(move || {
            files
                .iter()
                .try_for_each(File::sync_all)
                .and_then(|()| directory.sync())
        });
        if let Ok(Err(error)) = synced.await {
            tracing::warn!(%error, "attachment records could not be made durable");
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}
