//! Many speakers in one thread: connections are queues, time jumps to the next timer, and the order
//! of everything that could happen at once is drawn from a seed.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::speaker::{Action, ConnectionId, Speaker};
use crate::{
    Families, LocalRoute, PeerConfig, PeerState, PeerStatus, RecoveryEvent, RestartState,
    RoutePath, SpeakerConfig,
};

/// Index of a speaker.
pub(super) type Node = usize;

pub(super) struct Member {
    pub(super) speaker: Option<Speaker>,
    pub(super) fib: BTreeMap<IpNet, Vec<RoutePath>>,
    /// Changes of the forwarding table since it was last cleared.
    pub(super) changes: usize,
    pub(super) recovery: Vec<RecoveryEvent>,
    pub(super) peers: Vec<PeerConfig>,
    pub(super) local: Vec<LocalRoute>,
    /// Octets this speaker sent, by remote, since it started.
    pub(super) transcript: BTreeMap<Node, BytesMut>,
}

enum Packet {
    Octets(Bytes),
    End,
}

struct End {
    remote: (Node, ConnectionId),
    inbox: VecDeque<Packet>,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) nodes: Vec<Member>,
    random: StdRng,
    ends: BTreeMap<(Node, ConnectionId), End>,
    dials: Vec<(Node, ConnectionId, IpAddr)>,
    /// Nodes whose cable is pulled: what they send is lost, without an end of the connection.
    pub(super) unplugged: Vec<Node>,
}

pub(super) fn address(node: Node) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0A00_0001 + node as u32))
}

pub(super) fn block(node: Node) -> IpNet {
    let net = IpNet::new(
        IpAddr::V4(Ipv4Addr::from(0xC0A8_0000 + node as u32 * 64)),
        26,
    );
    net.unwrap()
}

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

