//! `ipam show`: pools, blocks and who has an address.

mod address;
mod blocks;
mod pools;

use crate::api::Connection;
use crate::failure::Failure;
use crate::output::Format;
use ipnet::IpNet;
use kube::api::{Api, ListParams};
use margay_crds::{IPAMBlock, IPPool, IPReservation};
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

/// Everything address management has written down, as the API server has it now.
struct Lists {
    pools: Vec<IPPool>,
    blocks: Vec<IPAMBlock>,
    reservations: Vec<IPReservation>,
}

impl Lists {
    async fn read(client: &kube::Client) -> Result<Self, Failure> {
        let all = ListParams::default();
        let (pools, blocks, reservations) = (
            Api::<IPPool>::all(client.clone()),
            Api::<IPAMBlock>::all(client.clone()),
            Api::<IPReservation>::all(client.clone()),
        );
        let (pools, blocks, reservations) =
            tokio::try_join!(pools.list(&all), blocks.list(&all), reservations.list(&all))?;
        Ok(Self {
            pools: pools.items,
            blocks: blocks.items,
            reservations: reservations.items,
        })
    }

    /// The reserved ranges, without overlaps. Ranges that cannot be parsed reserve nothing.
    fn reserved(&self) -> Vec<IpNet> {
        let listed = self
            .reservations
            .iter()
            .flat_map(|r| r.spec.reserved_cidrs.iter().flatten());
        let nets: Vec<IpNet> = listed
            .filter_map(|text| {
                text.parse()
                    .ok()
                    .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
            })
            .collect();
        IpNet::aggregate(&nets)
    }
}
