//! `lab pod`: starts and ends pods.

use super::{failed, open};
use crate::failure::{DONE, Failure};
use crate::output::{Format, Table, document, print_document};
use margay_lab::cluster::PodRequest;
use serde_json::{Value, json};

/// Start and end pods
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Pod {
    Add(Add),
    Rm(Remove),
    Ls(List),
}

/// Start pods on a node: real CNI, real addresses
#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// Node
    node: String,
    /// Name of the lab
    lab: Option<String>,
    /// Number of pods
    #[arg(short, long, default_value_t = 1, conflicts_with = "name")]
    count: u16,
    /// Name of the pod [default: NODE-pNUMBER]
    #[arg(long)]
    name: Option<String>,
    /// IPv4 address from this IPPool only
    #[arg(long)]
    pool: Option<String>,
    /// Annotation of the pod (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    annotation: Vec<String>,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// End pods
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// Names of the pods
    #[arg(required = true)]
    pods: Vec<String>,
    /// Name of the lab
    #[arg(short, long)]
    lab: Option<String>,
}

/// List the lab's pods
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Name of the lab
    lab: Option<String>,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

impl Pod {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        match self {
            Self::Add(command) => command.run().await,
            Self::Rm(command) => command.run().await,
            Self::Ls(command) => command.run().await,
        }
    }
}

impl Add {
    async fn run(&self) -> Result<u8, Failure> {
        let mut request = PodRequest {
            name: self.name.clone(),
            ..PodRequest::on(&self.node)
        };
        for annotation in &self.annotation {
            let pair = annotation.split_once('=');
            let (key, value) = pair.ok_or_else(|| {
                Failure::Usage(format!("--annotation {annotation}: write KEY=VALUE"))
            })?;
            request.annotations.push((key.to_owned(), value.to_owned()));
        }
        if let Some(pool) = &self.pool {
            request = request.from_pool(pool);
        }
        let lab = open(self.lab.as_deref()).await?;
        let mut pods = Vec::new();
        for _ in 0..self.count {
            pods.push(lab.add_pod(&request).await.map_err(failed)?);
        }
        print(&pods, &self.output)
    }
}

impl Remove {
    async fn run(&self) -> Result<u8, Failure> {
        let lab = open(self.lab.as_deref()).await?;
        for pod in &self.pods {
            lab.remove_pod(pod).await.map_err(failed)?;
            println!("pod/{pod} deleted");
        }
        Ok(DONE)
    }
}

impl List {
    async fn run(&self) -> Result<u8, Failure> {
        print(
            &open(self.lab.as_deref()).await?.pods().map_err(failed)?,
            &self.output,
        )
    }
}

fn print(pods: &[margay_lab::Pod], output: &Format) -> Result<u8, Failure> {
    let items: Vec<Value> = pods.iter().map(|pod| json!(pod)).collect();
    let mut out = std::io::stdout().lock();
    if !print_document(&mut out, output, &document("LabPodList", items))? {
        let mut table = Table::new(&["POD", "NODE", "ADDRESSES", "NETWORK NAMESPACE"]);
        for pod in pods {
            let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
            table.row(vec![
                pod.name.clone(),
                pod.node.clone(),
                addresses.join(","),
                pod.netns.clone(),
            ]);
        }
        table.print(&mut out, true)?;
    }
    Ok(DONE)
}
