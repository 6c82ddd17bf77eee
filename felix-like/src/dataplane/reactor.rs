//! The dataplane's thread.

use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::watch;

use super::DataplaneError;
use super::command::Command;
use super::config::DataplaneConfig;
use super::drift::DriftLog;
use super::status::{Problem, Status};
use crate::desired::Seq;

/// What the thread waits for.
#[derive(Debug)]
pub(super) enum Input {
    /// From a handle.
    Command(Command),
}

/// Where the thread publishes.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) committed: watch::Sender<Option<Seq>>,
    pub(super) problems: watch::Sender<Vec<Problem>>,
    pub(super) drift: Arc<Mutex<DriftLog>>,
}

#[derive(Debug)]
pub(super) struct Reactor {
    facts: Facts,
}

impl Reactor {
    pub(super) fn spawn(
        config: DataplaneConfig,
        _input: mpsc::Sender<Input>,
        inputs: mpsc::Receiver<Input>,
        facts: Facts,
    ) -> Result<(), DataplaneError> {
        let netns = config.netns.clone();
        netns.spawn("dataplane", move || Reactor { facts }.run(&inputs))?;
        Ok(())
    }

    fn run(self, inputs: &mpsc::Receiver<Input>) {
        while let Ok(Input::Command(command)) = inputs.recv() {
            match command {
                Command::Change(seq, _) => {
                    self.facts.committed.send_replace(Some(seq));
                }
                Command::Status(reply) => {
                    let _ = reply.send(Status::default());
                }
                Command::Stop => break,
                _ => {}
            }
        }
        self.facts.committed.send_replace(None);
        let _ = (&self.facts.problems, &self.facts.drift);
    }
}
