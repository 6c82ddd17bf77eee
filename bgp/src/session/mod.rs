//! One connection to a peer: its state machine's states, what the OPENs agree on, collisions and
//! waits after errors.

mod backoff;
mod collision;
mod connection;
mod negotiate;

pub(crate) use backoff::{Backoff, jitter};
pub(crate) use collision::dialled_by_us_survives;
pub(crate) use connection::{Connection, ConnectionState, SessionTimers};
pub(crate) use negotiate::{Session, negotiate, our_open};
