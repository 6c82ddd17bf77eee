use super::*;
use crate::attachment::tests::sample;
use crate::environment::Command;

const NETNS: NetnsFacts = NetnsFacts {
    dev: 4,
    ino: 4_026_532_000,
    cookie: 99,
    has_interface: false,
};

fn input() -> AddInput {
    let stdin = br#"{"cniVersion":"1.0.0","name":"k8s-pod-network","ipam":{"type":"calico-ipam"}}"#;
    AddInput {
        key: AttachmentKey::new("c1", "eth0"),
        netns_path: "/run/netns/p1".into(),
        args: PodArgs {
            namespace: "default".into(),
            name: "nginx".into(),
            uid: "u1".into(),
            ..PodArgs::default()
        },
        config: NetworkConfig::parse(Command::Add, stdin).expect("configuration"),
        external: None,
        node: "node-1".into(),
        prefix: "cali".into(),
        default_mtu: Some(1450),
        boot_id: "b1".into(),
        seq: 8,
        now: 1,
        records: Vec::new(),
    }
}

fn facts() -> PodFacts {
    PodFacts {
        uid: "u1".into(),
        node: "node-1".into(),
        ..PodFacts::default()
    }
}

/// Plays the agent: everything works unless told otherwise. Remembers what is allocated under which handle.
struct Agent {
    facts: PodFacts,
    netns: NetnsFacts,
    intact: bool,
    /// Addresses handed out in turn.
    pool: Vec<IpAddr>,
    held: Vec<(String, IpAddr)>,
    records: Vec<(AttachmentKey, State)>,
    wired: bool,
    policy: bool,
    log: Vec<String>,
    fail: Option<&'static str>,
    fail_undo: Option<&'static str>,
    /// Owners of disputed addresses have gone.
    owners_gone: bool,
}

impl Agent {
    fn new() -> Self {
        Agent {
            facts: facts(),
            netns: NETNS,
            intact: true,
            pool: vec![
                "10.65.0.9".parse().expect("ip"),
                "10.65.0.7".parse().expect("ip"),
            ],
            held: Vec::new(),
            records: Vec::new(),
            wired: false,
            policy: false,
            log: Vec::new(),
            fail: None,
            fail_undo: None,
            owners_gone: false,
        }
    }

    fn run(&mut self, mut machine: AddMachine) -> AddDone {
        let mut outcome = AddOutcome::Start;
        loop {
            match machine.next(outcome) {
                Step::Done(done) => return done,
                Step::Do(action) => {
                    let text = format!("{action:?}");
                    let name = text.split(['(', ' ']).next().unwrap_or_default().to_owned();
                    self.log.push(name.clone());
                    let failing = [self.fail, self.fail_undo].contains(&Some(name.as_str()));
                    outcome = self.act(action);
                    if failing {
                        outcome = AddOutcome::Failed(CniError::kernel(format!("{name} failed")));
                    }
                }
            }
        }
    }

    fn act(&mut self, action: AddAction) -> AddOutcome {
        match action {
            AddAction::FindPod => return AddOutcome::Pod(Box::new(self.facts.clone())),
            AddAction::InspectNetns => return AddOutcome::Netns(self.netns),
            AddAction::Verify(_) => return AddOutcome::Intact(self.intact),
            AddAction::Allocate(allocation) => return self.allocate(&allocation),
            AddAction::ReturnToOwner { .. } if self.owners_gone => return AddOutcome::Free,
            AddAction::ReturnToOwner {
                address,
                handle,
                owner,
            } => {
                self.held.retain(|held| *held != (handle.clone(), address));
                self.held.push((owner.ipam.handle, address));
            }
            AddAction::Release { handle, addresses } => {
                self.held
                    .retain(|(h, a)| *h != handle || !addresses.contains(a));
            }
            AddAction::Save(record) => {
                self.records.retain(|(key, _)| *key != record.key);
                self.records.push((record.key, record.state));
            }
            AddAction::Forget(key) => self.records.retain(|(k, _)| *k != key),
            AddAction::Purge(record) => {
                self.held
                    .retain(|(handle, _)| *handle != record.ipam.handle);
                self.records.retain(|(key, _)| *key != record.key);
            }
            AddAction::CommitPolicy(_) => self.policy = true,
            AddAction::WithdrawPolicy(_) => self.policy = false,
            AddAction::Wire(_) => {
                self.wired = true;
                return AddOutcome::Wired(WiredFacts {
                    host_ifindex: 12,
                    host_mac: "ee:ee:ee:ee:ee:ee".into(),
                    pod_ifindex: 2,
                    pod_mac: "02:00:00:00:00:01".into(),
                    mtu: 1450,
                });
            }
            AddAction::Unwire(_) => self.wired = false,
            AddAction::AwaitReady
            | AddAction::Detach(_)
            | AddAction::Supersede(_)
            | AddAction::Activate(_) => {}
        }
        AddOutcome::Done
    }

