//! Tombstones: DEL came while the agent was away. DEL succeeds then, because some runtimes never repeat it; the agent
//! does the work when it is back, before it serves its first request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attachment::AttachmentKey;
use crate::file;

/// Layout of the files written here.
pub const SCHEMA: u32 = 1;

/// A DEL to be done later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Layout, see [`SCHEMA`].
    pub schema: u32,
    /// Which attachment.
    #[serde(flatten)]
    pub key: AttachmentKey,
    /// Network name, if standard input had one.
    #[serde(default)]
    pub network: Option<String>,
    /// `CNI_ARGS` of the call.
    #[serde(default)]
    pub args: String,
    /// Seconds since 1970 of the call.
    #[serde(default)]
    pub created: u64,
}

/// The directory of tombstones.
#[derive(Debug, Clone)]
pub struct Graveyard {
    path: PathBuf,
}

impl Graveyard {
    /// The tombstones below a state directory; creates it (mode 0700).
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn open(state: &Path) -> io::Result<Graveyard> {
        use std::os::unix::fs::DirBuilderExt;
        let path = state.join("pending-del");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Graveyard { path })
    }

    /// Writes a tombstone; it is durable on return.
    ///
    /// # Errors
    /// Those of open(2), write(2), rename(2) and fsync(2).
    pub fn bury(&self, tombstone: &Tombstone) -> io::Result<()> {
        let content = serde_json::to_vec(tombstone)?;
        file::replace(&self.path.join(tombstone.key.file_name()), &content)?.sync_all()?;
        file::sync_directory(&self.path)
    }

    /// All tombstones, oldest first. Unreadable ones are skipped; there is nothing to learn from them.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn all(&self) -> io::Result<Vec<Tombstone>> {
        let mut tombstones = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let parsed =
                fs::read(&path).map(|content| serde_json::from_slice::<Tombstone>(&content));
            if let Ok(Ok(tombstone)) = parsed {
                tombstones.push(tombstone);
            }
        }
        tombstones.sort_by_key(|tombstone| tombstone.created);
        Ok(tombstones)
    }

    /// Removes a tombstone; it not being there is fine.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self, key: &AttachmentKey) -> io::Result<()> {
        file::remove(&self.path.join(key.file_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_come_back_in_order() {
        let state = tempfile::tempdir().expect("directory");
        let graveyard = Graveyard::open(state.path()).expect("open");
        for (id, created) in [("c2", 20), ("c1", 10)] {
            let tombstone = Tombstone {
                schema: SCHEMA,
                key: AttachmentKey::new(id, "eth0"),
                network: None,
                args: String::new(),
                created,
            };
            graveyard.bury(&tombstone).expect("bury");
        }
        fs::write(graveyard.path.join("x@eth0.json"), b"{").expect("write");
        let ids: Vec<_> = graveyard
            .all()
            .expect("all")
            .into_iter()
            .map(|t| t.key.container_id)
            .collect();
        assert_eq!(ids, ["c1", "c2"]);
        graveyard
            .remove(&AttachmentKey::new("c1", "eth0"))
            .expect("remove");
        assert_eq!(graveyard.all().expect("all").len(), 1);
    }
}
