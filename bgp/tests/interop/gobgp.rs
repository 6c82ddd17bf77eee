//! GoBGP.

use crate::fixture::{Daemon, Fixture, OUR_AS, OUR_V4, OUR_V6, PEER_AS, PEER_V4, program};

pub(crate) const BLOCK_V4: &str = "198.51.100.0/24";
pub(crate) const BLOCK_V6: &str = "2001:db8:51::/48";

/// One neighbour entry.
fn neighbour(address: &str, family: &str) -> String {
    format!(
        r#"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{address}"
    peer-as = {OUR_AS}
  [neighbors.timers.config]
    hold-time = 9
    keepalive-interval = 3
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 60
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "{family}"
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
"#
    )
}

pub(crate) fn start(fixture: &Fixture) -> Daemon {
    let text = format!(
        "[global.config]\n  as = {PEER_AS}\n  router-id = \"{PEER_V4}\"\n{}{}",
        neighbour(OUR_V4, "ipv4-unicast"),
        neighbour(OUR_V6, "ipv6-unicast"),
    );
    let file = fixture.file("gobgp.toml", &text);
    let args = ["-f", &file, "--api-hosts", "127.0.0.1:50051"];
    fixture.start(&program("gobgpd"), &args)
}

/// Runs a command of GoBGP's client.
pub(crate) fn client(fixture: &Fixture, command: &str) -> String {
    fixture.ask(&program("gobgp"), &command.split(' ').collect::<Vec<_>>())
}

/// Announces the peer's blocks; false while the daemon does not answer.
pub(crate) fn announce(fixture: &Fixture) -> bool {
    let up = client(fixture, "global").contains("AS:");
    if up {
        client(fixture, &format!("global rib add {BLOCK_V4}"));
        client(fixture, &format!("global rib add -a ipv6 {BLOCK_V6}"));
    }
    up
}

/// True when GoBGP has a route.
pub(crate) fn has(fixture: &Fixture, prefix: &str) -> bool {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    client(fixture, &format!("global rib -a {family}")).contains(prefix)
}
