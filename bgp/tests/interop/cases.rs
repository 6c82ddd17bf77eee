//! What must work with every peer.

use std::time::Duration;

use margay_bgp::{Families, PeerConfig, RecoveryEvent, RestartState};
use nix::sys::signal::{Signal, kill};

use crate::bird::{self, Bird};
use crate::fixture::{
    OUR_BLOCK_V4, OUR_BLOCK_V6, OUR_V4, OUR_V6, Ours, PEER_V4, PEER_V6, eventually, in_namespaces,
    peer, prefix, within,
};
use crate::{frr, gobgp};

fn two_sessions() -> Vec<PeerConfig> {
    vec![peer(PEER_V4), peer(PEER_V6)]
}

fn preserved() -> RestartState {
    RestartState {
        restarted: true,
        preserved: Families::BOTH,
    }
}

#[test]
fn bird_exchanges_routes_on_an_ipv4_and_an_ipv6_session() {
    in_namespaces(async |fixture| {
        let _bird = Bird::default().start(&fixture);
        let ours = Ours::start(two_sessions(), RestartState::default()).await;
        ours.wait_up().await;
        for block in [bird::BLOCK_V4, bird::BLOCK_V6] {
            eventually(block, async || ours.has(block).await).await;
        }
        for block in [OUR_BLOCK_V4, OUR_BLOCK_V6] {
            eventually(block, async || bird::has(&fixture, block)).await;
        }
        let paths = ours.paths(bird::BLOCK_V6).await;
        assert_eq!(paths[0].as_path, "65002");
        assert_eq!(paths[0].next_hop.to_string(), PEER_V6);
    });
}

#[test]
fn bird_exchanges_both_families_on_one_session() {
    in_namespaces(async |fixture| {
        let _bird = Bird {
            both_on_one: true,
            ..Bird::default()
        }
        .start(&fixture);
        let both = PeerConfig {
            families: Families::BOTH,
            self_ipv6: OUR_V6.parse().ok(),
            ..peer(PEER_V4)
        };
        let ours = Ours::start(vec![both], RestartState::default()).await;
        ours.wait_up().await;
        for block in [bird::BLOCK_V4, bird::BLOCK_V6] {
            eventually(block, async || ours.has(block).await).await;
        }
        for block in [OUR_BLOCK_V4, OUR_BLOCK_V6] {
            eventually(block, async || bird::has(&fixture, block)).await;
        }
    });
}

#[test]
fn frr_exchanges_routes_on_an_ipv4_and_an_ipv6_session() {
    in_namespaces(async |fixture| {
        let _frr = frr::start_both(&fixture, &frr::Settings::default());
        let ours = Ours::start(two_sessions(), RestartState::default()).await;
        ours.wait_up().await;
        for block in [frr::BLOCK_V4, frr::BLOCK_V6] {
            eventually(block, async || ours.has(block).await).await;
        }
        for block in [OUR_BLOCK_V4, OUR_BLOCK_V6] {
            eventually(block, async || frr::has(&fixture, block)).await;
        }
    });
}

#[test]
fn gobgp_exchanges_routes_on_an_ipv4_and_an_ipv6_session() {
    in_namespaces(async |fixture| {
        let _gobgp = gobgp::start(&fixture);
        let ours = Ours::start(two_sessions(), RestartState::default()).await;
        eventually("gobgpd answers", async || gobgp::announce(&fixture)).await;
        ours.wait_up().await;
        for block in [gobgp::BLOCK_V4, gobgp::BLOCK_V6] {
            eventually(block, async || ours.has(block).await).await;
        }
        for block in [OUR_BLOCK_V4, OUR_BLOCK_V6] {
            eventually(block, async || gobgp::has(&fixture, block)).await;
        }
    });
}

#[test]
fn a_frozen_bird_loses_its_routes_at_hold_expiry_and_gets_them_back() {
    in_namespaces(async |fixture| {
        let bird = Bird {
            more: "hold time 3; error wait time 1, 2;",
            ..Bird::default()
        }
        .start(&fixture);
        let ours = Ours::start(vec![peer(PEER_V4)], RestartState::default()).await;
        eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
        kill(bird.pid(), Signal::SIGSTOP).expect("runs");
        let mut gone = async || !ours.has(bird::BLOCK_V4).await;
        within(Duration::from_secs(5), "hold expiry", &mut gone).await;
        kill(bird.pid(), Signal::SIGCONT).expect("runs");
        eventually("routes again", async || ours.has(bird::BLOCK_V4).await).await;
    });
}

