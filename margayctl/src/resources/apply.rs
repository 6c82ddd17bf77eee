//! `apply`: make the server say what a file says.

use super::merge::{last_applied, remembering, three_way};
use super::{DryRun, FIELD_MANAGER, Namespace, done, identify, named, validate};
use crate::api::{Api, Connection, Kind, Method, Request};
use crate::failure::Failure;
use crate::manifest::{Document, Files};
use serde_json::Value;

/// How often an object that changes under our hands is merged again.
const ATTEMPTS: usize = 5;

/// Create objects or change them to what files say
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl apply -f pool.yaml\n  cat peers.yaml | margayctl apply -f -\n  margayctl apply --server-side -f pool.yaml"
)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    namespace: Namespace,
    /// none, client or server
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "client")]
    dry_run: DryRun,
    /// Merge on the server, with field ownership
    #[arg(long)]
    server_side: bool,
    /// Take fields over from other managers (with --server-side)
    #[arg(long, requires = "server_side")]
    force_conflicts: bool,
    /// The name that owns the applied fields
    #[arg(long, default_value = FIELD_MANAGER)]
    field_manager: String,
    /// Send objects that this tool's own checks refuse
    #[arg(long)]
    skip_validation: bool,
}

impl Apply {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let documents = self.files.read()?;
        let api = Api::connect(connection).await?;
        if !self.skip_validation {
            validate::before_writing(&api, &documents).await?;
        }
        let mut failures = Vec::new();
        for document in &documents {
            match self.one(&api, document).await {
                Ok(line) => println!("{line}"),
                Err(e) => failures.push(e),
            }
        }
        Failure::all(failures).map(|()| 0)
    }

    async fn one(&self, api: &Api, document: &Document) -> Result<String, Failure> {
        let kind = identify(api, document)?;
        let name = named(document)?;
        let namespace = self.namespace.of_document(api, kind, document)?;
        let verb = if self.server_side {
            self.on_the_server(api, kind, namespace, name, &document.object)
                .await?
        } else {
            self.merged_here(api, kind, namespace, name, &document.object)
                .await?
        };
        Ok(done(kind, name, verb, self.dry_run))
    }

    async fn on_the_server(
        &self,
        api: &Api,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Result<&'static str, Failure> {
        if self.dry_run == DryRun::Client {
            return Err(Failure::Usage(
                "--dry-run=client does not go with --server-side".into(),
            ));
        }
        let mut write = self.dry_run.write();
        write.field_manager = Some(self.field_manager.clone());
        write.force = self.force_conflicts;
        let request = Request::new(Method::Patch, kind, namespace, Some(name));
        api.send(request.body("application/apply-patch+yaml", object, &write))
            .await?;
        Ok("serverside-applied")
    }

    async fn merged_here(
        &self,
        api: &Api,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Result<&'static str, Failure> {
        let wanted = remembering(object);
        let mut write = self.dry_run.write();
        write.field_manager = Some(self.field_manager.clone());
        for attempt in 1.. {
            let live = match api
                .send(Request::new(Method::Get, kind, namespace, Some(name)))
                .await
            {
                Ok(live) => live,
                Err(e) if e.is_not_found() => {
                    if self.dry_run != DryRun::Client {
                        let request = Request::new(Method::Post, kind, namespace, None);
                        api.send(request.body("application/json", &wanted, &write))
                            .await?;
                    }
                    return Ok("created");
                }
                Err(e) => return Err(e),
            };
            let Some(mut patch) = three_way(last_applied(&live).as_ref(), &live, &wanted) else {
                return Ok("unchanged");
            };
            if self.dry_run == DryRun::Client {
                return Ok("configured");
            }
            // The patch was made against this revision: somebody else's change meanwhile is a conflict.
            if let Some(version) = live.pointer("/metadata/resourceVersion") {
                patch["metadata"]["resourceVersion"] = version.clone();
            }
            let request = Request::new(Method::Patch, kind, namespace, Some(name));
            match api
                .send(request.body("application/merge-patch+json", &patch, &write))
                .await
            {
                Ok(_) => return Ok("configured"),
                Err(e) if e.is_conflict() && attempt < ATTEMPTS => {}
                Err(e) => return Err(e),
            }
        }
        Err(Failure::new(
            format!("cannot apply {name}"),
            "it changes faster than it can be merged",
        ))
    }
}
