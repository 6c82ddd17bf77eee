//! Start-up: from the records of the last run to a consistent state.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use margay_cni::args::PodArgs;
use margay_cni::attachment::{Attachment, State};
use margay_cni::config::LenientConfig;
use margay_felix::Source;
use margay_felix::kernel::rtnl::Rtnl;

use super::{Shared, del, kernel};

/// How long serving is put off for removals the last run left.
const PATIENCE: Duration = Duration::from_secs(3);

/// Recovers. Nothing is served yet.
pub(super) async fn recover(shared: &Arc<Shared>) -> anyhow::Result<()> {
    let records = shared.records.all();
    let live = live_records(shared, &records).await?;
    let endpoints = live
        .iter()
        .map(|record| kernel::endpoint(record, true))
        .collect();
    shared.deps.dataplane.set_endpoints(endpoints);
    shared.deps.dataplane.in_sync(Source::Endpoints);
    tracing::info!(
        records = records.len(),
        live = live.len(),
        "attachments recovered"
    );
    for record in records {
        // Of another boot: nothing of it is in the kernel, only its addresses are to be given back.
        if record.boot_id != shared.deps.boot_id || record.state != State::Ready {
            let mut record = record;
            record.state = State::Deleting;
            shared
                .records
                .save(&record)
                .context("write an attachment record")?;
        }
    }
    // What cannot be done now (the API may be away) is done later; no pod waits for it.
    let unfinished = async {
        let removals = shared
            .records
            .all()
            .into_iter()
            .filter(|r| r.state == State::Deleting);
        futures::future::join_all(removals.map(|record| del::remove(shared, record))).await;
        replay(shared).await
    };
    match tokio::time::timeout(PATIENCE, unfinished).await {
        Ok(replayed) => replayed,
        Err(_) => {
            tracing::warn!(
                "removals of the last run are not complete; they go on while pods are served"
            );
            Ok(())
        }
    }
}

async fn live_records(shared: &Shared, records: &[Attachment]) -> anyhow::Result<Vec<Attachment>> {
    let boot_id = shared.deps.boot_id.clone();
    let candidates: Vec<Attachment> = records
        .iter()
        .filter(|r| r.boot_id == boot_id && r.state == State::Ready && !r.superseded)
        .cloned()
        .collect();
    let netns = shared.deps.netns.clone();
    let live = kernel::blocking(move || {
        let mut rtnl = Rtnl::open_in(&netns)?;
        Ok::<_, margay_felix::kernel::KernelError>(
            candidates
                .into_iter()
                .filter(|r| kernel::is_live(&mut rtnl, r))
                .collect(),
        )
    });
    live.await?.context("read the interfaces of this node")
}

/// Does the DELs that came while nobody listened, or that took longer than their callers could wait.
pub(super) async fn replay(shared: &Arc<Shared>) -> anyhow::Result<()> {
    let graveyard = shared.records.graveyard();
    for tombstone in graveyard.all().context("read pending DELs")? {
        tracing::info!(container = %tombstone.key, "doing a DEL that came while the agent was away");
        let args = PodArgs::parse(&tombstone.args).unwrap_or_default();
        let hints = LenientConfig {
            name: tombstone.network,
            ..LenientConfig::default()
        };
        del::locked(shared, tombstone.key.clone(), args, hints, None).await;
        graveyard
            .remove(&tombstone.key)
            .context("remove a pending DEL")?;
    }
    Ok(())
}
