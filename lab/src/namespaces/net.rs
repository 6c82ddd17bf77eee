//! Named network namespaces in `/run/netns`.

use super::enter::enter_namespace;
use crate::error::{Error, Result, Tried};
use crate::names::{NETNS_DIR, ROOT, netns_path};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statfs::statfs;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;

/// Magic number of nsfs (linux/magic.h).
const NSFS_MAGIC: i64 = 0x6e73_6673;
/// Says that `/run/netns` was made by a lab and may be removed with the last one.
const OURS: &str = ".netns-directory-is-ours";

/// Runs `work` on a thread of its own inside a network namespace. Sockets opened there stay there.
///
/// # Errors
/// The namespace cannot be opened or entered.
pub(crate) fn in_netns<T: Send + 'static>(
    netns: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let file = File::open(netns)?;
    let thread = thread::Builder::new()
        .name("in-netns".into())
        .spawn(move || {
            enter_namespace(&file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })?;
    thread
        .join()
        .map_err(|_| io::Error::other("the thread in the namespace panicked"))?
}

/// Makes a new network namespace with a name.
///
/// # Errors
/// The name is taken or the kernel refuses.
pub(crate) fn create(name: &str) -> Result<()> {
    let path = netns_path(name);
    let make = || -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        let target = path.clone();
        let thread = thread::spawn(move || -> io::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let own = Path::new("/proc/thread-self/ns/net");
            Ok(mount(
                Some(own),
                &target,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )?)
        });
        thread
            .join()
            .map_err(|_| io::Error::other("the creating thread panicked"))?
    };
    make().tried(|| format!("cannot create network namespace {name}"))
}

/// Whether a namespace is mounted under this name (a bare file is what is left of one).
pub(crate) fn is_netns(name: &str) -> bool {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the width of f_type differs between platforms"
    )]
    statfs(&netns_path(name)).is_ok_and(|fs| fs.filesystem_type().0 as i64 == NSFS_MAGIC)
}

/// Removes a name; the namespace itself goes with its last process. Absent is fine.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn delete(name: &str) -> Result<()> {
    let path = netns_path(name);
    // A stale name has nothing mounted on it: then only the file goes.
    let _ = umount2(&path, MntFlags::MNT_DETACH);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::new(
            format!("cannot remove network namespace {name}"),
            e,
        )),
        _ => Ok(()),
    }
}

/// Names that begin with `prefix`, sorted.
pub(crate) fn with_prefix(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(NETNS_DIR).into_iter().flatten().flatten();
    let names = entries.filter_map(|e| e.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|n| n.starts_with(prefix)).collect();
    names.sort();
    names
}

/// Makes `/run/netns` a shared mount, as the first `ip netns add` of a machine does (ip-netns(8)): namespaces added
/// later then appear inside the nodes' mount namespaces too.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn prepare_directory() -> Result<()> {
    let dir = Path::new(NETNS_DIR);
    let what = || format!("cannot prepare {NETNS_DIR}");
    let ours = !dir.exists();
    fs::create_dir_all(dir).tried(what)?;
    let share = || {
        mount(
            None::<&str>,
            dir,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    if share().is_err() {
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(dir), dir, None::<&str>, bind, None::<&str>).tried(what)?;
        share().tried(what)?;
        if ours {
            fs::write(Path::new(ROOT).join(OURS), "").tried(what)?;
        }
    }
    Ok(())
}

/// Undoes [`prepare_directory`] if a lab made the directory and nobody uses it.
pub(crate) fn release_directory() {
    let mark = Path::new(ROOT).join(OURS);
    let empty = fs::read_dir(NETNS_DIR).is_ok_and(|mut entries| entries.next().is_none());
    if mark.exists() && empty {
        // Busy or gone means that somebody else uses it by now: then it stays.
        if umount2(NETNS_DIR, MntFlags::empty()).is_ok() {
            let _ = fs::remove_dir(NETNS_DIR);
        }
        let _ = fs::remove_file(mark);
    }
}
