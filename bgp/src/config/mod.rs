//! What a speaker is told: itself, its peers, its own routes.

mod local_route;
mod password;
mod peer;
mod speaker;

pub use local_route::LocalRoute;
pub use password::{MAX_PASSWORD_LENGTH, Password, PasswordError};
pub use peer::{
    GracefulRestart, GracefulRestartMode, MaxPrefixes, MaxPrefixesAction, NextHopMode, PeerConfig,
    PeerKey, RemoteAs, Timers, Ttl,
};
pub use speaker::{RestartState, SpeakerConfig};
