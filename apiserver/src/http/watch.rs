//! `watch`: a stream of changes (Kubernetes API concepts, "Efficient detection of changes", "Streaming lists").
//!
//! A watch holds no queue: it remembers a revision and reads the store's history when its client is ready for more.
//! A client too slow for the history gets `410 Expired` and starts over.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::negotiate::View;
use super::read::{include, matches, selected};
use super::reply::Body;
use super::target::ResourcePath;
use super::{App, Call};
use crate::resource::{Conversion, Resource};
use crate::selector::Selector;
use crate::status::ApiError;
use crate::store::{Change, Event, Stored};
use crate::table::{self, Include};

/// Time between bookmarks.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Length of a watch that asks for none: half an hour to an hour, so that clients do not all return at once.
const LENGTH: std::ops::Range<u64> = 1800..3600;
/// Events read at once.
const BATCH: usize = 256;
/// Annotation that ends a streamed list.
const INITIAL_END: &str = "k8s.io/initial-events-end";

struct Watch {
    app: Arc<App>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    selector: Selector,
    view: View,
    include: Include,
    /// Everything up to here was sent.
    position: u64,
    pending: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    changed: tokio::sync::watch::Receiver<u64>,
    served: tokio::sync::watch::Receiver<()>,
    /// Column definitions were sent; later Tables leave them out.
    headed: bool,
    /// Ends with what is pending.
    finished: bool,
    /// Ends when the history is read.
    closing: bool,
}

/// Starts a watch.
pub(super) async fn watch(
    call: &Call,
    resource: &Arc<Resource>,
    path: &ResourcePath,
) -> Result<Response<Body>, ApiError> {
    let query = &call.query;
    let mut fields = query.field_selector.clone();
    if let Some(name) = &path.name {
        fields = format!("{fields},metadata.name={name}");
    }
    if query.send_initial_events && query.resource_version_match != "NotOlderThan" {
        return Err(ApiError::bad_request(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    let seconds = query.timeout_seconds.filter(|s| *s > 0);
    let seconds = seconds.unwrap_or_else(|| rand::rng().random_range(LENGTH));
    let now = Instant::now();
    let mut watch = Watch {
        app: Arc::clone(&call.app),
        resource: Arc::clone(resource),
        namespace: path.namespace.clone(),
        selector: Selector::parse(&query.label_selector, &fields, resource)?,
        view: call.accept.view()?,
        include: include(call)?,
        position: query.revision().unwrap_or(0),
        pending: VecDeque::new(),
        bookmarks: query.allow_bookmarks,
        next_bookmark: now + BOOKMARK,
        end: now + Duration::from_secs(seconds.min(24 * 3600)),
        changed: call.app.store.subscribe(),
        served: call.app.live.subscribe(),
        headed: false,
        finished: false,
        closing: false,
    };
    if query.send_initial_events || watch.position == 0 {
        watch.start_with_objects(call, path, query.send_initial_events);
    } else {
        watch.check_position()?;
    }
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), watch))
    });
    let mut response = Response::new(StreamBody::new(stream.fuse()).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

fn too_old(asked: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked}"))
}

impl Watch {
    /// A revision from the future belongs to another store; one from before the history cannot be continued.
    fn check_position(&mut self) -> Result<(), ApiError> {
        let store = &self.app.store;
        let known = store
            .events_after(&self.resource.storage, self.position, 0)
            .is_ok();
        if self.position > store.revision() || !known {
            return Err(too_old(self.position));
        }
        Ok(())
    }

