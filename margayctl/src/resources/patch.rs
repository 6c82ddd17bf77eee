//! `patch`.

use super::{DryRun, Namespace, done, identify, named};
use crate::api::{Api, Connection, Method, Request};
use crate::failure::Failure;
use crate::manifest::Files;
use serde_json::Value;

/// Which kind of patch is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PatchType {
    /// RFC 7386 merge patch.
    Merge,
    /// RFC 6902 list of operations.
    Json,
    /// Strategic merge (core kinds only; custom resources do not have it).
    Strategic,
}

/// Change fields of an object
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl patch ippool pods-v4 -p '{\"spec\":{\"natOutgoing\":true}}'\n  margayctl patch ippool pods-v4 --type json -p '[{\"op\":\"remove\",\"path\":\"/spec/nodeSelector\"}]'"
)]
pub(crate) struct Patch {
    /// KIND NAME or KIND/NAME
    words: Vec<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    namespace: Namespace,
    /// The patch, YAML or JSON
    #[arg(
        short,
        long,
        value_name = "PATCH",
        required_unless_present = "patch_file"
    )]
    patch: Option<String>,
    /// A file that holds the patch
    #[arg(long, value_name = "FILE", conflicts_with = "patch")]
    patch_file: Option<std::path::PathBuf>,
    /// The kind of patch
    #[arg(long = "type", value_enum, default_value = "merge")]
    patch_type: PatchType,
    /// Patch a subresource instead
    #[arg(long, value_name = "NAME")]
    subresource: Option<String>,
    /// none, client or server
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "client")]
    dry_run: DryRun,
}

impl Patch {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let patch = self.read_patch()?;
        let api = Api::connect(connection).await?;
        let documents = if self.files.files.is_empty() {
            Vec::new()
        } else {
            self.files.read()?
        };
        let (kind, namespace, name) = match (documents.as_slice(), self.words.as_slice()) {
            ([document], []) => (
                identify(&api, document)?,
                self.namespace
                    .of_document(&api, identify(&api, document)?, document)?,
                named(document)?,
            ),
            ([], [kind, name]) => {
                let kind = api.kinds().find(kind)?;
                (kind, self.namespace.of(&api, kind), name.as_str())
            }
            ([], [word]) if word.contains('/') => {
                let (kind, name) = word.split_once('/').unwrap_or_default();
                let kind = api.kinds().find(kind)?;
                (kind, self.namespace.of(&api, kind), name)
            }
            _ => {
                return Err(Failure::Usage(
                    "patch one object: KIND NAME, KIND/NAME or -f FILE".into(),
                ));
            }
        };
        if self.dry_run == DryRun::Client {
            println!("{}", done(kind, name, "patched", self.dry_run));
            return Ok(0);
        }
        let content_type = match self.patch_type {
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Json => "application/json-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
        };
        let before = api
            .send(Request::new(Method::Get, kind, namespace, Some(name)))
            .await?;
        let target = match &self.subresource {
            Some(sub) => format!("{name}/{sub}"),
            None => name.to_owned(),
        };
        let request = Request::new(Method::Patch, kind, namespace, Some(&target));
        let after = api
            .send(request.body(content_type, &patch, &self.dry_run.write()))
            .await?;
        let version = |v: &Value| v.pointer("/metadata/resourceVersion").cloned();
        let same = self.dry_run == DryRun::None && version(&before) == version(&after);
        println!(
            "{}",
            done(
                kind,
                name,
                if same {
                    "patched (no change)"
                } else {
                    "patched"
                },
                self.dry_run
            )
        );
        Ok(0)
    }

    fn read_patch(&self) -> Result<Value, Failure> {
        let text = match (&self.patch, &self.patch_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => std::fs::read_to_string(path)
                .map_err(|e| Failure::new(format!("cannot read {}", path.display()), e))?,
            (None, None) => return Err(Failure::Usage("-p PATCH or --patch-file FILE".into())),
        };
        serde_saphyr::from_str(&text).map_err(|e| Failure::new("unable to parse the patch", e))
    }
}
