//! `margayctl`: resources, status, sessions, routes, addresses and labs from one command line.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
//! 2 the command line is wrong, 3 the answer is bad, 4 not everybody could be asked, 130 interrupted.

mod agents;
mod api;
mod bgp;
mod completion;
mod failure;
mod ipam;
mod lab;
mod manifest;
mod output;
mod resources;
mod status;
mod version;

use api::Connection;
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::process::ExitCode;

/// Operates Margay: resources, BGP, address management and labs
#[derive(Debug, Parser)]
#[command(
    name = "margayctl",
    version,
    max_term_width = 80,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 the answer is bad, 4 not everybody could be asked"
)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Get(resources::Get),
    Apply(resources::Apply),
    Create(resources::Create),
    Replace(resources::Replace),
    Delete(resources::Delete),
    Patch(resources::Patch),
    Validate(resources::Validate),
    Status(status::Show),
    #[command(subcommand)]
    Bgp(bgp::Bgp),
    #[command(subcommand)]
    Ipam(ipam::Ipam),
    #[command(subcommand)]
    Lab(lab::Lab),
    Completion(completion::Completion),
    Version(version::Version),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Printing can only fail when the terminal is gone, and then nobody reads the text.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() {
                failure::USAGE
            } else {
                failure::DONE
            });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("error: cannot start: {e}");
            return ExitCode::from(failure::FAILED);
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli) -> Result<u8, Failure> {
    let connection = &cli.connection;
    match cli.command {
        Command::Get(command) => command.run(connection).await,
        Command::Apply(command) => command.run(connection).await,
        Command::Create(command) => command.run(connection).await,
        Command::Replace(command) => command.run(connection).await,
        Command::Delete(command) => command.run(connection).await,
        Command::Patch(command) => command.run(connection).await,
        Command::Validate(command) => command.run(connection).await,
        Command::Status(command) => command.run(connection).await,
        Command::Bgp(command) => command.run(connection).await,
        Command::Ipam(command) => command.run(connection).await,
        Command::Lab(command) => command.run(connection).await,
        Command::Completion(command) => command.run(&mut Cli::command()),
        Command::Version(command) => command.run(connection).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_mistyped_command_is_a_usage_error_with_a_suggestion() {
        let error = Cli::try_parse_from(["margayctl", "statsu"]).unwrap_err();
        assert!(error.to_string().contains("'status'"), "{error}");
    }
}
