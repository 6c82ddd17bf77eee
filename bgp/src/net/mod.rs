//! The tokio driver: sockets, timers and the handle of a running speaker.

mod driver;
mod events;
mod handle;

pub use driver::start;
pub use events::RouteEvents;
pub use handle::SpeakerHandle;
