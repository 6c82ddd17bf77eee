//! Many speakers: convergence, collisions, reflection, loss of a peer.

use super::world::{Node, World, address, block, seconds};
use crate::wire::{Message, cease, code};
use crate::{LocalRoute, PeerConfig, PeerState, RestartState};

#[test]
fn twenty_speakers_learn_every_block_in_any_order_of_events() {
    for seed in 0..4 {
        let mut world = World::mesh(20, seed);
        assert!(
            world.run_until(seconds(30), |w| w.all_up() && w.converged()),
            "seed {seed}"
        );
        assert!(world.nodes.iter().all(|node| node.fib.len() == 19));
        assert_eq!(world.peer(3, 7).ipv4.received, 1);
        assert_eq!(world.peer(3, 7).ipv4.advertised, 1);
    }
}

#[test]
fn a_mesh_recovers_from_restarts_of_several_speakers() {
    for seed in 0..3 {
        let mut world = World::mesh(12, seed);
        assert!(world.run_until(seconds(30), World::converged));
        for node in [1, 5, 6] {
            world.kill(node);
        }
        world.run(seconds(7));
        for node in [6, 1, 5] {
            world.start(node, World::preserved());
            world.run(seconds(1));
        }
        assert!(
            world.run_until(seconds(60), |w| w.all_up() && w.converged()),
            "seed {seed}"
        );
    }
}

#[test]
fn when_both_dial_at_once_the_connection_of_the_higher_identifier_survives() {
    for seed in 0..40 {
        let mut world = World::mesh(2, seed);
        let up = |w: &World| {
            let ends = [w.peer(0, 1), w.peer(1, 0)];
            ends.iter().all(|peer| peer.state == PeerState::Established)
        };
        assert!(world.run_until(seconds(10), up), "seed {seed}");
        world.run(seconds(20));
        assert!(world.converged(), "seed {seed}");
        for (node, other) in [(0, 1), (1, 0)] {
            let peer = world.peer(node, other);
            assert_eq!(
                (peer.state, peer.flaps),
                (PeerState::Established, 0),
                "seed {seed}"
            );
            assert_eq!(peer.last_error, None, "a collision is no error");
        }
    }
}

#[test]
fn simultaneous_connections_end_with_cease_collision() {
    // Force the crossing: both dials are under way before anything is delivered.
    let mut seen = false;
    for seed in 0..60 {
        let mut world = World::mesh(2, seed);
        for node in 0..2 {
            world.nodes[node].peers[0].timers.first_dial = seconds(0);
            world.start(node, RestartState::default());
        }
        assert!(world.run_until(seconds(20), World::all_up));
        let is_collision = |message: &Message| {
            matches!(message, Message::Notification(n)
                if (n.code, n.subcode) == (code::CEASE, cease::COLLISION))
        };
        seen |= world.messages(0, 1).iter().any(is_collision)
            || world.messages(1, 0).iter().any(is_collision);
    }
    assert!(seen, "no seed made the connections collide");
}

/// Nodes 1.. are clients of node 0.
fn reflected(count: usize, seed: u64) -> World {
    let mut world = World::new(count, seed);
    for client in 1..count {
        let peer = PeerConfig {
            rr_client: true,
            ..PeerConfig::new(address(client), 64512, 64512)
        };
        world.nodes[0].peers.push(peer);
        let up = PeerConfig {
            passive: true,
            ..PeerConfig::new(address(0), 64512, 64512)
        };
        world.nodes[client].peers.push(up);
    }
    (0..count).for_each(|node| world.start(node, RestartState::default()));
    world
}

#[test]
fn clients_of_a_reflector_learn_each_others_blocks_with_unchanged_next_hops() {
    let mut world = reflected(8, 1);
    assert!(world.run_until(seconds(30), |w| w.all_up() && w.converged()));
    let paths = &world.nodes[3].fib[&block(5)];
    assert_eq!(paths[0].next_hop, address(5));
    assert_eq!(paths[0].peer, address(0));
    let query = crate::RouteQuery {
        prefix: Some(block(5)),
        ..Default::default()
    };
    let routes = world.nodes[3].speaker.as_ref().unwrap().routes(&query);
    assert_eq!(
        routes[0].originator_id.map(std::net::IpAddr::V4),
        Some(address(5))
    );
    assert_eq!(routes[0].cluster_list.len(), 1);
}

#[test]
fn a_withdrawn_block_disappears_everywhere() {
    let mut world = reflected(5, 2);
    assert!(world.run_until(seconds(30), World::converged));
    world.with(2, |speaker| speaker.set_local_routes(Vec::new()));
    world.run(seconds(1));
    for node in [0, 1, 3, 4] {
        assert!(
            !world.nodes[node].fib.contains_key(&block(2)),
            "node {node}"
        );
    }
}

#[test]
fn a_silent_peer_is_given_up_at_hold_expiry_and_comes_back() {
    let mut world = World::mesh(3, 5);
    for member in &mut world.nodes {
        member
            .peers
            .iter_mut()
            .for_each(|peer| peer.timers.hold = seconds(9));
    }
    (0..3).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::converged));
    world.unplugged.push(2);
    world.run(seconds(5));
    assert!(
        world.nodes[0].fib.contains_key(&block(2)),
        "the hold time has not passed yet"
    );
    world.run(seconds(5));
    for node in [0, 1] {
        assert!(
            !world.nodes[node].fib.contains_key(&block(2)),
            "node {node}"
        );
        assert!(
            world
                .peer(node, 2)
                .last_error
                .unwrap()
                .contains("hold timer expired")
        );
    }
    world.unplugged.clear();
    assert!(world.run_until(seconds(60), |w| w.all_up() && w.converged()));
}

#[test]
fn octets_waiting_to_be_read_keep_a_session_alive() {
    let mut world = World::mesh(2, 5);
    world
        .nodes
        .iter_mut()
        .for_each(|m| m.peers[0].timers.hold = seconds(3));
    (0..2).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::all_up));
    world.unplugged.push(1);
    for _ in 0..20 {
        world.now += seconds(1);
        let now = world.now;
        world.with(0, |speaker| {
            for id in speaker.expiring(now) {
                speaker.heard(id, now);
            }
            speaker.advance(now);
        });
    }
    assert_eq!(world.peer(0, 1).state, PeerState::Established);
}

#[test]
fn a_path_through_two_external_peers_is_used_over_both() {
    // Nodes 1 and 2 are routers of two neighbouring AS with the same prefix.
    let mut world = World::new(3, 9);
    let anycast = "203.0.113.0/24".parse().unwrap();
    for (router, number) in [(1, 65001), (2, 65002)] {
        world.nodes[0]
            .peers
            .push(PeerConfig::new(address(router), number, 64512));
        world.nodes[router]
            .peers
            .push(PeerConfig::new(address(0), 64512, number));
        world.nodes[router]
            .local
            .push(LocalRoute::new(anycast, 100));
    }
    (0..3).for_each(|node| world.start(node, RestartState::default()));
    assert!(world.run_until(seconds(30), World::all_up));
    world.run(seconds(1));
    let hops = |w: &World, node: Node| -> Vec<_> {
        w.nodes[node]
            .fib
            .get(&anycast)
            .into_iter()
            .flatten()
            .map(|p| p.next_hop)
            .collect()
    };
    assert_eq!(hops(&world, 0), [address(1), address(2)]);
    world.kill(1);
    world.run(seconds(121));
    assert_eq!(hops(&world, 0), [address(2)]);
}
