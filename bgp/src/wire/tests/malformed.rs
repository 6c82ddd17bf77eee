//! Malformed UPDATEs of an external peer AS 65002 at 10.99.0.2 with 4-octet AS numbers, and what
//! becomes of them (RFC 7606).

use rstest::rstest;

use super::hex;
use crate::Families;
use crate::wire::{Attributes, MAX_LENGTH, Origin, Update, UpdateContext};

const C: &str = "40010100 400206 02010000fdea 4003040a630002";

fn context() -> UpdateContext {
    UpdateContext {
        external: true,
        wide_as: true,
        families: Families::BOTH,
        local_address: Some("10.99.0.1".parse().unwrap()),
        ..UpdateContext::default()
    }
}

fn decode(octets: &str) -> Result<Update, (u8, u8)> {
    let octets = hex(&octets.replace('C', C));
    assert_eq!(
        usize::from(u16::from_be_bytes([octets[0], octets[1]])),
        octets.len() + 16
    );
    assert!(octets.len() <= MAX_LENGTH);
    Update::decode(&octets[3..], &context()).map_err(|n| (n.code, n.subcode))
}

#[rstest]
#[case::origin_3("002f 02 0000 0014 40010103 400206 02010000fdea 4003040a630002 18c63364")]
#[case::path_overrun("002f 02 0000 0014 40010100 400206 02020000fdea 4003040a630002 18c63364")]
#[case::empty_segment("0031 02 0000 0016 40010100 400208 02010000fdea0200 4003040a630002 18c63364")]
#[case::no_next_hop("0028 02 0000 000d 40010100 400206 02010000fdea 18c63364")]
#[case::med_of_three_octets("0035 02 0000 001a C 800403000001 18c63364")]
#[case::empty_communities("0032 02 0000 0017 C c00800 18c63364")]
#[case::attribute_overrun("0036 02 0000 001b C 80040800000001 18c63364")]
#[case::unknown_well_known("0033 02 0000 0018 C 40c80101 18c63364")]
#[case::next_hop_zero("002f 02 0000 0014 40010100 400206 02010000fdea 40030400000000 18c63364")]
#[case::next_hop_multicast(
    "002f 02 0000 0014 40010100 400206 02010000fdea 400304e0000001 18c63364"
)]
#[case::next_hop_own("002f 02 0000 0014 40010100 400206 02010000fdea 4003040a630001 18c63364")]
#[case::as_zero("002f 02 0000 0014 40010100 400206 020100000000 4003040a630002 18c63364")]
#[case::as_set("002f 02 0000 0014 40010100 400206 01010000fdea 4003040a630002 18c63364")]
#[case::confederation("002f 02 0000 0014 40010100 400206 03010000fdea 4003040a630002 18c63364")]
#[case::origin_flags("002f 02 0000 0014 c0010100 400206 02010000fdea 4003040a630002 18c63364")]
#[case::two_octets_left("0031 02 0000 0016 C 4006 18c63364")]
#[case::otc_of_three_octets("0035 02 0000 001a C c02303000001 18c63364")]
fn a_bad_attribute_withdraws_the_prefix(#[case] octets: &str) {
    let update = decode(octets).expect("session stays");
    assert!(update.fault.is_some());
    assert!(update.reachable.is_empty());
    assert_eq!(update.withdrawn.len(), 1);
    assert_eq!(
        update.withdrawn[0].prefix,
        "198.51.100.0/24".parse().unwrap()
    );
}

#[rstest]
#[case::attribute_length_200("002f 02 0000 00c8 C 18c63364", (3, 1))]
#[case::prefix_length_33("0031 02 0000 0014 C 21c633640000", (3, 10))]
#[case::bad_origin_without_prefix(
    "002b 02 0000 0014 40010103 400206 02010000fdea 4003040a630002",
    (3, 1)
)]
#[case::next_hop_of_five_octets(
    "0038 02 0000 0021 40010100 400206 02010000fdea 800e11 0002 01 05 0102030405 00 \
     30 20010db80005",
    (3, 9)
)]
#[case::second_mp_unreach("0023 02 0000 000c 800f03 0002 01 800f03 0002 01", (3, 1))]
#[case::mp_prefix_of_129_bits(
    "0030 02 0000 0019 800f16 0002 01 81 20010db8000500000000000000000000 0000",
    (3, 10)
)]
fn faults_that_make_the_message_unreadable_reset_the_session(
    #[case] octets: &str,
    #[case] expected: (u8, u8),
) {
    assert_eq!(decode(octets).unwrap_err(), expected);
}

fn kept(octets: &str) -> Update {
    let update = decode(octets).expect("session stays");
    assert_eq!(update.fault, None);
    assert_eq!(update.reachable[0].prefixes.len(), 1);
    update
}

#[test]
fn local_pref_of_an_external_peer_is_discarded_whatever_its_length() {
    let update = kept("0035 02 0000 001a C 400503000001 18c63364");
    assert_eq!(update.attributes.local_pref, None);
    assert_eq!(update.discarded, 1);
}

#[test]
fn the_first_of_two_equal_attributes_is_kept() {
    let update = kept("0033 02 0000 0018 C 40010102 18c63364");
    assert_eq!(update.attributes.origin, Origin::Igp);
}

#[test]
fn an_unknown_optional_transitive_attribute_is_kept() {
    let update = kept("0033 02 0000 0018 C c0c80101 18c63364");
    assert_eq!(update.attributes.unknown.len(), 1);
    let mut out = bytes::BytesMut::new();
    crate::wire::attribute_encode::encode(&update.attributes, None, true, &mut out);
    assert!(out.ends_with(&hex("e0c80101")));
}

#[test]
fn a_family_not_negotiated_is_ignored() {
    let octets = hex("001d 02 0000 0006 800f03 0002 01");
    let context = UpdateContext {
        families: Families::IPV4,
        ..context()
    };
    let update = Update::decode(&octets[3..], &context).unwrap();
    assert_eq!(update.end_of_rib, None);
    assert_eq!(update.attributes, Attributes::default());
}
