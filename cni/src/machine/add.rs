//! ADD.
//!
//! Everything is checked before anything is allocated; the address comes before the record, the record before the
//! kernel, the policy before the interface, the interface before the route. A failure undoes what was done, in reverse
//! order, and only what *this* call did: addresses that the attachment had before stay, and an address that turns out
//! to belong to another pod goes back to that pod instead of into the pool.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Map;

use super::Step;
use crate::args::PodArgs;
use crate::attachment::{Attachment, AttachmentKey, IpamRef, PodRef, SCHEMA, State};
use crate::config::NetworkConfig;
use crate::error::{CniError, Code};
use crate::names;
use crate::plan::{self, AddressPlan, Plan, PodFacts};
use crate::result::{AddResult, Interface, IpConfig, Route};

/// How often an address that belongs to another pod is given back before ADD gives up.
const MAX_CONFLICTS: u32 = 4;

/// What is known when ADD starts.
#[derive(Debug, Clone)]
pub struct AddInput {
    /// Container and interface.
    pub key: AttachmentKey,
    /// Namespace path as the runtime gave it.
    pub netns_path: String,
    /// The pod.
    pub args: PodArgs,
    /// The configuration.
    pub config: NetworkConfig,
    /// Result of an external IPAM plugin.
    pub external: Option<AddResult>,
    /// Kubernetes name of this node.
    pub node: String,
    /// Start of host-side interface names.
    pub prefix: String,
    /// MTU when the configuration has none; `None` while the agent has not determined it.
    pub default_mtu: Option<u32>,
    /// Identity of this boot.
    pub boot_id: String,
    /// Number of this attachment.
    pub seq: u64,
    /// Seconds since 1970.
    pub now: u64,
    /// All records of this node.
    pub records: Vec<Attachment>,
}

/// What the namespace looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetnsFacts {
    /// Device number of its file.
    pub dev: u64,
    /// Inode of its file.
    pub ino: u64,
    /// `SO_NETNS_COOKIE`; 0 when the kernel has none.
    pub cookie: u64,
    /// `CNI_IFNAME` exists in it.
    pub has_interface: bool,
}

/// What wiring made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WiredFacts {
    /// Index of the host end.
    pub host_ifindex: u32,
    /// MAC of the host end.
    pub host_mac: String,
    /// Index of the pod end inside the pod.
    pub pod_ifindex: u32,
    /// MAC of the pod end.
    pub pod_mac: String,
    /// MTU of both ends.
    pub mtu: u32,
}

/// A request for addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Handle to hold them under. Addresses already held under it are reused.
    pub handle: String,
    /// Which addresses.
    pub addresses: AddressPlan,
    /// The pod, for the attributes; `None` for containers without Kubernetes.
    pub pod: Option<PodRef>,
    /// What pool selectors look at.
    pub facts: Option<Box<PodFacts>>,
}

/// A thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum AddAction {
    /// Wait until pods may be added: state in sync, base rules in the kernel.
    AwaitReady,
    /// Find the pod of [`AddInput::args`]; answer [`AddOutcome::Pod`].
    FindPod,
    /// Look at the namespace; answer [`AddOutcome::Netns`].
    InspectNetns,
    /// Is this attachment still as ADD left it? Answer [`AddOutcome::Intact`].
    Verify(Box<Attachment>),
    /// Finish the removal of a half-made or half-removed attachment of the same container, addresses included.
    Purge(Box<Attachment>),
    /// Take an attachment of the same container off its old namespace; its addresses stay.
    Detach(Box<Attachment>),
    /// Take interface name and host ports from an older sandbox of the same pod; its addresses stay.
    Supersede(Box<Attachment>),
    /// Allocate; answer [`AddOutcome::Allocated`].
    Allocate(Box<Allocation>),
    /// An address just allocated seems to be in use by a live attachment. If that is still so, give it to that one's
    /// handle; if the attachment has gone in the meantime, answer [`AddOutcome::Free`].
    ReturnToOwner {
        /// The address.
        address: IpAddr,
        /// Handle it is held under now.
        handle: String,
        /// Whose it is.
        owner: Box<Attachment>,
    },
    /// Write the record.
    Save(Box<Attachment>),
    /// Have the policy of the interface committed before the interface exists.
    CommitPolicy(Box<Attachment>),
    /// Make the interface; answer [`AddOutcome::Wired`].
    Wire(Box<Attachment>),
    /// Open it for traffic: host ports, neighbour, host route. Answered when the kernel has them.
    Activate(Box<Attachment>),
    /// Undo [`AddAction::Wire`].
    Unwire(Box<Attachment>),
    /// Undo [`AddAction::CommitPolicy`] and [`AddAction::Activate`].
    WithdrawPolicy(Box<Attachment>),
    /// Release exactly these addresses, if they are held under this handle.
    Release {
        /// The handle.
        handle: String,
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
    /// Remove the record.
    Forget(AttachmentKey),
}

