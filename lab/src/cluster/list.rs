//! Which labs there are, and whether they work.

use super::down::known;
use crate::error::{Error, Kind, Result};
use crate::names::LabName;
use crate::namespaces;
use crate::state::{Phase, Shape, State};
use std::path::PathBuf;

/// How a lab is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Being made.
    Starting,
    /// All processes and namespaces are there.
    Running,
    /// Something is missing; what.
    Broken(String),
}

/// One lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: LabName,
    /// How it is.
    pub condition: Condition,
    /// What it consists of, if that can still be read.
    pub shape: Option<Shape>,
}

/// All labs, and what is left of labs.
pub fn list() -> Vec<Listed> {
    known()
        .iter()
        .filter_map(|name| look(name).ok().flatten())
        .collect()
}

/// One lab; `None` if nothing is left of it.
pub(super) fn look(name: &LabName) -> Result<Option<Listed>> {
    let spaces = namespaces::with_prefix(&name.netns_prefix());
    if !name.dir().exists() && spaces.is_empty() {
        return Ok(None);
    }
    let listed = |condition, shape| {
        Some(Listed {
            name: name.clone(),
            condition,
            shape,
        })
    };
    let broken = |why: &str| Condition::Broken(why.to_owned());
    let state = match State::load(name) {
        Ok(Some(state)) => state,
        Ok(None) => return Ok(listed(broken("its folder is incomplete"), None)),
        Err(e) => return Ok(listed(Condition::Broken(e.to_string()), None)),
    };
    let condition = match state.phase {
        Phase::Starting if state.owner.is_alive() => Condition::Starting,
        Phase::Starting => broken("its start was interrupted"),
        Phase::Running => match (missing_namespace(&state), state.dead_units()) {
            (Some(netns), _) => Condition::Broken(format!("network namespace {netns} is gone")),
            (None, dead) if !dead.is_empty() => {
                Condition::Broken(format!("{} no longer runs", dead.join(", ")))
            }
            _ => Condition::Running,
        },
    };
    Ok(listed(condition, Some(state.shape)))
}

fn missing_namespace(state: &State) -> Option<&str> {
    let nodes = state.nodes.iter().map(|n| &n.netns);
    let all = nodes
        .chain(state.tor.iter().map(|t| &t.netns))
        .chain(state.pods.iter().map(|p| &p.netns));
    all.chain([&state.fabric])
        .map(String::as_str)
        .find(|netns| !namespaces::is_netns(netns))
}

/// The only lab there is, for commands that were not given a name.
///
/// # Errors
/// [`Kind::NotFound`] when there is none, [`Kind::Usage`] when there are several.
pub fn only() -> Result<LabName> {
    // Labs of running tests are nobody's default.
    let bound = |name: &LabName| State::load(name).ok().flatten().is_some_and(|s| s.bound);
    let names: Vec<LabName> = known().into_iter().filter(|n| !bound(n)).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Error::new("no lab", "none is running")
            .kind(Kind::NotFound)
            .remedy("margayctl lab up demo --tor margay")),
        several => {
            let all: Vec<&str> = several.iter().map(LabName::as_str).collect();
            Err(
                Error::new("which lab", format!("there are {}", all.join(", ")))
                    .kind(Kind::Usage)
                    .remedy("name one"),
            )
        }
    }
}

/// Path of the administrator's kubeconfig.
///
/// # Errors
/// [`Kind::NotFound`] when there is no such lab.
pub fn kubeconfig(name: &LabName) -> Result<PathBuf> {
    Ok(State::require(name)?.kubeconfig)
}

/// The agents of the lab whose API server has this URL: node name and admin socket. Empty if it is no lab's.
pub fn agents_behind(server: &str) -> Vec<(String, PathBuf)> {
    let server = server.trim_end_matches('/');
    let states = known()
        .into_iter()
        .filter_map(|name| State::load(&name).ok().flatten());
    let mut found = states.filter(|s| s.api_url == server || s.fabric_url == server);
    let nodes = found.next().map(|s| s.nodes).unwrap_or_default();
    nodes
        .into_iter()
        .map(|n| (n.name, n.admin_socket))
        .collect()
}
