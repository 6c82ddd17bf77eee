//! `margay controller`: the cluster-wide control loops.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use kube::config::{KubeConfigOptions, Kubeconfig};
use margay_controller::{ControllerConfig, Report};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::health::{Health, table};
use crate::logging;
use crate::metrics::Metrics;

/// Part of the health report that stands for the controller.
const PART: &str = "controller";

/// Arguments of `margay controller`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Credentials and address of the API server. Default: those of the pod's service account.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease `margay-controller`.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        value_name = "NAME",
        default_value = "kube-system"
    )]
    namespace: String,
    /// Name of this replica in the Lease; has to be unique. Default: host name and process id.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Address the health and metrics endpoints listen on.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port of `/liveness` and `/readiness`; 0 = off.
    #[arg(long, value_name = "PORT", default_value_t = 9098)]
    health_port: u16,
    /// Port of `/metrics`; 0 = off.
    #[arg(long, value_name = "PORT", default_value_t = 9094)]
    metrics_port: u16,
    /// Seconds a Node has to be gone before its addresses are given to others. Not below the time after which an agent
    /// without contact to the API server stops handing out addresses (600), except in tests.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    dead_node_seconds: u64,
    /// Seconds after which an affinity without a block or a handle without addresses is removed.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    leftover_seconds: u64,
    /// Severity (`info`, `debug`, ...) or a list of directives (`info,margay_controller=debug`).
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// Runs the controller until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    logging::start(Some(&args.log_level))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("margay-controller")
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(Box::pin(serve(args)));
    runtime.shutdown_timeout(Duration::from_secs(2));
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let client = client(args.kubeconfig.as_deref()).await?;
    let mut metrics = Metrics::install()?;
    let port = |port: u16| (port != 0).then(|| SocketAddr::new(args.bind_address, port));
    metrics.serve(port(args.metrics_port)).await;
    let health = Health::default();
    health.register(PART, None);
    if let Some(address) = port(args.health_port) {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address} (--health-port)"))?;
        tokio::spawn(axum::serve(listener, router(health.clone())).into_future());
    }
    let identity = match args.identity {
        Some(identity) => identity,
        None => format!(
            "{}_{}",
            std::fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim(),
            std::process::id()
        ),
    };
    let config = ControllerConfig {
        dead_node_after: Duration::from_secs(args.dead_node_seconds),
        leftover_after: Duration::from_secs(args.leftover_seconds),
        ..ControllerConfig::new(args.namespace, identity)
    };
    let (stop, stopping) = watch::channel(false);
    let (reports, reported) = watch::channel(Report::default());
    tokio::spawn(tell(health, reported));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stop.send_replace(true);
    });
    margay_controller::run(client, config, reports, stopping).await;
    Ok(())
}

async fn client(kubeconfig: Option<&std::path::Path>) -> anyhow::Result<kube::Client> {
    let config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("cannot use the kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer()
            .await
            .context("no credentials for the API server")?,
    };
    kube::Client::try_from(config).context("cannot make an API client")
}

/// A replica that waits for the lease is as ready as the one that leads and knows the cluster.
async fn tell(health: Health, mut reports: watch::Receiver<Report>) {
    loop {
        let report = reports.borrow_and_update().clone();
        health.report(
            PART,
            match (report.leading, report.synced) {
                (true, false) => Err("leading, and the cluster has not been read yet".into()),
                _ => Ok(()),
            },
        );
        if reports.changed().await.is_err() {
            return;
        }
    }
}

fn router(health: Health) -> Router {
    Router::new()
        .route(
            "/liveness",
            get(|State(health): State<Health>| async move { answer(&health, false) }),
        )
        .route(
            "/readiness",
            get(|State(health): State<Health>| async move { answer(&health, true) }),
        )
        .with_state(health)
}

/// 200 or 503 with the table of parts.
fn answer(health: &Health, ready: bool) -> (StatusCode, String) {
    let parts = health.parts(Instant::now());
    let good = parts
        .iter()
        .all(|part| if ready { part.ready } else { part.live });
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, table(&parts))
}
