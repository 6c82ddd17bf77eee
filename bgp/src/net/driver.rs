//! The task that owns the speaker: it feeds events in, lets time pass and carries actions out.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::connection::{Event, Wire};
use super::dial::{self, CONCURRENT};
use super::events::{RouteEvents, RouteSink, channel};
use super::handle::{Command, SpeakerHandle};
use super::listener::{Listeners, interface_of, local_address};
use super::options;
use crate::speaker::{Action, ConnectionId, Dial, Speaker};
use crate::{ConfigError, Password, PeerConfig, SpeakerConfig, StartError};

/// Events worked off before peers are told: large enough to pack well, small enough to stay prompt.
const BATCH_EVENTS: usize = 256;
/// Time after which peers are told anyway.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// Starts a speaker on the current tokio runtime. It dials nobody before
/// [`SpeakerHandle::set_peers`].
///
/// # Errors
/// An invalid configuration, or a listen address that cannot be used.
pub fn start(config: SpeakerConfig) -> Result<(SpeakerHandle, RouteEvents), StartError> {
    let listen = config.listen.clone();
    let speaker = Speaker::new(config, rand::random())?;
    let (commands, inbox) = mpsc::unbounded_channel();
    let (events, reports) = mpsc::unbounded_channel();
    let (routes, route_events) = channel();
    let mut listeners = Listeners::default();
    listeners.set(&listen, &events)?;
    let driver = Driver {
        speaker,
        listeners,
        events,
        routes,
        wires: HashMap::new(),
        dials: HashMap::new(),
        dial_slots: Arc::new(Semaphore::new(CONCURRENT)),
    };
    tokio::spawn(driver.run(inbox, reports));
    Ok((SpeakerHandle { commands }, route_events))
}

struct Driver {
    speaker: Speaker,
    listeners: Listeners,
    events: mpsc::UnboundedSender<Event>,
    routes: RouteSink,
    wires: HashMap<ConnectionId, Wire>,
    dials: HashMap<ConnectionId, (AbortHandle, Box<Dial>)>,
    dial_slots: Arc<Semaphore>,
}

