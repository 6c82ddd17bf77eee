//! Policies and local routes that change while sessions are up.

use super::world::{World, address, block, seconds};
use crate::policy::{Action, Condition, Policy, Rule, Verdict};
use crate::wire::{Community, Message, RefreshKind};
use crate::{LocalRoute, MaxPrefixes, MaxPrefixesAction, PeerConfig, PeerState, RestartState};

fn pair() -> World {
    let mut world = World::mesh(2, 1);
    world.nodes[1].local.clear();
    world.start(1, RestartState::default());
    world.nodes[0].local = (0..10).map(|n| LocalRoute::new(block(n), 1000)).collect();
    world.start(0, RestartState::default());
    assert!(world.run_until(seconds(30), |w| w.all_up()
        && w.nodes[1].fib.contains_key(&block(9))));
    world.run(seconds(1));
    world
}

fn set_peer(world: &mut World, node: usize, change: impl FnOnce(&mut PeerConfig)) {
    let now = world.now;
    change(&mut world.nodes[node].peers[0]);
    let peers = world.nodes[node].peers.clone();
    world.with(node, |speaker| speaker.set_peers(peers, now).unwrap());
    world.run(seconds(1));
}

fn updates(world: &World) -> usize {
    world
        .messages(0, 1)
        .iter()
        .filter(|m| matches!(m, Message::Update(_)))
        .count()
}

fn reject(prefixes: &[ipnet::IpNet]) -> Policy {
    Policy {
        rules: vec![Rule::new(
            vec![Condition::PrefixIs(prefixes.to_vec())],
            Verdict::Reject,
        )],
        default: Verdict::Accept,
    }
}

#[test]
fn a_changed_export_policy_sends_only_the_difference() {
    let mut world = pair();
    let before = updates(&world);
    set_peer(&mut world, 0, |peer| peer.export = reject(&[block(3)]));
    assert_eq!(updates(&world) - before, 1);
    assert!(!world.nodes[1].fib.contains_key(&block(3)));
    assert!(world.nodes[1].fib.contains_key(&block(4)));
    assert_eq!(world.peer(0, 1).flaps, 0);
    let before = updates(&world);
    set_peer(&mut world, 0, |peer| peer.export = reject(&[block(3)]));
    assert_eq!(
        updates(&world),
        before,
        "the same policy again sends nothing"
    );
}

#[test]
fn a_changed_import_policy_is_applied_to_what_was_received_before() {
    let mut world = pair();
    set_peer(&mut world, 1, |peer| peer.import = reject(&[block(3)]));
    assert!(!world.nodes[1].fib.contains_key(&block(3)));
    let peer = world.peer(1, 0);
    assert_eq!(
        (peer.ipv4.received, peer.ipv4.accepted, peer.flaps),
        (10, 9, 0)
    );
    set_peer(&mut world, 1, |peer| peer.import = Policy::accept_all());
    assert!(world.nodes[1].fib.contains_key(&block(3)));
    assert_eq!(world.peer(1, 0).ipv4.accepted, 10);
}

#[test]
fn an_import_action_reaches_the_forwarding_table() {
    let mut world = pair();
    set_peer(&mut world, 1, |peer| {
        peer.import = Policy {
            rules: vec![Rule {
                conditions: vec![Condition::PrefixIs(vec![block(3)])],
                actions: vec![
                    Action::SetLocalPref(7),
                    Action::AddCommunities(vec![Community(9)]),
                ],
                verdict: None,
            }],
            default: Verdict::Accept,
        };
    });
    let path = &world.nodes[1].fib[&block(3)][0];
    assert_eq!(
        (path.local_pref, &path.communities[..]),
        (7, &[Community(9)][..])
    );
}

#[test]
fn local_routes_are_compared_and_only_differences_sent() {
    let mut world = pair();
    let before = updates(&world);
    let mut routes = world.nodes[0].local.clone();
    world.with(0, |speaker| speaker.set_local_routes(routes.clone()));
    world.run(seconds(1));
    assert_eq!(updates(&world), before);
    routes.remove(0);
    routes[0].local_pref = 2000;
    world.with(0, |speaker| speaker.set_local_routes(routes));
    world.run(seconds(1));
    assert_eq!(
        updates(&world) - before,
        2,
        "one withdrawal, one announcement"
    );
    assert_eq!(world.nodes[1].fib[&block(1)][0].local_pref, 2000);
    assert!(!world.nodes[1].fib.contains_key(&block(0)));
}

