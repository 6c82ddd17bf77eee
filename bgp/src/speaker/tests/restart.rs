//! Graceful restart from both sides (RFC 4724).

use super::world::{World, address, block, seconds};
use crate::wire::{Message, cease, code};
use crate::{Families, GracefulRestartMode, PeerState, RecoveryEvent, RestartRole, RestartState};

fn up(count: usize, seed: u64) -> World {
    let mut world = World::mesh(count, seed);
    assert!(world.run_until(seconds(30), |w| w.all_up() && w.converged()));
    world.run(seconds(1));
    world.forget_changes();
    world
}

#[test]
fn an_agent_killed_and_restarted_moves_no_route_on_any_node() {
    for seed in 0..8 {
        let mut world = up(3, seed);
        world.kill(1);
        world.run(seconds(3));
        assert_eq!(world.peer(0, 1).restart, Some(RestartRole::Helper));
        assert!(world.nodes[0].fib.contains_key(&block(1)));
        world.start(1, World::preserved());
        assert!(world.run_until(seconds(30), World::all_up), "seed {seed}");
        world.run(seconds(1));
        for node in [0, 2] {
            assert_eq!(
                world.nodes[node].changes, 0,
                "seed {seed}: node {node} touched a route"
            );
            assert_eq!(world.peer(node, 1).restart, None, "End-of-RIB has come");
        }
        assert!(world.converged());
        assert!(world.nodes[1].recovery.contains(&RecoveryEvent::Finished));
        let ends = |event: &&RecoveryEvent| matches!(event, RecoveryEvent::EndOfRib { .. });
        assert_eq!(world.nodes[1].recovery.iter().filter(ends).count(), 2);
    }
}

#[test]
fn the_restarted_speaker_says_so_in_its_open_until_recovery_has_finished() {
    let mut world = up(2, 3);
    let capability = |world: &World, from, to| {
        let open = |message| match message {
            Message::Open(open) => Some(open),
            _ => None,
        };
        let open = world
            .messages(from, to)
            .into_iter()
            .filter_map(open)
            .next_back()
            .unwrap();
        open.graceful_restart().unwrap().clone()
    };
    let first = capability(&world, 1, 0);
    assert!(
        !first.restarted && !first.families[0].forwarding,
        "a first start"
    );
    world.kill(1);
    world.start(1, World::preserved());
    assert!(world.run_until(seconds(30), World::all_up));
    let again = capability(&world, 1, 0);
    assert!(again.restarted && again.families[0].forwarding);
    let key = world.peers(1)[0].key.clone();
    let now = world.now;
    world.with(1, |speaker| speaker.reset(&key, now));
    assert!(world.run_until(seconds(30), World::all_up));
    let later = capability(&world, 1, 0);
    assert!(!later.restarted && later.families[0].forwarding);
}

#[test]
fn after_a_boot_nothing_was_preserved_and_helpers_drop_the_routes_at_the_open() {
    let mut world = up(2, 4);
    world.kill(1);
    world.clear_fib(1);
    world.run(seconds(1));
    assert!(world.nodes[0].fib.contains_key(&block(1)));
    world.nodes[1].local.clear();
    world.start(
        1,
        RestartState {
            restarted: true,
            preserved: Families::NONE,
        },
    );
    assert!(world.run_until(seconds(30), World::all_up));
    assert!(!world.nodes[0].fib.contains_key(&block(1)));
}

#[test]
fn routes_not_announced_again_go_at_end_of_rib() {
    let mut world = up(2, 5);
    world.kill(1);
    world.nodes[1].local = vec![crate::LocalRoute::new(block(40), 1)];
    world.start(1, World::preserved());
    assert!(world.run_until(seconds(30), World::all_up));
    world.run(seconds(1));
    assert!(!world.nodes[0].fib.contains_key(&block(1)));
    assert!(world.nodes[0].fib.contains_key(&block(40)));
    assert_eq!(world.peer(0, 1).ipv4.received, 1);
}

#[test]
fn a_peer_that_does_not_come_back_loses_its_routes_after_its_restart_time() {
    let mut world = up(2, 6);
    world.kill(1);
    world.run(seconds(119));
    assert!(world.nodes[0].fib.contains_key(&block(1)));
    world.run(seconds(2));
    assert!(!world.nodes[0].fib.contains_key(&block(1)));
    assert_eq!(world.peer(0, 1).ipv4.received, 0);
}

#[test]
fn without_graceful_restart_the_routes_go_with_the_connection() {
    let mut world = World::mesh(2, 7);
    for member in &mut world.nodes {
        member.peers[0].graceful_restart.mode = GracefulRestartMode::Off;
    }
    (0..2).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::converged));
    world.kill(1);
    world.run(seconds(0));
    assert!(!world.nodes[0].fib.contains_key(&block(1)));
}

