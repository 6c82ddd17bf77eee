//! What malformed UPDATEs do to a session and its routes (RFC 7606).

use rstest::rstest;

use super::script::Script;

const C: &str = "40010100 400206 02010000fdea 4003040a630002";
const OTHER: &str = "M 002f 02 0000 0014 C 18cb0071";
const FIRST: &str = "M 002f 02 0000 0014 C 18c63364";

fn with_routes() -> Script {
    let mut script = Script::established();
    for octets in [FIRST, OTHER] {
        script.say(&octets.replace('C', C));
    }
    assert_eq!(script.routes().len(), 2);
    script
}

#[rstest]
#[case::origin_3("002f 02 0000 0014 40010103 400206 02010000fdea 4003040a630002 18c63364")]
#[case::med_of_three("0035 02 0000 001a C 800403000001 18c63364")]
#[case::overrun("0036 02 0000 001b C 80040800000001 18c63364")]
#[case::unknown_well_known("0033 02 0000 0018 C 40c80101 18c63364")]
fn treat_as_withdraw_removes_the_prefix_and_nothing_else(#[case] octets: &str) {
    let mut script = with_routes();
    script.say(&format!("M {}", octets.replace('C', C)));
    assert!(script.status().is_established());
    let routes = script.routes();
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].prefix, "203.0.113.0/24".parse().unwrap());
    let status = script.status();
    assert_eq!((status.treated_as_withdraw, status.ipv4.received), (1, 1));
}

#[rstest]
#[case::attribute_length_200("002f 02 0000 00c8 C 18c63364", (3, 1))]
#[case::prefix_length_33("0031 02 0000 0014 C 21c633640000", (3, 10))]
#[case::no_prefix("002b 02 0000 0014 40010103 400206 02010000fdea 4003040a630002", (3, 1))]
#[case::next_hop_of_five(
    "0038 02 0000 0021 40010100 400206 02010000fdea 800e11 0002 01 05 0102030405 00 \
     30 20010db80005",
    (3, 9)
)]
fn a_session_reset_removes_every_route(#[case] octets: &str, #[case] expected: (u8, u8)) {
    let mut script = with_routes();
    script.say(&format!("M {}", octets.replace('C', C)));
    let words = script.last_words().unwrap();
    assert_eq!((words.code, words.subcode), expected);
    assert_eq!(script.routes(), []);
    assert_eq!(script.status().ipv4.received, 0);
}

#[test]
fn a_prefix_withdrawn_and_announced_in_one_message_is_present() {
    let mut script = Script::established();
    script
        .say("M 0033 02 0004 18c63364 0014 40010100 400206 02010000fdea 400304 0a630002 18c63364");
    assert_eq!(script.routes().len(), 1);
}

#[test]
fn a_path_with_the_own_as_is_as_good_as_withdrawn() {
    let mut script = with_routes();
    script.say("M 0033 02 0000 0018 40010100 40020a 02020000fdea0000fde9 4003040a630002 18c63364");
    assert_eq!(script.routes().len(), 1);
    assert_eq!(script.status().treated_as_withdraw, 0);
}
