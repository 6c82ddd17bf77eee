//! Executables a lab needs and where they are.

use crate::error::{Error, Kind, Result};
use std::path::{Path, PathBuf};

/// The programs of this project.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `margay`.
    pub margay: PathBuf,
    /// `margay-cni`.
    pub cni: PathBuf,
}

impl Programs {
    /// Finds the programs: in `MARGAY_BIN_DIR`, beside this executable, one folder above it (test executables lie in
    /// `deps/`), or on `PATH`.
    ///
    /// # Errors
    /// [`Kind::Preflight`], naming the missing one.
    pub fn find() -> Result<Self> {
        let mut places: Vec<PathBuf> = Vec::new();
        places.extend(std::env::var_os("MARGAY_BIN_DIR").map(PathBuf::from));
        if let Ok(own) = std::env::current_exe() {
            places.extend(own.ancestors().skip(1).take(2).map(Path::to_owned));
        }
        places.extend(path_directories());
        let find = |name: &str| {
            let found = places
                .iter()
                .map(|dir| dir.join(name))
                .find(|file| file.is_file());
            found.ok_or_else(|| {
                Error::new(format!("cannot find the executable {name}"), "it is neither beside margayctl nor on PATH")
                    .kind(Kind::Preflight)
                    .remedy("cargo build --workspace --bins, or set MARGAY_BIN_DIR to the folder that holds it")
            })
        };
        Ok(Self {
            margay: find("margay")?,
            cni: find("margay-cni")?,
        })
    }
}

fn path_directories() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|p| std::env::split_paths(&p).collect())
        .unwrap_or_default();
    all.extend(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    all
}

/// A program of the system, by name.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    path_directories()
        .iter()
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Folder of the unpacked BGP peers and kubectl: `${XDG_CACHE_HOME:-~/.cache}/margay/bin`.
pub(crate) fn peer_directory() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("margay/bin"))
}

/// A BGP peer's program: unpacked by `make setup`, or installed.
///
/// # Errors
/// [`Kind::Preflight`] when it is nowhere.
pub(crate) fn peer(name: &str) -> Result<PathBuf> {
    let unpacked = peer_directory()
        .map(|dir| dir.join(name))
        .filter(|file| file.is_file());
    let installed = || {
        on_path(name)
            .or_else(|| Some(PathBuf::from("/usr/lib/frr").join(name)).filter(|f| f.is_file()))
    };
    unpacked.or_else(installed).ok_or_else(|| {
        Error::new(
            format!("cannot find the program {name}"),
            "it is neither unpacked nor installed",
        )
        .kind(Kind::Preflight)
        .remedy("make setup (unpacks BIRD, FRR and GoBGP without starting a service)")
    })
}