#[test]
fn no_end_of_rib_leaves_before_the_local_routes_are_known() {
    let mut world = up(2, 8);
    world.kill(1);
    let local = std::mem::take(&mut world.nodes[1].local);
    let speaker = crate::speaker::Speaker::new(
        crate::SpeakerConfig {
            restart: World::preserved(),
            ..World::config(1)
        },
        1,
    );
    world.nodes[1].speaker = Some(speaker.unwrap());
    let (peers, now) = (world.nodes[1].peers.clone(), world.now);
    world.with(1, |speaker| speaker.set_peers(peers, now).unwrap());
    assert!(world.run_until(seconds(30), World::all_up));
    world.run(seconds(60));
    assert!(
        world.nodes[0].fib.contains_key(&block(1)),
        "kept: nothing is known yet"
    );
    assert_eq!(world.nodes[0].changes, 0);
    world.with(1, |speaker| speaker.set_local_routes(local));
    world.run(seconds(1));
    assert_eq!(world.nodes[0].changes, 0);
    assert_eq!(world.peer(0, 1).restart, None);
}

#[test]
fn two_that_restart_together_do_not_wait_for_each_other_nor_for_a_third_that_is_down() {
    let mut world = up(3, 9);
    for node in 0..3 {
        world.kill(node);
    }
    world.start(0, World::preserved());
    world.start(1, World::preserved());
    let finished = |w: &World| {
        [0, 1]
            .iter()
            .all(|node| w.nodes[*node].recovery.contains(&RecoveryEvent::Finished))
    };
    let start = world.now;
    assert!(world.run_until(seconds(60), finished));
    assert!(
        world.now - start <= seconds(30),
        "took {:?}",
        world.now - start
    );
    assert_eq!(world.peer(0, 1).state, PeerState::Established);
    assert!(world.nodes[0].fib.contains_key(&block(1)));
}

#[test]
fn a_peer_that_reconnects_while_its_old_session_looks_alive_has_restarted() {
    let mut world = up(2, 10);
    world.run(seconds(60));
    // The machine died without a word and came back.
    world.unplugged.push(1);
    world.kill(1);
    world.unplugged.clear();
    assert_eq!(world.peer(0, 1).state, PeerState::Established);
    let sent = world.messages(0, 1).len();
    world.start(1, World::preserved());
    let back = |w: &World| w.all_up() && w.peer(0, 1).restart.is_none() && w.peer(0, 1).flaps == 1;
    assert!(
        world.run_until(seconds(20), back),
        "{:#?}",
        world.peer(0, 1)
    );
    let silent = world.messages(0, 1)[sent..]
        .iter()
        .all(|message| !matches!(message, Message::Notification(_)));
    assert!(silent, "the old connection ends without NOTIFICATION");
    assert_eq!(world.nodes[0].changes, 0);
}

#[test]
fn a_deleted_peer_is_told_and_its_routes_go_at_once() {
    let mut world = up(2, 11);
    let now = world.now;
    world.with(0, |speaker| speaker.set_peers(Vec::new(), now).unwrap());
    assert!(!world.nodes[0].fib.contains_key(&block(1)));
    let last = world.messages(0, 1).pop().unwrap();
    let Message::Notification(notification) = last else {
        panic!("{last:?}")
    };
    assert_eq!(
        (notification.code, notification.subcode),
        (code::CEASE, cease::DECONFIGURED)
    );
    world.run(seconds(1));
    assert!(!world.nodes[1].fib.contains_key(&block(0)));
}

#[test]
fn a_changed_password_restarts_the_session_without_moving_a_route() {
    let mut world = up(2, 12);
    let mut peers = world.nodes[0].peers.clone();
    peers[0].password = Some(crate::Password::new(*b"new").unwrap());
    let now = world.now;
    world.with(0, |speaker| speaker.set_peers(peers, now).unwrap());
    world.run(seconds(0));
    assert_ne!(world.peer(1, 0).state, PeerState::Established);
    assert!(world.run_until(seconds(20), World::all_up));
    world.run(seconds(1));
    assert_eq!((world.nodes[0].changes, world.nodes[1].changes), (0, 0));
    let quiet = |m: &Message| !matches!(m, Message::Notification(_));
    assert!(world.messages(0, 1).iter().all(quiet));
}

#[test]
fn a_port_or_passive_change_keeps_the_session() {
    let mut world = up(2, 13);
    let mut peers = world.nodes[0].peers.clone();
    peers[0].key.port = 1179;
    peers[0].passive = true;
    peers[0].name = "renamed".into();
    let now = world.now;
    world.with(0, |speaker| speaker.set_peers(peers, now).unwrap());
    let peer = world.peer(0, 1);
    assert_eq!(
        (peer.key.port, peer.state, peer.flaps),
        (1179, PeerState::Established, 0)
    );
    assert_eq!(peer.key.address, address(1));
}
