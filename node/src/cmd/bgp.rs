//! `margay bgp`: a BGP speaker out of one file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::{logging, standalone};

/// Arguments of `margay bgp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration (YAML). SIGHUP reads it again.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Unix socket that answers `margayctl bgp --socket PATH`.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Severity or directives of the log, `info` or `info,margay_bgp=debug`.
    #[arg(long, env = "MARGAY_LOG", default_value = "info", value_name = "LEVEL")]
    log: String,
}

/// Runs the speaker until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    logging::start(Some(&args.log))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("margay-bgp")
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(standalone::run(args.file, args.socket))?;
    Ok(ExitCode::SUCCESS)
}
