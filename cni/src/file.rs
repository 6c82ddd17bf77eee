//! Writing state files so that a reader sees the old or the new content, never half of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file (mode 0600) by writing next to it and renaming. Returns the file, still open, for a later fsync.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<File> {
    let directory = path
        .parent()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path without a directory"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The name starts with a dot and ends in .tmp: readers of the directory skip it.
    let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
    let result = write(&temporary, content).and_then(|file| {
        fs::rename(&temporary, path)?;
        Ok(file)
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    Ok(file)
}

/// Removes a file; it not being there is fine.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes renames and removals in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
