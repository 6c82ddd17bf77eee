//! GC: removes what the runtime no longer knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use margay_cni::config::NetworkConfig;
use margay_cni::machine::gc::stale;
use margay_cni::{Attachment, AttachmentKey, CniError, Command, names};
use margay_felix::kernel::KernelError;
use margay_felix::kernel::rtnl::Rtnl;

use super::serve::Call;
use super::{Shared, del, kernel};

/// Start of the aliases we give.
const ALIAS_PREFIX: &str = "margay:";

/// The caller is alone.
pub(super) async fn gc(shared: &Arc<Shared>, call: &Call) -> Result<(), CniError> {
    let config = NetworkConfig::parse(Command::Gc, call.request.conf.as_bytes())?;
    let records = shared.records.all();
    let stale = stale(&records, &config.name, config.valid_attachments.as_deref());
    let mut problems = Vec::new();
    for record in stale {
        tracing::info!(container = %record.key, "GC removes an attachment the runtime does not know");
        let key = record.key.clone();
        let leftovers = del::remove(shared, record).await;
        problems.extend(leftovers.iter().map(|error| format!("{key}: {error}")));
    }
    if let Some(valid) = &config.valid_attachments {
        problems.extend(remove_orphans(shared, valid).await);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(
        CniError::kernel("some stale attachments are still being removed")
            .with_details(problems.join("; ")),
    )
}

/// Removes host interfaces that carry our alias, have no record, and whose attachment the runtime does not know.
async fn remove_orphans(shared: &Shared, valid: &[AttachmentKey]) -> Vec<String> {
    let known: BTreeSet<String> = shared
        .records
        .all()
        .iter()
        .map(Attachment::alias)
        .chain(
            valid
                .iter()
                .map(|key| names::alias(&key.container_id, &key.ifname)),
        )
        .collect();
    let (netns, prefix) = (
        shared.deps.netns.clone(),
        shared.deps.interface_prefix.clone(),
    );
    let removed = kernel::blocking(move || {
        let mut rtnl = Rtnl::open_in(&netns)?;
        let orphans = rtnl.links()?.into_iter().filter(|link| {
            let ours = link
                .alias
                .as_ref()
                .is_some_and(|alias| alias.starts_with(ALIAS_PREFIX) && !known.contains(alias));
            ours && link.name.starts_with(&prefix)
        });
        for link in orphans.collect::<Vec<_>>() {
            tracing::info!(
                interface = link.name,
                alias = link.alias,
                "GC removes an orphaned interface"
            );
            rtnl.delete_link(link.index)?;
        }
        Ok::<(), KernelError>(())
    });
    match removed.await {
        Ok(Ok(())) => Vec::new(),
        Ok(Err(error)) => vec![format!("orphaned interfaces: {error}")],
        Err(error) => vec![format!("orphaned interfaces: {error}")],
    }
}
