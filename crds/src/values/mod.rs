//! Value types shared by several kinds.

mod condition;
mod duration;
mod int_or_string;
mod network;
mod open_enum;
mod peer_address;
mod port;
mod secret;
mod switch;

pub use condition::Condition;
pub use duration::parse_duration;
pub use int_or_string::{IntOrString, Port, Protocol};
pub use network::{overlap, parse_address_or_cidr, parse_cidr, parse_masked_cidr};
pub(crate) use open_enum::open_enum;
pub use peer_address::PeerAddress;
pub use port::{PortMatch, dscp_value, parse_as_number, protocol_has_ports, protocol_number};
pub use secret::{BGPPassword, SecretKeySelector};
pub use switch::Switch;

/// Pattern of durations as Go prints them: any number of `<digits>[.<digits>]<unit>` groups.
pub const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$";
