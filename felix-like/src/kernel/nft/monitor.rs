//! Notices of changes to the ruleset.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::message::NEWGEN;
use super::{FIXED, SUBSYSTEM};
use crate::kernel::KernelError;
use crate::kernel::netlink::{Message, NetlinkSocket, Protocol};

const GROUP_NFTABLES: u32 = 7;
/// The table's name has this number in messages of every kind.
const ANY_TABLE: u16 = 1;
const GEN_ID: u16 = 1;
const GEN_THREAD: u16 = 2;
const GEN_COMMAND: u16 = 3;
const STOP_CHECK: Duration = Duration::from_millis(500);

/// A commit by anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NftEvent {
    /// A new generation of the ruleset.
    Generation {
        /// Its number.
        id: u32,
        /// Thread that committed.
        thread: u32,
        /// Name of its program.
        command: String,
        /// Family number and name of the tables that were touched.
        tables: BTreeSet<(u8, String)>,
    },
    /// Notices were lost.
    Overrun,
}

/// A socket that hears of every commit.
#[derive(Debug)]
pub struct NftMonitor {
    socket: NetlinkSocket,
    tables: BTreeSet<(u8, String)>,
}

impl NftMonitor {
    /// Subscribes in the calling thread's namespace.
    pub fn open(receive_buffer: usize) -> Result<Self, KernelError> {
        let mut socket = NetlinkSocket::open(Protocol::Netfilter)?;
        socket.set_receive_buffer(receive_buffer)?;
        socket.set_time_limit(STOP_CHECK)?;
        socket.join(GROUP_NFTABLES)?;
        Ok(Self {
            socket,
            tables: BTreeSet::new(),
        })
    }

    /// Hands every commit to `sink` until `stop` is set or the sink returns false.
    pub fn run(mut self, stop: &Arc<AtomicBool>, mut sink: impl FnMut(NftEvent) -> bool) {
        let mut open = true;
        while open && !stop.load(Ordering::Relaxed) {
            let tables = &mut self.tables;
            let received = self.socket.receive(|message| {
                if let Some(event) = take(tables, message) {
                    open &= sink(event);
                }
            });
            match received {
                Ok(()) | Err(KernelError::Timeout(_)) => {}
                Err(KernelError::Overrun) => {
                    self.tables.clear();
                    open &= sink(NftEvent::Overrun);
                }
                Err(error) => {
                    tracing::warn!(%error, "ruleset notices: read failed");
                    open &= sink(NftEvent::Overrun);
                    std::thread::sleep(STOP_CHECK);
                }
            }
        }
    }
}

/// Collects the tables of a commit; its end is the generation message.
fn take(tables: &mut BTreeSet<(u8, String)>, message: &Message<'_>) -> Option<NftEvent> {
    if message.kind & 0xff00 != SUBSYSTEM {
        return None;
    }
    let attrs = message.attrs(FIXED);
    if message.kind != NEWGEN {
        let family = *message.payload.first()?;
        let name = attrs.find(ANY_TABLE)?.text();
        if !tables.contains(&(family, name.clone())) {
            tables.insert((family, name));
        }
        return None;
    }
    Some(NftEvent::Generation {
        id: attrs.find(GEN_ID)?.be32()?,
        thread: attrs.find(GEN_THREAD).and_then(|a| a.be32()).unwrap_or(0),
        command: attrs
            .find(GEN_COMMAND)
            .map(|a| a.text())
            .unwrap_or_default(),
        tables: std::mem::take(tables),
    })
}