    fn start_with_objects(&mut self, call: &Call, path: &ResourcePath, mark_end: bool) {
        let (objects, revision) = selected(call, &self.resource, path, &self.selector);
        for object in &objects {
            let line = self.line("ADDED", object);
            self.pending.push_back(line);
        }
        self.position = revision;
        if mark_end && self.bookmarks {
            let annotations = json!({INITIAL_END: "true"});
            self.pending.push_back(self.bookmark(Some(annotations)));
        }
    }

    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.take_pending() {
                return Some(chunk);
            }
            if self.finished {
                return None;
            }
            self.changed.mark_unchanged();
            self.read_events();
            if !self.pending.is_empty() {
                continue;
            }
            if self.closing {
                return None;
            }
            let stop = self.app.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep_until(self.end) => {
                    self.finished = true;
                    if self.bookmarks {
                        let bookmark = self.bookmark(None);
                        self.pending.push_back(bookmark);
                    }
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK;
                    let bookmark = self.bookmark(None);
                    self.pending.push_back(bookmark);
                }
                result = self.changed.changed() => if result.is_err() { return None },
                _ = self.served.changed() => self.closing = !self.is_served(),
            }
        }
    }

    /// Small lines are sent together.
    fn take_pending(&mut self) -> Option<Bytes> {
        let first = self.pending.pop_front()?;
        if self.pending.is_empty() {
            return Some(first);
        }
        let mut out = BytesMut::from(&*first);
        while out.len() < 64 * 1024
            && let Some(line) = self.pending.pop_front()
        {
            out.put_slice(&line);
        }
        Some(out.freeze())
    }

    /// False when the CRD is gone, and its objects with it.
    fn is_served(&self) -> bool {
        let Resource {
            group,
            version,
            plural,
            ..
        } = &*self.resource;
        self.app
            .live
            .current()
            .find(group, version, plural)
            .is_some()
    }

    fn read_events(&mut self) {
        match self
            .app
            .store
            .events_after(&self.resource.storage, self.position, BATCH)
        {
            Ok((events, position)) => {
                for event in events {
                    if let Some(line) = self.event(&event) {
                        self.pending.push_back(line);
                    }
                }
                self.position = position;
            }
            Err(_) => {
                let status = too_old(self.position).to_status();
                let line = json!({"type": "ERROR", "object": status}).to_string() + "\n";
                self.pending.push_back(line.into());
                self.finished = true;
            }
        }
    }

    /// An event as this watch sees it: objects that begin or cease to be selected appear and vanish.
    fn event(&mut self, event: &Event) -> Option<Bytes> {
        if self
            .namespace
            .as_deref()
            .is_some_and(|n| n != &*event.object.key.namespace)
        {
            return None;
        }
        let selected = |o: &Stored| matches(&self.resource, &self.selector, &o.object);
        let (before, after) = if self.selector.is_empty() {
            (event.previous.is_some(), event.change != Change::Deleted)
        } else {
            (
                event.previous.as_deref().is_some_and(selected),
                event.change != Change::Deleted && selected(&event.object),
            )
        };
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(self.line(kind, &event.object))
    }

    fn line(&mut self, kind: &str, stored: &Stored) -> Bytes {
        if self.view == View::Object && self.resource.conversion == Conversion::None {
            let mut out = BytesMut::with_capacity(stored.json.len() + 40);
            out.put_slice(format!(r#"{{"type":"{kind}","object":"#).as_bytes());
            out.put_slice(&stored.json);
            out.put_slice(b"}\n");
            return out.freeze();
        }
        let object = self.shown(self.resource.to_served(stored.object.clone()));
        Bytes::from(json!({"type": kind, "object": object}).to_string() + "\n")
    }

    fn shown(&mut self, object: Value) -> Value {
        match self.view {
            View::Object => object,
            View::Metadata => table::partial_metadata(&object),
            View::Table => {
                let now = jiff::Timestamp::now();
                let row = table::row(&self.resource, &object, self.include, now);
                let definitions = (!self.headed).then(|| table::definitions(&self.resource));
                self.headed = true;
                let version = object["metadata"]["resourceVersion"].clone();
                table::table(definitions, vec![row], json!({"resourceVersion": version}))
            }
        }
    }

    fn bookmark(&self, annotations: Option<Value>) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let object = match self.view {
            View::Table => table::table(None, Vec::new(), metadata),
            View::Metadata => table::partial_metadata(&json!({"metadata": metadata})),
            View::Object => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
        };
        Bytes::from(json!({"type": "BOOKMARK", "object": object}).to_string() + "\n")
    }
}
