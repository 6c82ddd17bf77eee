//! `get apply create replace delete patch validate`: kubectl's grammar on any kind the server has.

mod apply;
mod delete;
mod get;
mod merge;
mod patch;
mod validate;
mod write;

pub(crate) use apply::Apply;
pub(crate) use delete::Delete;
pub(crate) use get::Get;
pub(crate) use patch::Patch;
pub(crate) use validate::Validate;
pub(crate) use write::{Create, Replace};

use crate::api::{Api, Kind, Write};
use crate::failure::Failure;
use crate::manifest::Document;

/// The name under which this tool owns fields.
pub(crate) const FIELD_MANAGER: &str = "margayctl";

/// Which namespace a command works in.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Namespace {
    /// The namespace to work in (default: the context's)
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

impl Namespace {
    /// The namespace of a request on this kind; `None` for kinds without namespaces.
    fn of<'a>(&'a self, api: &'a Api, kind: &Kind) -> Option<&'a str> {
        kind.namespaced.then(|| {
            self.namespace
                .as_deref()
                .unwrap_or_else(|| api.default_namespace())
        })
    }

    /// The same for an object of a file, whose own namespace must agree with `-n`.
    fn of_document<'a>(
        &'a self,
        api: &'a Api,
        kind: &Kind,
        document: &'a Document,
    ) -> Result<Option<&'a str>, Failure> {
        if !kind.namespaced {
            return Ok(None);
        }
        match (document.namespace(), self.namespace.as_deref()) {
            (Some(own), Some(asked)) if own != asked => Err(Failure::new(
                format!("cannot use {}", document.origin),
                format!("the object's namespace \"{own}\" does not match --namespace \"{asked}\""),
            )),
            (Some(own), _) => Ok(Some(own)),
            (None, _) => Ok(self.of(api, kind)),
        }
    }
}

/// `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum DryRun {
    /// Do it.
    #[default]
    None,
    /// Only check on this side and print what would be sent.
    Client,
    /// Let the server check everything and store nothing.
    Server,
}

impl DryRun {
    /// The suffix of success lines.
    fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }

    fn write(self) -> Write {
        Write {
            dry_run: self == Self::Server,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some("Strict"),
            force: false,
        }
    }
}

/// The kind and the name of an object of a file.
fn identify<'a>(api: &'a Api, document: &'a Document) -> Result<&'a Kind, Failure> {
    if let Some(kind) = api
        .kinds()
        .find_for(document.api_version(), document.kind())
    {
        return Ok(kind);
    }
    if document.api_version() == "crd.projectcalico.org/v1" {
        return Err(Failure::new(
            format!("cannot use {}", document.origin),
            "crd.projectcalico.org/v1 objects are not served",
        )
        .hint("write apiVersion: projectcalico.org/v3"));
    }
    Err(Failure::new(
        format!("unable to recognize {}", document.origin),
        format!(
            "no matches for kind \"{}\" in version \"{}\"",
            document.kind(),
            document.api_version()
        ),
    ))
}

/// `metadata.name` of an object of a file.
fn named(document: &Document) -> Result<&str, Failure> {
    document.name().filter(|n| !n.is_empty()).ok_or_else(|| {
        Failure::new(
            format!("cannot use {}", document.origin),
            "metadata.name: Required value",
        )
    })
}

/// A success line: `ippool.projectcalico.org/pods created`.
fn done(kind: &Kind, name: &str, verb: &str, dry_run: DryRun) -> String {
    format!(
        "{}/{name} {verb}{}",
        kind.qualified_singular(),
        dry_run.suffix()
    )
}
