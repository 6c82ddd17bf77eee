//! The file system a node sees: the host's, with the places of a node agent replaced by folders of the lab.

use crate::error::{Error, Result, Tried};
use crate::names::{LabName, NETNS_DIR, ROOT};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

const NOTHING: Option<&str> = None;

/// Directories that are private to one member of a lab. Each is backed by the folder of the same path below `folder`.
#[derive(Debug, Clone)]
pub(crate) struct PrivatePaths {
    /// The member's folder, `/run/margay-lab/LAB/n1`.
    pub(crate) folder: PathBuf,
    /// Absolute paths.
    pub(crate) paths: &'static [&'static str],
    /// Files of the host, by absolute path, that the member sees with another content.
    pub(crate) files: Vec<(&'static str, String)>,
}

impl PrivatePaths {
    /// The host's view of a private path.
    pub(crate) fn backing(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }
}

/// Mounts the lab's folder: a private tmpfs, so that nothing of it reaches a disk or another mount namespace.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn mount_lab_folder(lab: &LabName) -> Result<()> {
    let dir = lab.dir();
    let what = || format!("cannot mount {}", dir.display());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("margay-lab"),
        &dir,
        Some("tmpfs"),
        flags,
        Some("mode=0711"),
    )
    .tried(what)?;
    mount(NOTHING, &dir, NOTHING, MsFlags::MS_PRIVATE, NOTHING).tried(what)
}

/// Takes a mount away, even if a file below is open. Absent is fine.
pub(crate) fn unmount(path: &Path) {
    let _ = umount2(path, MntFlags::MNT_DETACH);
}

/// Makes a mount namespace and keeps it under the name `file`.
///
/// # Errors
/// The kernel refuses a step; the message names it.
pub(crate) fn keep_mount_namespace(
    lab: &LabName,
    private: PrivatePaths,
    file: &Path,
) -> Result<()> {
    let what = || {
        format!(
            "cannot make a mount namespace for {}",
            private.folder.display()
        )
    };
    File::create(file).tried(what)?;
    for path in private.paths {
        fs::create_dir_all(private.backing(path)).tried(what)?;
    }
    let (ready, is_ready) = mpsc::channel::<i32>();
    let (done, is_done) = mpsc::channel::<()>();
    let lab_dir = lab.dir();
    let worker_private = private.clone();
    let worker = thread::spawn(move || -> Result<()> {
        build(&lab_dir, &worker_private)?;
        // The receiver is gone only if the other side failed; then there is nothing to wait for.
        if ready.send(nix::unistd::gettid().as_raw()).is_ok() {
            let _ = is_done.recv();
        }
        Ok(())
    });
    let kept = is_ready.recv().map(|tid| {
        let own = PathBuf::from(format!("/proc/self/task/{tid}/ns/mnt"));
        mount(Some(&own), file, NOTHING, MsFlags::MS_BIND, NOTHING)
    });
    drop(done);
    worker
        .join()
        .map_err(|_| Error::new(what(), "the thread panicked"))??;
    match kept {
        Ok(result) => result.tried(what),
        Err(_) => Err(Error::new(what(), "the thread ended early")),
    }
}

/// Turns the calling thread's view of the file system into the member's.
fn build(lab_dir: &Path, private: &PrivatePaths) -> Result<()> {
    let what = || "cannot leave the host's mount namespace".to_owned();
    unshare(CloneFlags::CLONE_NEWNS).tried(what)?;
    // Slave: network namespaces named later appear here, nothing goes back to the host.
    mount(
        NOTHING,
        "/",
        NOTHING,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        NOTHING,
    )
    .tried(what)?;
    replace_run(lab_dir, &private.folder)?;
    let mut overlaid = Vec::new();
    for path in private.paths {
        let target = real(path);
        make_mount_point(&target, &private.folder, &mut overlaid)?;
        bind(&private.backing(path), &target)?;
    }
    for (path, content) in &private.files {
        let file = private.folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap_or(&private.folder)).tried(what)?;
        fs::write(&file, content).tried(what)?;
        bind(&file, Path::new(path))?;
    }
    Ok(())
}

/// A new `/run` that holds what a node shares with the host: named network namespaces and the lab's folder.
fn replace_run(lab_dir: &Path, folder: &Path) -> Result<()> {
    let stage = folder.join(".run");
    let what = || "cannot replace /run".to_owned();
    fs::create_dir_all(&stage).tried(what)?;
    mount(
        Some("run"),
        &stage,
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some("mode=0755"),
    )
    .tried(what)?;
    for (from, recursive) in [
        (Path::new(NETNS_DIR), MsFlags::MS_REC),
        (lab_dir, MsFlags::empty()),
    ] {
        let to = stage.join(from.strip_prefix("/run").unwrap_or(from));
        fs::create_dir_all(&to).tried(what)?;
        mount(
            Some(from),
            &to,
            NOTHING,
            MsFlags::MS_BIND | recursive,
            NOTHING,
        )
        .tried(what)?;
    }
    mount(Some(&stage), "/run", NOTHING, MsFlags::MS_MOVE, NOTHING).tried(what)?;
    debug_assert!(lab_dir.starts_with(ROOT));
    Ok(())
}

/// The path with the symbolic link `/var/run` resolved, which most systems have.
fn real(path: &str) -> PathBuf {
    let below = path.strip_prefix("/var/run/");
    match below.map(|rest| (rest, fs::canonicalize("/var/run"))) {
        Some((rest, Ok(run))) => run.join(rest),
        _ => PathBuf::from(path),
    }
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, NOTHING, MsFlags::MS_BIND, NOTHING)
        .tried(|| format!("cannot mount {} on {}", from.display(), to.display()))
}

/// Makes a directory to mount on without touching the host's disk: a missing one is made in an overlay of its nearest
/// existing parent.
fn make_mount_point(target: &Path, folder: &Path, overlaid: &mut Vec<PathBuf>) -> Result<()> {
    if target.is_dir() {
        return Ok(());
    }
    let parent = target
        .ancestors()
        .find(|a| a.is_dir())
        .unwrap_or(Path::new("/"));
    let run_or_ours = parent.starts_with("/run") || overlaid.iter().any(|o| parent.starts_with(o));
    if !run_or_ours {
        if parent == Path::new("/") {
            let why = "the directory above it does not exist";
            return Err(
                Error::new(format!("cannot make a place for {}", target.display()), why)
                    .remedy(format!("mkdir -p {}", target.display())),
            );
        }
        overlay(parent, &folder.join(".overlay"))?;
        overlaid.push(parent.to_owned());
    }
    fs::create_dir_all(target).tried(|| format!("cannot make {}", target.display()))
}

fn overlay(dir: &Path, store: &Path) -> Result<()> {
    let store = store.join(dir.strip_prefix("/").unwrap_or(dir));
    let (upper, work) = (store.join("upper"), store.join("work"));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        dir.display(),
        upper.display(),
        work.display()
    );
    let make = || -> io::Result<()> {
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        Ok(mount(
            Some("overlay"),
            dir,
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )?)
    };
    make().map_err(|e| {
        Error::new(format!("cannot lay a private layer over {}", dir.display()), e)
            .remedy("load the kernel module `overlay`, or create the missing directories yourself: /etc/cni /opt/cni /var/lib/margay /var/lib/calico /var/log/calico")
    })
}