impl Driver {
    async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
        mut reports: mpsc::UnboundedReceiver<Event>,
    ) {
        loop {
            let deadline = self.speaker.deadline().map(tokio::time::Instant::from_std);
            let timer = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop(answer)) => {
                        self.stop();
                        let _ = answer.send(());
                        return;
                    }
                    Some(command) => self.command(command),
                    None => return self.stop(),
                },
                Some(event) = reports.recv() => {
                    let until = Instant::now() + BATCH_TIME;
                    self.event(event);
                    for _ in 1..BATCH_EVENTS {
                        let Ok(event) = reports.try_recv() else { break };
                        self.event(event);
                        if Instant::now() >= until {
                            break;
                        }
                    }
                }
                () = timer => {}
            }
            self.turn();
            // Readers, writers and the rest of the process get their share.
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass, decides, and carries the results out.
    fn turn(&mut self) {
        let now = Instant::now();
        if self.speaker.deadline().is_some_and(|at| at <= now) {
            for id in self.speaker.expiring(now) {
                // A peer whose octets wait in our queue is not silent.
                if self.wires.get(&id).is_some_and(Wire::has_unseen_octets) {
                    self.speaker.heard(id, now);
                }
            }
            self.speaker.advance(now);
        }
        self.speaker.flush(now);
        self.act();
    }

    fn act(&mut self) {
        let mut changes = Vec::new();
        let mut recovery = Vec::new();
        while let Some(action) = self.speaker.next_action() {
            match action {
                Action::Dial(dial) => self.dial(dial),
                Action::Send { connection, octets } => {
                    if let Some(wire) = self.wires.get(&connection) {
                        wire.send(octets);
                    }
                }
                Action::Close { connection } => {
                    self.wires.remove(&connection);
                    if let Some((task, _)) = self.dials.remove(&connection) {
                        task.abort();
                    }
                }
                Action::Route(change) => changes.push(change),
                Action::Recovery(event) => recovery.push(event),
            }
        }
        if !changes.is_empty() || !recovery.is_empty() {
            self.routes.push(changes, recovery);
        }
    }

    fn dial(&mut self, dial: Box<Dial>) {
        let id = dial.connection;
        let request = (*dial).clone();
        let (events, slots) = (self.events.clone(), Arc::clone(&self.dial_slots));
        let task = tokio::spawn(async move {
            let result = dial::dial(request, slots).await;
            let _ = events.send(Event::Dialled(id, result));
        });
        self.dials.insert(id, (task.abort_handle(), dial));
    }

    fn event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Accepted(stream, remote) => self.accepted(stream, remote, now),
            Event::Dialled(id, result) => self.dialled(id, result, now),
            Event::Received(id, octets, permit) => {
                self.speaker.received(id, octets, now);
                drop(permit);
            }
            Event::Sent(id, octets) => self.speaker.sent(id, octets, now),
            Event::Closed(id, reason) => {
                self.wires.remove(&id);
                self.speaker.closed(id, &reason, now);
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream, remote: std::net::SocketAddr, now: Instant) {
        let address = remote.ip().to_canonical();
        let interface = interface_of(&remote);
        let Ok(local) = local_address(&stream) else {
            return;
        };
        let Some(accepted) = self
            .speaker
            .accept(address, interface.as_deref(), local, now)
        else {
            tracing::debug!(%remote, "connection of an unknown peer closed");
            return;
        };
        let id = accepted.connection;
        match options::set_connection(&stream, address.is_ipv4(), accepted.ttl, accepted.hold) {
            Ok(()) => {
                self.wires.insert(id, Wire::start(id, stream, &self.events));
            }
            Err(error) => self
                .speaker
                .closed(id, &format!("socket option: {error}"), now),
        }
        // The OPEN is waiting for the wire.
        self.act();
    }

    fn dialled(&mut self, id: ConnectionId, result: std::io::Result<TcpStream>, now: Instant) {
        // Cancelled meanwhile?
        let Some((_, dial)) = self.dials.remove(&id) else {
            return;
        };
        let connected = result.and_then(|stream| Ok((local_address(&stream)?, stream)));
        match connected {
            Ok((local, stream)) => {
                self.wires.insert(id, Wire::start(id, stream, &self.events));
                self.speaker.dialled(id, local, None, now);
            }
            Err(error) => {
                let reason = dial::reason(&error, dial.password.is_some());
                self.speaker.dial_failed(id, &reason, now);
            }
        }
    }

    fn command(&mut self, command: Command) {
        let now = Instant::now();
        // An answer nobody waits for any more is no error.
        match command {
            Command::Configure(config, answer) => {
                let _ = answer.send(self.configure(*config, now));
            }
            Command::SetPeers(peers, answer) => {
                let _ = answer.send(self.set_peers(peers, now));
            }
            Command::SetLocalRoutes(routes, answer) => {
                self.speaker.set_local_routes(routes);
                let _ = answer.send(());
            }
            Command::SetNextHops(next_hops, answer) => {
                self.speaker.set_next_hops(next_hops);
                let _ = answer.send(());
            }
            Command::Reset(peer, answer) => {
                let _ = answer.send(self.speaker.reset(&peer, now));
            }
            Command::Refresh(peer, answer) => {
                let _ = answer.send(self.speaker.refresh(&peer, now));
            }
            Command::Peers(answer) => {
                let _ = answer.send(self.speaker.peers(now, SystemTime::now()));
            }
            Command::Routes(query, answer) => {
                let _ = answer.send(self.speaker.routes(&query));
            }
            // Handled by the loop, which ends with it.
            Command::Stop(answer) => drop(answer),
        }
    }

    fn configure(&mut self, config: SpeakerConfig, now: Instant) -> Result<(), ConfigError> {
        config.validate()?;
        self.listeners
            .set(&config.listen, &self.events)
            .map_err(|error| ConfigError::Speaker {
                field: "listen",
                reason: error.to_string(),
            })?;
        self.speaker.configure(config, now)
    }

    fn set_peers(&mut self, peers: Vec<PeerConfig>, now: Instant) -> Result<(), ConfigError> {
        let keys: BTreeMap<IpAddr, Password> = peers
            .iter()
            .filter_map(|peer| Some((peer.key.address, peer.password.clone()?)))
            .collect();
        self.speaker.set_peers(peers, now)?;
        // Sessions whose key changed have been told to close by now; the new key is for the next.
        self.act();
        self.listeners.set_keys(keys);
        Ok(())
    }

    /// Closes everything without a word: peers keep the routes (RFC 4724 section 4.1).
    fn stop(mut self) {
        self.wires.drain().for_each(|(_, wire)| wire.abort());
        self.dials.drain().for_each(|(_, (task, _))| task.abort());
    }
}
