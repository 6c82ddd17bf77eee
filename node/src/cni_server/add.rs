//! ADD: carries out what the machine says.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use margay_cni::args::PodArgs;
use margay_cni::attachment::{Attachment, State, lock_name};
use margay_cni::config::NetworkConfig;
use margay_cni::machine::Step;
use margay_cni::machine::add::{
    AddAction, AddInput, AddMachine, AddOutcome, Allocation, WiredFacts,
};
use margay_cni::plan::PodFacts;
use margay_cni::result::AddResult;
use margay_cni::{AttachmentKey, CniError, CniVersion, Code, Command};
use margay_felix::kernel::Netns;
use serde_json::Value;

use super::annotate::Annotation;
use super::deps::TransferTarget;
use super::serve::Call;
use super::{Shared, del, gates, kernel, status_file, sweep};

/// How long ADD waits for the agent to be ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// How long the watch may take to deliver a pod that was made anew.
const WATCH_LIMIT: Duration = Duration::from_secs(2);
/// Pause between looks.
const WATCH_POLL: Duration = Duration::from_millis(100);
/// UID of the file a static pod comes from; the API's pod has another one.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// How long an allocation may take.
const ALLOCATE_LIMIT: Duration = Duration::from_secs(30);
/// How long the dataplane may take.
const KERNEL_LIMIT: Duration = Duration::from_secs(10);

/// What ADD did.
pub(super) struct Added {
    /// The result, in the layout of 1.1.0.
    pub(super) result: Value,
    /// The attachment, if this call made it.
    pub(super) made: Option<Box<Attachment>>,
}

pub(super) async fn add(shared: &Arc<Shared>, call: Call) -> Result<Added, CniError> {
    let request = &call.request;
    let config = NetworkConfig::parse(Command::Add, request.conf.as_bytes())?;
    let args = PodArgs::parse(request.var("CNI_ARGS"))?;
    let key = key(&call)?;
    for warning in &config.warnings {
        tracing::warn!(container = %key, %warning, "network configuration");
    }
    let netns = call
        .netns
        .as_ref()
        .and_then(|fd| fd.try_clone().ok())
        .ok_or_else(|| {
            CniError::new(
                Code::INVALID_NETNS,
                "the request came without a network namespace",
            )
        })?;
    let netns = Netns::from_fd(netns).map_err(|error| {
        CniError::new(
            Code::INVALID_NETNS,
            "the container's network namespace is not usable",
        )
        .with_details(error.to_string())
    })?;
    let external = request
        .ipam_result
        .as_ref()
        .map(AddResult::from_json)
        .transpose()?;
    let _container = shared
        .locks
        .lock(&format!("container {}", key.container_id))
        .await;
    let _pod = shared
        .locks
        .lock(&lock_name(&args, &key.container_id))
        .await;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // What an earlier DEL could not do is done by ADD itself, or by the DEL of this new attachment.
    shared
        .records
        .graveyard()
        .remove(&key)
        .map_err(|error| state_error(&error))?;
    let gates = config.readiness_gates.clone();
    let input = AddInput {
        key,
        netns_path: request.var("CNI_NETNS").to_owned(),
        args: args.clone(),
        config,
        external,
        node: shared.deps.node.clone(),
        prefix: shared.deps.interface_prefix.clone(),
        default_mtu: shared.deps.state.borrow().mtu,
        boot_id: shared.deps.boot_id.clone(),
        seq: shared
            .records
            .next_seq(u64::try_from(now.as_millis()).unwrap_or(0)),
        now: now.as_secs(),
        records: shared.records.all(),
    };
    let driver = Driver {
        shared,
        call: &call,
        args,
        netns,
        gates,
    };
    let (attachment, unchanged) = driver.run(AddMachine::new(input)).await?;
    if !attachment.host_ports.is_empty() {
        tracing::warn!(
            container = %attachment.key,
            "the pod asks for host ports; they are recorded, but the dataplane does not translate to them"
        );
    }
    if attachment.bandwidth.is_some() {
        tracing::warn!(
            container = %attachment.key,
            "the pod asks for bandwidth limits; they are recorded, but the dataplane does not enforce them"
        );
    }
    let result = attachment
        .result
        .clone()
        .unwrap_or_default()
        .to_json(CniVersion::NEWEST)?;
    shared.annotator.queue(Annotation::set(&attachment));
    let made = (!unchanged).then_some(attachment);
    Ok(Added { result, made })
}

