//! GC: removes what the runtime no longer knows.

use std::sync::Arc;

use margay_cni::config::NetworkConfig;
use margay_cni::machine::gc::stale;
use margay_cni::{CniError, Command};

use super::serve::Call;
use super::{Shared, del};

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
    if problems.is_empty() {
        return Ok(());
    }
    Err(
        CniError::kernel("some stale attachments are still being removed")
            .with_details(problems.join("; ")),
    )
}
