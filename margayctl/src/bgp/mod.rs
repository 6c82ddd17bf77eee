//! `bgp peers` and `bgp routes`: the sessions and the tables of every node.

mod peers;
mod routes;

use crate::api::Connection;
use crate::failure::Failure;
use serde_json::{Value, json};

/// BGP sessions and routes of all nodes
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bgp {
    /// Sessions: state, counters, last error
    Peers(peers::Peers),
    /// Routes: every path, the best one marked
    Routes(routes::Routes),
}

impl Bgp {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        match self {
            Self::Peers(command) => command.run(connection).await,
            Self::Routes(command) => command.run(connection).await,
        }
    }
}

/// A line of an answer together with the node that gave it.
fn item(node: &str, line: &impl serde::Serialize) -> Value {
    let mut value = json!({"node": node});
    if let (Some(map), Ok(Value::Object(fields))) =
        (value.as_object_mut(), serde_json::to_value(line))
    {
        map.extend(fields);
    }
    value
}
