//! Messages on the wire (RFC 4271 section 4): octets in, values out, and back.
//!
//! Nothing here keeps state. What an UPDATE means depends on the session; the few facts needed are
//! in [`UpdateContext`].

mod as_path;
mod attribute_decode;
mod attribute_encode;
mod attribute_rules;
mod attributes;
mod capability;
mod community;
mod header;
mod mp;
mod nlri;
mod notification;
mod open;
mod reader;
mod refresh;
mod update;
mod update_pack;

pub use as_path::{AS_TRANS, AsPath, Segment, SegmentKind};
pub use attributes::{Aggregator, Attributes, NextHop, Origin, UnknownAttribute};
pub use capability::{
    Capability, GracefulRestartCapability, GracefulRestartFamily, capability_code,
};
pub use community::{Community, LargeCommunity};
pub use header::{
    HEADER_LENGTH, MAX_EXTENDED_LENGTH, MAX_LENGTH, Message, MessageType, next_message,
};
pub use nlri::Nlri;
pub use notification::{
    Notification, cease, code, fsm_error, header_error, open_error, update_error,
};
pub use open::Open;
pub use refresh::{RefreshKind, RouteRefresh};
pub use update::{AttributeFault, Reachable, Update, UpdateContext};
pub use update_pack::{PackContext, end_of_rib, keepalive, pack_announcements, pack_withdrawals};

#[cfg(test)]
pub(crate) mod tests;
