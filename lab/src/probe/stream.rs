//! One endpoint pings another without pause, and every packet is accounted for.

use super::echo::{EchoSocket, Tag};
use crate::error::{Error, Result, Tried};
use crate::names::netns_path;
use crate::namespaces::in_netns;
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long answers to the last packets are waited for.
const STRAGGLERS: Duration = Duration::from_millis(1000);

/// What a stream of pings saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PingReport {
    /// Who asked.
    pub from: String,
    /// Who was asked.
    pub to: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets answered.
    pub received: u64,
    /// Longest time in milliseconds in which packets were sent and none of them was answered.
    pub longest_silence_milliseconds: u64,
}

impl PingReport {
    /// Packets that were never answered.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A running stream of pings. Dropping it stops it.
#[derive(Debug)]
pub struct Ping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<PingReport>>>,
}

impl Ping {
    /// Starts to ping `to` from a network namespace, one packet per `interval`.
    ///
    /// # Errors
    /// The thread cannot be started; an unusable namespace is reported by [`Ping::stop`].
    pub(crate) fn start(
        from: (&str, &str),
        to: (&str, IpAddr),
        interval: Duration,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let netns = netns_path(from.1);
        let report = PingReport {
            from: from.0.to_owned(),
            to: to.0.to_owned(),
            ..PingReport::default()
        };
        let address = to.1;
        let thread = std::thread::Builder::new()
            .name("ping".into())
            .spawn(move || in_netns(&netns, move || run(report, address, interval, &stopped))?)
            .tried(|| "cannot start to ping".to_owned())?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops, waits for late answers, and tells what happened.
    ///
    /// # Errors
    /// The namespace could not be entered or a socket failed.
    pub fn stop(mut self) -> Result<PingReport> {
        self.stop.store(true, Ordering::Relaxed);
        let what = || "cannot ping".to_owned();
        let Some(thread) = self.thread.take() else {
            return Err(Error::new(what(), "it was stopped before"));
        };
        thread
            .join()
            .map_err(|_| Error::new(what(), "the pinging thread panicked"))?
            .tried(what)
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn run(
    mut report: PingReport,
    to: IpAddr,
    interval: Duration,
    stop: &AtomicBool,
) -> io::Result<PingReport> {
    let socket = EchoSocket::open(to.is_ipv6())?;
    let id = identifier();
    let mut open: HashMap<u16, Instant> = HashMap::new();
    let mut silences = Silence::default();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let sequence = report.sent as u16;
        // Refused at once (no route) counts as lost; the sequence number is not reused.
        let sent = socket.send(to, Tag { id, sequence });
        report.sent += 1;
        if sent.is_ok() {
            open.insert(sequence, Instant::now());
        }
        silences.asked(Instant::now());
        next += interval;
        collect(&socket, id, next, &mut open, &mut report, &mut silences)?;
    }
    let end = Instant::now() + STRAGGLERS;
    while !open.is_empty() && Instant::now() < end {
        let soon = end.min(Instant::now() + interval);
        collect(&socket, id, soon, &mut open, &mut report, &mut silences)?;
    }
    report.longest_silence_milliseconds = silences.longest();
    Ok(report)
}

fn collect(
    socket: &EchoSocket,
    id: u16,
    until: Instant,
    open: &mut HashMap<u16, Instant>,
    report: &mut PingReport,
    silences: &mut Silence,
) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if let Some(tag) = socket.receive(left)?.filter(|tag| tag.id == id)
            && open.remove(&tag.sequence).is_some()
        {
            report.received += 1;
            silences.answered(Instant::now());
        }
    }
}

/// Longest stretch of asking without an answer.
#[derive(Debug, Default)]
struct Silence {
    since: Option<Instant>,
    last_asked: Option<Instant>,
    longest: Duration,
}

impl Silence {
    fn asked(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.last_asked = Some(now);
    }

    fn answered(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.longest = self.longest.max(now - since);
        }
    }

    fn longest(&self) -> u64 {
        let open = match (self.since, self.last_asked) {
            (Some(since), Some(last)) => last - since,
            _ => Duration::ZERO,
        };
        u64::try_from(self.longest.max(open).as_millis()).unwrap_or(u64::MAX)
    }
}

/// An echo identifier no other stream of this process uses.
fn identifier() -> u16 {
    use std::sync::atomic::AtomicU16;
    static NEXT: AtomicU16 = AtomicU16::new(1);
    // The matrix uses the process id with the highest bit free; streams count up from a place of their own.
    (std::process::id() as u16)
        .rotate_left(8)
        .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_includes_one_that_never_ended() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut silence = Silence::default();
        silence.asked(at(0));
        silence.answered(at(3));
        silence.asked(at(10));
        silence.asked(at(60));
        assert_eq!(silence.longest(), 50);
        silence.answered(at(80));
        assert_eq!(silence.longest(), 70);
    }
}
