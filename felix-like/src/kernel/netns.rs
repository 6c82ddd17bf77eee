//! Network namespaces: entering one, creating one, and sockets that belong to one.
//!
//! `setns(2)` changes one thread only, and a socket stays in the namespace where it was created. So nothing here ever
//! moves a thread that somebody else will use again: work runs on a plain thread that enters the namespace and then
//! exits. Thread pools (tokio workers, `spawn_blocking`) never change their namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::sys::statfs::{FsType, fstatfs};
use thiserror::Error;

/// Magic of nsfs (linux/magic.h).
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);
/// Magic of procfs, where namespace files lived before nsfs.
const PROC_MAGIC: FsType = FsType(0x9fa0);

/// Why a namespace could not be opened or entered.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The path does not exist or cannot be opened.
    #[error("open network namespace {path}: {source}")]
    Open {
        /// Path as given.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The file is not a namespace: the mount below it is gone.
    #[error("{0} is not a network namespace (nothing is mounted there any more)")]
    NotANamespace(String),
    /// The kernel refused to enter or to create a namespace: CAP_SYS_ADMIN is missing.
    #[error("{action} a network namespace: {source}")]
    Refused {
        /// `enter` or `create`.
        action: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The thread that was to run in the namespace could not be started or ended early.
    #[error("a thread for work in a network namespace failed: {0}")]
    Thread(String),
}

/// Device and inode of a namespace file: equal for two handles of the same namespace while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetnsId {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// An open network namespace. Keeps it alive; cheap to clone.
#[derive(Debug, Clone)]
pub struct Netns {
    file: Arc<File>,
}

impl Netns {
    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Opens a namespace by path, for example `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// [`NetnsError::Open`] when the path is absent, [`NetnsError::NotANamespace`] when it is an ordinary file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref();
        let open_error = |source| NetnsError::Open {
            path: path.display().to_string(),
            source,
        };
        let file = File::open(path).map_err(open_error)?;
        Self::checked(file, || path.display().to_string())
    }

    /// Takes a descriptor received from another process.
    ///
    /// # Errors
    /// [`NetnsError::NotANamespace`] when it does not refer to a namespace file.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, NetnsError> {
        Self::checked(File::from(fd), || "the descriptor".to_owned())
    }

    /// A new namespace without a name, alive as long as the value or anything inside it.
    pub fn create() -> Result<Self, NetnsError> {
        on_new_thread("netns-create", || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| NetnsError::Refused {
                action: "create",
                source: e.into(),
            })?;
            Self::current()
        })?
    }

    fn checked(file: File, name: impl Fn() -> String) -> Result<Self, NetnsError> {
        let fs = fstatfs(&file)
            .map_err(|e| NetnsError::Open {
                path: name(),
                source: e.into(),
            })?
            .filesystem_type();
        if fs != NSFS_MAGIC && fs != PROC_MAGIC {
            return Err(NetnsError::NotANamespace(name()));
        }
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Which namespace this is.
    pub fn id(&self) -> Result<NetnsId, NetnsError> {
        let meta = self.file.metadata().map_err(|source| NetnsError::Open {
            path: "an open namespace".to_owned(),
            source,
        })?;
        Ok(NetnsId {
            device: meta.dev(),
            inode: meta.ino(),
        })
    }

    /// Runs `work` on a fresh thread inside the namespace and waits for it; the thread exits afterwards.
    ///
    /// Blocks the caller: from async code call it within `spawn_blocking`.
    pub fn run<T, F>(&self, work: F) -> Result<T, NetnsError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let netns = self.clone();
        on_new_thread("netns-work", move || {
            netns.enter()?;
            Ok(work())
        })?
    }

    /// Starts a long-lived thread inside the namespace. The thread ends at once when the namespace cannot be entered;
    /// the error is then its result.
    pub fn spawn<T, F>(
        &self,
        name: &str,
        work: F,
    ) -> Result<thread::JoinHandle<Result<T, NetnsError>>, NetnsError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let netns = self.clone();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                netns.enter()?;
                Ok(work())
            })
            .map_err(|e| NetnsError::Thread(e.to_string()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that may switch a thread's namespace"
    )]
    fn enter(&self) -> Result<(), NetnsError> {
        nix::sched::setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET).map_err(|e| {
            NetnsError::Refused {
                action: "enter",
                source: e.into(),
            }
        })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn on_new_thread<T, F>(name: &str, work: F) -> Result<T, NetnsError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|e| NetnsError::Thread(e.to_string()))?
        .join()
        .map_err(|_| NetnsError::Thread(format!("thread {name} panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_another_namespace_leaves_the_calling_thread_where_it_was() {
        let before = Netns::current().unwrap().id().unwrap();
        let other = Netns::create().expect("needs root");
        let inside = other
            .run(|| Netns::current().unwrap().id().unwrap())
            .unwrap();
        assert_eq!(inside, other.id().unwrap());
        assert_ne!(inside, before);
        assert_eq!(Netns::current().unwrap().id().unwrap(), before);
    }

    #[test]
    fn an_ordinary_file_is_not_a_namespace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            Netns::open(file.path()),
            Err(NetnsError::NotANamespace(_))
        ));
        assert!(matches!(
            Netns::open("/nonexistent/ns"),
            Err(NetnsError::Open { .. })
        ));
    }
}
