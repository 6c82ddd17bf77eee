//! Messages as other speakers send them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::hex;
use crate::wire::*;
use crate::{Families, Family};

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn internal() -> Attributes {
    Attributes {
        next_hop: NextHop::from("10.192.0.2".parse::<IpAddr>().unwrap()),
        local_pref: Some(0x7fff_fbff),
        ..Attributes::default()
    }
}

fn pack(attributes: &Attributes, prefixes: &[Nlri], add_path: Families) -> Vec<u8> {
    let mut out = Vec::new();
    let context = PackContext {
        wide_as: true,
        add_path,
        max_length: MAX_LENGTH,
    };
    assert!(pack_announcements(
        Family::Ipv4,
        attributes,
        prefixes,
        &context,
        &mut out
    ));
    out.concat()
}

fn decode(octets: &str, context: &UpdateContext) -> Update {
    Update::decode(&hex(octets)[3..], context).unwrap()
}

#[test]
fn two_blocks_share_one_message() {
    let blocks = [
        prefix("192.168.221.64/26").into(),
        prefix("192.168.221.128/26").into(),
    ];
    assert_eq!(
        pack(&internal(), &blocks, Families::NONE),
        hex(
            "M 0036 02 0000 0015 400101 00 400200 400304 0ac00002 400504 7ffffbff \
             1a c0a8dd40 1a c0a8dd80"
        )
    );
}

#[test]
fn path_identifiers_precede_each_prefix() {
    let blocks = [
        Nlri {
            prefix: prefix("192.168.221.64/26"),
            path_id: 3,
        },
        Nlri {
            prefix: prefix("192.168.221.128/26"),
            path_id: 3,
        },
    ];
    assert_eq!(
        pack(&internal(), &blocks, Families::IPV4),
        hex(
            "M 003e 02 0000 0015 400101 00 400200 400304 0ac00002 400504 7ffffbff \
             00000003 1a c0a8dd40 00000003 1a c0a8dd80"
        )
    );
}

#[test]
fn communities_follow_in_type_order() {
    let attributes = Attributes {
        communities: vec!["65000:100".parse().unwrap()],
        large_communities: vec!["64512:1:2".parse().unwrap()],
        ..internal()
    };
    assert_eq!(
        pack(
            &attributes,
            &[prefix("10.101.0.0/16").into()],
            Families::NONE
        ),
        hex(
            "M 0045 02 0000 002b 40010100 400200 4003040ac00002 4005047ffffbff \
             c00804fde80064 c0200c0000fc000000000100000002 10 0a65"
        )
    );
}

#[test]
fn end_of_rib_has_23_and_29_octets_and_reads_back() {
    assert_eq!(end_of_rib(Family::Ipv4), hex("M 0017 02 0000 0000"));
    assert_eq!(
        end_of_rib(Family::Ipv6),
        hex("M 001d 02 0000 0006 800f03 0002 01")
    );
    let context = UpdateContext {
        families: Families::BOTH,
        ..UpdateContext::default()
    };
    for family in Family::ALL {
        let update = Update::decode(&end_of_rib(family)[19..], &context).unwrap();
        assert_eq!(update.end_of_rib, Some(family));
    }
    let extended = hex("0000 0007 900f0003 0002 01");
    assert_eq!(
        Update::decode(&extended, &context).unwrap().end_of_rib,
        Some(Family::Ipv6)
    );
}

#[test]
fn an_ipv4_prefix_over_an_ipv6_next_hop_is_read_with_its_path_identifier() {
    let context = UpdateContext {
        families: Families::BOTH,
        add_path: Families::IPV4,
        extended_next_hop: true,
        wide_as: true,
        external: true,
        ..UpdateContext::default()
    };
    let update = decode(
        "0044 02 0000 002d 800e1d 0001 01 10 fd990000000000000000000000000002 00 \
         00000007 18 cb0071 400101 00 400206 0201 0000fdea",
        &context,
    );
    assert_eq!(
        update.reachable,
        vec![Reachable {
            next_hop: NextHop::from("fd99::2".parse::<IpAddr>().unwrap()),
            prefixes: vec![Nlri {
                prefix: prefix("203.0.113.0/24"),
                path_id: 7
            }],
        }]
    );
}

