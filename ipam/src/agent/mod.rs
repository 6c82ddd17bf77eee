//! The allocator of one node.
//!
//! Hand-outs and releases change memory and a journal ([`state`], [`journal`]) and return; one task writes to the API
//! ([`worker`]), one block at a time, everything there is to say about a block in one update. Requests that memory cannot
//! satisfy wait for that task and are served together ([`serve`]).

mod acquire;
mod assign;
mod contact;
mod core;
mod inputs;
mod journal;
mod live;
mod plan;
mod release;
mod serve;
mod specific;
mod state;
mod status;
mod worker;
mod write;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use self::contact::{Contact, Noted};
use self::core::Core;
use self::journal::{Header, Journal};
use self::state::{Local, State};
use crate::request::OwnBlock;
use crate::rules::Settings;
use crate::store::{Store, StoreError};

pub use self::core::Clock;
pub use self::release::Released;
pub use self::status::IpamProblem;

/// What an [`Ipam`] needs to start.
#[derive(Debug, Clone)]
pub struct IpamConfig {
    /// Name of the node.
    pub node: String,
    /// The journal; on a tmpfs, `/run/margay/ipam/journal`.
    pub journal: PathBuf,
    /// Identity of this boot of the host (`/proc/sys/kernel/random/boot_id`). What a journal of another boot says is no
    /// longer in use.
    pub boot_id: String,
    /// Settings.
    pub settings: Settings,
    /// Where the time comes from.
    pub clock: Clock,
}

impl IpamConfig {
    /// The canonical journal path, this boot's id, default settings.
    pub fn for_node(node: impl Into<String>) -> Self {
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        IpamConfig {
            node: node.into(),
            journal: PathBuf::from("/run/margay/ipam/journal"),
            boot_id: boot_id.trim().to_owned(),
            settings: Settings::default(),
            clock: Clock::real(),
        }
    }
}

/// Why an allocator could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node name would be taken for the owner of Service addresses.
    #[error("a node cannot be called {0}: the name stands for the owner of Service addresses")]
    NodeName(String),
    /// The journal cannot be opened.
    #[error("cannot open the address journal {}: {source}", .path.display())]
    Journal {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The allocator of one node. Clones share it; it ends with the last of them, or with [`Ipam::stop`].
#[derive(Debug, Clone)]
pub struct Ipam {
    core: Arc<Core>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Ipam {
    /// Starts the allocator: reads the journal, then reads and follows the cluster's state in the background. Until it
    /// has been read once ([`Ipam::wait_synced`]) nothing is assigned.
    ///
    /// # Errors
    /// The journal cannot be opened, or the node has a reserved name.
    pub fn start(store: impl Store, config: IpamConfig) -> Result<Self, StartError> {
        Ipam::start_shared(Arc::new(store), config)
    }

    /// [`Ipam::start`] over a store that is shared.
    ///
    /// # Errors
    /// As for [`Ipam::start`].
    pub fn start_shared(store: Arc<dyn Store>, config: IpamConfig) -> Result<Self, StartError> {
        if config.node == "load-balancer" {
            return Err(StartError::NodeName(config.node));
        }
        let header = Header::new(&config.boot_id, &config.node);
        let (journal, replay) =
            Journal::open(&config.journal, header).map_err(|source| StartError::Journal {
                path: config.journal.clone(),
                source,
            })?;
        let mut state = State::new(&config.node, config.settings, journal);
        for (ip, local) in replay.locals {
            // After a reboot no sandbox of before exists: what they had is released.
            let local = match local {
                Local::Handed { claim, since, .. } if replay.stale => Local::Cooling {
                    handle: claim.handle,
                    since,
                },
                other => other,
            };
            state.locals.insert(ip, local);
        }
        let contact = Contact::new();
        let store = Arc::new(Noted {
            inner: store,
            contact: contact.clone(),
        });
        let core = Arc::new(Core::new(store, contact, config.clock, state));
        let mut tasks = JoinSet::new();
        tasks.spawn(inputs::follow(core.clone()));
        tasks.spawn(worker::work(core.clone()));
        tasks.spawn(worker::keep_contact(core.clone()));
        Ok(Ipam {
            core,
            tasks: Arc::new(Mutex::new(tasks)),
        })
    }

    /// Waits until the cluster's state has been read.
    pub async fn wait_synced(&self) {
        let mut synced = self.core.synced.subscribe();
        // The sender lives in the core, so waiting cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// True once the cluster's state has been read.
    pub fn is_synced(&self) -> bool {
        *self.core.synced.borrow()
    }

    /// Reads the cluster's state anew, without waiting for the watches to report it.
    ///
    /// # Errors
    /// As the store reports them; what was known stays.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.core.refresh().await
    }

    /// Blocks of this node whose routes are to be advertised and that get a blackhole route.
    pub fn own_blocks(&self) -> Vec<OwnBlock> {
        self.core.own.borrow().clone()
    }

    /// [`Ipam::own_blocks`] as it changes.
    pub fn watch_own_blocks(&self) -> watch::Receiver<Vec<OwnBlock>> {
        self.core.own.subscribe()
    }

    /// Applies other settings from now on.
    pub fn configure(&self, settings: Settings) {
        self.core.lock().settings = settings;
        self.core.wake.notify_one();
    }

    /// Tells how many nodes share the pools; small pools keep no reserve.
    pub fn set_node_count(&self, count: usize) {
        self.core.lock().node_count = count;
        self.core.wake.notify_one();
    }

    /// Time without an answer of the API server. Beyond [`Settings::fence`] nothing is assigned.
    pub fn silence(&self) -> Duration {
        self.core.contact.silence()
    }

    /// Why nothing would be assigned at the moment.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), crate::request::AssignError> {
        self.core.gate(&self.core.lock())
    }

    /// Writes everything that is only in memory and the journal, as far as that is possible within `limit`, and ends.
    /// What could not be written is taken up by the next process from the journal.
    pub async fn stop(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.core.flush_all())
            .await
            .is_err()
        {
            tracing::warn!("not all assignments were written; the journal has them");
        }
        self.tasks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .abort_all();
    }
}

#[cfg(test)]
mod tests;
