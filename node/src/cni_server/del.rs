//! DEL: carries out what the machine says. It never fails.

use std::sync::Arc;

use margay_cni::args::PodArgs;
use margay_cni::attachment::{Attachment, lock_name};
use margay_cni::config::LenientConfig;
use margay_cni::machine::Step;
use margay_cni::machine::del::{DelAction, DelInput, DelMachine, DelOutcome};
use margay_cni::{AttachmentKey, CniError};
use margay_felix::kernel::Netns;

use super::annotate::Annotation;
use super::serve::Call;
use super::{Shared, add, kernel};

/// How long a release may take before it is left for later.
const RELEASE_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) async fn del(shared: &Arc<Shared>, call: Call) -> Result<(), CniError> {
    let key = add::key(&call)?;
    let args = PodArgs::parse(call.request.var("CNI_ARGS")).unwrap_or_default();
    let hints = LenientConfig::parse(call.request.conf.as_bytes());
    let netns = call.netns.and_then(|fd| Netns::from_fd(fd).ok());
    locked(shared, key, args, hints, netns).await;
    Ok(())
}

/// DEL under the locks of container and pod.
pub(super) async fn locked(
    shared: &Arc<Shared>,
    key: AttachmentKey,
    args: PodArgs,
    hints: LenientConfig,
    netns: Option<Netns>,
) {
    let _container = shared
        .locks
        .lock(&format!("container {}", key.container_id))
        .await;
    // The record names the pod even when the call does not.
    let name = shared.records.get(&key).map_or_else(
        || lock_name(&args, &key.container_id),
        |record| record.lock_name(),
    );
    let _pod = shared.locks.lock(&name).await;
    let record = shared.records.get(&key);
    let live = shared.records.addresses_of_others(&key);
    let boot_id = shared.deps.boot_id.clone();
    let input = DelInput {
        key,
        args,
        hints,
        record,
        has_netns: netns.is_some(),
        live,
        boot_id,
    };
    run(shared, input, netns).await;
}

/// Removes the attachment of a record. The caller holds its locks, or is alone.
pub(super) async fn remove(shared: &Arc<Shared>, record: Attachment) -> Vec<CniError> {
    let input = DelInput {
        key: record.key.clone(),
        args: record.pod_args(),
        hints: LenientConfig::default(),
        live: shared.records.addresses_of_others(&record.key),
        record: Some(record),
        has_netns: false,
        boot_id: shared.deps.boot_id.clone(),
    };
    run(shared, input, None).await
}

/// Removes a half-made attachment, its interface at once: ADD is waiting for the name.
pub(super) async fn purge(shared: &Arc<Shared>, record: Attachment) -> Result<(), CniError> {
    kernel::unwire(shared, &record).await?;
    match remove(shared, record).await.pop() {
        None => Ok(()),
        Some(error) => Err(
            CniError::try_again("an earlier attempt is still being removed")
                .with_details(error.to_string()),
        ),
    }
}

async fn run(shared: &Arc<Shared>, input: DelInput, netns: Option<Netns>) -> Vec<CniError> {
    let key = input.key.clone();
    let mut machine = DelMachine::new(input);
    let mut outcome = DelOutcome::Start;
    loop {
        match machine.next(outcome) {
            Step::Do(action) => {
                outcome = match act(shared, action, netns.as_ref()).await {
                    Ok(()) => DelOutcome::Done,
                    Err(error) => DelOutcome::Failed(error),
                };
            }
            Step::Done(done) => {
                for error in &done.leftovers {
                    tracing::warn!(container = %key, %error, "DEL is not complete; it will be tried again");
                    shared.sweeper.retry();
                }
                return done.leftovers;
            }
        }
    }
}

async fn act(
    shared: &Arc<Shared>,
    action: DelAction,
    netns: Option<&Netns>,
) -> Result<(), CniError> {
    match action {
        DelAction::Withdraw(record) => add::withdraw(shared, &record).await,
        DelAction::QueueUnwire(record) => {
            shared.sweeper.unwire(*record);
            Ok(())
        }
        DelAction::RemoveStray(key) => match netns {
            Some(netns) => kernel::remove_stray(shared, netns.clone(), key.ifname).await,
            None => Ok(()),
        },
        // The dataplane cuts the connections of an endpoint's addresses when it loses the endpoint.
        DelAction::FlushConnections(_) => Ok(()),
        DelAction::Release(handles) => release(shared, handles).await,
        DelAction::ClearAnnotations(record) => {
            shared.annotator.queue(Annotation::clear(&record));
            Ok(())
        }
        DelAction::Save(record) => shared
            .records
            .save(&record)
            .map_err(|error| add::state_error(&error)),
        DelAction::Forget(key) => shared
            .records
            .forget(&key)
            .map_err(|error| add::state_error(&error)),
    }
}

async fn release(shared: &Shared, handles: Vec<String>) -> Result<(), CniError> {
    let mut result = Ok(());
    for handle in handles {
        let released = shared.deps.addresses.release_handle(handle.clone());
        let outcome = tokio::time::timeout(RELEASE_LIMIT, released)
            .await
            .unwrap_or_else(|_| {
                Err(CniError::try_again("the address was not released in time")
                    .with_details(handle))
            });
        result = result.and(outcome);
    }
    result
}
