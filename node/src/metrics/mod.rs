//! Prometheus metrics: `/metrics` on port 9091 when `prometheusMetricsEnabled` says so.

pub(crate) mod bgp;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;

/// The exporter. Values are collected whether or not anybody may read them, so that switching it on shows the past.
#[derive(Debug)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    serving: Option<(SocketAddr, JoinHandle<()>)>,
}

impl Metrics {
    /// Installs the recorder all parts write to.
    ///
    /// # Errors
    /// A recorder is installed already.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let handle = PrometheusBuilder::new()
            .install_recorder()
            .context("cannot install the metrics recorder")?;
        let upkeep = handle.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(5));
            loop {
                tick.tick().await;
                upkeep.run_upkeep();
            }
        });
        Ok(Metrics {
            handle,
            serving: None,
        })
    }

    /// Serves on `address`, or not at all; called on each change of the setting.
    pub(crate) async fn serve(&mut self, address: Option<SocketAddr>) {
        if self.serving.as_ref().map(|(current, _)| *current) == address {
            return;
        }
        if let Some((_, task)) = self.serving.take() {
            task.abort();
        }
        let Some(address) = address else { return };
        let router = Router::new()
            .route(
                "/metrics",
                get(|State(handle): State<PrometheusHandle>| async move { handle.render() }),
            )
            .with_state(self.handle.clone());
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => {
                let task = tokio::spawn(async move {
                    if let Err(error) = axum::serve(listener, router).await {
                        tracing::error!(%error, "metrics endpoint stopped");
                    }
                });
                self.serving = Some((address, task));
            }
            Err(error) => tracing::error!(%address, %error, "cannot serve metrics"),
        }
    }
}
