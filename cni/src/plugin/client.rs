//! Asking the agent, with a deadline for every step.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::error::{CniError, Code};
use crate::frame;
use crate::proto::{OLDEST_PROTO, Request, Response};
use crate::scm;

/// Pause between attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// How much of the sender's time is kept for printing the answer.
const MARGIN: Duration = Duration::from_millis(200);

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// Nobody listens on the socket.
    Unreachable(io::Error),
    /// The time is over.
    TimedOut,
    /// The connection broke, or the answer is none.
    Broken(io::Error),
}

impl CallError {
    /// The error for the runtime: it may try again in all cases.
    pub fn into_error(self, socket: &Path) -> CniError {
        let path = socket.display();
        match self {
            CallError::Unreachable(error) => CniError::try_again("the node agent is not running")
                .with_details(format!("{path}: {error}")),
            CallError::TimedOut => CniError::try_again("the node agent did not answer in time")
                .with_details(path.to_string()),
            CallError::Broken(error) => CniError::try_again("the node agent broke off")
                .with_details(format!("{path}: {error}")),
        }
    }
}

/// Sends a request and waits for its answer, retrying to connect for `wait`.
///
/// # Errors
/// [`CallError`]; nothing of it says whether the agent has done anything.
pub fn call(
    path: &Path,
    request: &Request,
    netns: Option<BorrowedFd<'_>>,
    wait: Duration,
    deadline: Instant,
) -> Result<Response, CallError> {
    let mut request = request.clone();
    loop {
        let response = exchange(path, &mut request, netns, wait, deadline)?;
        match fallback(request.proto, response.proto) {
            Some(proto) if !response.ok => request.proto = proto,
            _ => return Ok(response),
        }
    }
}

/// The protocol to try when an agent of the previous version refuses ours.
fn fallback(sent: u32, answered: u32) -> Option<u32> {
    (answered < sent && answered >= OLDEST_PROTO).then_some(answered)
}

fn exchange(
    path: &Path,
    request: &mut Request,
    netns: Option<BorrowedFd<'_>>,
    wait: Duration,
    deadline: Instant,
) -> Result<Response, CallError> {
    let stream = dial(path, deadline.min(Instant::now() + wait), deadline)?;
    let left = deadline
        .saturating_duration_since(Instant::now())
        .saturating_sub(MARGIN);
    request.deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let message = serde_json::to_vec(request).map_err(|error| CallError::Broken(error.into()))?;
    let framed = frame::encode(&message).map_err(CallError::Broken)?;
    stream
        .set_write_timeout(Some(remaining(deadline)?))
        .map_err(CallError::Broken)?;
    scm::send(&stream, &framed, netns).map_err(timed_out)?;
    let answer = frame::read(&mut Deadlined {
        stream: &stream,
        deadline,
    })
    .map_err(timed_out)?;
    serde_json::from_slice(&answer).map_err(|error| CallError::Broken(error.into()))
}

fn dial(path: &Path, until: Instant, deadline: Instant) -> Result<UnixStream, CallError> {
    loop {
        match connect_once(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if !worth_waiting(&error) => return Err(CallError::Unreachable(error)),
            Err(error) => {
                let now = Instant::now();
                if now >= until || now >= deadline {
                    return Err(CallError::Unreachable(error));
                }
                thread::sleep(RETRY.min(until - now));
            }
        }
    }
}

/// Connects without blocking: connect(2) to a unix socket whose backlog is full would wait for ever.
fn connect_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Absent, not listening, or its queue is full.
fn worth_waiting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
    )
}

fn remaining(deadline: Instant) -> Result<Duration, CallError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(CallError::TimedOut)
    } else {
        Ok(left)
    }
}

fn timed_out(error: io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => CallError::TimedOut,
        _ => CallError::Broken(error),
    }
}

/// Reads with one deadline over all reads, however slowly the other side writes.
struct Deadlined<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Read for Deadlined<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left =
            remaining(self.deadline).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// Takes a successful answer's result, or its error.
pub(super) fn settle(response: Response) -> Result<Option<serde_json::Value>, CniError> {
    if response.ok {
        return Ok(response.result);
    }
    Err(response
        .error
        .unwrap_or_else(|| CniError::new(Code::INTERNAL, "the node agent failed without a reason")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_agent_is_asked_again_in_its_protocol() {
        assert_eq!(fallback(OLDEST_PROTO + 1, OLDEST_PROTO), Some(OLDEST_PROTO));
        assert_eq!(fallback(OLDEST_PROTO, OLDEST_PROTO), None);
        assert_eq!(fallback(OLDEST_PROTO, OLDEST_PROTO - 1), None);
        assert_eq!(fallback(OLDEST_PROTO, OLDEST_PROTO + 1), None);
    }

    #[test]
    fn silent_agent_is_given_up_at_the_deadline() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("sock");
        // Accepts by its backlog and never answers.
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("listen");
        let request = Request {
            proto: crate::proto::PROTO,
            cmd: crate::proto::Verb::Add,
            env: std::collections::BTreeMap::new(),
            // More than the socket's buffer: writing must not hang either.
            conf: "x".repeat(2 << 20),
            deadline_ms: 0,
            client: String::new(),
            ipam_result: None,
        };
        let start = Instant::now();
        let wait = Duration::from_secs(5);
        let answer = call(
            &path,
            &request,
            None,
            wait,
            start + Duration::from_millis(300),
        );
        assert!(matches!(answer, Err(CallError::TimedOut)), "{answer:?}");
        assert!(start.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn full_backlog_is_waited_for_and_does_not_hang() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("sock");
        let listener = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        let listener = listener.expect("socket");
        nix::sys::socket::bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("path"))
            .expect("bind");
        let backlog = nix::sys::socket::Backlog::new(0).expect("backlog");
        nix::sys::socket::listen(&listener, backlog).expect("listen");
        let mut connected = Vec::new();
        let start = Instant::now();
        let error = loop {
            match dial(
                &path,
                start + Duration::from_millis(200),
                start + Duration::from_secs(9),
            ) {
                Ok(stream) => connected.push(stream),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CallError::Unreachable(_)));
        assert!(start.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn absent_socket_is_waited_for_only_so_long() {
        let directory = tempfile::tempdir().expect("directory");
        let start = Instant::now();
        let error = dial(
            &directory.path().join("none"),
            start + Duration::from_millis(250),
            start + Duration::from_secs(9),
        );
        assert!(matches!(error, Err(CallError::Unreachable(_))));
        assert!(start.elapsed() >= Duration::from_millis(250));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
