//! Properties of the codec for any input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BytesMut;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::wire::*;
use crate::{Families, Family};

fn as_path() -> impl Strategy<Value = AsPath> {
    vec(1..u32::MAX, 0..8).prop_map(AsPath::sequence)
}

prop_compose! {
    fn attributes()(
        origin in prop_oneof![Just(Origin::Igp), Just(Origin::Egp), Just(Origin::Incomplete)],
        as_path in as_path(),
        med: Option<u32>,
        local_pref: Option<u32>,
        atomic_aggregate: bool,
        aggregator in proptest::option::of((1..u32::MAX, any::<u32>())),
        communities in btree_set(any::<u32>(), 0..80),
        large in btree_set(any::<(u32, u32, u32)>(), 0..4),
        extended in btree_set(any::<[u8; 8]>(), 0..4),
        originator: Option<u32>,
        clusters in vec(any::<u32>(), 0..4),
        unknown in btree_set(200u8..210, 0..3),
    ) -> Attributes {
        Attributes {
            origin,
            as_path,
            med,
            local_pref,
            atomic_aggregate,
            aggregator: aggregator.map(|(as_number, id)| Aggregator {
                as_number,
                identifier: Ipv4Addr::from(id),
            }),
            communities: communities.into_iter().map(Community).collect(),
            large_communities: large
                .into_iter()
                .map(|(global, local1, local2)| LargeCommunity { global, local1, local2 })
                .collect(),
            extended_communities: extended.into_iter().collect(),
            originator_id: originator.map(Ipv4Addr::from),
            cluster_list: clusters.into_iter().map(Ipv4Addr::from).collect(),
            unknown: unknown
                .into_iter()
                .map(|kind| UnknownAttribute { kind, value: Box::from([kind; 3]) })
                .collect(),
            ..Attributes::default()
        }
    }
}

fn v4_prefixes() -> impl Strategy<Value = Vec<Nlri>> {
    let net = |(address, length): (u32, u8)| {
        Nlri::from(IpNet::from(
            Ipv4Net::new(Ipv4Addr::from(address), length)
                .unwrap()
                .trunc(),
        ))
    };
    vec((any::<u32>(), 0u8..=32).prop_map(net), 1..2000)
}

fn v6_prefixes() -> impl Strategy<Value = Vec<Nlri>> {
    let net = |(address, length): (u128, u8)| {
        Nlri::from(IpNet::from(
            Ipv6Net::new(Ipv6Addr::from(address), length)
                .unwrap()
                .trunc(),
        ))
    };
    vec((any::<u128>(), 0u8..=128).prop_map(net), 1..600)
}

fn round_trip(
    family: Family,
    attributes: &Attributes,
    prefixes: &[Nlri],
    wide_as: bool,
) -> Result<(), TestCaseError> {
    let pack = PackContext {
        wide_as,
        add_path: Families::NONE,
        max_length: MAX_LENGTH,
    };
    let context = UpdateContext {
        wide_as,
        families: Families::BOTH,
        ..UpdateContext::default()
    };
    let mut messages = Vec::new();
    prop_assert!(pack_announcements(
        family,
        attributes,
        prefixes,
        &pack,
        &mut messages
    ));
    let mut read = Vec::new();
    for message in messages {
        prop_assert!(message.len() <= MAX_LENGTH);
        let mut buffer = BytesMut::from(&message[..]);
        let Ok(Some(Message::Update(body))) = next_message(&mut buffer, MAX_LENGTH) else {
            return Err(TestCaseError::fail("not one UPDATE"));
        };
        prop_assert!(buffer.is_empty());
        let update = Update::decode(&body, &context).unwrap();
        prop_assert_eq!(&update.fault, &None);
        let expected = Attributes {
            next_hop: NextHop::UNSPECIFIED,
            ..attributes.clone()
        };
        prop_assert_eq!(&update.attributes, &expected);
        for reachable in update.reachable {
            prop_assert_eq!(reachable.next_hop, attributes.next_hop);
            read.extend(reachable.prefixes);
        }
    }
    prop_assert_eq!(read, prefixes);

    let mut messages = Vec::new();
    pack_withdrawals(family, prefixes, &pack, &mut messages);
    let mut withdrawn = Vec::new();
    for message in messages {
        prop_assert!(message.len() <= MAX_LENGTH);
        withdrawn.extend(Update::decode(&message[19..], &context).unwrap().withdrawn);
    }
    prop_assert_eq!(withdrawn, prefixes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ipv4_updates_read_back_as_written(
        attributes in attributes(),
        prefixes in v4_prefixes(),
        wide: bool,
    ) {
        let next_hop = NextHop::from(IpAddr::from([192, 0, 2, 1]));
        round_trip(Family::Ipv4, &Attributes { next_hop, ..attributes }, &prefixes, wide)?;
    }

    #[test]
    fn ipv6_updates_read_back_as_written(
        attributes in attributes(),
        prefixes in v6_prefixes(),
        link_local: bool,
    ) {
        let next_hop = NextHop {
            address: "2001:db8::1".parse().unwrap(),
            link_local: link_local.then(|| "fe80::1".parse().unwrap()),
        };
        round_trip(Family::Ipv6, &Attributes { next_hop, ..attributes }, &prefixes, true)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_octets_are_read_without_panic(octets in vec(any::<u8>(), 0..300), external: bool) {
        let context = UpdateContext {
            external,
            wide_as: external,
            families: Families::BOTH,
            extended_next_hop: true,
            ..UpdateContext::default()
        };
        let _ = Update::decode(&octets, &context);
        let _ = Open::decode(&octets);
        let mut buffer = BytesMut::from(&octets[..]);
        let _ = next_message(&mut buffer, MAX_LENGTH);
    }

    #[test]
    fn a_mutated_update_is_read_without_panic(
        attributes in attributes(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let pack =
            PackContext { wide_as: true, add_path: Families::NONE, max_length: MAX_LENGTH };
        let next_hop = NextHop::from(IpAddr::V6("fd00::1".parse().unwrap()));
        let mut messages = Vec::new();
        let prefixes = [Nlri::from("2001:db8::/32".parse::<IpNet>().unwrap())];
        pack_announcements(
            Family::Ipv6,
            &Attributes { next_hop, ..attributes },
            &prefixes,
            &pack,
            &mut messages,
        );
        let mut octets = messages.concat();
        for (index, value) in changes {
            let at = index.index(octets.len());
            octets[at] = value;
        }
        for external in [true, false] {
            let context = UpdateContext {
                external,
                wide_as: true,
                families: Families::BOTH,
                ..UpdateContext::default()
            };
            let _ = Update::decode(&octets[19..], &context);
        }
    }
}