/// How an action went.
#[derive(Debug, Clone, PartialEq)]
pub enum AddOutcome {
    /// There is none yet: the first call.
    Start,
    /// Done.
    Done,
    /// The pod.
    Pod(Box<PodFacts>),
    /// The namespace.
    Netns(NetnsFacts),
    /// Whether an attachment is intact.
    Intact(bool),
    /// Addresses held under the handle now, and whether they were before.
    Allocated {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// They were held under the handle before this call.
        reused: bool,
    },
    /// The address is nobody's but ours.
    Free,
    /// The interface.
    Wired(WiredFacts),
    /// It did not work.
    Failed(CniError),
}

/// How ADD ends.
#[derive(Debug, Clone, PartialEq)]
pub struct AddDone {
    /// The attachment as recorded, or the error for the runtime.
    pub result: Result<Box<Attachment>, CniError>,
    /// Whether the attachment existed before and nothing was changed.
    pub unchanged: bool,
    /// What could not be undone; the record was kept as `deleting` then.
    pub leftovers: Vec<CniError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    AwaitReady,
    FindPod,
    InspectNetns,
    Verify,
    Purge,
    Detach,
    Supersede,
    Allocate,
    ReturnToOwner,
    SavePreparing,
    CommitPolicy,
    Wire,
    Activate,
    SaveReady,
    RollBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undo {
    Release,
    Record,
    Policy,
    Wire,
}

/// The machine. Call [`AddMachine::next`] until it is done.
#[derive(Debug)]
pub struct AddMachine {
    input: AddInput,
    stage: Stage,
    facts: Option<Box<PodFacts>>,
    netns: Option<NetnsFacts>,
    existing: Option<Box<Attachment>>,
    rivals: Vec<Attachment>,
    plan: Option<Plan>,
    kept: Vec<IpAddr>,
    fresh: Vec<IpAddr>,
    conflicts: u32,
    /// What was allocated, while somebody else seems to use some of it.
    disputed: Vec<IpAddr>,
    /// Attachments that have gone since ADD began.
    gone: Vec<AttachmentKey>,
    attachment: Option<Box<Attachment>>,
    undo: Vec<Undo>,
    failure: Option<CniError>,
    abort: Option<CniError>,
    leftovers: Vec<CniError>,
}

type AddStep = Step<AddAction, AddDone>;

impl AddMachine {
    /// A machine for one ADD.
    pub fn new(input: AddInput) -> Self {
        AddMachine {
            input,
            stage: Stage::Start,
            facts: None,
            netns: None,
            existing: None,
            rivals: Vec::new(),
            plan: None,
            kept: Vec::new(),
            fresh: Vec::new(),
            conflicts: 0,
            disputed: Vec::new(),
            gone: Vec::new(),
            attachment: None,
            undo: Vec::new(),
            failure: None,
            abort: None,
            leftovers: Vec::new(),
        }
    }