/// `CNI_CONTAINERID` and `CNI_IFNAME` of a call; the executable has checked them, but a socket is open to every root
/// program, and they become a file name.
pub(super) fn key(call: &Call) -> Result<AttachmentKey, CniError> {
    let (id, ifname) = (
        call.request.var("CNI_CONTAINERID"),
        call.request.var("CNI_IFNAME"),
    );
    if !margay_cni::environment::is_identifier(id) {
        return Err(
            CniError::new(Code::BAD_ENVIRONMENT, "invalid characters in containerID")
                .with_details(id),
        );
    }
    margay_cni::environment::check_ifname(ifname)?;
    Ok(AttachmentKey::new(id, ifname))
}

/// ADD made this attachment, but nobody heard it.
pub(super) async fn undo_unheard(shared: &Arc<Shared>, made: &Attachment) {
    let _together = shared.gc.shared().await;
    let _container = shared
        .locks
        .lock(&format!("container {}", made.key.container_id))
        .await;
    let _pod = shared.locks.lock(&made.lock_name()).await;
    // Another call may have been here before.
    if let Some(record) = shared.records.get(&made.key)
        && record.seq == made.seq
    {
        del::remove(shared, record).await;
    }
}

struct Driver<'a> {
    shared: &'a Arc<Shared>,
    call: &'a Call,
    args: PodArgs,
    netns: Netns,
    gates: Vec<String>,
}

