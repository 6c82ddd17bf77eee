//! Start, reload and stop of the stand-alone speaker.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use margay_bgp::{Families, RestartState, RouteBatch, RouteEvents, SpeakerConfig, SpeakerHandle};
use tokio::signal::unix::{SignalKind, signal};

use super::fib::Fib;
use super::{control, file};

/// Routes of an earlier run that nobody announced again go this long after the start.
const STALE_ROUTES: Duration = Duration::from_secs(120);

/// Time between offers of routes the kernel refused.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT. SIGHUP reads the file again; a file with an error changes nothing. The end is silent
/// and leaves the kernel's routes, so that peers and traffic survive a restart (RFC 4724).
///
/// # Errors
/// The file is wrong, or an address or the control socket cannot be used.
pub(crate) async fn run(path: PathBuf, socket: Option<PathBuf>) -> anyhow::Result<()> {
    let settings = file::load(&path)?;
    let fib = settings
        .fib
        .then(Fib::open)
        .transpose()
        .context("cannot read the kernel's routes")?;
    let preserved = fib.as_ref().map_or(Families::NONE, Fib::preserved);
    let restart = RestartState {
        restarted: !preserved.is_empty(),
        preserved,
    };
    let name = settings.speaker.router_id.to_string();
    let (handle, events) = margay_bgp::start(SpeakerConfig {
        restart,
        ..settings.speaker
    })?;
    handle.set_local_routes(settings.local).await?;
    handle.set_peers(settings.peers).await?;
    let forwarding = tokio::spawn(forward(events, fib));
    let control = socket
        .as_deref()
        .map(|path| control::serve(path, name, handle.clone()))
        .transpose()?;
    tracing::info!(file = %path.display(), "BGP speaker started");

    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = hangup.recv() => reload(&path, &handle, restart).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    handle.stop().await;
    // Ends with the speaker, after its last batch.
    let _ = forwarding.await;
    if let Some(control) = control {
        control.abort();
    }
    Ok(())
}

async fn reload(path: &Path, handle: &SpeakerHandle, restart: RestartState) {
    let apply = async {
        let settings = file::load(path)?;
        handle
            .configure(SpeakerConfig {
                restart,
                ..settings.speaker
            })
            .await?;
        handle.set_peers(settings.peers).await?;
        handle.set_local_routes(settings.local).await?;
        anyhow::Ok(())
    };
    match apply.await {
        Ok(()) => tracing::info!(file = %path.display(), "configuration reloaded"),
        Err(error) => tracing::error!("configuration not reloaded: {error:#}"),
    }
}

/// Carries route changes to the kernel; without one they are only taken off the queue.
async fn forward(mut events: RouteEvents, fib: Option<Fib>) {
    let Some(mut fib) = fib else {
        while events.next().await.is_some() {}
        return;
    };
    let sweep = tokio::time::sleep(STALE_ROUTES);
    tokio::pin!(sweep);
    let mut swept = false;
    let mut retry = tokio::time::interval(RETRY);
    loop {
        let task = tokio::select! {
            batch = events.next() => match batch {
                Some(batch) => Task::Apply(batch),
                None => return,
            },
            () = &mut sweep, if !swept => {
                swept = true;
                Task::Sweep
            }
            _ = retry.tick() => Task::Retry,
        };
        // Netlink answers at once but may block for a moment.
        let work = tokio::task::spawn_blocking(move || {
            match task {
                Task::Apply(batch) => fib.apply(&batch),
                Task::Sweep => fib.sweep_all(),
                Task::Retry => fib.retry(),
            }
            fib
        });
        match work.await {
            Ok(back) => fib = back,
            Err(error) => {
                tracing::error!(%error, "programming of the kernel ended");
                return;
            }
        }
    }
}

/// What is done to the kernel's table.
enum Task {
    Apply(RouteBatch),
    Sweep,
    Retry,
}