impl World {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let member = |node| Member {
            speaker: None,
            fib: BTreeMap::new(),
            changes: 0,
            recovery: Vec::new(),
            peers: Vec::new(),
            local: vec![LocalRoute::new(block(node), 1000)],
            transcript: BTreeMap::new(),
        };
        World {
            now: Instant::now(),
            nodes: (0..count).map(member).collect(),
            random: StdRng::seed_from_u64(seed),
            ends: BTreeMap::new(),
            dials: Vec::new(),
            unplugged: Vec::new(),
        }
    }

    /// Every node peers with every other, in one AS.
    pub(super) fn mesh(count: usize, seed: u64) -> Self {
        let mut world = World::new(count, seed);
        for node in 0..count {
            for other in (0..count).filter(|other| *other != node) {
                world.nodes[node]
                    .peers
                    .push(PeerConfig::new(address(other), 64512, 64512));
            }
        }
        for node in 0..count {
            world.start(node, RestartState::default());
        }
        world
    }

    pub(super) fn config(node: Node) -> SpeakerConfig {
        let IpAddr::V4(id) = address(node) else {
            unreachable!()
        };
        SpeakerConfig {
            listen: Vec::new(),
            ..SpeakerConfig::new(id)
        }
    }

    pub(super) fn start(&mut self, node: Node, restart: RestartState) {
        let config = SpeakerConfig {
            restart,
            ..World::config(node)
        };
        let speaker = Speaker::new(config, self.random.random()).unwrap();
        let member = &mut self.nodes[node];
        member.speaker = Some(speaker);
        member.recovery.clear();
        member.transcript.clear();
        let (peers, local) = (member.peers.clone(), member.local.clone());
        let now = self.now;
        self.with(node, |speaker| {
            speaker.set_peers(peers, now).unwrap();
            speaker.set_local_routes(local);
        });
    }

    /// The process is gone; the kernel closes its connections and keeps its routes.
    pub(super) fn kill(&mut self, node: Node) {
        self.nodes[node].speaker = None;
        self.dials.retain(|(from, _, _)| *from != node);
        let gone: Vec<_> = self
            .ends
            .keys()
            .filter(|(n, _)| *n == node)
            .copied()
            .collect();
        for key in gone {
            self.close(key);
            // A later speaker of this node uses the same names again.
            for end in self.ends.values_mut().filter(|end| end.remote == key) {
                end.remote = (Node::MAX, key.1);
            }
        }
    }

    /// The machine boots: nothing was preserved.
    pub(super) fn clear_fib(&mut self, node: Node) {
        self.nodes[node].fib.clear();
    }

    pub(super) fn preserved() -> RestartState {
        RestartState {
            restarted: true,
            preserved: Families::BOTH,
        }
    }

    /// Changes something at a speaker and carries the results out.
    pub(super) fn with<T>(&mut self, node: Node, act: impl FnOnce(&mut Speaker) -> T) -> T {
        let now = self.now;
        let speaker = self.nodes[node].speaker.as_mut().expect("runs");
        let result = act(speaker);
        speaker.flush(now);
        self.act(node);
        result
    }

    fn act(&mut self, node: Node) {
        loop {
            let Some(speaker) = &mut self.nodes[node].speaker else {
                return;
            };
            let Some(action) = speaker.next_action() else {
                return;
            };
            match action {
                Action::Dial(dial) => {
                    self.dials.push((node, dial.connection, dial.peer.address));
                }
                Action::Send { connection, octets } => {
                    speaker.sent(connection, octets.len(), self.now);
                    self.send(node, connection, octets);
                }
                Action::Close { connection } => {
                    self.dials.retain(|(_, id, _)| *id != connection);
                    self.close((node, connection));
                }
                Action::Route(change) => {
                    let member = &mut self.nodes[node];
                    member.changes += 1;
                    if change.paths.is_empty() {
                        member.fib.remove(&change.prefix);
                    } else {
                        member.fib.insert(change.prefix, change.paths);
                    }
                }
                Action::Recovery(event) => self.nodes[node].recovery.push(event),
            }
        }
    }

    fn send(&mut self, node: Node, connection: ConnectionId, octets: Bytes) {
        let Some(end) = self.ends.get(&(node, connection)) else {
            return;
        };
        let remote = end.remote;
        let transcript = &mut self.nodes[node].transcript;
        transcript
            .entry(remote.0)
            .or_default()
            .extend_from_slice(&octets);
        if self.unplugged.contains(&node) || self.unplugged.contains(&remote.0) {
            return;
        }
        if let Some(end) = self.ends.get_mut(&remote) {
            end.inbox.push_back(Packet::Octets(octets));
        }
    }

    fn close(&mut self, key: (Node, ConnectionId)) {
        let Some(end) = self.ends.remove(&key) else {
            return;
        };
        if self.unplugged.contains(&key.0) || self.unplugged.contains(&end.remote.0) {
            return;
        }
        if let Some(remote) = self.ends.get_mut(&end.remote) {
            remote.inbox.push_back(Packet::End);
        }
    }

    /// Does one thing that can happen now; false when there is none.
    fn step(&mut self) -> bool {
        let ready: Vec<(Node, ConnectionId)> = self
            .ends
            .iter()
            .filter(|(_, end)| !end.inbox.is_empty())
            .map(|(key, _)| *key)
            .collect();
        let choices = ready.len() + self.dials.len();
        if choices == 0 {
            return false;
        }
        let pick = self.random.random_range(0..choices);
        match ready.get(pick) {
            Some(key) => self.deliver(*key),
            None => {
                let dial = self.dials.swap_remove(pick - ready.len());
                self.connect(dial);
            }
        }
        true
    }

    fn deliver(&mut self, key: (Node, ConnectionId)) {
        let now = self.now;
        let Some(end) = self.ends.get_mut(&key) else {
            return;
        };
        match end.inbox.pop_front() {
            Some(Packet::Octets(octets)) => {
                let octets = BytesMut::from(&octets[..]);
                self.with(key.0, |speaker| speaker.received(key.1, octets, now));
            }
            Some(Packet::End) => {
                self.ends.remove(&key);
                self.with(key.0, |speaker| {
                    speaker.closed(key.1, "closed by the peer", now)
                });
            }
            None => {}
        }
    }

    fn connect(&mut self, (node, connection, remote): (Node, ConnectionId, IpAddr)) {
        let now = self.now;
        let target = (0..self.nodes.len()).find(|n| address(*n) == remote);
        let reachable = |n: &Node| {
            !self.unplugged.contains(n)
                && !self.unplugged.contains(&node)
                && self.nodes[*n].speaker.is_some()
        };
        let Some(target) = target.filter(reachable) else {
            return self.with(node, |speaker| {
                speaker.dial_failed(connection, "refused", now)
            });
        };
        let speaker = self.nodes[target].speaker.as_mut().expect("checked above");
        let Some(accepted) = speaker.accept(address(node), None, remote, now) else {
            return self.with(node, |speaker| {
                speaker.dial_failed(connection, "refused", now)
            });
        };
        let (near, far) = ((node, connection), (target, accepted.connection));
        self.ends.insert(
            near,
            End {
                remote: far,
                inbox: VecDeque::new(),
            },
        );
        self.ends.insert(
            far,
            End {
                remote: near,
                inbox: VecDeque::new(),
            },
        );
        self.with(target, |_| {});
        self.with(node, |speaker| {
            speaker.dialled(connection, address(node), None, now)
        });
    }

    /// Lets everything happen that can, up to `span` of time.
    pub(super) fn run(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until the condition holds; false when `span` has passed first.
    pub(super) fn run_until(&mut self, span: Duration, condition: impl Fn(&World) -> bool) -> bool {
        let end = self.now + span;
        loop {
            while self.step() {}
            if condition(self) {
                return true;
            }
            let next = self
                .nodes
                .iter()
                .filter_map(|member| member.speaker.as_ref()?.deadline())
                .min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = end;
                    return false;
                }
            }
            let now = self.now;
            for node in 0..self.nodes.len() {
                let due = |speaker: &Speaker| speaker.deadline().is_some_and(|at| at <= now);
                if self.nodes[node].speaker.as_ref().is_some_and(due) {
                    self.with(node, |speaker| speaker.advance(now));
                }
            }
        }
    }

    pub(super) fn peers(&self, node: Node) -> Vec<PeerStatus> {
        let speaker = self.nodes[node].speaker.as_ref().expect("runs");
        speaker.peers(self.now, std::time::SystemTime::now())
    }

    pub(super) fn peer(&self, node: Node, other: Node) -> PeerStatus {
        self.peers(node)
            .into_iter()
            .find(|peer| peer.key.address == address(other))
            .unwrap()
    }

    /// Every configured session of running nodes is up.
    pub(super) fn all_up(&self) -> bool {
        let running = |node: &Node| self.nodes[*node].speaker.is_some();
        (0..self.nodes.len()).filter(running).all(|node| {
            self.peers(node)
                .iter()
                .all(|p| p.state == PeerState::Established)
        })
    }

    /// Every running node has the block of every other node, through its owner.
    pub(super) fn converged(&self) -> bool {
        let count = self.nodes.len();
        (0..count)
            .filter(|node| self.nodes[*node].speaker.is_some())
            .all(|node| {
                (0..count).filter(|other| *other != node).all(|other| {
                    self.nodes[node]
                        .fib
                        .get(&block(other))
                        .is_some_and(|paths| {
                            paths.iter().any(|path| path.next_hop == address(other))
                        })
                })
            })
    }

    pub(super) fn forget_changes(&mut self) {
        self.nodes.iter_mut().for_each(|member| member.changes = 0);
    }

    /// Whole messages a node sent to another since it started.
    pub(super) fn messages(&self, from: Node, to: Node) -> Vec<crate::wire::Message> {
        let mut octets = self.nodes[from]
            .transcript
            .get(&to)
            .cloned()
            .unwrap_or_default();
        let limit = crate::wire::MAX_EXTENDED_LENGTH;
        std::iter::from_fn(|| crate::wire::next_message(&mut octets, limit).unwrap()).collect()
    }
}
