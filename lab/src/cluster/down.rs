//! Taking a lab down, whole or broken: processes, namespaces, mounts, folder.

use crate::error::{Error, Kind, Result, Tried};
use crate::names::{LabName, PREFIX, ROOT};
use crate::namespaces;
use crate::process::marked;
use crate::state::{State, lock_all};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the hunt for processes is repeated: one may have started another one meanwhile.
const ROUNDS: usize = 10;
/// How long unmounting may be busy.
const BUSY: Duration = Duration::from_secs(3);

/// Removes everything of a lab. Safe to repeat; nothing to remove is fine.
///
/// # Errors
/// Not root, or a process or a folder resists.
pub fn down(name: &LabName) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::new("taking a lab down", "needs root")
            .kind(Kind::Preflight)
            .remedy("run the command with sudo"));
    }
    kill_all(name)?;
    let dir = name.dir();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|e| e == "mnt") {
            namespaces::unmount(&entry.path());
        }
    }
    for netns in namespaces::with_prefix(&name.netns_prefix()) {
        namespaces::delete(&netns)?;
    }
    remove_folder(&dir)?;
    release_root()
}

/// Removes everything of every lab.
///
/// # Errors
/// Like [`down`], for the first lab that resists.
pub fn down_all() -> Result<Vec<LabName>> {
    let names = known();
    for name in &names {
        down(name)?;
    }
    release_root()?;
    Ok(names)
}

/// Names of all labs of which anything is left.
pub(super) fn known() -> Vec<LabName> {
    let folders = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let folders = folders.filter_map(|e| e.file_name().into_string().ok());
    let spaces = namespaces::with_prefix(PREFIX)
        .into_iter()
        .filter_map(|n| Some(n.strip_prefix(PREFIX)?.split_once('-')?.0.to_owned()));
    let names: BTreeSet<LabName> = folders
        .chain(spaces)
        .filter_map(|n| LabName::new(&n).ok())
        .collect();
    names.into_iter().collect()
}

/// Takes down labs of tests whose process has ended without doing so.
pub(super) fn sweep_orphans() {
    for name in known() {
        let orphan = State::load(&name)
            .ok()
            .flatten()
            .is_some_and(|s| s.bound && !s.owner.is_alive());
        if orphan && let Err(error) = down(&name) {
            eprintln!("lab {name}, left by an earlier test: {error}");
        }
    }
}

/// Ends all processes of the lab: those on file and those that carry its mark.
fn kill_all(name: &LabName) -> Result<()> {
    let on_file = State::load(name)
        .ok()
        .flatten()
        .map(|s| s.processes)
        .unwrap_or_default();
    let mut left = Vec::new();
    for round in 0..ROUNDS {
        left = marked(name.as_str());
        if round == 0 {
            left.extend(on_file.values().filter(|p| p.is_alive()).copied());
        }
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            pid.signal(nix::sys::signal::Signal::SIGKILL);
        }
        for pid in &left {
            pid.wait_gone(Duration::from_secs(5));
        }
    }
    let numbers: Vec<String> = left.iter().map(|p| p.pid.to_string()).collect();
    Err(Error::new(
        format!("cannot end the processes of lab {name}"),
        numbers.join(" "),
    ))
}

fn remove_folder(dir: &Path) -> Result<()> {
    let deadline = Instant::now() + BUSY;
    loop {
        // Several layers if a mount was made twice; none when the folder is plain.
        namespaces::unmount(dir);
        match fs::remove_dir_all(dir) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) if Instant::now() >= deadline => {
                return Err(e).tried(|| format!("cannot remove {}", dir.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Removes what all labs share once the last one is gone.
fn release_root() -> Result<()> {
    let root = Path::new(ROOT);
    if !root.exists() {
        return Ok(());
    }
    let _lock = lock_all()?;
    if known().is_empty() {
        namespaces::release_directory();
        // A process that waits for the lock notices and makes the folder again.
        let _ = fs::remove_file(root.join(".lock"));
        let _ = fs::remove_dir(root);
    }
    Ok(())
}