impl Driver<'_> {
    async fn run(&self, mut machine: AddMachine) -> Result<(Box<Attachment>, bool), CniError> {
        let mut outcome = AddOutcome::Start;
        loop {
            match machine.next(outcome) {
                Step::Do(action) => {
                    outcome = match self.act(action).await {
                        Ok(outcome) => outcome,
                        Err(error) => AddOutcome::Failed(error),
                    };
                    if self.call.cancel.is_cancelled() {
                        machine.abort(cancelled());
                    }
                }
                Step::Done(done) => {
                    for leftover in &done.leftovers {
                        tracing::error!(error = %leftover, "ADD could not be undone completely; it will be tried again");
                        self.shared.sweeper.retry();
                    }
                    return done.result.map(|attachment| (attachment, done.unchanged));
                }
            }
        }
    }

    async fn act(&self, action: AddAction) -> Result<AddOutcome, CniError> {
        let shared = self.shared;
        match action {
            AddAction::AwaitReady => {
                self.unless_cancelled(gates::pass(&self.gates)).await??;
                self.await_ready().await?;
            }
            AddAction::FindPod => {
                let pod = self.unless_cancelled(self.find_pod()).await??;
                return Ok(AddOutcome::Pod(Box::new(pod)));
            }
            AddAction::InspectNetns => {
                self.finish_removals().await?;
                let ifname = self.call.request.var("CNI_IFNAME").to_owned();
                return kernel::inspect(self.netns.clone(), ifname)
                    .await
                    .map(AddOutcome::Netns);
            }
            AddAction::Verify(record) => return self.verify(&record).await,
            AddAction::Purge(record) => del::purge(shared, *record).await?,
            AddAction::Detach(record) => self.detach(&record).await?,
            AddAction::Supersede(record) => self.supersede(*record).await?,
            AddAction::Allocate(allocation) => return self.allocate(*allocation).await,
            AddAction::ReturnToOwner {
                address,
                handle,
                owner,
            } => {
                let ready = shared
                    .records
                    .get(&owner.key)
                    .is_some_and(|now| now.state == State::Ready);
                if !ready {
                    return Ok(AddOutcome::Free);
                }
                tracing::warn!(%address, owner = %owner.key, "an address in use was allocated; returning it");
                let to = TransferTarget {
                    handle: owner.ipam.handle,
                    pod: owner.pod,
                };
                shared.deps.addresses.transfer(address, handle, to).await?;
            }
            AddAction::Save(record) => save(shared, &record)?,
            AddAction::CommitPolicy(record) => {
                let seq = shared
                    .deps
                    .dataplane
                    .upsert_endpoint(kernel::endpoint(&record, false));
                let commit = shared.deps.dataplane.wait_committed(seq, KERNEL_LIMIT);
                self.kernel_result(self.unless_cancelled(commit).await?)?;
            }
            AddAction::Wire(record) => return self.wire(&record).await,
            AddAction::Activate(record) => self.activate(&record).await?,
            AddAction::Unwire(record) => {
                kernel::unwire(shared, &record).await?;
            }
            AddAction::WithdrawPolicy(record) => withdraw(shared, &record).await?,
            AddAction::Release { handle, addresses } => {
                shared.deps.addresses.release(handle, addresses).await?;
            }
            AddAction::Forget(key) => shared.records.forget(&key).map_err(|e| state_error(&e))?,
        }
        Ok(AddOutcome::Done)
    }

    /// A pod that was deleted and made again under its name is found under its old UID until the watch has caught up.
    async fn find_pod(&self) -> Result<PodFacts, CniError> {
        let pods = &self.shared.deps.pods;
        let deadline = Instant::now() + WATCH_LIMIT;
        loop {
            let pod = pods
                .find(self.args.namespace.clone(), self.args.name.clone())
                .await?;
            let expected = self.args.uid.is_empty()
                || pod.uid == self.args.uid
                || pod.annotations.contains_key(MIRROR_ANNOTATION);
            if expected || Instant::now() >= deadline {
                return Ok(pod);
            }
            tokio::time::sleep(WATCH_POLL).await;
        }
    }

    /// An interface that an earlier DEL has only queued for removal is not one that exists.
    async fn finish_removals(&self) -> Result<(), CniError> {
        let netns = self.netns.clone();
        let id = kernel::blocking(move || netns.id())
            .await?
            .map_err(|error| {
                CniError::kernel("the container's network namespace cannot be read")
                    .with_details(error.to_string())
            })?;
        for record in self.shared.sweeper.take_of_netns(id.device, id.inode) {
            sweep::unwire(self.shared, &record).await;
        }
        Ok(())
    }

    async fn await_ready(&self) -> Result<(), CniError> {
        let mut state = self.shared.deps.state.clone();
        let ready = state.wait_for(|state| state.not_ready.is_none());
        let waited = self
            .unless_cancelled(tokio::time::timeout(READY_LIMIT, ready))
            .await?;
        if matches!(waited, Ok(Ok(_))) {
            return Ok(());
        }
        let why = self
            .shared
            .deps
            .state
            .borrow()
            .not_ready
            .clone()
            .unwrap_or_default();
        Err(CniError::try_again("the node agent is not ready to add pods").with_details(why))
    }

    async fn verify(&self, record: &Attachment) -> Result<AddOutcome, CniError> {
        let wiring = kernel::wiring(self.shared, record, self.netns.clone(), Vec::new());
        let wired = kernel::wired(record);
        let findings = kernel::blocking(move || margay_felix::wire::check(&wiring, &wired)).await?;
        let intact = findings.is_ok_and(|findings| {
            for finding in &findings {
                tracing::info!(container = %record.key, %finding, "attachment is to be wired again");
            }
            findings.is_empty()
        });
        Ok(AddOutcome::Intact(intact))
    }

    async fn detach(&self, record: &Attachment) -> Result<(), CniError> {
        withdraw(self.shared, record).await?;
        kernel::unwire(self.shared, record).await.map(|_| ())
    }

    async fn supersede(&self, mut record: Attachment) -> Result<(), CniError> {
        tracing::info!(old = %record.key, "a newer sandbox of the pod takes its interface over");
        withdraw(self.shared, &record).await?;
        record.superseded = true;
        save(self.shared, &record)
    }

    /// Runs to its end even if the caller goes away, so that nothing allocated is lost track of.
    async fn allocate(&self, allocation: Allocation) -> Result<AddOutcome, CniError> {
        let addresses = Arc::clone(&self.shared.deps.addresses);
        let handle = allocation.handle.clone();
        let mut task = tokio::spawn({
            let addresses = Arc::clone(&addresses);
            async move { addresses.allocate(allocation).await }
        });
        let allocated = match tokio::time::timeout(ALLOCATE_LIMIT, &mut task).await {
            Ok(Ok(allocated)) => allocated,
            Ok(Err(error)) => Err(CniError::new(Code::INTERNAL, error.to_string())),
            Err(_) => {
                tokio::spawn(release_late(addresses, handle, task));
                Err(CniError::try_again("no address was assigned in time"))
            }
        };
        let exhausted = allocated
            .as_ref()
            .is_err_and(|error| error.code == Code::NO_ADDRESS);
        *self
            .shared
            .exhausted
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = exhausted.then(Instant::now);
        allocated.map(|(addresses, reused)| AddOutcome::Allocated { addresses, reused })
    }

    async fn wire(&self, record: &Attachment) -> Result<AddOutcome, CniError> {
        let superseded = kernel::replaceable(self.shared, record).await;
        let wiring = kernel::wiring(self.shared, record, self.netns.clone(), superseded);
        let mtu = wiring.mtu;
        let wired = kernel::blocking(move || margay_felix::wire::wire_pod(&wiring)).await?;
        let wired = wired.map_err(|error| kernel::wire_error(&error))?;
        Ok(AddOutcome::Wired(WiredFacts {
            host_ifindex: wired.host_index,
            host_mac: margay_cni::result::format_mac(wired.host_mac.0),
            pod_ifindex: wired.pod_index,
            pod_mac: margay_cni::result::format_mac(wired.pod_mac.0),
            mtu,
        }))
    }

    async fn activate(&self, record: &Attachment) -> Result<(), CniError> {
        let dataplane = &self.shared.deps.dataplane;
        dataplane.upsert_endpoint(kernel::endpoint(record, true));
        let id = kernel::endpoint_id(&record.key);
        let routed = self
            .unless_cancelled(dataplane.wait_routed(&id, KERNEL_LIMIT))
            .await?;
        self.kernel_result(routed)?;
        status_file::write(&self.shared.deps.paths.endpoint_status, record);
        Ok(())
    }

    fn kernel_result(
        &self,
        result: Result<(), margay_felix::DataplaneError>,
    ) -> Result<(), CniError> {
        let failure = result.as_ref().err().map(ToString::to_string);
        let mut last = self
            .shared
            .kernel_failure
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        last.clone_from(&failure);
        match failure {
            None => Ok(()),
            Some(details) => {
                Err(CniError::kernel("the kernel was not programmed in time").with_details(details))
            }
        }
    }

    /// Waits for something that may be given up.
    async fn unless_cancelled<T>(&self, future: impl Future<Output = T>) -> Result<T, CniError> {
        tokio::select! {
            () = self.call.cancel.cancelled() => Err(cancelled()),
            value = future => Ok(value),
        }
    }
}