    /// The caller is gone or out of time: undo everything after the action under way. No effect once undoing.
    pub fn abort(&mut self, error: CniError) {
        if self.stage != Stage::RollBack {
            self.abort = Some(error);
        }
    }

    /// Takes the outcome of the last action and says what is next.
    pub fn next(&mut self, outcome: AddOutcome) -> AddStep {
        if self.stage == Stage::RollBack {
            if let AddOutcome::Failed(error) = outcome {
                self.leftovers.push(error);
            }
            return self.roll_back();
        }
        let step = match outcome {
            AddOutcome::Failed(error) => Err(error),
            outcome => self.advance(outcome),
        };
        // The outcome is taken in before the abort, so that what was just done is undone as well.
        match (self.abort.take(), step) {
            (Some(error), _) | (None, Err(error)) => self.fail(error),
            (None, Ok(step)) => step,
        }
    }

    fn go(&mut self, stage: Stage, action: AddAction) -> AddStep {
        self.stage = stage;
        Step::Do(action)
    }

    fn advance(&mut self, outcome: AddOutcome) -> Result<AddStep, CniError> {
        match (self.stage, outcome) {
            (Stage::Start, AddOutcome::Start) => {
                self.check_input()?;
                Ok(self.go(Stage::AwaitReady, AddAction::AwaitReady))
            }
            (Stage::AwaitReady, AddOutcome::Done) => {
                if self.input.args.is_pod() {
                    Ok(self.go(Stage::FindPod, AddAction::FindPod))
                } else {
                    self.make_plan()
                }
            }
            (Stage::FindPod, AddOutcome::Pod(facts)) => {
                check_identity(&self.input, &facts)?;
                self.facts = Some(facts);
                self.make_plan()
            }
            (Stage::InspectNetns, AddOutcome::Netns(netns)) => self.netns_known(netns),
            (Stage::Verify, AddOutcome::Intact(true)) => Ok(Step::Done(AddDone {
                result: self.existing.take().ok_or_else(confused),
                unchanged: true,
                leftovers: Vec::new(),
            })),
            (Stage::Verify, AddOutcome::Intact(false)) => self.detach(),
            (Stage::Purge, AddOutcome::Done) => {
                self.existing = None;
                self.refuse_foreign_interface()?;
                self.supersede_next()
            }
            (Stage::Detach, AddOutcome::Done) => {
                self.existing = None;
                self.supersede_next()
            }
            (Stage::Supersede, AddOutcome::Done) => self.supersede_next(),
            (Stage::Allocate, AddOutcome::Allocated { addresses, reused }) => {
                self.allocated(addresses, reused)
            }
            (Stage::ReturnToOwner, AddOutcome::Done) => self.returned(),
            (Stage::ReturnToOwner, AddOutcome::Free) => self.take_over(),
            (Stage::SavePreparing, AddOutcome::Done) => {
                self.undo.push(Undo::Policy);
                let attachment = self.attachment()?;
                Ok(self.go(Stage::CommitPolicy, AddAction::CommitPolicy(attachment)))
            }
            (Stage::CommitPolicy, AddOutcome::Done) => {
                self.undo.push(Undo::Wire);
                let attachment = self.attachment()?;
                Ok(self.go(Stage::Wire, AddAction::Wire(attachment)))
            }
            (Stage::Wire, AddOutcome::Wired(wired)) => self.wired(wired),
            (Stage::Activate, AddOutcome::Done) => {
                let attachment = self.attachment.as_mut().ok_or_else(confused)?;
                attachment.state = State::Ready;
                let attachment = attachment.clone();
                Ok(self.go(Stage::SaveReady, AddAction::Save(attachment)))
            }
            (Stage::SaveReady, AddOutcome::Done) => Ok(Step::Done(AddDone {
                result: Ok(self.attachment()?),
                unchanged: false,
                leftovers: Vec::new(),
            })),
            (stage, outcome) => Err(confused().with_details(format!("{outcome:?} in {stage:?}"))),
        }
    }

