//! BIRD 2.

use crate::fixture::{Daemon, Fixture, OUR_AS, OUR_V4, OUR_V6, PEER_AS, PEER_V4, PEER_V6, program};

pub(crate) const BLOCK_V4: &str = "198.51.100.0/24";
pub(crate) const BLOCK_V6: &str = "2001:db8:51::/48";

/// What differs between cases.
#[derive(Default, Clone)]
pub(crate) struct Bird {
    /// More lines of the BGP protocols.
    pub(crate) more: &'static str,
    /// Start in recovery from an earlier run (RFC 4724).
    pub(crate) recover: bool,
    /// IPv6 routes on the IPv4 session, and no IPv6 session.
    pub(crate) both_on_one: bool,
}

impl Bird {
    pub(crate) fn start(&self, fixture: &Fixture) -> Daemon {
        let more = self.more;
        let both = if self.both_on_one {
            format!(
                "ipv6 {{ import all; export where source = RTS_STATIC; next hop address {PEER_V6}; }};"
            )
        } else {
            String::new()
        };
        let second = if self.both_on_one {
            String::new()
        } else {
            format!(
                "protocol bgp b6 {{ local {PEER_V6} as {PEER_AS}; neighbor {OUR_V6} as {OUR_AS}; {more}
                 ipv6 {{ import all; export where source = RTS_STATIC; }}; }}"
            )
        };
        let text = format!(
            "log stderr all; debug protocols {{ states, events }}; router id {PEER_V4};
             graceful restart wait 3;
             protocol device {{ scan time 1; }}
             protocol static {{ ipv4; route {BLOCK_V4} unreachable; }}
             protocol static {{ ipv6; route {BLOCK_V6} unreachable; }}
             protocol bgp b4 {{ local {PEER_V4} as {PEER_AS}; neighbor {OUR_V4} as {OUR_AS}; {more}
               ipv4 {{ import all; export where source = RTS_STATIC; }}; {both} }}
             {second}\n"
        );
        let (file, socket) = (fixture.file("bird.conf", &text), fixture.path("bird.ctl"));
        let mut args = vec!["-f", "-c", &file, "-s", &socket];
        if self.recover {
            args.push("-R");
        }
        fixture.start(&program("bird"), &args)
    }
}

/// Runs a command of the BIRD client.
pub(crate) fn client(fixture: &Fixture, command: &str) -> String {
    let socket = fixture.path("bird.ctl");
    let words: Vec<&str> = ["-s", &socket]
        .into_iter()
        .chain(command.split(' '))
        .collect();
    fixture.ask(&program("birdc"), &words)
}

/// True when BIRD has a route.
pub(crate) fn has(fixture: &Fixture, prefix: &str) -> bool {
    client(fixture, &format!("show route for {prefix}")).contains(prefix)
}
