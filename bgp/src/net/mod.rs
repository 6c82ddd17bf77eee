//! The tokio driver: sockets, timers and the handle of a running speaker.

mod connection;
mod dial;
mod driver;
mod events;
mod handle;
mod listener;
mod options;
mod sys;

pub use driver::start;
pub use events::RouteEvents;
pub use handle::SpeakerHandle;