    fn check_input(&mut self) -> Result<(), CniError> {
        let input = &self.input;
        names::host_interface(&input.prefix, &input.args, &input.key.container_id)?;
        if input.config.require_mtu_file && input.default_mtu.is_none() {
            return Err(CniError::try_again("the MTU of this node is not known yet"));
        }
        let same_container =
            |record: &&Attachment| record.key.container_id == input.key.container_id;
        if let Some(other) = input
            .records
            .iter()
            .filter(same_container)
            .find(|record| record.key != input.key)
        {
            return Err(CniError::invalid("only one interface per pod is supported")
                .with_details(format!("{} exists", other.key)));
        }
        self.existing = input
            .records
            .iter()
            .find(|r| r.key == input.key)
            .cloned()
            .map(Box::new);
        self.rivals = input
            .records
            .iter()
            .filter(|record| {
                record.key != input.key && !record.superseded && same_pod(record, &input.args)
            })
            .cloned()
            .collect();
        Ok(())
    }

    fn make_plan(&mut self) -> Result<AddStep, CniError> {
        let input = &self.input;
        let facts = self.facts.as_deref();
        self.plan = Some(plan::plan(
            &input.config,
            &input.args,
            facts,
            input.external.as_ref(),
        )?);
        Ok(self.go(Stage::InspectNetns, AddAction::InspectNetns))
    }

    fn netns_known(&mut self, netns: NetnsFacts) -> Result<AddStep, CniError> {
        self.netns = Some(netns);
        let Some(existing) = self.existing.clone() else {
            self.refuse_foreign_interface()?;
            return self.supersede_next();
        };
        if existing.state != State::Ready {
            return Ok(self.go(Stage::Purge, AddAction::Purge(existing)));
        }
        if same_netns(&existing, &netns, &self.input.boot_id) && !existing.superseded {
            return Ok(self.go(Stage::Verify, AddAction::Verify(existing)));
        }
        self.refuse_foreign_interface()?;
        self.detach()
    }

    fn refuse_foreign_interface(&self) -> Result<(), CniError> {
        if !self.netns.is_some_and(|netns| netns.has_interface) {
            return Ok(());
        }
        // After a purge the interface seen before was the half-made one.
        if self.stage == Stage::Purge {
            return Ok(());
        }
        let ifname = &self.input.key.ifname;
        Err(CniError::new(
            Code::INTERFACE_EXISTS,
            format!("interface {ifname} already exists in the container"),
        )
        .with_details(self.input.netns_path.clone()))
    }

    fn detach(&mut self) -> Result<AddStep, CniError> {
        let existing = self.existing.clone().ok_or_else(confused)?;
        self.kept = existing.ips.iter().map(IpNet::addr).collect();
        Ok(self.go(Stage::Detach, AddAction::Detach(existing)))
    }

    fn supersede_next(&mut self) -> Result<AddStep, CniError> {
        match self.rivals.pop() {
            Some(rival) => Ok(self.go(Stage::Supersede, AddAction::Supersede(Box::new(rival)))),
            None => self.allocate(),
        }
    }

    fn handle(&self) -> String {
        names::ipam_handle(&self.input.config.name, &self.input.key.container_id)
    }

    fn allocate(&mut self) -> Result<AddStep, CniError> {
        let plan = self.plan.as_ref().ok_or_else(confused)?;
        match &plan.addresses {
            AddressPlan::WithoutIpam(addresses) | AddressPlan::External(addresses) => {
                let addresses = addresses.clone();
                self.save_preparing(addresses)
            }
            own => {
                let allocation = Allocation {
                    handle: self.handle(),
                    addresses: own.clone(),
                    pod: self.pod_ref(),
                    facts: self.facts.clone(),
                };
                Ok(self.go(Stage::Allocate, AddAction::Allocate(Box::new(allocation))))
            }
        }
    }

