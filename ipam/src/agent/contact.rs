//! When the API server last answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use serde_json::Value;
use tokio::time::Instant;

use crate::store::{Change, Filter, Kind, Result, Store, StoreError};

/// The last answer of the API server, shared.
#[derive(Debug, Clone)]
pub(super) struct Contact {
    start: Instant,
    /// Milliseconds after `start`.
    last: Arc<AtomicU64>,
}

impl Contact {
    pub(super) fn new() -> Self {
        Contact {
            start: Instant::now(),
            last: Arc::default(),
        }
    }

    fn touch(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.fetch_max(elapsed, Ordering::Relaxed);
    }

    /// Time since the last answer, or since the start.
    pub(super) fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

/// A store that notes answers and waits for them only so long. A refusal is an answer too.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) inner: Arc<dyn Store>,
    pub(super) contact: Contact,
}

/// Longest time to wait for one answer. A server that accepts requests and never answers must not hold up those that
/// wait for the next write.
const ANSWER: Duration = Duration::from_secs(15);

impl Noted {
    /// Runs an operation for a limited time; `late` says what is known when the time is over.
    fn note<'a, T: Send + 'a>(
        &'a self,
        operation: BoxFuture<'a, Result<T>>,
        late: fn(String) -> StoreError,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let result = match tokio::time::timeout(ANSWER, operation).await {
                Ok(result) => result,
                Err(_) => Err(late(format!("no answer within {} s", ANSWER.as_secs()))),
            };
            if !matches!(
                result,
                Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_))
            ) {
                self.contact.touch();
            }
            result
        })
    }
}

impl Store for Noted {
    fn get<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Value>> {
        self.note(self.inner.get(kind, name), StoreError::Unavailable)
    }

    fn list<'a>(&'a self, kind: Kind, filter: &'a Filter) -> BoxFuture<'a, Result<Vec<Value>>> {
        self.note(self.inner.list(kind, filter), StoreError::Unavailable)
    }

    fn names(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<String>>> {
        self.note(self.inner.names(kind), StoreError::Unavailable)
    }

    fn create(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>> {
        self.note(self.inner.create(kind, object), StoreError::Ambiguous)
    }

    fn update(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>> {
        self.note(self.inner.update(kind, object), StoreError::Ambiguous)
    }

    fn delete<'a>(
        &'a self,
        kind: Kind,
        name: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<()>> {
        self.note(
            self.inner.delete(kind, name, uid, version),
            StoreError::Ambiguous,
        )
    }

    fn watch(&self, kind: Kind, filter: Filter) -> BoxStream<'static, Change> {
        let contact = self.contact.clone();
        self.inner
            .watch(kind, filter)
            .inspect(move |change| {
                if !matches!(change, Change::Failed(_)) {
                    contact.touch();
                }
            })
            .boxed()
    }
}
