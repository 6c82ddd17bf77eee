//! Everything that talks to the kernel: namespaces, rtnetlink, nf_tables, conntrack, sysctl.
//!
//! One request layer ([`netlink`]) serves all three netlink protocols used: it encodes by hand, waits with a time
//! limit, and never reports success for a request that was not acknowledged.

pub mod conntrack;
mod error;
mod mac;
pub mod monitor;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod rtnl;
pub mod sysctl;

pub use error::KernelError;
pub use mac::{MacAddr, MacError};
pub use netns::{Netns, NetnsError, NetnsId};
