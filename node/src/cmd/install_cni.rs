//! `margay install-cni`: copies the CNI executable to where the container runtime looks for it.
//!
//! The configuration list is not written here but by the agent, once it can serve pods.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

/// The names the executable is known by: ours, and Calico's so that its configuration lists work unchanged.
const NAMES: [&str; 4] = ["margay", "margay-ipam", "calico", "calico-ipam"];

/// Arguments of `margay install-cni`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of CNI executables.
    #[arg(
        long,
        env = "CNI_BIN_DIR",
        default_value = "/opt/cni/bin",
        value_name = "DIR"
    )]
    bin_dir: PathBuf,
    /// The executable to install; by default `margay-cni` beside this program.
    #[arg(long, env = "MARGAY_CNI_SOURCE", value_name = "FILE")]
    source: Option<PathBuf>,
    /// Do nothing if all four names are there already.
    #[arg(long, env = "UPDATE_CNI_BINARIES", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    update: bool,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !args.update && NAMES.iter().all(|name| args.bin_dir.join(name).is_file()) {
        println!(
            "{}: executables are there and are not to be updated",
            args.bin_dir.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let source = match args.source {
        Some(source) => source,
        None => std::env::current_exe()
            .context("find this program's own path")?
            .with_file_name("margay-cni"),
    };
    let written = install(&source, &args.bin_dir)?;
    println!(
        "{}: {written} of {} executables written",
        args.bin_dir.display(),
        NAMES.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Installs under all names; returns how many files were written. Identical files are left alone.
fn install(source: &Path, directory: &Path) -> anyhow::Result<usize> {
    let content = fs::read(source).with_context(|| format!("read {}", source.display()))?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let mut written = 0;
    for name in NAMES {
        let path = directory.join(name);
        if is_installed(&path, &content) {
            continue;
        }
        replace(directory, name, &content)
            .with_context(|| format!("install {}", path.display()))?;
        written += 1;
    }
    fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .with_context(|| format!("sync {}", directory.display()))?;
    Ok(written)
}

fn is_installed(path: &Path, content: &[u8]) -> bool {
    let executable =
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o777 == 0o755);
    executable && fs::read(path).is_ok_and(|found| found == content)
}

/// Writing in place would fail, or break a running call (ETXTBSY): a running process keeps the old file.
fn replace(directory: &Path, name: &str, content: &[u8]) -> std::io::Result<()> {
    let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
    let result =
        write(&temporary, content).and_then(|()| fs::rename(&temporary, directory.join(name)));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(path)?;
    file.write_all(content)?;
    // The mode given to open(2) is cut by the umask.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_names_are_installed_once() {
        let from = tempfile::tempdir().expect("directory");
        let to = tempfile::tempdir().expect("directory");
        let source = from.path().join("margay-cni");
        fs::write(&source, b"program").expect("write");
        let bin = to.path().join("opt/cni/bin");
        assert_eq!(install(&source, &bin).expect("installed"), 4);
        for name in NAMES {
            let metadata = fs::metadata(bin.join(name)).expect(name);
            assert_eq!(metadata.permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(install(&source, &bin).expect("again"), 0);
        assert_eq!(fs::read_dir(&bin).expect("directory").count(), 4);
    }

    #[test]
    fn changed_file_is_replaced_and_a_running_one_keeps_its_inode() {
        let from = tempfile::tempdir().expect("directory");
        let to = tempfile::tempdir().expect("directory");
        let source = from.path().join("margay-cni");
        fs::write(&source, b"old").expect("write");
        install(&source, to.path()).expect("installed");
        let mut running = fs::File::open(to.path().join("calico")).expect("open");
        fs::write(&source, b"new").expect("write");
        fs::write(to.path().join("margay-ipam"), b"new").expect("write");
        fs::set_permissions(
            to.path().join("margay-ipam"),
            fs::Permissions::from_mode(0o644),
        )
        .expect("mode");
        assert_eq!(install(&source, to.path()).expect("again"), 4);
        let mut content = String::new();
        std::io::Read::read_to_string(&mut running, &mut content).expect("read");
        assert_eq!(content, "old");
    }

    #[test]
    fn missing_source_is_named() {
        let to = tempfile::tempdir().expect("directory");
        let error = install(Path::new("/nonexistent/margay-cni"), to.path()).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/margay-cni"));
    }
}
