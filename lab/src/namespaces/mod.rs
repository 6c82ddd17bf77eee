//! Network and mount namespaces of a lab.
//!
//! Network namespaces have names in `/run/netns`, as iproute2 makes them, so that `ip netns exec mgy-demo-n1 ...`
//! works. Each node and router has a mount namespace too, kept alive by a bind mount of its nsfs file in the lab's
//! folder (namespaces(7)); no process has to sleep for it. The folder is a private tmpfs: the kernel accepts a mount
//! namespace file only below a mount that does not propagate, and taking the lab down is unmounting it.

mod enter;
mod mount;
mod net;

pub(crate) use enter::{Placement, place};
pub(crate) use mount::{PrivatePaths, keep_mount_namespace, mount_lab_folder, unmount};
pub(crate) use net::{
    create, delete, in_netns, is_netns, prepare_directory, release_directory, with_prefix,
};