    fn allocate(&mut self, allocation: &Allocation) -> AddOutcome {
        let before: Vec<IpAddr> = self
            .held
            .iter()
            .filter(|(h, _)| *h == allocation.handle)
            .map(|(_, a)| *a)
            .collect();
        if !before.is_empty() {
            return AddOutcome::Allocated {
                addresses: before,
                reused: true,
            };
        }
        let address = self.pool.pop().expect("an address");
        self.held.push((allocation.handle.clone(), address));
        AddOutcome::Allocated {
            addresses: vec![address],
            reused: false,
        }
    }

    fn is_clean(&self) -> bool {
        self.held.is_empty() && self.records.is_empty() && !self.wired && !self.policy
    }
}

#[test]
fn policy_precedes_the_interface_and_the_route_comes_last() {
    let mut agent = Agent::new();
    let done = agent.run(AddMachine::new(input()));
    let attachment = done.result.expect("attached");
    assert_eq!(
        agent.log,
        [
            "AwaitReady",
            "FindPod",
            "InspectNetns",
            "Allocate",
            "Save",
            "CommitPolicy",
            "Wire",
            "Activate",
            "Save"
        ]
    );
    assert_eq!(attachment.state, State::Ready);
    let text = attachment
        .result
        .expect("result")
        .to_json(crate::CniVersion::V1_0_0)
        .expect("json");
    assert_eq!(
        text,
        serde_json::json!({"cniVersion":"1.0.0",
            "interfaces":[{"name":"calic440f455693"},
                {"name":"eth0","mac":"02:00:00:00:00:01","mtu":1450,"sandbox":"/run/netns/p1"}],
            "ips":[{"interface":1,"address":"10.65.0.7/32"}],
            "routes":[{"dst":"10.65.0.7/32"}]})
    );
}

#[test]
fn failure_of_any_step_leaves_nothing() {
    for step in [
        "AwaitReady",
        "FindPod",
        "InspectNetns",
        "Save",
        "CommitPolicy",
        "Wire",
        "Activate",
    ] {
        let mut agent = Agent::new();
        agent.fail = Some(step);
        let done = agent.run(AddMachine::new(input()));
        let error = done.result.expect_err(step);
        assert_eq!(error.msg, format!("{step} failed"));
        assert!(
            agent.is_clean() || step == "Save",
            "{step}: {:?}",
            agent.log
        );
        assert!(agent.held.is_empty(), "{step}");
    }
}

#[test]
fn abort_undoes_the_action_under_way() {
    for steps in 1..9 {
        let mut agent = Agent::new();
        let mut machine = AddMachine::new(input());
        let mut outcome = AddOutcome::Start;
        let mut count = 0;
        let done = loop {
            match machine.next(outcome) {
                Step::Done(done) => break done,
                Step::Do(action) => {
                    outcome = agent.act(action);
                    count += 1;
                    if count == steps {
                        machine.abort(CniError::try_again("gone"));
                    }
                }
            }
        };
        assert_eq!(
            done.result.expect_err("aborted").msg,
            "gone",
            "after {steps}"
        );
        assert!(agent.is_clean(), "after {steps}");
    }
}

#[test]
fn what_cannot_be_undone_stays_recorded() {
    let mut agent = Agent::new();
    agent.fail = Some("Activate");
    agent.fail_undo = Some("Unwire");
    let done = agent.run(AddMachine::new(input()));
    assert_eq!(done.leftovers.len(), 1);
    assert_eq!(
        agent.records,
        [(AttachmentKey::new("c1", "eth0"), State::Deleting)]
    );
    assert!(agent.held.is_empty());
}

