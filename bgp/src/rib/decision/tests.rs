use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::NextHopState;
use crate::wire::{AsPath, NextHop};

/// One candidate as an operator would describe it.
#[derive(Debug, Clone)]
struct Route {
    id: u8,
    address: u8,
    internal: bool,
    attributes: Attributes,
    preference: u32,
}

fn route(id: u8, path: &[u32]) -> Route {
    Route {
        id,
        address: id,
        internal: false,
        attributes: Attributes {
            as_path: AsPath::sequence(path),
            next_hop: NextHop::from(IpAddr::from([10, 99, 0, id])),
            ..Attributes::default()
        },
        preference: 100,
    }
}

impl Route {
    fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Attributes)) -> Self {
        change(&mut self.attributes);
        self
    }
}

fn context(routes: &[Route]) -> DecisionContext {
    let facts = |route: &Route| SourceFacts {
        kind: if route.internal {
            Source::Internal
        } else {
            Source::External
        },
        router_id: [0, 0, 0, route.id].into(),
        address: IpAddr::from([10, 99, 0, route.address]),
        as_number: 65000,
        client: false,
    };
    DecisionContext {
        sources: routes
            .iter()
            .enumerate()
            .map(|(n, route)| (SourceId(n as u32 + 1), facts(route)))
            .collect(),
        next_hops: NextHops::new(),
        default_local_pref: 100,
        max_paths: 16,
    }
}

fn paths(routes: &[Route]) -> Vec<Path> {
    let path = |(n, route): (usize, &Route)| {
        let attributes = Arc::new(route.attributes.clone());
        Path {
            source: SourceId(n as u32 + 1),
            path_id: 0,
            received: Arc::clone(&attributes),
            accepted: Some(attributes),
            preference: route.preference,
            stale: false,
        }
    };
    routes.iter().enumerate().map(path).collect()
}

/// Number of the best route, for every order of arrival.
fn best(routes: &[Route]) -> usize {
    best_in(&context(routes), routes)
}

fn best_in(context: &DecisionContext, routes: &[Route]) -> usize {
    let mut winners: Vec<u32> = permutations(paths(routes))
        .into_iter()
        .map(|mut paths| {
            assert!(context.select(&mut paths) > 0);
            paths[0].source.0 - 1
        })
        .collect();
    winners.dedup();
    assert_eq!(
        winners.len(),
        1,
        "the winner depends on the order of arrival"
    );
    winners[0] as usize
}