#[test]
fn routes_of_a_bird_that_is_killed_and_started_again_stay() {
    in_namespaces(async |fixture| {
        let settings = Bird {
            more: "graceful restart on;",
            ..Bird::default()
        };
        let bird = settings.start(&fixture);
        let mut ours = Ours::start(vec![peer(PEER_V4)], RestartState::default()).await;
        eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
        let ends = |event: &RecoveryEvent| matches!(event, RecoveryEvent::EndOfRib { .. });
        let (mut announced, mut ended) = (false, 0);
        while !announced {
            let batch = ours.events.next().await.expect("runs");
            announced = batch
                .changes
                .iter()
                .any(|c| c.prefix == prefix(bird::BLOCK_V4));
            ended += batch.recovery.iter().filter(|event| ends(event)).count();
        }
        bird.kill();
        eventually("the session is lost", async || !ours.up().await).await;
        let paths = ours.paths(bird::BLOCK_V4).await;
        assert!(paths[0].best && paths[0].stale);
        let _bird = Bird {
            recover: true,
            ..settings
        }
        .start(&fixture);
        ours.wait_up().await;
        eventually("announced again", async || {
            ours.paths(bird::BLOCK_V4)
                .await
                .iter()
                .any(|path| path.best && !path.stale)
        })
        .await;
        // One End-of-RIB of the first session, one of the second.
        while ended < 2 {
            let batch = ours.events.next().await.expect("runs");
            assert_eq!(batch.changes, [], "the forwarding table was touched");
            ended += batch.recovery.iter().filter(|event| ends(event)).count();
        }
    });
}

#[test]
fn bird_keeps_our_routes_while_we_are_killed_and_started_again() {
    in_namespaces(async |fixture| {
        let _bird = Bird {
            more: "graceful restart on;",
            ..Bird::default()
        }
        .start(&fixture);
        let ours = Ours::start(vec![peer(PEER_V4)], RestartState::default()).await;
        eventually("routes", async || bird::has(&fixture, OUR_BLOCK_V4)).await;
        ours.handle.stop().await;
        eventually("BIRD has seen the loss", async || {
            !bird::client(&fixture, "show protocols b4").contains("Established")
        })
        .await;
        assert!(bird::has(&fixture, OUR_BLOCK_V4), "kept over the restart");
        let ours = Ours::start(vec![peer(PEER_V4)], preserved()).await;
        eventually("up again", async || {
            assert!(bird::has(&fixture, OUR_BLOCK_V4), "never lost");
            ours.up().await
        })
        .await;
        eventually("End-of-RIB has ended the restart", async || {
            assert!(bird::has(&fixture, OUR_BLOCK_V4), "never lost");
            !bird::client(&fixture, "show protocols all b4")
                .contains("Neighbor graceful restart active")
        })
        .await;
    });
}

#[test]
fn frr_keeps_our_routes_while_we_are_killed_and_started_again() {
    in_namespaces(async |fixture| {
        let settings = frr::Settings {
            more: " bgp graceful-restart",
        };
        let _frr = frr::start_both(&fixture, &settings);
        let ours = Ours::start(vec![peer(PEER_V4)], RestartState::default()).await;
        eventually("routes", async || frr::has(&fixture, OUR_BLOCK_V4)).await;
        eventually("routes", async || ours.has(frr::BLOCK_V4).await).await;
        ours.handle.stop().await;
        let established = || {
            frr::shell(&fixture, &format!("show bgp neighbors {OUR_V4}")).contains("= Established")
        };
        eventually("FRR has seen the loss", async || !established()).await;
        assert!(frr::has(&fixture, OUR_BLOCK_V4), "kept over the restart");
        let ours = Ours::start(vec![peer(PEER_V4)], preserved()).await;
        eventually("up again", async || {
            assert!(frr::has(&fixture, OUR_BLOCK_V4), "never lost");
            ours.up().await && established()
        })
        .await;
        eventually("routes", async || ours.has(frr::BLOCK_V4).await).await;
        assert!(frr::has(&fixture, OUR_BLOCK_V4), "never lost");
    });
}

