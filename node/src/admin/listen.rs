//! Sockets of the admin API.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use axum::Router;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

/// Serves on a Unix socket only root can open, replacing what a crashed process left there.
///
/// # Errors
/// The socket cannot be created; the message names the path.
pub(crate) fn on_socket(path: &Path, router: Router) -> anyhow::Result<JoinHandle<()>> {
    let bind = || -> std::io::Result<UnixListener> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The file exists only after bind; the mask keeps it closed from its first moment.
        let old = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(path);
        nix::sys::stat::umask(old);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener
    };
    let listener = bind().with_context(|| format!("cannot listen on {}", path.display()))?;
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "admin socket stopped");
        }
    }))
}

/// Serves on a TCP address.
///
/// # Errors
/// The address cannot be bound; the message names it.
pub(crate) async fn on_address(
    address: SocketAddr,
    what: &str,
    router: Router,
) -> anyhow::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for {what}"))?;
    let what = what.to_owned();
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, what, "endpoint stopped");
        }
    }))
}
