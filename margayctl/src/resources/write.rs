//! `create` and `replace`.

use super::{DryRun, FIELD_MANAGER, Namespace, done, identify, named, validate};
use crate::api::{Api, Connection, Method, Request};
use crate::failure::Failure;
use crate::manifest::{Document, Files};

/// Options that `create` and `replace` share.
#[derive(Debug, clap::Args)]
struct Options {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    namespace: Namespace,
    /// none, client or server
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "client")]
    dry_run: DryRun,
    /// The name that owns the written fields
    #[arg(long, default_value = FIELD_MANAGER)]
    field_manager: String,
    /// Send objects that this tool's own checks refuse
    #[arg(long)]
    skip_validation: bool,
}

/// Create objects from files; none may exist yet
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    options: Options,
    /// Leave objects that exist already alone
    #[arg(long)]
    skip_exists: bool,
}

/// Replace existing objects by what files say
#[derive(Debug, clap::Args)]
pub(crate) struct Replace {
    #[command(flatten)]
    options: Options,
}

impl Create {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        self.options
            .run(connection, Method::Post, "created", self.skip_exists)
            .await
    }
}

impl Replace {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        self.options
            .run(connection, Method::Put, "replaced", false)
            .await
    }
}

impl Options {
    async fn run(
        &self,
        connection: &Connection,
        method: Method,
        verb: &str,
        skip_exists: bool,
    ) -> Result<u8, Failure> {
        let documents = self.files.read()?;
        let api = Api::connect(connection).await?;
        if !self.skip_validation {
            validate::before_writing(&api, &documents).await?;
        }
        let mut failures = Vec::new();
        for document in &documents {
            match self.one(&api, document, method, verb).await {
                Ok(line) => println!("{line}"),
                Err(Failure::Server(status)) if skip_exists && status.reason == "AlreadyExists" => {
                }
                Err(e) => failures.push(e),
            }
        }
        Failure::all(failures).map(|()| 0)
    }

    async fn one(
        &self,
        api: &Api,
        document: &Document,
        method: Method,
        verb: &str,
    ) -> Result<String, Failure> {
        let kind = identify(api, document)?;
        let namespace = self.namespace.of_document(api, kind, document)?;
        let mut object = document.object.clone();
        let mut write = self.dry_run.write();
        write.field_manager = Some(self.field_manager.clone());
        let name = if method == Method::Put {
            let name = named(document)?.to_owned();
            // Without a revision in the file the newest state is replaced.
            if object.pointer("/metadata/resourceVersion").is_none() {
                let live = api
                    .send(Request::new(Method::Get, kind, namespace, Some(&name)))
                    .await?;
                if let Some(version) = live.pointer("/metadata/resourceVersion") {
                    object["metadata"]["resourceVersion"] = version.clone();
                }
            }
            Some(name)
        } else {
            None
        };
        let mut shown = document.name().unwrap_or_default().to_owned();
        if self.dry_run != DryRun::Client {
            let request = Request::new(method, kind, namespace, name.as_deref());
            let answer = api
                .send(request.body("application/json", &object, &write))
                .await?;
            if let Some(given) = answer
                .pointer("/metadata/name")
                .and_then(serde_json::Value::as_str)
            {
                given.clone_into(&mut shown);
            }
        }
        Ok(done(kind, &shown, verb, self.dry_run))
    }
}