fn cancelled() -> CniError {
    CniError::try_again("the pod was not attached in time, or nobody waits for it any more")
}

pub(super) fn state_error(error: &std::io::Error) -> CniError {
    CniError::new(Code::IO, "the attachment record cannot be written")
        .with_details(error.to_string())
}

fn save(shared: &Shared, record: &Attachment) -> Result<(), CniError> {
    shared
        .records
        .save(record)
        .map_err(|error| state_error(&error))
}

/// Takes an endpoint out of the kernel, and waits until it is.
pub(super) async fn withdraw(shared: &Shared, record: &Attachment) -> Result<(), CniError> {
    let dataplane = &shared.deps.dataplane;
    let seq = dataplane.remove_endpoint(kernel::endpoint_id(&record.key));
    status_file::remove(&shared.deps.paths.endpoint_status, record);
    if !shared.serving.load(std::sync::atomic::Ordering::Relaxed) {
        return Ok(());
    }
    dataplane
        .wait_committed(seq, KERNEL_LIMIT)
        .await
        .map_err(|error| {
            CniError::kernel("the pod's routes were not removed in time")
                .with_details(error.to_string())
        })
}

type Allocated = Result<(Vec<IpAddr>, bool), CniError>;

/// An allocation came through after ADD had given up.
async fn release_late(
    addresses: Arc<dyn super::Addresses>,
    handle: String,
    task: tokio::task::JoinHandle<Allocated>,
) {
    if let Ok(Ok((late, false))) = task.await
        && let Err(error) = addresses.release(handle.clone(), late).await
    {
        tracing::warn!(%handle, %error, "addresses that came too late are left to garbage collection");
    }
}
