//! Transitions of the state machine (RFC 4271 section 8.2.2).

use std::time::Duration;

use rstest::rstest;

use super::script::{KEEPALIVE, OPEN, Script};
use crate::PeerState;
use crate::wire::Message;

#[rstest]
#[case::version_3("M 001d 01 03 fdea 00f0 0a630002 00", (2, 1), &[0, 4])]
#[case::hold_1("M 001d 01 04 fdea 0001 0a630002 00", (2, 6), &[0, 1])]
#[case::wrong_as("M 001d 01 04 fde9 00f0 0a630002 00", (2, 2), &[0xfd, 0xe9])]
#[case::identifier_0("M 001d 01 04 fdea 00f0 00000000 00", (2, 3), &[0, 0, 0, 0])]
#[case::update_instead("M 0017 02 0000 0000", (5, 1), &[])]
#[case::keepalive_instead("M 0013 04", (5, 1), &[])]
#[case::bad_marker("00 M 0013 04", (1, 1), &[])]
#[case::type_6("M 0013 06", (1, 3), &[6])]
fn a_bad_first_message_is_answered_and_the_connection_closed(
    #[case] octets: &str,
    #[case] expected: (u8, u8),
    #[case] data: &[u8],
) {
    let mut script = Script::connected();
    script.say(octets);
    let words = script.last_words().unwrap();
    assert_eq!(
        ((words.code, words.subcode), &words.data[..]),
        (expected, data)
    );
    assert!(script.status().last_error.unwrap().starts_with("sent "));
}

#[test]
fn an_open_is_answered_with_keepalive_and_a_keepalive_establishes() {
    let mut script = Script::connected();
    assert!(matches!(script.answers()[..], [Message::Open(_)]));
    script.say(OPEN);
    assert_eq!(script.status().state, PeerState::OpenConfirm);
    assert_eq!(script.answers(), [Message::Keepalive]);
    script.say(KEEPALIVE);
    assert_eq!(script.status().state, PeerState::Established);
    let negotiated = script.status().negotiated.unwrap();
    assert_eq!(negotiated.hold, Duration::from_secs(90));
    assert_eq!(negotiated.capabilities, ["4B", "RR"]);
}

#[test]
fn an_update_implies_the_keepalive() {
    let mut script = Script::connected();
    script.say(OPEN);
    script.say("M 0017 02 0000 0000");
    assert_eq!(script.status().state, PeerState::Established);
}

#[test]
fn a_second_open_in_open_confirm_is_a_state_machine_error() {
    let mut script = Script::connected();
    script.say(OPEN);
    script.say(OPEN);
    let words = script.last_words().unwrap();
    assert_eq!((words.code, words.subcode), (5, 2));
}

#[test]
fn second_open_after_established_is_fsm_error() {
    let mut script = Script::established();
    script.say(OPEN);
    let words = script.last_words().unwrap();
    assert_eq!((words.code, words.subcode), (5, 3));
}

#[test]
fn a_notification_is_never_answered() {
    let mut script = Script::established();
    script.answers();
    script.say("M 0015 03 06 02");
    assert!(script.closed);
    assert_eq!(script.answers(), []);
    let error = script.status().last_error.unwrap();
    assert_eq!(error, "received Cease: administrative shutdown (6/2)");
}

#[test]
fn messages_may_come_octet_by_octet() {
    let mut script = Script::connected();
    for text in [OPEN, KEEPALIVE] {
        for octet in crate::wire::tests::hex(text) {
            script.say(&format!("{octet:02x}"));
        }
    }
    assert_eq!(script.status().state, PeerState::Established);
}

#[test]
fn a_silent_connection_is_given_up_with_hold_timer_expired() {
    let mut script = Script::established();
    script.now += Duration::from_secs(91);
    script.speaker.advance(script.now);
    script.say("");
    let words = script.last_words().unwrap();
    assert_eq!((words.code, words.subcode), (4, 0));
}

#[test]
fn an_unexpected_address_is_not_accepted() {
    let mut script = Script::connected();
    let stranger = "10.99.0.77".parse().unwrap();
    let local = "10.99.0.1".parse().unwrap();
    assert_eq!(
        script.speaker.accept(stranger, None, local, script.now),
        None
    );
}

#[test]
fn a_peer_that_does_not_read_is_given_up_after_the_send_hold_time() {
    let mut script = Script::established();
    // Nothing this speaker wrote has been taken: the script never reports octets as sent.
    for _ in 0..16 {
        script.now += Duration::from_secs(29);
        script.say(KEEPALIVE);
        script.speaker.advance(script.now);
    }
    assert!(script.status().is_established(), "464 s");
    script.now += Duration::from_secs(20);
    script.say(KEEPALIVE);
    script.speaker.advance(script.now);
    script.say("");
    let words = script.last_words().unwrap();
    assert_eq!((words.code, words.subcode), (8, 0));
}