#[test]
fn addresses_are_released_before_the_record_goes() {
    let mut agent = Agent::new();
    agent.fail = Some("Wire");
    agent.run(AddMachine::new(input()));
    assert_eq!(
        agent.log[agent.log.len() - 4..],
        ["Unwire", "WithdrawPolicy", "Release", "Forget"]
    );
}

#[test]
fn second_add_of_an_intact_attachment_changes_nothing() {
    let mut agent = Agent::new();
    let mut again = input();
    again.records = vec![sample("c1")];
    let done = agent.run(AddMachine::new(again));
    assert!(done.unchanged);
    assert_eq!(done.result.expect("record").ips, sample("c1").ips);
    assert_eq!(
        agent.log,
        ["AwaitReady", "FindPod", "InspectNetns", "Verify"]
    );
}

#[test]
fn new_namespace_keeps_the_address() {
    let mut agent = Agent::new();
    agent.netns.cookie = 100;
    agent.held = vec![(
        "k8s-pod-network.c1".into(),
        "10.65.0.2".parse().expect("ip"),
    )];
    let mut again = input();
    again.records = vec![sample("c1")];
    let done = agent.run(AddMachine::new(again));
    assert_eq!(done.result.expect("attached").ips, sample("c1").ips);
    assert!(agent.log.contains(&"Detach".to_owned()));
}

#[test]
fn failed_second_add_keeps_the_first_address() {
    let mut agent = Agent::new();
    agent.intact = false;
    agent.fail = Some("Wire");
    agent.held = vec![(
        "k8s-pod-network.c1".into(),
        "10.65.0.2".parse().expect("ip"),
    )];
    let mut again = input();
    again.records = vec![sample("c1")];
    let done = agent.run(AddMachine::new(again));
    assert!(done.result.is_err());
    assert_eq!(agent.held.len(), 1);
    assert_eq!(
        agent.records,
        [(AttachmentKey::new("c1", "eth0"), State::Deleting)]
    );
}

#[test]
fn half_made_attachment_is_purged_first() {
    for state in [State::Preparing, State::Deleting] {
        let mut agent = Agent::new();
        agent.netns.has_interface = true;
        agent.held = vec![(
            "k8s-pod-network.c1".into(),
            "10.65.0.2".parse().expect("ip"),
        )];
        let mut record = sample("c1");
        record.state = state;
        let mut again = input();
        again.records = vec![record];
        let done = agent.run(AddMachine::new(again));
        assert_eq!(
            done.result.expect("attached").ips,
            ["10.65.0.7/32".parse::<IpNet>().expect("prefix")]
        );
        assert!(agent.log.contains(&"Purge".to_owned()));
    }
}

#[test]
fn older_sandbox_of_the_pod_is_superseded_and_keeps_its_address() {
    let mut agent = Agent::new();
    agent.held = vec![(
        "k8s-pod-network.c0".into(),
        "10.65.0.2".parse().expect("ip"),
    )];
    let mut add = input();
    add.records = vec![sample("c0")];
    let done = agent.run(AddMachine::new(add));
    assert!(done.result.is_ok());
    assert!(agent.log.contains(&"Supersede".to_owned()));
    assert_eq!(agent.held.len(), 2);
}

#[test]
fn foreign_interface_is_refused_before_anything_is_allocated() {
    let mut agent = Agent::new();
    agent.netns.has_interface = true;
    let done = agent.run(AddMachine::new(input()));
    assert_eq!(
        done.result.expect_err("refused").code,
        Code::INTERFACE_EXISTS
    );
    assert!(agent.is_clean() && !agent.log.contains(&"Allocate".to_owned()));
}

fn other_pod() -> Attachment {
    let mut record = sample("other");
    record.pod = Some(PodRef {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "u2".into(),
    });
    record.ips = vec!["10.65.0.7/32".parse().expect("prefix")];
    record.ipam.handle = "k8s-pod-network.other".into();
    record
}

