//! Detecting the addresses of the node again.

use std::sync::Arc;

use kube::Client;
use tokio::sync::Notify;

use super::environment::Environment;
use super::events::{Events, Notice};
use super::startup;

/// Detects for the life of the agent, at intervals and when asked: a changed address is written to the Node, from where it comes back
/// through the watch like any other change. Three failures in a row are needed before an address counts as lost.
pub(crate) async fn run(
    client: Client,
    name: String,
    environment: Environment,
    events: Events,
    asked: Arc<Notify>,
) {
    let mut failures = 0;
    loop {
        // Either the time has come or somebody asks: both are reasons to look.
        let _ = tokio::time::timeout(environment.poll_interval, asked.notified()).await;
        let attempt = async {
            let node = startup::own_node(&client, &name).await?;
            startup::settle_addresses(&client, &environment, &node).await
        };
        match attempt.await {
            Ok(_) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    error = format!("{error:#}"),
                    failures,
                    "address detection failed"
                );
                if failures == 3 {
                    events.send(Notice::warning(
                        "Node",
                        &name,
                        "NodeAddressLost",
                        format!("{error:#}"),
                    ));
                }
            }
        }
    }
}
