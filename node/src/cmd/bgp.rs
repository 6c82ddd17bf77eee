//! `margay bgp`.

use std::process::ExitCode;

/// Arguments of `margay bgp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build does not contain this command")
}
