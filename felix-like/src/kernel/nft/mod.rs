//! nf_tables over raw netlink: what a table should hold ([`Table`]), what it holds ([`NftSocket::read`]), and the
//! transaction that turns one into the other ([`difference`], [`NftSocket::commit`]).
//!
//! Integers in attributes are big-endian, but data in registers has the byte order of what it is compared with: packet
//! fields and ports network order, marks and interface indexes host order.

mod difference;
mod expr;
mod expr_wire;
mod message;
mod model;
mod monitor;
mod read;
mod socket;

pub use difference::difference;
pub use expr::{CmpOp, Expr, MetaKey, NatKind, Verdict};
pub(crate) use expr_wire::LOCAL_ADDRESS;
pub use message::Batch;
pub use model::{
    BaseChain, Chain, Data, Element, Family, Hook, KeyType, Rule, Set, Table, TableFlags,
};
pub use monitor::{NftEvent, NftMonitor};
pub use socket::{CommitError, NftSocket};

/// `NFNL_SUBSYS_NFTABLES` in a message type.
const SUBSYSTEM: u16 = 10 << 8;
/// nfgenmsg.
const FIXED: usize = 4;

fn nfgenmsg(family: u8) -> [u8; FIXED] {
    [family, 0, 0, 0]
}
