//! Which network namespace a path or a descriptor stands for.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::sys::statfs::fstatfs;
use serde::{Deserialize, Serialize};

use crate::error::{CniError, Code};

/// Magic number of nsfs (`linux/magic.h`); nix has it only as a C type of varying width.
const NSFS: i64 = 0x6e73_6673;

/// Device and inode of a namespace file. Inode numbers are recycled, so equality proves identity only while a
/// descriptor is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsId {
    /// `st_dev` of the namespace file.
    pub dev: u64,
    /// `st_ino` of the namespace file.
    pub ino: u64,
}

impl NetnsId {
    /// The identity behind an open namespace file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of(file: &File) -> io::Result<NetnsId> {
        let metadata = file.metadata()?;
        Ok(NetnsId {
            dev: metadata.dev(),
            ino: metadata.ino(),
        })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// Those of open(2) and fstat(2).
    pub fn current() -> io::Result<NetnsId> {
        NetnsId::of(&File::open("/proc/thread-self/ns/net")?)
    }
}

/// What a namespace path turned out to be.
#[derive(Debug)]
pub enum Opened {
    /// A namespace, not our own.
    Namespace(File, NetnsId),
    /// Nothing there any more, or an ordinary file left behind by an unmount.
    Gone(String),
    /// The plugin's own namespace: a recycled process id, or a mistake.
    Own(File, NetnsId),
}

/// Opens a namespace path and says what it is.
///
/// # Errors
/// Only when the plugin's own namespace cannot be found out.
pub fn open(path: &str) -> io::Result<Opened> {
    if path.is_empty() {
        return Ok(Opened::Gone("no namespace given".to_owned()));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Ok(Opened::Gone(format!("{path}: {error}"))),
    };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the width of f_type differs between platforms"
    )]
    let kind = fstatfs(&file).map(|fs| fs.filesystem_type().0 as i64);
    if !matches!(kind, Ok(NSFS)) {
        return Ok(Opened::Gone(format!("{path} is not a namespace")));
    }
    let id = NetnsId::of(&file)?;
    Ok(if id == NetnsId::current()? {
        Opened::Own(file, id)
    } else {
        Opened::Namespace(file, id)
    })
}

/// Opens the namespace ADD and CHECK work on.
///
/// # Errors
/// Code 8 when it is not a namespace, or is the plugin's own and `allow_own` is false; code 5 when that cannot be told.
pub fn open_required(path: &str, allow_own: bool) -> Result<File, CniError> {
    let invalid = |details: String| {
        CniError::new(
            Code::INVALID_NETNS,
            "the container's network namespace is not usable",
        )
        .with_details(details)
    };
    match open(path) {
        Ok(Opened::Namespace(file, _)) => Ok(file),
        Ok(Opened::Own(file, _)) if allow_own => Ok(file),
        Ok(Opened::Own(..)) => Err(invalid(format!(
            "{path} is the namespace this plugin runs in, the host's own"
        ))),
        Ok(Opened::Gone(why)) => Err(invalid(why)),
        Err(error) => Err(
            CniError::new(Code::IO, "cannot tell one's own network namespace")
                .with_details(error.to_string()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_and_missing_paths_are_gone() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let path = file.path().to_str().expect("text").to_owned();
        assert!(matches!(open(&path), Ok(Opened::Gone(why)) if why.contains("not a namespace")));
        assert!(matches!(open("/nonexistent/ns"), Ok(Opened::Gone(_))));
        assert!(matches!(open(""), Ok(Opened::Gone(_))));
        assert_eq!(
            open_required(&path, true).expect_err("file").code,
            Code::INVALID_NETNS
        );
    }

    #[test]
    fn own_namespace_is_recognised() {
        assert!(matches!(open("/proc/self/ns/net"), Ok(Opened::Own(..))));
        let error = open_required("/proc/self/ns/net", false).expect_err("own");
        assert_eq!(error.code, Code::INVALID_NETNS);
        assert!(open_required("/proc/self/ns/net", true).is_ok());
    }
}
