//! The dataplane's thread: one loop that takes what callers and the kernel have to say, and writes.
//!
//! Whatever has piled up is taken in first, then one pass is made over all kernel tables; the BGP backlog is written in
//! slices, so that a pod never waits behind a hundred thousand routes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::DataplaneError;
use super::command::{Change, Command};
use super::config::DataplaneConfig;
use super::drift::DriftLog;
use super::state::State;
use super::status::Problem;
use crate::desired::Seq;
use crate::kernel::monitor::{RouteEvent, RouteMonitor};
use crate::kernel::nft::{NftEvent, NftMonitor};

/// Inputs taken in before the next pass.
const INPUTS_PER_PASS: usize = 20_000;
/// Kernel notices waiting before they are replaced by one "read everything again".
const BACKLOG_LIMIT: usize = 200_000;
/// Pause before refused items are tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What the thread waits for.
#[derive(Debug)]
pub(super) enum Input {
    /// From a handle.
    Command(Command),
    /// From the rtnetlink monitor.
    Route(RouteEvent),
    /// From the nf_tables monitor.
    Nft(NftEvent),
    /// From the connection tracking thread.
    FlowsForgotten(Vec<IpAddr>),
}

/// Where the thread publishes.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) committed: watch::Sender<Option<Seq>>,
    pub(super) problems: watch::Sender<Vec<Problem>>,
    pub(super) drift: Arc<Mutex<DriftLog>>,
}

/// The loop's own state; the rest is in [`State`].
pub(super) struct Reactor {
    state: State,
    facts: Facts,
    inputs: mpsc::Receiver<Input>,
    backlog: Arc<AtomicUsize>,
    seen: Seq,
    next_retry: Option<Instant>,
    next_check: Instant,
}