#[test]
fn a_refresh_goes_both_ways_with_bird() {
    in_namespaces(async |fixture| {
        let _bird = Bird::default().start(&fixture);
        let ours = Ours::start(vec![peer(PEER_V4)], RestartState::default()).await;
        eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
        let sent = ours.status().await[0].messages_out;
        bird::client(&fixture, "reload in b4");
        eventually("begin, UPDATE, end", async || {
            ours.status().await[0].messages_out >= sent + 3
        })
        .await;
        assert!(bird::has(&fixture, OUR_BLOCK_V4));
        let received = ours.status().await[0].messages_in;
        assert!(
            ours.handle
                .refresh(ours.status().await[0].key.clone())
                .await
                .expect("runs")
        );
        eventually("the answer", async || {
            ours.status().await[0].messages_in >= received + 3
        })
        .await;
        assert!(ours.has(bird::BLOCK_V4).await);
        assert_eq!(ours.status().await[0].flaps, 0);
    });
}

fn with_password(secret: &'static [u8]) -> PeerConfig {
    PeerConfig {
        password: Some(margay_bgp::Password::new(secret).expect("length")),
        ..peer(PEER_V4)
    }
}

#[test]
fn tcp_md5_works_with_bird_whoever_dials() {
    for (passive, more) in [
        (true, "password \"s3cret\"; connect delay time 1;"),
        (false, "password \"s3cret\"; passive;"),
    ] {
        in_namespaces(async |fixture| {
            let _bird = Bird {
                more,
                ..Bird::default()
            }
            .start(&fixture);
            let peer = PeerConfig {
                passive,
                ..with_password(b"s3cret")
            };
            let ours = Ours::start(vec![peer], RestartState::default()).await;
            eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
        });
    }
}

#[test]
fn a_wrong_tcp_md5_key_never_connects_and_the_right_one_does_later() {
    in_namespaces(async |fixture| {
        let _bird = Bird {
            more: "password \"s3cret\"; passive;",
            ..Bird::default()
        }
        .start(&fixture);
        let mut wrong = with_password(b"wrong");
        wrong.timers.connect_timeout = Duration::from_secs(1);
        let ours = Ours::start(vec![wrong], RestartState::default()).await;
        eventually("a hint", async || {
            let error = ours.status().await.remove(0).last_error.unwrap_or_default();
            assert!(!ours.up().await);
            error.contains("TCP-MD5")
        })
        .await;
        ours.handle
            .set_peers(vec![with_password(b"s3cret")])
            .await
            .expect("valid");
        ours.wait_up().await;
    });
}

#[test]
fn tcp_md5_works_with_frr() {
    in_namespaces(async |fixture| {
        let settings = frr::Settings {
            more: " neighbor 10.99.0.1 password s3cret",
        };
        let _frr = frr::start_both(&fixture, &settings);
        let ours = Ours::start(vec![with_password(b"s3cret")], RestartState::default()).await;
        eventually("routes", async || ours.has(frr::BLOCK_V4).await).await;
    });
}

#[test]
fn when_both_sides_dial_one_session_is_left() {
    in_namespaces(async |fixture| {
        let _bird = Bird {
            more: "connect delay time 1; connect retry time 1;",
            ..Bird::default()
        }
        .start(&fixture);
        let ours = Ours::start(two_sessions(), RestartState::default()).await;
        for _ in 0..5 {
            ours.wait_up().await;
            bird::client(&fixture, "restart b4");
            eventually("the session went down", async || {
                ours.status()
                    .await
                    .iter()
                    .any(|peer| !peer.is_established())
            })
            .await;
        }
        ours.wait_up().await;
        eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
        eventually("routes", async || bird::has(&fixture, OUR_BLOCK_V4)).await;
    });
}

#[test]
fn gtsm_works_with_bird() {
    in_namespaces(async |fixture| {
        let _bird = Bird {
            more: "ttl security on; multihop 1;",
            ..Bird::default()
        }
        .start(&fixture);
        let peer = PeerConfig {
            ttl: margay_bgp::Ttl::Security(1),
            ..peer(PEER_V4)
        };
        let ours = Ours::start(vec![peer], RestartState::default()).await;
        eventually("routes", async || ours.has(bird::BLOCK_V4).await).await;
    });
}
