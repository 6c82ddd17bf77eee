//! `version`: this tool, the API server, the agents.

use crate::agents::{Agents, Nodes};
use crate::api::Connection;
use crate::failure::Failure;
use crate::output::{Format, print_document};
use margay_crds::admin::Status;
use serde_json::{Value, json};

/// Versions of this tool, of the API server and of the agents
#[derive(Debug, clap::Args)]
pub(crate) struct Version {
    /// Only this tool
    #[arg(long)]
    client: bool,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

impl Version {
    /// Runs the command. What cannot be reached is left out and said on standard error.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let mut value = json!({"clientVersion": env!("CARGO_PKG_VERSION")});
        if !self.client {
            match server_version(connection).await {
                Ok(version) => value["serverVersion"] = Value::String(version),
                Err(e) => eprintln!("{e}"),
            }
            if let Ok(agents) = Agents::find(connection, &Nodes::default()).await {
                let answers = agents.ask::<Status>("/v1/status").await;
                let versions = answers
                    .answers
                    .into_iter()
                    .map(|(node, s)| (node, Value::String(s.version)));
                value["agentVersions"] = Value::Object(versions.collect());
            }
        }
        if !print_document(&mut std::io::stdout().lock(), &self.output, &value)? {
            println!("Client Version: v{}", env!("CARGO_PKG_VERSION"));
            if let Some(version) = value.get("serverVersion").and_then(Value::as_str) {
                println!("Server Version: {version}");
            }
            for (node, version) in value
                .get("agentVersions")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                println!(
                    "Agent Version:  {node} v{}",
                    version.as_str().unwrap_or("?")
                );
            }
        }
        Ok(0)
    }
}

async fn server_version(connection: &Connection) -> Result<String, Failure> {
    let client = crate::api::client(connection).await?;
    Ok(client.apiserver_version().await?.git_version)
}
