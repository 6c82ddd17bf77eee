//! `delete`.

use super::{DryRun, Namespace, done, identify, named};
use crate::api::{Api, Connection, Kind, Method, Request, Write};
use crate::failure::Failure;
use crate::manifest::Files;
use serde_json::{Value, json};
use std::time::Duration;

/// Pause between two looks at an object that is going away.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Delete objects by name, by label or by file
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl delete ippool second\n  margayctl delete -f peers.yaml --ignore-not-found\n  margayctl delete bgppeers -l rack=r1"
)]
pub(crate) struct Delete {
    /// KIND NAME... or KIND/NAME...
    words: Vec<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    namespace: Namespace,
    /// All objects of the kind with matching labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// All objects of the kind
    #[arg(long)]
    all: bool,
    /// Succeed when an object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Wait until the objects are gone
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    wait: bool,
    /// none, client or server
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "client")]
    dry_run: DryRun,
}

impl Delete {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let api = Api::connect(connection).await?;
        let targets = self.targets(&api).await?;
        if targets.is_empty() {
            eprintln!("No resources found");
        }
        let wait_for = Duration::from_secs(connection.timeout.max(1));
        let mut failures = Vec::new();
        for (kind, namespace, name) in &targets {
            match self
                .one(&api, kind, namespace.as_deref(), name, wait_for)
                .await
            {
                Ok(()) => {}
                Err(e) if e.is_not_found() && self.ignore_not_found => {}
                Err(e) => failures.push(e),
            }
        }
        Failure::all(failures).map(|()| 0)
    }

    async fn targets(&self, api: &Api) -> Result<Vec<(Kind, Option<String>, String)>, Failure> {
        let mut targets = Vec::new();
        let own = |kind: &Kind| self.namespace.of(api, kind).map(str::to_owned);
        if !self.files.files.is_empty() {
            for document in self.files.read()? {
                let kind = identify(api, &document)?;
                let namespace = self
                    .namespace
                    .of_document(api, kind, &document)?
                    .map(str::to_owned);
                targets.push((kind.clone(), namespace, named(&document)?.to_owned()));
            }
            return Ok(targets);
        }
        let Some((first, names)) = self.words.split_first() else {
            return Err(Failure::Usage(
                "what to delete? KIND NAME, or -f FILE".into(),
            ));
        };
        if first.contains('/') {
            for word in &self.words {
                let (kind, name) = word.split_once('/').ok_or_else(|| {
                    Failure::Usage(format!(
                        "{word:?}: either all words are KIND/NAME or none is"
                    ))
                })?;
                let kind = api.kinds().find(kind)?;
                targets.push((kind.clone(), own(kind), name.to_owned()));
            }
            return Ok(targets);
        }
        let kind = api.kinds().find(first)?;
        match (names.is_empty(), &self.selector, self.all) {
            (false, None, false) => {
                targets.extend(
                    names
                        .iter()
                        .map(|name| (kind.clone(), own(kind), name.clone())),
                );
            }
            (true, Some(_), _) | (true, _, true) => {
                let namespace = own(kind);
                let mut request = Request::new(Method::Get, kind, namespace.as_deref(), None);
                if let Some(selector) = &self.selector {
                    request = request.query("labelSelector", selector);
                }
                let list = api.send(request).await?;
                for item in list
                    .get("items")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    if let Some(name) = item.pointer("/metadata/name").and_then(Value::as_str) {
                        targets.push((kind.clone(), namespace.clone(), name.to_owned()));
                    }
                }
            }
            (true, None, false) => {
                return Err(Failure::Usage(format!(
                    "which {}? NAME, -l SELECTOR or --all",
                    kind.plural
                )));
            }
            (false, ..) => return Err(Failure::Usage("names do not go with -l or --all".into())),
        }
        Ok(targets)
    }

    async fn one(
        &self,
        api: &Api,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        wait_for: Duration,
    ) -> Result<(), Failure> {
        let live = api
            .send(Request::new(Method::Get, kind, namespace, Some(name)))
            .await?;
        if self.dry_run != DryRun::Client {
            let write = Write {
                dry_run: self.dry_run == DryRun::Server,
                ..Write::default()
            };
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
            let request = Request::new(Method::Delete, kind, namespace, Some(name));
            api.send(request.body("application/json", &options, &write))
                .await?;
        }
        println!(
            "{}",
            done(kind, &format!("{name}\""), "deleted", self.dry_run).replacen('/', " \"", 1)
        );
        if self.wait && self.dry_run == DryRun::None {
            let uid = live.pointer("/metadata/uid").cloned();
            self.until_gone(api, kind, namespace, name, uid, wait_for)
                .await?;
        }
        Ok(())
    }

    async fn until_gone(
        &self,
        api: &Api,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        uid: Option<Value>,
        wait_for: Duration,
    ) -> Result<(), Failure> {
        let deadline = tokio::time::Instant::now() + wait_for;
        loop {
            let live = match api
                .send(Request::new(Method::Get, kind, namespace, Some(name)))
                .await
            {
                Err(e) if e.is_not_found() => return Ok(()),
                other => other?,
            };
            if live.pointer("/metadata/uid").cloned() != uid {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                let finalizers = live
                    .pointer("/metadata/finalizers")
                    .map(ToString::to_string)
                    .unwrap_or_default();
                return Err(Failure::new(
                    format!("{} \"{name}\" is still there", kind.qualified_singular()),
                    format!("finalizers {finalizers} hold it"),
                )
                .hint("--wait=false returns at once"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
