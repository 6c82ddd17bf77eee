//! Running commands inside a lab.

use super::Lab;
use crate::error::{Error, Kind, Result, Tried};
use crate::names::{MARK, netns_path};
use crate::namespaces::{Placement, place};
use crate::process::search_path;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

impl Lab {
    /// A command that will run in a node, pod, the router or the fabric. Nodes and routers have their own `/run`,
    /// `/etc/cni`, `/var/lib/margay`...; a pod has the host's files.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is no such member.
    pub fn command(&self, member: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let state = self.state()?;
        let (netns, mntns) = if let Ok(node) = state.node(member) {
            (node.netns.clone(), Some(node.mount_namespace.clone()))
        } else if let Some(tor) = state.tor.as_ref().filter(|t| t.name == member) {
            (tor.netns.clone(), Some(tor.mount_namespace.clone()))
        } else if let Ok(pod) = state.pod(member) {
            (pod.netns.clone(), None)
        } else if member == "fabric" {
            (state.fabric.clone(), None)
        } else {
            let names = state
                .nodes
                .iter()
                .map(|n| n.name.clone())
                .chain(state.tor.iter().map(|t| t.name.clone()));
            let names: Vec<String> = names
                .chain(state.pods.iter().map(|p| p.name.clone()))
                .collect();
            let why = format!("lab {} has {}, fabric", self.name, names.join(", "));
            return Err(Error::new(format!("no node or pod {member:?}"), why).kind(Kind::NotFound));
        };
        let mut command = Command::new(program);
        command
            .env("PATH", self.path())
            .env(MARK, self.name.as_str());
        let inside = Placement {
            netns: Some(netns_path(&netns)),
            mntns,
            ..Placement::default()
        };
        place(&mut command, inside).tried(|| format!("cannot enter {member}"))?;
        Ok(command)
    }

    /// Runs a command inside a member and waits for it.
    ///
    /// # Errors
    /// There is no such member or program. A command that fails is not an error: see its status.
    pub async fn exec(&self, member: &str, words: &[&str]) -> Result<Output> {
        let Some((program, args)) = words.split_first() else {
            return Err(Error::new("exec", "there is no command").kind(Kind::Usage));
        };
        let mut command = self.command(member, program)?;
        command.args(args).stdin(Stdio::null());
        let what = format!("cannot run {program} in {member}");
        super::blocking(move || command.output().tried(|| what)).await
    }

    /// Search path inside a lab: this project's programs, the unpacked BGP peers, the system's.
    fn path(&self) -> String {
        let own = self
            .programs
            .margay
            .parent()
            .map(|dir| format!("{}:", dir.display()));
        format!("{}{}", own.unwrap_or_default(), search_path())
    }
}

/// Runs a command in namespaces without output; whether it succeeded.
pub(super) fn run_quietly(words: &[String], netns: &Path, mntns: &Path) -> Result<bool> {
    let Some((program, args)) = words.split_first() else {
        return Ok(true);
    };
    let mut command = Command::new(resolve(program)?);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let what = || format!("cannot run {program}");
    let inside = Placement {
        netns: Some(netns.to_owned()),
        mntns: Some(mntns.to_owned()),
        ..Placement::default()
    };
    place(&mut command, inside).tried(what)?;
    Ok(command.status().tried(what)?.success())
}

fn resolve(program: &str) -> Result<PathBuf> {
    crate::programs::peer(program)
}