/// Sets the flag when the reactor ends, however it ends, so that the monitors end too.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Reactor {
    /// Starts the thread; returns when its sockets are open and the tables have been read.
    pub(super) fn spawn(
        config: DataplaneConfig,
        input: mpsc::Sender<Input>,
        inputs: mpsc::Receiver<Input>,
        facts: Facts,
    ) -> Result<(), DataplaneError> {
        let (started, outcome) = mpsc::channel();
        let netns = config.netns.clone();
        netns.spawn("dataplane", move || {
            let stop = Arc::new(AtomicBool::new(false));
            let _guard = StopOnDrop(Arc::clone(&stop));
            let backlog = Arc::new(AtomicUsize::new(0));
            // Subscribe first, read afterwards: nothing can fall in between.
            let opened = State::open(config, Arc::clone(&facts.drift), input.clone());
            let opened = opened.and_then(|mut state| {
                watch_tables(&state, input.clone(), &stop)?;
                watch_routes(&state, input, &backlog, &stop)?;
                state.resync()?;
                Ok(state)
            });
            match opened {
                Ok(state) => {
                    let next_check = Instant::now() + state.full_check();
                    let _ = started.send(Ok(()));
                    let seen = Seq::default();
                    Reactor {
                        state,
                        facts,
                        inputs,
                        backlog,
                        seen,
                        next_retry: None,
                        next_check,
                    }
                    .run();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        outcome.recv().map_err(|_| DataplaneError::Stopped)?
    }

    fn run(mut self) {
        loop {
            let mut more = self.take_inputs();
            while more {
                self.pass();
                // A slice of the backlog is done; look for something more urgent before the next one.
                if !self.state.has_backlog() {
                    break;
                }
                more = self.take_waiting();
            }
            if !more {
                break;
            }
        }
        self.facts.committed.send_replace(None);
    }

    /// Waits for something to do; false when it is time to end.
    fn take_inputs(&mut self) -> bool {
        let now = Instant::now();
        let mut wake = self.next_check;
        for time in [self.next_retry, self.state.next_due()]
            .into_iter()
            .flatten()
        {
            wake = wake.min(time);
        }
        match self
            .inputs
            .recv_timeout(wake.saturating_duration_since(now))
        {
            Ok(input) => self.take(input) && self.take_waiting(),
            Err(mpsc::RecvTimeoutError::Timeout) => true,
            Err(mpsc::RecvTimeoutError::Disconnected) => false,
        }
    }

    fn take_waiting(&mut self) -> bool {
        for _ in 0..INPUTS_PER_PASS {
            match self.inputs.try_recv() {
                Ok(input) => {
                    if !self.take(input) {
                        return false;
                    }
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn take(&mut self, input: Input) -> bool {
        match input {
            Input::Route(event) => {
                self.backlog.fetch_sub(1, Ordering::Relaxed);
                self.state.route_event(event);
            }
            Input::Nft(event) => self.state.nft_event(event),
            Input::FlowsForgotten(ips) => self.state.flows_forgotten(&ips),
            Input::Command(Command::Change(seq, change)) => {
                self.seen = seq;
                match change {
                    Change::Endpoints(all) => self.state.set_endpoints(all),
                    Change::UpsertEndpoint(endpoint) => self.state.upsert_endpoint(endpoint),
                    Change::RemoveEndpoint(id) => self.state.remove_endpoint(&id),
                    Change::OwnBlocks(blocks) => self.state.set_own_blocks(blocks),
                    Change::Pools(pools) => self.state.set_pools(pools),
                    Change::RemoteBlocks(blocks) => self.state.set_remote_blocks(blocks),
                    Change::RemoteNodes(nodes) => self.state.set_remote_nodes(nodes),
                    Change::LocalNode(node) => self.state.set_local_node(node),
                    Change::Bgp(routes) => self.state.apply_bgp(routes),
                    Change::InSync(source) => self.state.in_sync(source),
                    Change::Settings(settings) => self.state.configure(*settings),
                }
            }
            Input::Command(Command::WaitRouted(id, reply)) => self.state.wait_routed(id, reply),
            Input::Command(Command::Status(reply)) => {
                let _ = reply.send(self.state.status());
            }
            Input::Command(Command::BgpPrefixesOutsidePools(reply)) => {
                let _ = reply.send(self.state.bgp_prefixes_outside_pools());
            }
            Input::Command(Command::PauseRepairs(pause)) => self.state.pause_repairs(pause),
            Input::Command(Command::Stop) => return false,
        }
        true
    }

    fn pass(&mut self) {
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + self.state.full_check();
            self.state.check_everything();
        }
        if self.next_retry.is_some_and(|t| now >= t) {
            self.next_retry = None;
            self.state.retry_failed();
        }
        let committed = self.state.apply();
        if self.state.has_failures() && self.next_retry.is_none() {
            self.next_retry = Some(Instant::now() + RETRY);
        }
        if let Some(problems) = self.state.changed_problems() {
            self.facts.problems.send_replace(problems);
        }
        if committed {
            let seen = self.seen;
            self.facts.committed.send_if_modified(|done| {
                let news = *done != Some(seen);
                *done = Some(seen);
                news
            });
        }
    }
}

fn watch_tables(
    state: &State,
    input: mpsc::Sender<Input>,
    stop: &Arc<AtomicBool>,
) -> Result<(), DataplaneError> {
    let monitor =
        NftMonitor::open(state.monitor_buffer()).map_err(|source| DataplaneError::Kernel {
            action: "subscribe to nf_tables",
            source,
        })?;
    let stop = Arc::clone(stop);
    std::thread::Builder::new()
        .name("nft-monitor".to_owned())
        .spawn(move || monitor.run(&stop, |event| input.send(Input::Nft(event)).is_ok()))
        .map_err(|e| DataplaneError::Netns(crate::kernel::NetnsError::Thread(e.to_string())))?;
    Ok(())
}

fn watch_routes(
    state: &State,
    input: mpsc::Sender<Input>,
    backlog: &Arc<AtomicUsize>,
    stop: &Arc<AtomicBool>,
) -> Result<(), DataplaneError> {
    let mut monitor =
        RouteMonitor::open(state.monitor_buffer()).map_err(|source| DataplaneError::Kernel {
            action: "subscribe to rtnetlink",
            source,
        })?;
    let own_ports = state.own_ports();
    for port in &own_ports {
        if let Err(error) = monitor.ignore_routes_of(*port) {
            // They are left out later, at the price of a larger buffer.
            tracing::debug!(%error, "no socket filter for our own routes");
        }
    }
    let (backlog, stop) = (Arc::clone(backlog), Arc::clone(stop));
    let mut overrun = false;
    // The thread inherits this thread's namespace; its socket is open already.
    std::thread::Builder::new()
        .name("route-monitor".to_owned())
        .spawn(move || {
            monitor.run(&own_ports, &stop, |event| {
                let waiting = backlog.load(Ordering::Relaxed);
                if waiting > BACKLOG_LIMIT {
                    overrun = true;
                    return true;
                }
                if std::mem::take(&mut overrun) {
                    backlog.fetch_add(1, Ordering::Relaxed);
                    if input.send(Input::Route(RouteEvent::Overrun)).is_err() {
                        return false;
                    }
                }
                backlog.fetch_add(1, Ordering::Relaxed);
                input.send(Input::Route(event)).is_ok()
            });
        })
        .map_err(|e| DataplaneError::Netns(crate::kernel::NetnsError::Thread(e.to_string())))?;
    Ok(())
}
