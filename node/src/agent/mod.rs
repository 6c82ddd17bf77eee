//! The node agent: start-up, wiring of the parts, orderly stop.
//!
//! [`core`] holds the loop that owns the copy of the cluster. Everything before it ([`startup`]) runs once: the node's
//! name and addresses, the objects a new cluster lacks. What the kernel should hold is decided by
//! [`margay_felix::calc`] and the dataplane; this module only carries values between the parts.

pub(crate) mod addresses;
pub(crate) mod allocator;
pub(crate) mod autodetect;
pub(crate) mod bgp_state;
pub(crate) mod cluster;
pub(crate) mod cni;
pub(crate) mod core;
pub(crate) mod default_pools;
pub(crate) mod environment;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod identity;
pub(crate) mod interfaces;
pub(crate) mod mirror;
pub(crate) mod mtu;
pub(crate) mod paths;
pub(crate) mod pods;
pub(crate) mod problems;
pub(crate) mod redetect;
pub(crate) mod report;
pub(crate) mod restart;
pub(crate) mod settings;
pub(crate) mod speaker;
pub(crate) mod startup;
pub(crate) mod tunnel_addresses;
pub(crate) mod watch;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use kube::Client;
use margay_crds::admin;
use margay_felix::kernel::Netns;
use margay_felix::{Dataplane, DataplaneConfig};
use margay_ipam::{Ipam, IpamConfig, KubeStore};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::core::{Core, DATAPLANE, DATASTORE, LOOP, Parts, WATCHDOG};
use self::environment::Environment;
use self::facts::Facts;
use crate::admin::{listen, view::View};
use crate::cni_server::{CniDeps, Conflist, NodeState};
use crate::health::{Health, server};
use crate::logging::LogLevel;
use crate::metrics::Metrics;

/// Level of the Calico API this agent follows.
pub(crate) const API_LEVEL: &str = "v3.33.0";

/// How long assignments may take to be written at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// Pause between attempts to reach the API server at start.
const RETRY: Duration = Duration::from_secs(2);

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// A start-up step that cannot succeed by waiting; the text says which and what to do.
pub(crate) async fn run(
    environment: Environment,
    level: LogLevel,
    accept_rename: bool,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let stop = CancellationToken::new();
    let agent = tokio::spawn(Box::pin(serve(
        environment,
        level,
        accept_rename,
        stop.clone(),
    )));
    tokio::pin!(agent);
    tokio::select! {
        ended = &mut agent => return ended.context("the agent panicked")?,
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping, kernel state stays"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping, kernel state stays"),
    }
    stop.cancel();
    agent.await.context("the agent panicked")?
}

