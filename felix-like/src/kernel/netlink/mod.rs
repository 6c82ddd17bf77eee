//! The netlink request layer shared by rtnetlink, nf_tables and conntrack.

mod batch;
mod encode;
mod filter;
mod parse;
mod socket;

pub use batch::Operation;
pub use encode::{Encoder, MAX_ATTRIBUTE};
pub use parse::{Attr, Attrs, Message, Messages};
pub use socket::{NetlinkSocket, Protocol};