#[test]
fn address_of_a_live_pod_goes_back_to_it_and_another_is_taken() {
    let mut agent = Agent::new();
    let mut add = input();
    add.records = vec![other_pod()];
    let done = agent.run(AddMachine::new(add));
    assert_eq!(
        done.result.expect("attached").ips,
        ["10.65.0.9/32".parse::<IpNet>().expect("prefix")]
    );
    assert!(agent.held.contains(&(
        "k8s-pod-network.other".into(),
        "10.65.0.7".parse().expect("ip")
    )));
}

#[test]
fn failed_add_never_releases_the_address_of_another_pod() {
    let mut agent = Agent::new();
    agent.fail = Some("Wire");
    let mut add = input();
    add.records = vec![other_pod()];
    let done = agent.run(AddMachine::new(add));
    assert!(done.result.is_err());
    assert_eq!(
        agent.held,
        [(
            "k8s-pod-network.other".into(),
            "10.65.0.7".parse().expect("ip")
        )]
    );
}

#[test]
fn identity_is_checked_before_anything_else_happens() {
    let refused = |change: fn(&mut PodFacts)| {
        let mut agent = Agent::new();
        change(&mut agent.facts);
        agent
            .run(AddMachine::new(input()))
            .result
            .map_err(|error| error.code)
    };
    assert_eq!(
        refused(|facts| facts.node = "node-2".into()),
        Err(Code::IDENTITY)
    );
    assert_eq!(
        refused(|facts| facts.uid = "u2".into()),
        Err(Code::IDENTITY)
    );
    assert_eq!(refused(|facts| facts.finished = true), Err(Code::IDENTITY));
    assert!(
        refused(|facts| {
            facts.uid = "u2".into();
            facts
                .annotations
                .insert("kubernetes.io/config.mirror".into(), "u1".into());
        })
        .is_ok()
    );
}

#[test]
fn bad_annotation_is_refused_before_allocation() {
    let mut agent = Agent::new();
    agent.facts.annotations.insert(
        "cni.projectcalico.org/allowedSourcePrefixes".into(),
        "x".into(),
    );
    let done = agent.run(AddMachine::new(input()));
    assert_eq!(done.result.expect_err("refused").code, Code::INVALID_CONFIG);
    assert!(agent.is_clean());
}

#[test]
fn second_interface_of_a_container_is_refused() {
    let mut add = input();
    add.key.ifname = "net1".into();
    add.records = vec![sample("c1")];
    let done = Agent::new().run(AddMachine::new(add));
    assert_eq!(
        done.result.expect_err("refused").msg,
        "only one interface per pod is supported"
    );
}

#[test]
fn containers_without_a_pod_are_attached_too() {
    let mut agent = Agent::new();
    let mut add = input();
    add.args = PodArgs::default();
    let attachment = agent.run(AddMachine::new(add)).result.expect("attached");
    assert_eq!(
        (attachment.host_if.as_str(), attachment.pod),
        ("calic1", None)
    );
    assert!(!agent.log.contains(&"FindPod".to_owned()));
}

#[test]
fn address_of_an_attachment_removed_meanwhile_is_kept() {
    for fail in [None, Some("Wire")] {
        let mut agent = Agent::new();
        agent.owners_gone = true;
        agent.fail = fail;
        let mut add = input();
        add.records = vec![other_pod()];
        let done = agent.run(AddMachine::new(add));
        if fail.is_none() {
            let expected = "10.65.0.7/32".parse::<IpNet>().expect("prefix");
            assert_eq!(done.result.expect("attached").ips, [expected]);
        } else {
            assert!(done.result.is_err() && agent.is_clean(), "{:?}", agent.held);
        }
    }
}

#[test]
fn wished_address_of_a_live_pod_stays_with_it() {
    let mut agent = Agent::new();
    let annotations = &mut agent.facts.annotations;
    annotations.insert(
        "cni.projectcalico.org/ipAddrs".into(),
        r#"["10.65.0.7"]"#.into(),
    );
    let mut add = input();
    add.records = vec![other_pod()];
    let done = agent.run(AddMachine::new(add));
    let error = done.result.expect_err("refused");
    assert_eq!(
        (error.code, error.msg.as_str()),
        (Code::NO_ADDRESS, "address 10.65.0.7 is in use")
    );
    assert_eq!(
        agent.held,
        [(
            "k8s-pod-network.other".into(),
            "10.65.0.7".parse().expect("ip")
        )]
    );
}
