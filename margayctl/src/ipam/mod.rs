//! `ipam show`: pools, blocks and who has an address.

mod address;
mod pools;

use crate::api::Connection;
use crate::failure::Failure;
use crate::output::Format;
use std::net::IpAddr;

/// Address management
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Ipam {
    /// Use of pools and blocks, or who has an address
    Show(Show),
}

/// Use of pools and blocks, or who has an address
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl ipam show\n  margayctl ipam show --show-blocks\n  margayctl ipam show --ip 10.88.0.7"
)]
pub(crate) struct Show {
    /// Who has this address
    #[arg(long, value_name = "IP", conflicts_with_all = ["show_blocks", "show_borrowed"])]
    ip: Option<IpAddr>,
    /// Show blocks below their pools
    #[arg(long)]
    show_blocks: bool,
    /// Show addresses that a node uses out of another node's block
    #[arg(long)]
    show_borrowed: bool,
    /// table, json, yaml, jsonpath=...
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Leave the header out
    #[arg(long)]
    no_headers: bool,
}

impl Ipam {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let Self::Show(show) = self;
        let client = crate::api::client(connection).await?;
        match show.ip {
            Some(ip) => address::show(&client, ip, show).await,
            None => pools::show(&client, show).await,
        }
    }
}
