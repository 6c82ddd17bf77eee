//! The handle of a running speaker.

use tokio::sync::{mpsc, oneshot};

use crate::{
    ConfigError, LocalRoute, PeerConfig, PeerKey, PeerStatus, RouteQuery, RouteView, SpeakerConfig,
    route::NextHops,
};

pub(super) type Answer<T> = oneshot::Sender<T>;

/// What a handle asks of the driver.
#[derive(Debug)]
pub(super) enum Command {
    Configure(Box<SpeakerConfig>, Answer<Result<(), ConfigError>>),
    SetPeers(Vec<PeerConfig>, Answer<Result<(), ConfigError>>),
    SetLocalRoutes(Vec<LocalRoute>, Answer<()>),
    SetNextHops(NextHops, Answer<()>),
    Reset(PeerKey, Answer<bool>),
    Refresh(PeerKey, Answer<bool>),
    Peers(Answer<Vec<PeerStatus>>),
    Routes(Box<RouteQuery>, Answer<Vec<RouteView>>),
    Stop(Answer<()>),
}

/// Handle of a running speaker; clones steer the same one. The speaker stops silently, as if the
/// process had been killed, when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct SpeakerHandle {
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

impl SpeakerHandle {
    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, ConfigError> {
        let (answer, result) = oneshot::channel();
        self.commands
            .send(command(answer))
            .map_err(|_| ConfigError::Stopped)?;
        result.await.map_err(|_| ConfigError::Stopped)
    }

    /// Replaces the speaker's own settings. A new router id resets all sessions; new listen
    /// addresses reopen the listeners and reset none. `restart` counts at start only.
    ///
    /// # Errors
    /// A value out of range, a listen address that cannot be used, or the speaker has stopped;
    /// nothing has changed then.
    pub async fn configure(&self, config: SpeakerConfig) -> Result<(), ConfigError> {
        self.ask(|answer| Command::Configure(Box::new(config), answer))
            .await?
    }

    /// Replaces all peers. Sessions whose parameters did not change stay up; a policy change
    /// re-evaluates routes on the running session; peers not in the list get Cease 6/3. The first
    /// call starts recovery (RFC 4724).
    ///
    /// # Errors
    /// The first invalid peer, or the speaker has stopped; nothing has changed then.
    pub async fn set_peers(&self, peers: Vec<PeerConfig>) -> Result<(), ConfigError> {
        self.ask(|answer| Command::SetPeers(peers, answer)).await?
    }

    /// Replaces all local routes; peers hear of the differences only. No End-of-RIB is sent before
    /// the first call: an empty list says that there is nothing to originate.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn set_local_routes(&self, routes: Vec<LocalRoute>) -> Result<(), ConfigError> {
        self.ask(|answer| Command::SetLocalRoutes(routes, answer))
            .await
    }

    /// Replaces what is known about next hops; those not listed count as reachable at cost 0.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn set_next_hops(&self, next_hops: NextHops) -> Result<(), ConfigError> {
        self.ask(|answer| Command::SetNextHops(next_hops, answer))
            .await
    }

    /// Resets one session with Cease 6/4; false when there is no such peer.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn reset(&self, peer: PeerKey) -> Result<bool, ConfigError> {
        self.ask(|answer| Command::Reset(peer, answer)).await
    }

    /// Asks a peer for its routes again (RFC 2918); false when there is no such peer, it is not
    /// up or cannot do it.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn refresh(&self, peer: PeerKey) -> Result<bool, ConfigError> {
        self.ask(|answer| Command::Refresh(peer, answer)).await
    }

    /// All peers in key order.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn peers(&self) -> Result<Vec<PeerStatus>, ConfigError> {
        self.ask(Command::Peers).await
    }

    /// Paths by prefix, best first.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub async fn routes(&self, query: RouteQuery) -> Result<Vec<RouteView>, ConfigError> {
        self.ask(|answer| Command::Routes(Box::new(query), answer))
            .await
    }

    /// Stops the speaker: connections are closed without NOTIFICATION, so that peers keep the
    /// routes over the restart (RFC 4724 section 4). Returns when everything is closed.
    pub async fn stop(&self) {
        // An error means that it has stopped already.
        let _ = self.ask(Command::Stop).await;
    }
}
