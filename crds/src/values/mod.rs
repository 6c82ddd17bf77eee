//! Value types shared by several kinds.

mod condition;
mod int_or_string;
mod open_enum;
mod secret;
mod switch;

pub use condition::Condition;
pub use int_or_string::{IntOrString, Port, Protocol};
pub(crate) use open_enum::open_enum;
pub use secret::{BGPPassword, SecretKeySelector};
pub use switch::Switch;

/// Pattern of durations as Go prints them: any number of `<digits>[.<digits>]<unit>` groups.
pub const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$";
