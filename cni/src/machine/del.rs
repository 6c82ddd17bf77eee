//! DEL. It always succeeds: what cannot be done now stays recorded as `deleting` and is tried again later.
//!
//! Only what the attachment's own record names is touched. The interface name is derived from the pod, so a newer
//! sandbox of the same pod may own it by now; without a record nothing on the host is removed by name.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Step;
use crate::args::PodArgs;
use crate::attachment::{Attachment, AttachmentKey, State};
use crate::config::LenientConfig;
use crate::error::CniError;
use crate::names;

/// What is known when DEL starts.
#[derive(Debug, Clone)]
pub struct DelInput {
    /// Container and interface.
    pub key: AttachmentKey,
    /// The pod, as far as `CNI_ARGS` could be read.
    pub args: PodArgs,
    /// Hints from standard input.
    pub hints: LenientConfig,
    /// The record, if there is one.
    pub record: Option<Attachment>,
    /// The namespace came along and is not the host's.
    pub has_netns: bool,
    /// Addresses of live attachments, which must not be cut off.
    pub live: Vec<IpAddr>,
    /// Identity of this boot; a record of another one has nothing in the kernel.
    pub boot_id: String,
}

/// A thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum DelAction {
    /// Take host ports, host route, neighbour and policy out of the kernel. Answered when the kernel has lost them.
    Withdraw(Box<Attachment>),
    /// Have the host interface removed soon, if it is still this attachment's.
    QueueUnwire(Box<Attachment>),
    /// No record: remove `CNI_IFNAME` from the namespace if it is a pod interface made by us or by Calico.
    RemoveStray(AttachmentKey),
    /// Forget the connections of these addresses.
    FlushConnections(Vec<IpAddr>),
    /// Release everything held under these handles.
    Release(Vec<String>),
    /// Empty the pod's address annotations, if they are this container's.
    ClearAnnotations(Box<Attachment>),
    /// Write the record.
    Save(Box<Attachment>),
    /// Remove the record.
    Forget(AttachmentKey),
}

/// How an action went.
#[derive(Debug, Clone, PartialEq)]
pub enum DelOutcome {
    /// There is none yet: the first call.
    Start,
    /// Done.
    Done,
    /// It did not work.
    Failed(CniError),
}

/// How DEL ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelDone {
    /// What is left; empty when everything is gone. The runtime is told "success" in any case.
    pub leftovers: Vec<CniError>,
}

/// The machine. Call [`DelMachine::next`] until it is done.
#[derive(Debug)]
pub struct DelMachine {
    input: DelInput,
    actions: std::vec::IntoIter<DelAction>,
    finishing: bool,
    leftovers: Vec<CniError>,
}

impl DelMachine {
    /// A machine for one DEL.
    pub fn new(input: DelInput) -> Self {
        let actions = match &input.record {
            Some(record) => with_record(record, &input),
            None => without_record(&input),
        };
        DelMachine {
            input,
            actions: actions.into_iter(),
            finishing: false,
            leftovers: Vec::new(),
        }
    }

    /// Takes the outcome of the last action and says what is next. No failure stops the rest.
    pub fn next(&mut self, outcome: DelOutcome) -> Step<DelAction, DelDone> {
        if let DelOutcome::Failed(error) = outcome {
            self.leftovers.push(error);
        }
        if let Some(action) = self.actions.next() {
            return Step::Do(action);
        }
        if !std::mem::replace(&mut self.finishing, true)
            && let Some(action) = self.final_action()
        {
            return Step::Do(action);
        }
        Step::Done(DelDone {
            leftovers: std::mem::take(&mut self.leftovers),
        })
    }

    fn final_action(&self) -> Option<DelAction> {
        let record = self.input.record.as_ref();
        if self.leftovers.is_empty() {
            return record.map(|record| DelAction::Forget(record.key.clone()));
        }
        // A lost record is made up again only as far as the handles go: releasing is what must not be forgotten.
        let mut record = record.cloned()?;
        record.state = State::Deleting;
        Some(DelAction::Save(Box::new(record)))
    }
}

fn with_record(record: &Attachment, input: &DelInput) -> Vec<DelAction> {
    let boxed = || Box::new(record.clone());
    // Before anything is given back, nobody must take the attachment for a live one: the agent may also die half-way.
    let mut actions = Vec::new();
    if record.state != State::Deleting {
        let deleting = Attachment {
            state: State::Deleting,
            ..record.clone()
        };
        actions.push(DelAction::Save(Box::new(deleting)));
    }
    if record.boot_id == input.boot_id {
        // Both act on this attachment alone, by its id, interface index and alias; a newer sandbox of the pod is safe.
        actions.push(DelAction::Withdraw(boxed()));
        actions.push(DelAction::QueueUnwire(boxed()));
        let addresses: Vec<IpAddr> = record
            .ips
            .iter()
            .map(IpNet::addr)
            .filter(|address| !input.live.contains(address))
            .collect();
        if !addresses.is_empty() {
            actions.push(DelAction::FlushConnections(addresses));
        }
    }
    if !record.ipam.handle.is_empty() {
        actions.push(DelAction::Release(vec![record.ipam.handle.clone()]));
    }
    if record.pod.is_some() {
        actions.push(DelAction::ClearAnnotations(boxed()));
    }
    actions
}