    fn allocated(&mut self, addresses: Vec<IpAddr>, reused: bool) -> Result<AddStep, CniError> {
        if addresses.is_empty() {
            return Err(CniError::new(Code::NO_ADDRESS, "no address was assigned"));
        }
        // What the attachment held before this call is not ours to give back when this call fails.
        self.fresh = addresses
            .iter()
            .filter(|address| !reused && !self.kept.contains(address))
            .copied()
            .collect();
        if !self.fresh.is_empty() && !self.undo.contains(&Undo::Release) {
            self.undo.push(Undo::Release);
        }
        self.settle(addresses)
    }

    fn settle(&mut self, addresses: Vec<IpAddr>) -> Result<AddStep, CniError> {
        match self.owner_of_one(&addresses) {
            None => self.save_preparing(addresses),
            Some((address, owner)) => {
                self.disputed = addresses;
                self.return_to_owner(address, owner)
            }
        }
    }

    /// The attachment that seemed to use the address was removed while this ADD was under way.
    fn take_over(&mut self) -> Result<AddStep, CniError> {
        let addresses = std::mem::take(&mut self.disputed);
        let (address, owner) = self.owner_of_one(&addresses).ok_or_else(confused)?;
        self.fresh.push(address);
        self.gone.push(owner.key);
        self.settle(addresses)
    }

    /// An address of ours that a live attachment of another pod uses.
    fn owner_of_one(&self, addresses: &[IpAddr]) -> Option<(IpAddr, Box<Attachment>)> {
        let input = &self.input;
        let live = input.records.iter().filter(|record| {
            record.key != input.key
                && !self.gone.contains(&record.key)
                && record.state == State::Ready
                && record.boot_id == input.boot_id
                && !same_pod(record, &input.args)
        });
        live.flat_map(|record| record.ips.iter().map(move |net| (net.addr(), record)))
            .find(|(address, _)| addresses.contains(address))
            .map(|(address, record)| (address, Box::new(record.clone())))
    }

    fn return_to_owner(
        &mut self,
        address: IpAddr,
        owner: Box<Attachment>,
    ) -> Result<AddStep, CniError> {
        self.conflicts += 1;
        // From here on a failure must not put it into the pool. Left under our handle it is found by garbage collection.
        self.fresh.retain(|fresh| *fresh != address);
        let handle = self.handle();
        let action = AddAction::ReturnToOwner {
            address,
            handle,
            owner,
        };
        Ok(self.go(Stage::ReturnToOwner, action))
    }

    fn returned(&mut self) -> Result<AddStep, CniError> {
        let disputed = std::mem::take(&mut self.disputed);
        let (address, owner) = self.owner_of_one(&disputed).ok_or_else(confused)?;
        let plan = self.plan.as_ref().ok_or_else(confused)?;
        let replaceable = matches!(plan.addresses, AddressPlan::Automatic { .. });
        if replaceable && self.conflicts <= MAX_CONFLICTS {
            return self.allocate();
        }
        let details = format!("by container {} ({})", owner.key, owner.lock_name());
        Err(
            CniError::new(Code::NO_ADDRESS, format!("address {address} is in use"))
                .with_details(details),
        )
    }

    fn pod_ref(&self) -> Option<PodRef> {
        let args = &self.input.args;
        args.is_pod().then(|| PodRef {
            namespace: args.namespace.clone(),
            name: args.name.clone(),
            uid: self
                .facts
                .as_ref()
                .map_or_else(|| args.uid.clone(), |facts| facts.uid.clone()),
        })
    }

    fn save_preparing(&mut self, addresses: Vec<IpAddr>) -> Result<AddStep, CniError> {
        let attachment = Box::new(self.prepare(addresses)?);
        self.attachment = Some(attachment.clone());
        self.undo.push(Undo::Record);
        Ok(self.go(Stage::SavePreparing, AddAction::Save(attachment)))
    }

