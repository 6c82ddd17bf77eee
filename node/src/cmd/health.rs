//! `margay health`: exec probes of the agent.

use std::process::ExitCode;
use std::time::Duration;

use crate::health::client;

/// Arguments of `margay health`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true)))]
pub(crate) struct Args {
    /// The agent's loops run.
    #[arg(long, group = "what")]
    live: bool,
    /// The agent does its work.
    #[arg(long, group = "what")]
    ready: bool,
    /// BGP sessions are up: all of them shortly after start, at least one later.
    #[arg(long, group = "what")]
    bgp_ready: bool,
    /// Host of the probe endpoint.
    #[arg(long, env = "FELIX_HEALTHHOST", default_value = "127.0.0.1")]
    host: String,
    /// Port of the probe endpoint.
    #[arg(long, env = "FELIX_HEALTHPORT", default_value_t = 9099)]
    port: u16,
    /// Seconds to wait for an answer.
    #[arg(long, default_value_t = 5)]
    timeout: u64,
}

/// Runs the command: 0 when every asked check is good, else 1 with the causes on standard error.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let checks = [
        (args.live, "/liveness"),
        (args.ready, "/readiness"),
        (args.bgp_ready, "/bgp-readiness"),
    ];
    let timeout = Duration::from_secs(args.timeout.max(1));
    let mut good = true;
    for (_, path) in checks.iter().filter(|(asked, _)| *asked) {
        match client::get(&args.host, args.port, path, timeout) {
            Ok((200 | 204, _)) => {}
            Ok((_, body)) => {
                good = false;
                body.lines()
                    .take_while(|line| !line.starts_with('+'))
                    .for_each(|line| eprintln!("{line}"));
            }
            Err(cause) => {
                good = false;
                eprintln!("margay/node is not ready: {cause}");
            }
        }
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
