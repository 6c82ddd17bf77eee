//! Kubernetes Events of the controller (`reportingController: margay.io/controller`).

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::Instant;

/// Events of one object and reason: a burst of 25, then one each five minutes.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// Publishes Events; failures are logged and otherwise ignored.
pub(crate) struct Events {
    recorder: Recorder,
    budget: Budget,
}

impl Events {
    pub(crate) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: "margay.io/controller".into(),
            instance: Some(identity.to_owned()),
        };
        Events {
            recorder: Recorder::new(client, reporter),
            budget: Budget::default(),
        }
    }

    /// Publishes a warning about an object.
    pub(crate) async fn warn(&mut self, about: ObjectReference, reason: &str, message: &str) {
        if self.budget.take(&about, reason, Instant::now()) {
            self.publish(EventType::Warning, about, reason, message)
                .await;
        }
    }

    async fn publish(&self, kind: EventType, about: ObjectReference, reason: &str, message: &str) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            // The API server refuses longer notes.
            note: Some(message.chars().take(1000).collect()),
            action: "Reconcile".into(),
            secondary: None,
        };
        let published = self.recorder.publish(&event, &about);
        match tokio::time::timeout(Duration::from_secs(5), published).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason, "event not published"),
            Err(_) => tracing::debug!(reason, "event not published in time"),
        }
    }
}

/// Token buckets by object and reason.
#[derive(Debug, Default)]
struct Budget {
    buckets: HashMap<(String, String, String), (u32, Instant)>,
}

impl Budget {
    fn take(&mut self, about: &ObjectReference, reason: &str, now: Instant) -> bool {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let key = (text(&about.kind), text(&about.name), reason.to_owned());
        let (tokens, filled) = self.buckets.entry(key).or_insert((BURST, now));
        let earned = now.saturating_duration_since(*filled).as_secs() / REFILL.as_secs();
        if earned > 0 {
            *tokens = tokens
                .saturating_add(u32::try_from(earned).unwrap_or(BURST))
                .min(BURST);
            *filled = now;
        }
        let granted = *tokens > 0;
        *tokens = tokens.saturating_sub(1);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_cannot_flood_the_cluster_with_events() {
        let mut budget = Budget::default();
        let about = ObjectReference {
            name: Some("p".into()),
            ..ObjectReference::default()
        };
        let now = Instant::now();
        assert_eq!(
            (0..100)
                .filter(|_| budget.take(&about, "PoolInvalid", now))
                .count(),
            25
        );
        assert!(budget.take(&about, "PoolInvalid", now + REFILL));
        assert!(budget.take(&about, "Other", now));
    }
}