    fn prepare(&self, addresses: Vec<IpAddr>) -> Result<Attachment, CniError> {
        let (input, plan) = (&self.input, self.plan.as_ref().ok_or_else(confused)?);
        let netns = self.netns.ok_or_else(confused)?;
        let held = matches!(
            plan.addresses,
            AddressPlan::Automatic { .. } | AddressPlan::Specific(_)
        );
        let routes = if plan.routes.is_empty() {
            plan::default_routes().to_vec()
        } else {
            plan.routes.clone()
        };
        let mtu = if input.config.mtu > 0 {
            input.config.mtu
        } else {
            input.default_mtu.unwrap_or(0)
        };
        Ok(Attachment {
            schema: SCHEMA,
            state: State::Preparing,
            seq: input.seq,
            boot_id: input.boot_id.clone(),
            network: input.config.name.clone(),
            key: input.key.clone(),
            netns_path: input.netns_path.clone(),
            netns_dev: netns.dev,
            netns_ino: netns.ino,
            netns_cookie: netns.cookie,
            pod: self.pod_ref(),
            host_if: names::host_interface(&input.prefix, &input.args, &input.key.container_id)?,
            host_ifindex: 0,
            host_mac: String::new(),
            pod_ifindex: 0,
            pod_mac: plan.mac.map(crate::result::format_mac).unwrap_or_default(),
            mtu,
            num_queues: input.config.num_queues,
            allow_ip_forwarding: input.config.allow_ip_forwarding,
            ips: addresses.iter().copied().map(IpNet::from).collect(),
            routes: routes
                .into_iter()
                .filter(|route| {
                    addresses
                        .iter()
                        .any(|a| a.is_ipv4() == matches!(route, IpNet::V4(_)))
                })
                .collect(),
            ipam: IpamRef {
                kind: input.config.ipam.kind.clone(),
                handle: if held { self.handle() } else { String::new() },
            },
            host_ports: plan.host_ports.clone(),
            bandwidth: plan.bandwidth,
            allowed_source_prefixes: plan.allowed_source_prefixes.clone(),
            floating_ips: plan
                .floating_ips
                .iter()
                .copied()
                .filter(|external| addresses.iter().any(|a| a.is_ipv4() == external.is_ipv4()))
                .collect(),
            superseded: false,
            annotations_patched: false,
            result: None,
            created: input.now,
            unknown: Map::new(),
        })
    }

    fn wired(&mut self, wired: WiredFacts) -> Result<AddStep, CniError> {
        let with_routes = self.plan.as_ref().is_some_and(|plan| {
            matches!(
                plan.addresses,
                AddressPlan::Automatic { .. } | AddressPlan::External(_)
            )
        });
        let attachment = self.attachment.as_mut().ok_or_else(confused)?;
        attachment.host_ifindex = wired.host_ifindex;
        attachment.host_mac = wired.host_mac;
        attachment.pod_ifindex = wired.pod_ifindex;
        attachment.pod_mac = wired.pod_mac;
        attachment.mtu = wired.mtu;
        attachment.result = Some(result_of(attachment, with_routes));
        let attachment = attachment.clone();
        Ok(self.go(Stage::Activate, AddAction::Activate(attachment)))
    }

    fn attachment(&self) -> Result<Box<Attachment>, CniError> {
        self.attachment.clone().ok_or_else(confused)
    }

    fn fail(&mut self, error: CniError) -> AddStep {
        self.stage = Stage::RollBack;
        self.failure = Some(error);
        self.roll_back()
    }

