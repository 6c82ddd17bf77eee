//! `/run/margay/restart.json`: what the next process of this node has to know about this one. The file lives on tmpfs,
//! so after a reboot of the host it is gone, as is the kernel state it speaks of.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::identity::write_atomically;

/// Version of the format. A file with a greater one is left alone and ignored.
const SCHEMA: u32 = 1;

/// State carried over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestartState {
    schema: u32,
    /// Peers whose session was Established.
    pub(crate) established: BTreeSet<IpAddr>,
    /// BGP routes in the kernel outside all pools: only this list tells that they are this node's.
    pub(crate) outside_pools: BTreeSet<IpNet>,
    /// Routes were in the kernel, so forwarding state survives (RFC 4724 section 3, bit F).
    pub(crate) forwarding: bool,
}

impl RestartState {
    /// Reads what the last process left; nothing readable means nothing is known.
    pub(crate) fn load(path: &Path) -> Option<Self> {
        let text = std::fs::read(path).ok()?;
        let state: RestartState = serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "restart state is not readable"))
            .ok()?;
        (state.schema <= SCHEMA).then_some(state)
    }

    /// Writes the state for the next process.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn store(&self, path: &Path) -> anyhow::Result<()> {
        let state = RestartState {
            schema: SCHEMA,
            ..self.clone()
        };
        write_atomically(path, &serde_json::to_vec(&state)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_and_newer_formats_are_ignored() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("restart.json");
        assert_eq!(RestartState::load(&path), None);
        let state = RestartState {
            established: BTreeSet::from(["10.0.0.2".parse().expect("ip")]),
            outside_pools: BTreeSet::from(["0.0.0.0/0".parse().expect("net")]),
            forwarding: true,
            ..RestartState::default()
        };
        state.store(&path).expect("written");
        let read = RestartState::load(&path).expect("read");
        assert_eq!(read.established, state.established);
        assert_eq!(read.outside_pools, state.outside_pools);
        std::fs::write(
            &path,
            r#"{"schema":2,"established":[],"outsidePools":[],"forwarding":true}"#,
        )
        .expect("written");
        assert_eq!(RestartState::load(&path), None);
        assert!(path.exists(), "a newer file is not deleted");
        std::fs::write(&path, "{").expect("written");
        assert_eq!(RestartState::load(&path), None);
    }
}