fn without_record(input: &DelInput) -> Vec<DelAction> {
    let mut actions = Vec::new();
    if input.has_netns {
        actions.push(DelAction::RemoveStray(input.key.clone()));
    }
    let addresses: Vec<IpAddr> = input
        .hints
        .prev_addresses
        .iter()
        .copied()
        .filter(|address| !input.live.contains(address))
        .collect();
    if !addresses.is_empty() {
        actions.push(DelAction::FlushConnections(addresses));
    }
    let id = &input.key.container_id;
    let mut handles = vec![names::ipam_handle(names::DEFAULT_NETWORK, id)];
    if let Some(name) = input
        .hints
        .name
        .as_deref()
        .filter(|name| *name != names::DEFAULT_NETWORK)
    {
        handles.push(names::ipam_handle(name, id));
    }
    if !input.args.is_pod() {
        // The old handle of a pod is shared by its sandboxes, so a late DEL must not release it.
        handles.push(names::legacy_handle(&input.args, id));
    }
    actions.push(DelAction::Release(handles));
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::attachment::tests::sample;

    fn input(record: Option<Attachment>) -> DelInput {
        DelInput {
            key: AttachmentKey::new("c1", "eth0"),
            args: PodArgs {
                namespace: "default".into(),
                name: "nginx".into(),
                ..PodArgs::default()
            },
            hints: LenientConfig::default(),
            record,
            has_netns: false,
            live: Vec::new(),
            boot_id: "b1".into(),
        }
    }

    fn run(input: DelInput, fail: impl Fn(&DelAction) -> bool) -> (Vec<DelAction>, DelDone) {
        let mut machine = DelMachine::new(input);
        let (mut actions, mut outcome) = (Vec::new(), DelOutcome::Start);
        loop {
            match machine.next(outcome) {
                Step::Done(done) => return (actions, done),
                Step::Do(action) => {
                    outcome = if fail(&action) {
                        DelOutcome::Failed(CniError::new(Code::KERNEL, "broken"))
                    } else {
                        DelOutcome::Done
                    };
                    actions.push(action);
                }
            }
        }
    }

    fn names_of(actions: &[DelAction]) -> Vec<String> {
        let name = |action: &DelAction| {
            format!("{action:?}")
                .split(['(', ' '])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        actions.iter().map(name).collect()
    }

    #[test]
    fn traffic_stops_before_the_address_is_released_and_the_record_goes_last() {
        let (actions, done) = run(input(Some(sample("c1"))), |_| false);
        assert_eq!(
            names_of(&actions),
            [
                "Save",
                "Withdraw",
                "QueueUnwire",
                "FlushConnections",
                "Release",
                "ClearAnnotations",
                "Forget"
            ]
        );
        assert!(done.leftovers.is_empty());
    }

    #[test]
    fn every_failure_is_survived_and_recorded() {
        for failing in [
            "Withdraw",
            "QueueUnwire",
            "FlushConnections",
            "Release",
            "ClearAnnotations",
        ] {
            let (actions, done) = run(input(Some(sample("c1"))), |action| {
                format!("{action:?}").starts_with(failing)
            });
            assert_eq!(actions.len(), 7, "{failing}");
            assert_eq!(done.leftovers.len(), 1);
            assert!(
                matches!(actions.last(), Some(DelAction::Save(record)) if record.state == State::Deleting),
                "{failing}"
            );
        }
    }

    #[test]
    fn record_of_another_boot_has_nothing_in_the_kernel() {
        let mut input = input(Some(sample("c1")));
        input.boot_id = "b2".into();
        let (actions, _) = run(input, |_| false);
        assert_eq!(
            names_of(&actions),
            ["Save", "Release", "ClearAnnotations", "Forget"]
        );
    }

    #[test]
    fn connections_of_an_address_in_use_by_another_are_left_alone() {
        let mut input = input(Some(sample("c1")));
        input.live = vec!["10.65.0.2".parse().expect("address")];
        let (actions, _) = run(input, |_| false);
        assert!(!names_of(&actions).contains(&"FlushConnections".to_owned()));
    }

    #[test]
    fn without_a_record_only_handles_and_the_namespace_are_touched() {
        let mut without = input(None);
        without.has_netns = true;
        without.hints.name = Some("other-net".into());
        let (actions, done) = run(without, |_| false);
        assert_eq!(
            actions,
            [
                DelAction::RemoveStray(AttachmentKey::new("c1", "eth0")),
                DelAction::Release(vec!["k8s-pod-network.c1".into(), "other-net.c1".into()]),
            ]
        );
        assert!(done.leftovers.is_empty());
    }

    #[test]
    fn addresses_held_nowhere_are_not_released() {
        let mut record = sample("c1");
        record.ipam.handle.clear();
        let (actions, _) = run(input(Some(record)), |_| false);
        assert!(!names_of(&actions).contains(&"Release".to_owned()));
    }
}
