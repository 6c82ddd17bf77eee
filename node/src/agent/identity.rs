//! Under which name this host takes part in the cluster.

use std::path::Path;

use anyhow::{Context, bail};

/// Name of this node: `NODENAME`, else what the last start wrote, else `HOSTNAME`, else the host name. The name keys
/// address blocks, so a changed host name alone must not make a new node.
///
/// # Errors
/// The file cannot be read, or there is no name at all.
pub(crate) fn node_name(
    from_environment: Option<&str>,
    stored: Option<&str>,
) -> anyhow::Result<String> {
    if let Some(name) = from_environment.or(stored) {
        return Ok(name.to_owned());
    }
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.trim().is_empty());
    let host = match host {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .context("cannot read the host name")?,
    };
    let name = host.trim().to_lowercase();
    if name.is_empty() {
        bail!("this host has no name; set NODENAME to the name of its Kubernetes Node");
    }
    Ok(name)
}

/// The name the last start wrote, if any.
///
/// # Errors
/// The file exists but cannot be read.
pub(crate) fn stored_name(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|name| !name.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Writes the name for the next start.
///
/// # Errors
/// The file or its directory cannot be written.
pub(crate) fn store_name(file: &Path, name: &str) -> anyhow::Result<()> {
    write_atomically(file, name.as_bytes())
}

/// Replaces a small file so that a reader sees the old or the new content, never half of it.
///
/// # Errors
/// The file or its directory cannot be written; the message names the file.
pub(crate) fn write_atomically(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, content)?;
        std::fs::rename(&fresh, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_then_the_file() {
        assert_eq!(node_name(Some("a"), Some("b")).expect("name"), "a");
        assert_eq!(node_name(None, Some("b")).expect("name"), "b");
        assert!(!node_name(None, None).expect("host name").is_empty());
    }

    #[test]
    fn the_stored_name_survives_and_is_trimmed() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("deep/nodename");
        assert_eq!(stored_name(&file).expect("absent"), None);
        store_name(&file, "edge-a\n").expect("written");
        assert_eq!(
            stored_name(&file).expect("present").as_deref(),
            Some("edge-a")
        );
    }
}
