//! Kubernetes Events of the agent (`reportingController: margay.io/node`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// One Event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) api_version: &'static str,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl Notice {
    /// A warning about an object of the projectcalico.org/v3 group, or of the core group for a Node.
    pub(crate) fn warning(kind: &str, name: &str, reason: &str, message: String) -> Self {
        Notice {
            warning: true,
            reason: reason.to_owned(),
            message,
            api_version: if kind == "Node" {
                "v1"
            } else {
                "projectcalico.org/v3"
            },
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A normal Event on the Node.
    pub(crate) fn normal(node: &str, reason: &str, message: String) -> Self {
        Notice {
            warning: false,
            ..Notice::warning("Node", node, reason, message)
        }
    }
}

/// Queues Events; never blocks and never fails: an Event that does not fit is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Notice>,
}

/// Events of one object and reason: a burst of 25, then one each five minutes.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

impl Events {
    /// Starts publishing for `node`.
    pub(crate) fn start(client: Client, node: &str) -> Self {
        let (queue, mut notices) = mpsc::channel::<Notice>(256);
        let reporter = Reporter {
            controller: "margay.io/node".into(),
            instance: Some(format!("margay-{node}")),
        };
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            let mut budget = Budget::default();
            while let Some(notice) = notices.recv().await {
                if budget.take(&notice, Instant::now()) {
                    publish(&recorder, notice).await;
                }
            }
        });
        Events { queue }
    }

    /// Queues one Event.
    pub(crate) fn send(&self, notice: Notice) {
        if let Err(error) = self.queue.try_send(notice) {
            tracing::debug!(%error, "event dropped");
        }
    }
}

async fn publish(recorder: &Recorder, notice: Notice) {
    let reference = ObjectReference {
        api_version: Some(notice.api_version.into()),
        kind: Some(notice.kind.clone()),
        name: Some(notice.name.clone()),
        ..ObjectReference::default()
    };
    // The API server refuses longer notes.
    let note: String = notice.message.chars().take(1000).collect();
    let event = Event {
        type_: if notice.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.clone(),
        note: Some(note),
        action: "Apply".into(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &reference).await {
        tracing::debug!(%error, reason = notice.reason, "event not published");
    }
}

/// Token buckets by object and reason.
#[derive(Debug, Default)]
struct Budget {
    buckets: HashMap<(String, String, String), (u32, Instant)>,
}

impl Budget {
    fn take(&mut self, notice: &Notice, now: Instant) -> bool {
        let key = (
            notice.kind.clone(),
            notice.name.clone(),
            notice.reason.clone(),
        );
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
    fn a_repeating_event_is_limited_and_others_are_not() {
        let mut budget = Budget::default();
        let now = Instant::now();
        let notice = |name: &str| Notice::warning("BGPPeer", name, "BGPPeerRejected", "x".into());
        let granted = (0..100).filter(|_| budget.take(&notice("a"), now)).count();
        assert_eq!(granted, 25);
        assert!(budget.take(&notice("b"), now));
        assert!(budget.take(&notice("a"), now + REFILL));
        assert!(!budget.take(&notice("a"), now + REFILL));
    }
}
