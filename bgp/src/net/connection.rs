//! One connected socket: a reader and a writer task.
//!
//! The reader holds no buffer while nothing is to be read and stops after a few chunks that the
//! speaker has not worked off: TCP then slows the peer down. The writer takes whole messages from a
//! queue that the speaker keeps short.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinHandle};

use crate::speaker::ConnectionId;

/// Octets read at a time.
const CHUNK: usize = 64 * 1024;
/// Chunks read ahead of the speaker.
const READ_AHEAD: usize = 4;
/// Messages written at a time.
const GATHER: usize = 64;
/// How long the peer has to take the last NOTIFICATION and close.
const LINGER: Duration = Duration::from_secs(10);

/// What sockets report to the driver.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection came in.
    Accepted(TcpStream, SocketAddr),
    /// A dial ended.
    Dialled(ConnectionId, io::Result<TcpStream>),
    /// Octets came in. The permit is given back when they have been worked off.
    Received(ConnectionId, BytesMut, OwnedSemaphorePermit),
    /// The kernel took octets.
    Sent(ConnectionId, usize),
    /// The connection ended.
    Closed(ConnectionId, String),
}

/// The driver's end of a connected socket. Dropping it sends what is queued, then closes.
#[derive(Debug)]
pub(super) struct Wire {
    queue: mpsc::UnboundedSender<Bytes>,
    read_ahead: Arc<Semaphore>,
    tasks: [AbortHandle; 2],
}

impl Wire {
    /// Starts the tasks.
    pub(super) fn start(
        id: ConnectionId,
        stream: TcpStream,
        events: &mpsc::UnboundedSender<Event>,
    ) -> Self {
        let (read_half, write_half) = stream.into_split();
        let (queue, outgoing) = mpsc::unbounded_channel();
        let read_ahead = Arc::new(Semaphore::new(READ_AHEAD));
        let reader = tokio::spawn(read(id, read_half, events.clone(), Arc::clone(&read_ahead)));
        let reading = reader.abort_handle();
        let writer = tokio::spawn(write(id, write_half, outgoing, events.clone(), reader));
        Wire {
            queue,
            read_ahead,
            tasks: [reading, writer.abort_handle()],
        }
    }

    /// Queues octets.
    pub(super) fn send(&self, octets: Bytes) {
        // The writer is gone when the connection is; its end is reported by then.
        let _ = self.queue.send(octets);
    }

    /// True when octets have been read that the speaker has not seen.
    pub(super) fn has_unseen_octets(&self) -> bool {
        self.read_ahead.available_permits() < READ_AHEAD
    }

    /// Closes at once, whatever is queued.
    pub(super) fn abort(self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn read(
    id: ConnectionId,
    stream: OwnedReadHalf,
    events: mpsc::UnboundedSender<Event>,
    read_ahead: Arc<Semaphore>,
) {
    let reason = loop {
        if let Err(error) = stream.readable().await {
            break error.to_string();
        }
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&read_ahead).acquire_owned().await else {
            return;
        };
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match stream.try_read_buf(&mut chunk) {
            Ok(0) => break "the peer closed the connection".to_owned(),
            Ok(_) => {
                if events.send(Event::Received(id, chunk, permit)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => break format!("read: {error}"),
        }
    };
    let _ = events.send(Event::Closed(id, reason));
}

async fn write(
    id: ConnectionId,
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Bytes>,
    events: mpsc::UnboundedSender<Event>,
    reader: JoinHandle<()>,
) {
    let mut messages: Vec<Bytes> = Vec::new();
    let mut failure = None;
    while failure.is_none() && queue.recv_many(&mut messages, GATHER).await > 0 {
        failure = write_all(id, &mut stream, &mut messages, &events)
            .await
            .err();
    }
    // A plain close with octets unread would make the kernel reset the connection, and the peer
    // would never see the NOTIFICATION: say that nothing more comes and let it close.
    let _ = stream.shutdown().await;
    // The reader goes on to the end as well: the peer's last word says why a write failed.
    let stop = reader.abort_handle();
    if tokio::time::timeout(LINGER, reader).await.is_err() {
        stop.abort();
    }
    if let Some(error) = failure {
        let _ = events.send(Event::Closed(id, format!("write: {error}")));
    }
}

async fn write_all(
    id: ConnectionId,
    stream: &mut OwnedWriteHalf,
    messages: &mut Vec<Bytes>,
    events: &mpsc::UnboundedSender<Event>,
) -> io::Result<()> {
    let mut first = 0;
    while first < messages.len() {
        let slices: Vec<IoSlice<'_>> = messages[first..]
            .iter()
            .map(|message| IoSlice::new(message))
            .collect();
        let mut taken = stream.write_vectored(&slices).await?;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let _ = events.send(Event::Sent(id, taken));
        while first < messages.len() && taken >= messages[first].len() {
            taken -= messages[first].len();
            first += 1;
        }
        if taken > 0 {
            messages[first].advance(taken);
        }
    }
    messages.clear();
    Ok(())
}
