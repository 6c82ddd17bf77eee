//! FRR: zebra and bgpd.

use crate::fixture::{Daemon, Fixture, OUR_AS, OUR_V4, OUR_V6, PEER_AS, PEER_V4, program};

pub(crate) const BLOCK_V4: &str = "198.51.100.0/24";
pub(crate) const BLOCK_V6: &str = "2001:db8:51::/48";

/// Both daemons; they end with it.
pub(crate) struct Frr {
    _bgpd: Daemon,
    _zebra: Daemon,
}

/// What differs between cases.
#[derive(Default, Clone)]
pub(crate) struct Settings {
    /// More lines under `router bgp`.
    pub(crate) more: &'static str,
}

/// FRR wants its user and groups, which only an installed package makes: they are put in place in a
/// mount namespace of the daemon.
fn start(fixture: &Fixture, name: &str, file: &str) -> Daemon {
    let with_lines = |file: &str, lines: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let others = text.lines().filter(|line| !line.starts_with("frr"));
        others
            .chain(lines.lines())
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let group = fixture.file(
        "group",
        &with_lines("/etc/group", "frr:x:65101:\nfrrvty:x:65102:root,frr"),
    );
    let passwd = fixture.file(
        "passwd",
        &with_lines(
            "/etc/passwd",
            "frr:x:65101:65101::/nonexistent:/usr/sbin/nologin",
        ),
    );
    // The shell asks for no password then.
    fixture.file("vtysh.conf", "username root nopassword\n");
    let folder = fixture.path("");
    let script = format!(
        "mount --bind {group} /etc/group && mount --bind {passwd} /etc/passwd && \
         exec {} -f {file} -i {folder}{name}.pid -z {folder}zserv.api --vty_socket {folder} \
         -u root -g root --log stdout -A 127.0.0.1 -P 0",
        program(name)
    );
    fixture.start("unshare", &["-m", "sh", "-c", &script])
}

fn bgpd(fixture: &Fixture, settings: &Settings) -> Daemon {
    let more = settings.more;
    let text = format!(
        "frr defaults traditional
router bgp {PEER_AS}
 bgp router-id {PEER_V4}
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp bestpath as-path multipath-relax
 neighbor {OUR_V4} remote-as {OUR_AS}
 neighbor {OUR_V4} timers 3 9
 neighbor {OUR_V4} timers connect 1
 neighbor {OUR_V6} remote-as {OUR_AS}
 neighbor {OUR_V6} timers 3 9
 neighbor {OUR_V6} timers connect 1
{more}
 address-family ipv4 unicast
  network {BLOCK_V4}
  no neighbor {OUR_V6} activate
 exit-address-family
 address-family ipv6 unicast
  network {BLOCK_V6}
  neighbor {OUR_V6} activate
 exit-address-family
"
    );
    let file = fixture.file("bgpd.conf", &text);
    start(fixture, "bgpd", &file)
}

pub(crate) fn start_both(fixture: &Fixture, settings: &Settings) -> Frr {
    let file = fixture.file("zebra.conf", "hostname peer\n");
    let zebra = start(fixture, "zebra", &file);
    let socket = fixture.path("zserv.api");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !std::path::Path::new(&socket).exists() {
        assert!(std::time::Instant::now() < end, "zebra does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Frr {
        _bgpd: bgpd(fixture, settings),
        _zebra: zebra,
    }
}

/// Runs a command of FRR's shell.
pub(crate) fn shell(fixture: &Fixture, command: &str) -> String {
    let folder = fixture.path("");
    let args = [
        "--vty_socket",
        &folder,
        "--config_dir",
        &folder,
        "-c",
        command,
    ];
    fixture.ask(&program("vtysh"), &args)
}

/// True when FRR has a route.
pub(crate) fn has(fixture: &Fixture, prefix: &str) -> bool {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    shell(fixture, &format!("show bgp {family} unicast {prefix}")).contains("best")
}
