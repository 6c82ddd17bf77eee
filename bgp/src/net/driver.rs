//! The task that owns the speaker.

use tokio::sync::mpsc;

use super::events::{RouteEvents, channel};
use super::handle::{Command, SpeakerHandle};
use crate::{SpeakerConfig, StartError};

/// Starts a speaker on the current tokio runtime. It dials nobody before
/// [`SpeakerHandle::set_peers`].
///
/// # Errors
/// An invalid configuration, or a listen address that cannot be used.
pub fn start(config: SpeakerConfig) -> Result<(SpeakerHandle, RouteEvents), StartError> {
    config.validate()?;
    let (commands, inbox) = mpsc::unbounded_channel();
    let (sink, events) = channel();
    tokio::spawn(async move {
        let mut inbox: mpsc::UnboundedReceiver<Command> = inbox;
        while let Some(command) = inbox.recv().await {
            if let Command::Stop(answer) = command {
                let _ = answer.send(());
                break;
            }
        }
        drop(sink);
    });
    Ok((SpeakerHandle { commands }, events))
}
