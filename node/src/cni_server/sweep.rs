//! What is done after DEL has answered: interfaces are removed in groups, since each removal waits for the kernel's
//! grace period; incomplete removals are tried again; and a file is touched as long as all is well.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use margay_cni::attachment::{Attachment, State};
use margay_felix::wire::Unwired;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Shared, del, kernel, recover};

/// How long removals are gathered.
const GATHER: Duration = Duration::from_millis(100);
/// Interval of retries and of the sign of health.
const TICK: Duration = Duration::from_secs(5);

/// Takes orders for [`run`].
pub(super) struct Sweeper {
    orders: mpsc::UnboundedSender<Order>,
    /// Attachments whose interface is still to be removed.
    pending: Mutex<Vec<Attachment>>,
}

pub(super) enum Order {
    /// Something is pending.
    Unwire,
    /// Something was left.
    Retry,
}

impl Sweeper {
    pub(super) fn new() -> (Sweeper, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let pending = Mutex::default();
        (Sweeper { orders, pending }, receiver)
    }

    /// Have the interface of an attachment removed soon.
    pub(super) fn unwire(&self, record: Attachment) {
        self.pending().push(record);
        let _ = self.orders.send(Order::Unwire);
    }

    /// Something was left; have it tried again at the next tick.
    pub(super) fn retry(&self) {
        let _ = self.orders.send(Order::Retry);
    }

    /// Takes what is to be removed from a namespace out of the queue, for a caller that cannot wait.
    pub(super) fn take_of_netns(&self, dev: u64, ino: u64) -> Vec<Attachment> {
        let mut pending = self.pending();
        let (taken, rest) = std::mem::take(&mut *pending)
            .into_iter()
            .partition(|record| (record.netns_dev, record.netns_ino) == (dev, ino));
        *pending = rest;
        taken
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Attachment>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Works until told to stop. Links still queued then are removed first, so that a stopped agent leaves none.
pub(super) fn run(
    shared: Arc<Shared>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    stop: CancellationToken,
) {
    let tracker = shared.calls.clone();
    tracker.spawn(async move {
        let mut tick = tokio::time::interval(TICK);
        let mut retry = shared
            .records
            .all()
            .iter()
            .any(|r| r.state == State::Deleting);
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    unwire_pending(&shared).await;
                    return;
                }
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Retry) => retry = true,
                    Some(Order::Unwire) => {
                        tokio::time::sleep(GATHER).await;
                        unwire_pending(&shared).await;
                    }
                },
                _ = tick.tick() => {
                    touch_if_healthy(&shared);
                    if std::mem::take(&mut retry) {
                        retry_removals(&shared).await;
                    }
                    if let Err(error) = recover::replay(&shared).await {
                        tracing::warn!(error = format!("{error:#}"), "pending DELs not done");
                    }
                }
            }
        }
    });
}

async fn unwire_pending(shared: &Shared) {
    let group = std::mem::take(&mut *shared.sweeper.pending());
    futures::future::join_all(group.iter().map(|record| unwire(shared, record))).await;
}

/// Removes an interface that was queued.
pub(super) async fn unwire(shared: &Shared, record: &Attachment) {
    match kernel::unwire(shared, record).await {
        Ok(Unwired::Removed | Unwired::Absent) => {}
        Ok(Unwired::NotOurs) => {
            tracing::debug!(
                interface = record.host_if,
                "interface belongs to a newer sandbox"
            );
        }
        Err(error) => tracing::warn!(interface = record.host_if, %error, "interface not removed"),
    }
}

async fn retry_removals(shared: &Arc<Shared>) {
    for record in shared.records.all() {
        if record.state != State::Deleting {
            continue;
        }
        let _together = shared.gc.shared().await;
        let _container = shared
            .locks
            .lock(&format!("container {}", record.key.container_id))
            .await;
        let _pod = shared.locks.lock(&record.lock_name()).await;
        // It may have been dealt with while we waited.
        if let Some(record) = shared.records.get(&record.key)
            && record.state == State::Deleting
        {
            del::remove(shared, record).await;
        }
    }
}

fn touch_if_healthy(shared: &Shared) {
    if shared.deps.state.borrow().unhealthy.is_none()
        && let Err(error) = touch(&shared.deps.paths.status_file)
    {
        tracing::warn!(%error, "the sign of health cannot be written");
    }
}

fn touch(path: &Path) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    file.set_modified(std::time::SystemTime::now())
}