#[test]
fn an_ipv6_prefix_carries_a_global_and_a_link_local_next_hop() {
    let octets = "0053 02 0000 003c 800e2c 0002 01 20 fd990000000000000000000000000002 \
                  fe800000000000000000000000000002 00 30 20010db80005 40010100 \
                  400206 02010000fdea";
    let context = UpdateContext {
        families: Families::IPV6,
        wide_as: true,
        external: true,
        ..UpdateContext::default()
    };
    let update = decode(octets, &context);
    let next_hop = NextHop {
        address: "fd99::2".parse().unwrap(),
        link_local: Some("fe80::2".parse().unwrap()),
    };
    let prefixes = vec![prefix("2001:db8:5::/48").into()];
    assert_eq!(
        update.reachable,
        vec![Reachable {
            next_hop,
            prefixes: prefixes.clone()
        }]
    );

    let attributes = Attributes {
        next_hop,
        ..update.attributes
    };
    let context = PackContext {
        wide_as: true,
        add_path: Families::NONE,
        max_length: MAX_LENGTH,
    };
    let mut out = Vec::new();
    assert!(pack_announcements(
        Family::Ipv6,
        &attributes,
        &prefixes,
        &context,
        &mut out
    ));
    assert_eq!(out, vec![hex(&format!("M {octets}"))]);
}

fn narrow(attributes: &str) -> Attributes {
    let attributes = hex(attributes);
    let mut body = vec![0, 0];
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    body.extend(hex("18c63364"));
    let context = UpdateContext {
        external: true,
        families: Families::IPV4,
        ..UpdateContext::default()
    };
    Update::decode(&body, &context).unwrap().attributes
}

#[test]
fn four_octet_numbers_come_from_as4_path_on_a_two_octet_session() {
    let attributes =
        narrow("40010100 400208 0203 fdea 5ba0 5ba0 400304 0a630002 c0110a 0202 00020000 00020001");
    assert_eq!(attributes.as_path.to_string(), "65002 131072 131073");
}

#[test]
fn an_as4_path_longer_than_the_as_path_is_ignored() {
    let attributes = narrow(
        "40010100 400206 0202 fdea 5ba0 400304 0a630002 \
         c0110e 0203 00020000 00020001 00020002",
    );
    assert_eq!(attributes.as_path.to_string(), "65002 23456");
}

#[test]
fn as4_attributes_are_ignored_when_the_aggregator_is_not_as_trans() {
    let attributes = narrow(
        "40010100 400206 0202 fdea 5ba0 400304 0a630002 c00706 fdf2 0a000001 \
         c01106 0201 00020001 c01208 00020001 0a000002",
    );
    assert_eq!(attributes.as_path.to_string(), "65002 23456");
    assert_eq!(attributes.aggregator.map(|a| a.as_number), Some(65010));
}

#[test]
fn a_prefix_both_withdrawn_and_announced_is_announced() {
    let context = UpdateContext {
        external: true,
        wide_as: true,
        families: Families::IPV4,
        ..UpdateContext::default()
    };
    let update = decode(
        "0033 02 0004 18c63364 0014 40010100 400206 02010000fdea 400304 0a630002 18c63364",
        &context,
    );
    assert_eq!(update.withdrawn, vec![prefix("198.51.100.0/24").into()]);
    assert_eq!(update.reachable[0].prefixes, update.withdrawn);
}

#[test]
fn a_message_is_filled_to_its_maximum() {
    let prefixes: Vec<Nlri> = (0..900u32)
        .map(|n| {
            let octets = (0x0a00_0000 + n * 64).to_be_bytes();
            Nlri::from(IpNet::new(IpAddr::from(octets), 26).unwrap())
        })
        .collect();
    let context = PackContext {
        wide_as: true,
        add_path: Families::NONE,
        max_length: MAX_LENGTH,
    };
    let mut out = Vec::new();
    assert!(pack_announcements(
        Family::Ipv4,
        &internal(),
        &prefixes,
        &context,
        &mut out
    ));
    assert_eq!(out.len(), 2);
    // 44 octets of everything else, five per /26.
    assert_eq!(out[0].len(), 44 + 810 * 5);
}

#[test]
fn attributes_that_leave_no_room_are_not_sent() {
    let attributes = Attributes {
        communities: (0..1100).map(Community).collect(),
        ..internal()
    };
    let context = PackContext {
        wide_as: true,
        add_path: Families::NONE,
        max_length: MAX_LENGTH,
    };
    let mut out = Vec::new();
    let blocks = [prefix("10.0.0.0/8").into()];
    assert!(!pack_announcements(
        Family::Ipv4,
        &attributes,
        &blocks,
        &context,
        &mut out
    ));
    assert!(out.is_empty());
}