async fn serve(
    environment: Environment,
    level: LogLevel,
    accept_rename: bool,
    stopping: CancellationToken,
) -> anyhow::Result<()> {
    let metrics = Metrics::install()?;
    let health = Health::default();
    health.register(DATASTORE, None);
    health.register(DATAPLANE, None);
    health.register(server::BGP, None);
    health.register(core::IPAM, None);
    health.register(cni::PART, None);
    health.register(LOOP, Some(WATCHDOG));
    let probes = SocketAddr::new(
        environment
            .health_host
            .parse()
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        environment.health_port,
    );
    listen::on_address(probes, "health probes", server::router(health.clone())).await?;

    let stored = identity::stored_name(&environment.nodename_file)?;
    let name = identity::node_name(environment.node_name.as_deref(), stored.as_deref())?;
    tracing::info!(
        node = name,
        version = env!("CARGO_PKG_VERSION"),
        "agent starting"
    );
    let client = Client::try_default()
        .await
        .context("no access to a Kubernetes API: set KUBECONFIG or run with a service account")?;
    let prepared = tokio::select! {
        prepared = prepare(&client, &environment, &name, stored.as_deref(), accept_rename, &health) => prepared?,
        () = stopping.cancelled() => return Ok(()),
    };
    identity::store_name(&environment.nodename_file, &name)?;
    tracing::info!(v4 = ?prepared.addresses.v4.map(|a| a.net), v6 = ?prepared.addresses.v6.map(|a| a.net), "addresses settled");

    let restart_file = paths::restart_file();
    let carried = restart::RestartState::load(&restart_file);
    let netns = Netns::current().context("cannot open the network namespace")?;
    let mut dataplane_config = DataplaneConfig::new(&name, netns.clone());
    dataplane_config.drift_log = Some(paths::drift_log());
    if let Some(carried) = &carried {
        dataplane_config.restart_prefixes = carried.outside_pools.iter().copied().collect();
    }
    let dataplane = Dataplane::start(dataplane_config).context("cannot start the dataplane")?;

    let mut ipam_config = IpamConfig::for_node(&name);
    ipam_config.journal = paths::ipam_journal();
    let boot_id = ipam_config.boot_id.clone();
    let ipam = Ipam::start(KubeStore::new(client.clone()), ipam_config)
        .context("cannot start address management")?;

    let view = Arc::new(View {
        node: name.clone(),
        started: Timestamp::now(),
        health: health.clone(),
        dataplane: dataplane.clone(),
        bgp: ArcSwap::default(),
        problems: ArcSwap::default(),
        ipam: ipam.clone(),
        endpoints: ArcSwap::default(),
    });
    listen::on_socket(
        &paths::admin_socket(),
        crate::admin::read_router(Arc::clone(&view)),
    )?;
    let read_only = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), admin::READ_ONLY_PORT);
    listen::on_address(
        read_only,
        "the admin API",
        crate::admin::read_router(Arc::clone(&view)),
    )
    .await?;

    let events = events::Events::start(client.clone(), &name);
    let (reports, report_reader) = tokio::sync::watch::channel(report::Snapshot::default());
    tokio::spawn(report::run(client.clone(), name.clone(), report_reader));
    let ask = Arc::new(Notify::new());
    tokio::spawn(redetect::run(
        client.clone(),
        name.clone(),
        environment.clone(),
        events.clone(),
        Arc::clone(&ask),
    ));
    let (facts, facts_reader) = tokio::sync::watch::channel(Arc::new(Facts::default()));
    let mtu = mtu::of_pods(&prepared);
    let (node_state, node_state_reader) = tokio::sync::watch::channel(NodeState {
        not_ready: Some("the agent is starting".to_owned()),
        unhealthy: Some("the agent is starting".to_owned()),
        ..NodeState::default()
    });
    let (pod_addresses_sender, pod_addresses) = tokio::sync::watch::channel(Vec::new());

    let deps = CniDeps {
        node: name.clone(),
        netns: netns.clone(),
        interface_prefix: "cali".to_owned(),
        boot_id,
        dataplane: dataplane.clone(),
        addresses: Arc::new(ipam.clone()),
        pods: Arc::new(pods::Pods::new(facts_reader, client.clone())),
        state: node_state_reader.clone(),
        paths: paths::cni(),
    };
    let conflist = Conflist {
        ipv4: prepared.addresses.v4.is_some(),
        ipv6: prepared.addresses.v6.is_some(),
        ..Conflist::from_vars(|variable| std::env::var(variable).ok(), &name)?
    };
    let cni = tokio::spawn(cni::run(
        deps,
        conflist,
        environment.manage_cni,
        ipam.clone(),
        cni::Output {
            addresses: pod_addresses_sender,
            view: Arc::clone(&view),
            health: health.clone(),
        },
        stopping.clone(),
    ));
    tokio::spawn(cni::announce(
        client.clone(),
        name.clone(),
        environment.shutdown_timestamp_file.clone(),
        node_state_reader,
    ));

    let (tunnels, tunnels_reader) = tokio::sync::watch::channel(None);
    tokio::spawn(tunnel_addresses::run(
        client.clone(),
        name.clone(),
        ipam.clone(),
        tunnels_reader,
    ));

    let core = Core::new(Parts {
        name,
        environment,
        client,
        level,
        health,
        metrics,
        events,
        dataplane: dataplane.clone(),
        view,
        facts,
        reports,
        carried,
        restart_file,
        blocks: ipam.watch_own_blocks(),
        ipam: ipam.clone(),
        pod_addresses,
        node_state,
        tunnels,
        redetect: ask,
        mtu,
    });
    let core_stop = CancellationToken::new();
    let mut core = tokio::spawn(core.run(core_stop.clone()));
    tokio::select! {
        () = stopping.cancelled() => {}
        ended = &mut core => {
            ended.context("the agent's loop panicked")?;
            bail!("the agent's loop ended");
        }
    }
    // First no new work, then its results to the API, then the peers.
    if let Ok(Err(error)) = cni.await {
        tracing::warn!(error = format!("{error:#}"), "CNI server");
    }
    ipam.stop(FLUSH).await;
    core_stop.cancel();
    core.await.context("the agent's loop panicked")?;
    dataplane.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Everything that has to be true before the parts start. An API server that does not answer is waited for; anything
/// else that is wrong ends the process, so that a roll-out stops at the first node.
async fn prepare(
    client: &Client,
    environment: &Environment,
    name: &str,
    stored: Option<&str>,
    accept_rename: bool,
    health: &Health,
) -> anyhow::Result<margay_felix::calc::sessions::BgpNode> {
    loop {
        let attempt = async {
            let node = startup::own_node(client, name).await?;
            if let Some(old) = stored.filter(|old| *old != name && !accept_rename)
                && startup::owns_blocks(client, old).await?
            {
                bail!(
                    "this host was node {old}, which still owns address blocks, and is now called {name}; restore \
                     NODENAME={old}, or start once with --accept-node-rename to leave those blocks behind"
                );
            }
            let bgp = startup::settle_addresses(client, environment, &node).await?;
            startup::create_missing(client, environment).await?;
            Ok(bgp)
        };
        match attempt.await {
            Ok(bgp) => return Ok(bgp),
            Err(error) if startup::may_pass(&error) => {
                tracing::warn!(error = format!("{error:#}"), "API server not usable yet");
                health.report(DATASTORE, Err(format!("{error:#}")));
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => return Err(error),
        }
    }
}