    fn roll_back(&mut self) -> AddStep {
        while let Some(undo) = self.undo.pop() {
            let attachment = self.attachment.clone();
            match (undo, attachment) {
                (Undo::Wire, Some(attachment)) => return Step::Do(AddAction::Unwire(attachment)),
                (Undo::Policy, Some(attachment)) => {
                    return Step::Do(AddAction::WithdrawPolicy(attachment));
                }
                (Undo::Release, _) if !self.fresh.is_empty() => {
                    let addresses = std::mem::take(&mut self.fresh);
                    // The record is undone last, so that a crash in between still leads to the addresses.
                    return Step::Do(AddAction::Release {
                        handle: self.handle(),
                        addresses,
                    });
                }
                (Undo::Record, Some(mut attachment)) => {
                    // Release comes before the record, although it was done before it: swap the two.
                    if self.undo.last() == Some(&Undo::Release) && !self.fresh.is_empty() {
                        self.undo.pop();
                        self.undo.push(Undo::Record);
                        self.undo.push(Undo::Release);
                        continue;
                    }
                    if self.leftovers.is_empty() && self.kept.is_empty() {
                        return Step::Do(AddAction::Forget(attachment.key));
                    }
                    attachment.state = State::Deleting;
                    return Step::Do(AddAction::Save(attachment));
                }
                _ => {}
            }
        }
        let error = self.failure.take().unwrap_or_else(confused);
        Step::Done(AddDone {
            result: Err(error),
            unchanged: false,
            leftovers: std::mem::take(&mut self.leftovers),
        })
    }
}

fn confused() -> CniError {
    CniError::new(
        Code::INTERNAL,
        "the steps of ADD came out of order; this is a defect",
    )
}

fn same_pod(record: &Attachment, args: &PodArgs) -> bool {
    let pod = record.pod.as_ref();
    args.is_pod() && pod.is_some_and(|pod| pod.namespace == args.namespace && pod.name == args.name)
}

/// Whether a record was made for this very namespace. Inodes are recycled; the cookie is not, within one boot.
pub fn same_netns(record: &Attachment, netns: &NetnsFacts, boot_id: &str) -> bool {
    record.boot_id == boot_id
        && (record.netns_dev, record.netns_ino) == (netns.dev, netns.ino)
        && record.netns_cookie == netns.cookie
}

fn check_identity(input: &AddInput, facts: &PodFacts) -> Result<(), CniError> {
    let wrong = |details: String| {
        Err(CniError::new(
            Code::IDENTITY,
            "the pod is not the one the runtime is starting",
        )
        .with_details(details))
    };
    if facts.node != input.node {
        return wrong(format!(
            "it is bound to node {:?}, this is {:?}",
            facts.node, input.node
        ));
    }
    let uid = input.args.uid.as_str();
    let mirror = facts
        .annotations
        .get("kubernetes.io/config.mirror")
        .map(String::as_str);
    if !uid.is_empty() && uid != facts.uid && mirror != Some(uid) {
        return wrong(format!("runtime has UID {uid}, API has {}", facts.uid));
    }
    if facts.finished {
        return wrong("its phase is Succeeded or Failed".to_owned());
    }
    Ok(())
}

/// What ADD prints: host end, container end, addresses without gateway. Addresses that were not chosen automatically
/// come without routes, as Calico's plugin prints them.
fn result_of(attachment: &Attachment, with_routes: bool) -> AddResult {
    let host = Interface {
        name: attachment.host_if.clone(),
        ..Interface::default()
    };
    let container = Interface {
        name: attachment.key.ifname.clone(),
        mac: Some(attachment.pod_mac.clone()),
        mtu: Some(attachment.mtu).filter(|mtu| *mtu > 0),
        sandbox: Some(attachment.netns_path.clone()),
        ..Interface::default()
    };
    let ip = |address: &IpNet| IpConfig {
        interface: Some(1),
        address: *address,
        gateway: None,
    };
    AddResult {
        interfaces: vec![host, container],
        ips: attachment.ips.iter().map(ip).collect(),
        routes: if with_routes {
            attachment.ips.iter().copied().map(Route::to).collect()
        } else {
            Vec::new()
        },
        ..AddResult::default()
    }
}

#[cfg(test)]
mod tests;
