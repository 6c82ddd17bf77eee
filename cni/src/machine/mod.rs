//! The operations as state machines: they say what to do next, the caller does it and says how it went.
//!
//! Nothing here does I/O, waits or looks at a clock, so every order of failures can be tested. The agent drives the
//! machines with real addresses, kernel and pods.

pub mod add;
pub mod check;
pub mod del;
pub mod gc;
pub mod status;

/// What a machine wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<Action, Done> {
    /// Do this and report the outcome.
    Do(Action),
    /// The operation is over.
    Done(Done),
}
