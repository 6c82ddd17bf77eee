//! A BGP-4 speaker (RFC 4271): a deterministic protocol core and a thin tokio driver.
//!
//! The core has no sockets, no clock and no tasks. [`speaker::Speaker`] takes [`speaker::Input`]s (a
//! connection opened, octets received, a configuration replaced, time passed) together with the
//! current instant and answers with [`speaker::Action`]s (dial, send, close, a route changed). It is
//! put together from parts that can be read alone:
//!
//! * [`wire`]: messages, attributes and capabilities, from octets and back. One table of attribute
//!   rules decides what malformed input means (RFC 7606).
//! * [`session`]: the state machine of one connection, what two OPENs agree on, collisions.
//! * [`rib`]: interned attribute sets, one table of all paths by prefix, the decision process, and
//!   what each peer has been told.
//! * [`policy`]: ordered rules on prefixes, communities and attributes.
//! * [`net`]: the tokio driver: listeners, dialling, socket options (RFC 2385, RFC 5082), one reader
//!   and one writer per connection. [`net::start`] returns the handle other crates use.
//!
//! A route learned from a peer goes wire -> Adj-RIB-In record in the table -> import policy ->
//! decision -> [`RouteChange`] for the kernel and, per peer, export policy -> Adj-RIB-Out -> wire.
//! Work is batched: everything received in one turn is decided once and sent in as few messages as
//! attribute sets allow; there is no advertisement timer.
//!
//! Implemented: RFC 4271, 2385, 2545, 2918, 4456, 4486, 4724, 4760, 5082, 5492, 6286, 6608, 6793,
//! 7313, 7606, 7607, 8092, 8203/9003, 8212 (as a policy of the caller), 8326, 8654, 8950, 9072, 9687.

pub mod config;
mod error;
mod family;
pub mod net;
pub mod policy;
mod rib;
mod route;
mod session;
pub mod speaker;
mod status;
pub mod wire;

pub use config::{
    GracefulRestart, GracefulRestartMode, LocalRoute, MaxPrefixes, MaxPrefixesAction, NextHopMode,
    Password, PeerConfig, PeerKey, RemoteAs, RestartState, SpeakerConfig, Timers, Ttl,
};
pub use error::{ConfigError, StartError};
pub use family::{Families, Family};
pub use net::{RouteEvents, SpeakerHandle, start};
pub use policy::Policy;
pub use route::{
    NextHopState, NextHops, RecoveryEvent, RouteBatch, RouteChange, RoutePath, RouteQuery,
    RouteSource, RouteView,
};
pub use status::{FamilyCounters, Negotiated, PeerState, PeerStatus, RestartRole};
