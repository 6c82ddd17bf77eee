//! The top-of-rack router: a namespace with a router's usual software, configured from the files in `examples/tor`.

mod margay;

use crate::error::{Result, Tried};
use crate::programs::{self, Programs};
use crate::state::{Node, Router, Tor};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

const BIRD: &str = include_str!("../../../examples/tor/bird.conf");
const FRR: &str = include_str!("../../../examples/tor/frr.conf");
const GOBGP: &str = include_str!("../../../examples/tor/gobgp.toml");
const GOBGP_ROUTES: &str = include_str!("gobgp-routes.sh");

/// Directories a router has for itself.
pub(crate) const PRIVATE_PATHS: &[&str] = &[
    "/run/bird",
    "/run/frr",
    "/run/margay",
    "/var/lib/margay",
    "/var/lib/frr",
    "/etc/frr",
    "/var/tmp/frr",
];

/// Files a router's software expects to read otherwise than they are on the host: FRR wants its user and groups, which
/// only an installed package makes.
pub(crate) fn private_files(kind: Tor) -> Vec<(&'static str, String)> {
    if kind != Tor::Frr {
        return Vec::new();
    }
    let groups = ["frr:x:65101:", "frrvty:x:65102:root,frr"];
    let users = ["frr:x:65101:65101:FRR:/nonexistent:/usr/sbin/nologin"];
    vec![
        ("/etc/group", with_lines("/etc/group", &groups)),
        ("/etc/passwd", with_lines("/etc/passwd", &users)),
    ]
}

/// The host's file with these lines instead of its own ones with the same first field.
fn with_lines(file: &str, lines: &[&str]) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let ours: Vec<String> = lines.iter().map(|line| name(line)).collect();
    let others = text.lines().filter(|line| !ours.contains(&name(line)));
    others
        .chain(lines.iter().copied())
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// One process of a router.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Name of the unit.
    pub(crate) unit: String,
    /// Executable.
    pub(crate) program: PathBuf,
    /// Arguments.
    pub(crate) args: Vec<OsString>,
    /// File, as the host sees it, that exists once the process accepts work; the next process waits for it.
    pub(crate) ready: Option<PathBuf>,
}

/// Writes the configuration and tells which processes to start, in this order.
///
/// # Errors
/// A program is missing or the file cannot be written.
pub(crate) fn daemons(router: &Router, nodes: &[Node], programs: &Programs) -> Result<Vec<Daemon>> {
    let folder = &router.folder;
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text)
            .tried(|| format!("cannot write {}", file.display()))
            .map(|()| file)
    };
    let daemon = |unit: String, program: PathBuf, args: Vec<OsString>| Daemon {
        unit,
        program,
        args,
        ready: None,
    };
    let main = router.name.clone();
    Ok(match router.kind {
        Tor::Bird => {
            let file = write("bird.conf", BIRD)?;
            let args = args(["-f", "-c"], &file, &["-s", "/run/bird/bird.ctl"]);
            vec![daemon(main, programs::peer("bird")?, args)]
        }
        Tor::Frr => {
            let file = write("frr.conf", FRR)?;
            let bgpd = daemon(main, programs::peer("bgpd")?, frr("bgpd", &file));
            vec![
                zebra(router, &write("zebra.conf", "hostname tor1\n")?)?,
                bgpd,
            ]
        }
        Tor::Gobgp => {
            let file = write("gobgp.toml", GOBGP)?;
            let args = args(
                ["-f"],
                &file,
                &["--api-hosts", "127.0.0.1:50051", "-l", "info"],
            );
            let script = write("gobgp-routes.sh", GOBGP_ROUTES)?;
            vec![
                daemon(main.clone(), programs::peer("gobgpd")?, args),
                daemon(
                    format!("{main}-routes"),
                    "/bin/sh".into(),
                    vec![script.into()],
                ),
            ]
        }
        Tor::Margay => {
            let file = write("margay.yaml", &margay::configuration(nodes)?)?;
            let args = args(["bgp", "-f"], &file, &["--socket", "/run/margay/bgp.sock"]);
            vec![daemon(main, programs.margay.clone(), args)]
        }
    })
}

/// Commands to run in the router once it is up, until each succeeds.
pub(crate) fn afterwards(router: &Router) -> Vec<Vec<String>> {
    if router.kind != Tor::Gobgp {
        return Vec::new();
    }
    let announce = |family: &str, prefix: &str| {
        let words = ["gobgp", "global", "rib", "add", "-a", family, prefix];
        words.map(str::to_owned).to_vec()
    };
    let has = |v6: bool| router.behind.iter().any(|ip| ip.is_ipv6() == v6);
    let v4 = has(false).then(|| announce("ipv4", "198.51.100.0/24"));
    let v6 = has(true).then(|| announce("ipv6", "2001:db8:51::/64"));
    v4.into_iter().chain(v6).collect()
}

fn args<const N: usize>(before: [&str; N], file: &PathBuf, after: &[&str]) -> Vec<OsString> {
    let before = before.into_iter().map(OsString::from);
    before
        .chain([file.into()])
        .chain(after.iter().map(OsString::from))
        .collect()
}

fn zebra(router: &Router, file: &PathBuf) -> Result<Daemon> {
    Ok(Daemon {
        unit: format!("{}-zebra", router.name),
        program: programs::peer("zebra")?,
        args: frr("zebra", file),
        ready: Some(router.folder.join("run/frr/zserv.api")),
    })
}

/// Options common to FRR's daemons: sockets and pid file in the router's own `/run/frr`, no change of user.
fn frr(name: &str, file: &PathBuf) -> Vec<OsString> {
    let pid = format!("/run/frr/{name}.pid");
    let more = [
        "-i",
        &pid,
        "-z",
        "/run/frr/zserv.api",
        "--vty_socket",
        "/run/frr",
        "-u",
        "root",
        "-g",
        "root",
        "--log",
        "stdout",
    ];
    args(["-f"], file, &more)
}
