//! Errors other crates see.

use std::io;
use std::net::SocketAddr;

use crate::PeerKey;

/// Why a configuration is refused. Nothing of it has been applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two peers with the same address, interface and port.
    #[error("peer {0} is configured twice")]
    DuplicatePeer(PeerKey),
    /// A value is out of its range.
    #[error("peer {peer}: {field}: {reason}")]
    Peer {
        /// The peer at fault.
        peer: PeerKey,
        /// Name of the field of [`crate::PeerConfig`].
        field: &'static str,
        /// What is wrong and which values are legal.
        reason: String,
    },
    /// A value of [`crate::SpeakerConfig`] is out of its range.
    #[error("{field}: {reason}")]
    Speaker {
        /// Name of the field.
        field: &'static str,
        /// What is wrong and which values are legal.
        reason: String,
    },
    /// The speaker has stopped.
    #[error("the BGP speaker has stopped")]
    Stopped,
}

/// Why a speaker could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A listen address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}
