//! `lab`: clusters in network namespaces on this machine.

use crate::api::Connection;
use crate::failure::Failure;

/// Clusters in network namespaces on this machine
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {}

impl Lab {
    /// Runs the command.
    pub(crate) async fn run(&self, _connection: &Connection) -> Result<u8, Failure> {
        match *self {}
    }
}
