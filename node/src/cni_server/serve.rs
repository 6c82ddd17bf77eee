//! The socket: who may call, and what becomes of a request.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use margay_cni::attachment::Attachment;
use margay_cni::proto::{self, Request, Response, Verb};
use margay_cni::{CniError, Code};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::connection::{self, Received};
use super::{Shared, add, check, del, gc, ipam_half};

/// How long a caller may take to send its request.
const RECEIVE_LIMIT: Duration = Duration::from_secs(5);

/// Bound of every call, whatever its sender asks for.
const CALL_LIMIT: Duration = Duration::from_secs(55);

/// Part of a call's time that is kept for undoing and answering.
const UNDO_SHARE: u32 = 10;

/// One call.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) netns: Option<OwnedFd>,
    /// Cancelled when the caller is gone or out of time.
    pub(super) cancel: CancellationToken,
}

/// Binds the socket under a temporary name, closes it to others, and renames it over the old one.
pub(super) fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let directory = path.parent().context("the socket path has no directory")?;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("create {}", directory.display()))?;
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let _ = std::fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)
        .with_context(|| format!("listen on {}", temporary.display()))?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary, path).with_context(|| format!("rename to {}", path.display()))?;
    Ok(listener)
}

/// Accepts until told to stop.
pub(super) async fn accept(shared: Arc<Shared>, listener: UnixListener, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let tracker = shared.calls.clone();
                tracker.spawn(serve(Arc::clone(&shared), stream));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept CNI calls");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, mut stream: UnixStream) {
    if let Err(error) = authorise(&stream) {
        tracing::warn!(%error, "CNI caller refused");
        return;
    }
    let received = tokio::time::timeout(RECEIVE_LIMIT, connection::receive(&stream)).await;
    let Received { request, netns } = match received {
        Ok(Ok(received)) => received,
        Ok(Err(error)) => {
            // A caller that was killed while connecting sends nothing; that is no error.
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::warn!(%error, "CNI request not readable");
                let error = CniError::new(Code::DECODE, "the node agent cannot read the request")
                    .with_details(error.to_string());
                let _ = connection::answer(&mut stream, &Response::failure(error)).await;
            }
            return;
        }
        Err(_) => return,
    };
    if !proto::accepts(request.proto) {
        let _ = connection::answer(&mut stream, &proto::refusal(request.proto)).await;
        return;
    }
    let verb = request.cmd;
    let started = std::time::Instant::now();
    let container = request.var("CNI_CONTAINERID").to_owned();
    let cancel = CancellationToken::new();
    let call = Call {
        request,
        netns,
        cancel: cancel.clone(),
    };
    let limit = Duration::from_millis(call.request.deadline_ms).min(CALL_LIMIT);
    let result = {
        // Boxed: the operations' futures are large, and there is one per connection.
        let operation = Box::pin(operate(&shared, call));
        let watch = watch(&stream, limit - limit / UNDO_SHARE, &cancel);
        tokio::pin!(operation, watch);
        tokio::select! {
            result = &mut operation => result,
            () = &mut watch => operation.await,
        }
    };
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (response, made) = match result {
        Ok(done) => {
            tracing::info!(?verb, %container, elapsed_ms, "CNI call done");
            (Response::success(done.result), done.made)
        }
        Err(error) => {
            tracing::warn!(?verb, %container, elapsed_ms, %error, "CNI call failed");
            (Response::failure(error), None)
        }
    };
    let answered = connection::answer(&mut stream, &response).await;
    if let (Err(error), Some(made)) = (answered, made) {
        // Nobody heard that the pod is attached. Its runtime will not use it, and may not even send DEL.
        tracing::info!(%container, %error, "the caller of ADD is gone; undoing");
        add::undo_unheard(&shared, &made).await;
    }
}

/// Cancels the call when the caller is gone or its time is over.
async fn watch(stream: &UnixStream, limit: Duration, cancel: &CancellationToken) {
    let _ = tokio::time::timeout(limit, connection::closed(stream)).await;
    cancel.cancel();
}

/// Only root may call (`SO_PEERCRED`, unix(7)).
fn authorise(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("caller has uid {uid}, not 0"),
    ))
}

/// What an operation did.
#[derive(Default)]
struct Done {
    result: Option<Value>,
    /// The attachment ADD made.
    made: Option<Box<Attachment>>,
}

async fn operate(shared: &Arc<Shared>, call: Call) -> Result<Done, CniError> {
    if call.request.cmd == Verb::Gc {
        let _alone = shared.gc.exclusive().await;
        gc::gc(shared, &call).await?;
        return Ok(Done::default());
    }
    let _together = shared.gc.shared().await;
    match call.request.cmd {
        Verb::Add => {
            let added = add::add(shared, call).await?;
            return Ok(Done {
                result: Some(added.result),
                made: added.made,
            });
        }
        Verb::IpamAdd => {
            let result = ipam_half::add(shared, &call).await?;
            return Ok(Done {
                result: Some(result),
                made: None,
            });
        }
        Verb::Del => del::del(shared, call).await?,
        Verb::Check => check::check(shared, call).await?,
        Verb::Status => check::status(shared, &call)?,
        Verb::Ping => check::ping(shared)?,
        Verb::IpamDel => ipam_half::del(shared, &call).await?,
        Verb::Gc => {}
    }
    Ok(Done::default())
}
