//! Events are news: they go an hour after they were last seen (the default of kube-apiserver's `--event-ttl`).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::http::App;
use crate::store::{Expect, Write};

const EVENTS: &str = "events";
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
const PERIOD: Duration = Duration::from_secs(60);

/// Runs until stopped.
pub(crate) async fn expire_events(app: Arc<App>, stop: CancellationToken) {
    loop {
        let now = Timestamp::now();
        let (events, _) = app.store.list(EVENTS, None);
        let old = events.iter().filter(|e| expired(&e.object, now));
        let removals = old.map(|e| {
            app.store.write(Write::new(
                e.key.clone(),
                Expect::Revision(e.revision),
                None,
            ))
        });
        // One that was seen again meanwhile is not removed, the others share an fsync.
        futures::future::join_all(removals).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let seen = times
        .iter()
        .filter_map(|p| event.pointer(p)?.as_str()?.parse::<Timestamp>().ok())
        .max();
    seen.is_some_and(|seen| now.duration_since(seen) > LIFETIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_latest_sighting_counts() {
        let now: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
        let mut event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(expired(&event, now));
        event["series"] = json!({"lastObservedTime": "2026-01-01T01:30:00.000000Z"});
        assert!(!expired(&event, now));
    }
}