#[test]
fn a_refresh_request_is_answered_with_everything_between_brackets() {
    let mut world = pair();
    world.forget_changes();
    let (key, now) = (world.peers(1)[0].key.clone(), world.now);
    let before = world.messages(0, 1).len();
    assert!(world.with(1, |speaker| speaker.refresh(&key, now)));
    world.run(seconds(1));
    let answer = world.messages(0, 1).split_off(before);
    let kind = |message: &Message| match message {
        Message::RouteRefresh(Some(refresh)) => Some(refresh.kind),
        _ => None,
    };
    assert_eq!(answer.first().and_then(kind), Some(RefreshKind::Begin));
    assert_eq!(answer.last().and_then(kind), Some(RefreshKind::End));
    assert_eq!(answer.len(), 3, "all ten prefixes share one UPDATE");
    assert_eq!(world.nodes[1].changes, 0);
    assert_eq!(world.peer(1, 0).ipv4.received, 10);
}

#[test]
fn a_peer_above_its_prefix_limit_is_told_and_held_off() {
    let mut world = pair();
    let limit = MaxPrefixes {
        limit: 5,
        action: MaxPrefixesAction::Restart,
    };
    set_peer(&mut world, 1, |peer| peer.max_prefixes = Some(limit));
    let (key, now) = (world.peers(1)[0].key.clone(), world.now);
    world.with(1, |speaker| speaker.reset(&key, now));
    world.run(seconds(3));
    let over = |m: &Message| {
        matches!(m, Message::Notification(n)
            if (n.code, n.subcode, n.data[..] == [0, 1, 1, 0, 0, 0, 5]) == (6, 1, true))
    };
    assert!(world.messages(1, 0).iter().any(over));
    assert_ne!(world.peer(1, 0).state, PeerState::Established);
    assert!(world.nodes[1].fib.is_empty());
    let warn = MaxPrefixes {
        limit: 5,
        action: MaxPrefixesAction::Warn,
    };
    set_peer(&mut world, 1, |peer| peer.max_prefixes = Some(warn));
    assert!(world.run_until(seconds(60), World::all_up));
    world.run(seconds(1));
    assert_eq!(world.nodes[1].fib.len(), 10);
}

#[test]
fn a_next_hop_that_becomes_unreachable_takes_its_routes_away() {
    let mut world = pair();
    let gone = crate::NextHopState { metric: None };
    world.with(1, |speaker| {
        speaker.set_next_hops([(address(0), gone)].into())
    });
    assert!(world.nodes[1].fib.is_empty());
    world.with(1, |speaker| speaker.set_next_hops(crate::NextHops::new()));
    assert_eq!(world.nodes[1].fib.len(), 10);
}

#[test]
fn graceful_shutdown_of_an_external_path_makes_it_the_last_choice() {
    let mut world = World::new(2, 4);
    world.nodes[0]
        .peers
        .push(PeerConfig::new(address(1), 65001, 64512));
    world.nodes[1]
        .peers
        .push(PeerConfig::new(address(0), 64512, 65001));
    world.nodes[1].local[0].communities = vec![Community::GRACEFUL_SHUTDOWN];
    (0..2).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::converged));
    assert_eq!(world.nodes[0].fib[&block(1)][0].local_pref, 0);
}

#[test]
fn own_as_in_the_path_is_a_loop_unless_allowed() {
    // 0 and 2 are sites of one AS, connected by another.
    let mut world = World::new(3, 6);
    for site in [0, 2] {
        world.nodes[site]
            .peers
            .push(PeerConfig::new(address(1), 65001, 64512));
        world.nodes[1]
            .peers
            .push(PeerConfig::new(address(site), 64512, 65001));
    }
    (0..3).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::all_up));
    world.run(seconds(1));
    assert!(!world.nodes[0].fib.contains_key(&block(2)));
    set_peer(&mut world, 0, |peer| peer.allow_own_as = 1);
    assert!(
        world.nodes[0].fib.contains_key(&block(2)),
        "asked for again and taken"
    );
    assert_eq!(world.peer(0, 1).flaps, 0);
}