fn permutations(paths: Vec<Path>) -> Vec<Vec<Path>> {
    if paths.len() < 2 {
        return vec![paths];
    }
    let mut all = Vec::new();
    for n in 0..paths.len() {
        let mut rest = paths.clone();
        let first = rest.remove(n);
        for mut order in permutations(rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

#[test]
fn higher_local_pref_beats_a_shorter_path() {
    let first = route(1, &[1, 2])
        .internal()
        .with(|a| a.local_pref = Some(200));
    let second = route(2, &[1]).internal().with(|a| a.local_pref = Some(100));
    assert_eq!(best(&[first, second]), 0);
}

#[test]
fn external_beats_internal() {
    assert_eq!(
        best(&[route(1, &[65002]).internal(), route(2, &[65002])]),
        1
    );
}

#[test]
fn med_of_different_neighbours_is_not_compared() {
    let a = route(1, &[65002]).with(|a| a.med = Some(10));
    let b = route(2, &[65003]).with(|a| a.med = Some(5));
    assert_eq!(best(&[a, b]), 0);
}

#[test]
fn a_missing_med_is_zero() {
    let a = route(1, &[65002]).with(|a| a.med = Some(1));
    assert_eq!(best(&[a, route(2, &[65002])]), 1);
}

#[test]
fn med_is_deterministic_in_every_arrival_order() {
    let a = route(1, &[65002]).with(|a| a.med = Some(20));
    let b = route(2, &[65003]).with(|a| a.med = Some(0));
    let c = route(3, &[65002]).with(|a| a.med = Some(10));
    assert_eq!(best(&[a, b, c]), 1);
}

#[test]
fn lower_originator_beats_lower_peer_identifier() {
    let originator =
        |id: u8| move |a: &mut Attributes| a.originator_id = Some([0, 0, 0, id].into());
    let first = route(1, &[]).internal().with(originator(200));
    let second = route(2, &[]).internal().with(originator(100));
    assert_eq!(best(&[first, second]), 1);
}

#[test]
fn a_shorter_cluster_list_wins_for_the_same_originator() {
    let from = |clusters: usize| {
        move |a: &mut Attributes| {
            a.originator_id = Some([0, 0, 0, 9].into());
            a.cluster_list = vec![[1, 1, 1, 1].into(); clusters];
        }
    };
    let first = route(1, &[]).internal().with(from(2));
    let second = route(2, &[]).internal().with(from(1));
    assert_eq!(best(&[first, second]), 1);
}

#[test]
fn the_lower_peer_address_is_the_last_resort() {
    let first = Route {
        address: 3,
        ..route(7, &[1])
    };
    let second = Route {
        address: 2,
        ..route(7, &[1])
    };
    assert_eq!(best(&[first, second]), 1);
}

#[test]
fn a_reachable_next_hop_beats_a_shorter_path_and_an_unreachable_one_alone_is_not_used() {
    let routes = [route(1, &[1]), route(2, &[1, 2, 3, 4])];
    let mut context = context(&routes);
    context
        .next_hops
        .insert([10, 99, 0, 1].into(), NextHopState { metric: None });
    assert_eq!(best_in(&context, &routes), 1);
    assert_eq!(context.select(&mut paths(&routes[..1])), 0);
}

#[test]
fn a_lower_cost_to_the_next_hop_wins() {
    let routes = [route(1, &[1]).internal(), route(2, &[1]).internal()];
    let mut context = context(&routes);
    context
        .next_hops
        .insert([10, 99, 0, 1].into(), NextHopState { metric: Some(20) });
    context
        .next_hops
        .insert([10, 99, 0, 2].into(), NextHopState { metric: Some(10) });
    assert_eq!(best_in(&context, &routes), 1);
}

#[test]
fn a_local_blackhole_beats_a_learned_route_for_the_same_block() {
    let local = Route {
        preference: 200,
        ..route(9, &[])
    };
    let learned = route(1, &[])
        .internal()
        .with(|a| a.local_pref = Some(u32::MAX));
    assert_eq!(best(&[learned, local]), 1);
}

#[test]
fn paths_of_equal_cost_are_selected_together_up_to_the_limit() {
    let routes: Vec<Route> = (1..=5).map(|id| route(id, &[u32::from(id), 7])).collect();
    let mut context = context(&routes);
    let mut paths = paths(&routes);
    paths.rotate_left(2);
    assert_eq!(context.select(&mut paths), 5);
    let order: Vec<u32> = paths.iter().map(|path| path.source.0).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    context.max_paths = 3;
    assert_eq!(context.select(&mut paths), 3);
}

#[test]
fn a_rejected_path_is_never_selected() {
    let routes = [route(1, &[1]), route(2, &[1, 2])];
    let mut paths = paths(&routes);
    paths[0].accepted = None;
    assert_eq!(context(&routes).select(&mut paths), 1);
    assert_eq!(paths[0].source, SourceId(2));
}

proptest! {
    #[test]
    fn reordering_puts_the_chosen_first_and_loses_none(
        count in 1usize..9,
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let routes: Vec<Route> = (0..count as u8).map(|id| route(id, &[1])).collect();
        let mut paths = paths(&routes);
        let mut chosen: Vec<usize> = Vec::new();
        for pick in picks {
            let index = pick.index(count);
            if !chosen.contains(&index) {
                chosen.push(index);
            }
        }
        reorder(&mut paths, &chosen);
        let order: Vec<usize> = paths.iter().map(|path| path.source.0 as usize - 1).collect();
        prop_assert_eq!(&order[..chosen.len()], &chosen[..]);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
    }
}
