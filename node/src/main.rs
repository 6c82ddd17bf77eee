//! The `margay` executable: everything that runs on a node, a control plane or a lab, by subcommand.
//!
//! This crate is the only place where the parts are wired together; it holds no rules of its own.

mod admin;
mod agent;
mod cmd;
mod cni_server;
mod health;
mod logging;
mod metrics;
mod standalone;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// BGP-native pod network for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "margay", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What this process does.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node agent: BGP, addresses, routes and the CNI socket of this node.
    Node(cmd::node::Args),
    /// Run the cluster-wide controller (leader-elected).
    Controller(cmd::controller::Args),
    /// Run the embedded Kubernetes API server.
    Apiserver(cmd::apiserver::Args),
    /// Run a stand-alone BGP speaker from a file.
    Bgp(cmd::bgp::Args),
    /// Copy the CNI executable to the host.
    InstallCni(cmd::install_cni::Args),
    /// Ask the agent of this node how it is; exit 0 or 1.
    Health(cmd::health::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Node(args) => cmd::node::run(args),
        Command::Controller(args) => cmd::controller::run(args),
        Command::Apiserver(args) => cmd::apiserver::run(args),
        Command::Bgp(args) => cmd::bgp::run(args),
        Command::InstallCni(args) => cmd::install_cni::run(args),
        Command::Health(args) => cmd::health::run(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("margay: {error:#}");
            ExitCode::FAILURE
        }
    }
}
