//! `margay node`: the agent.

use std::process::ExitCode;

use anyhow::Context;

use crate::agent::{self, environment::Environment};
use crate::logging;

/// Arguments of `margay node`. Everything else comes from the environment, with the names of the Calico node container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Continue although this host was known under another node name that still owns address blocks.
    #[arg(long)]
    accept_node_rename: bool,
}

/// Runs the agent until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let environment = Environment::read(&|name| std::env::var(name).ok())?;
    let level = logging::start(environment.log_level.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("margay")
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(Box::pin(agent::run(
        environment,
        level,
        args.accept_node_rename,
    )));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result.map(|()| ExitCode::SUCCESS)
}
