//! Removing a pod's interface.

use super::{Unwired, Unwiring, WireError};
use crate::kernel::rtnl::Rtnl;

/// Removes the host end, and with it the pod end, addresses, neighbours and routes, provided that the recorded index
/// still has the recorded name and alias. Index and name are both reused by the kernel and by pods of the same name.
///
/// # Errors
/// [`WireError::Kernel`] when the interface cannot be read or deleted.
pub fn unwire(which: &Unwiring) -> Result<Unwired, WireError> {
    let name = &which.host_interface;
    let mut rtnl = Rtnl::open_in(&which.host)
        .map_err(WireError::kernel("open a netlink socket on the host"))?;
    let found = rtnl
        .link_by_index(which.host_index)
        .map_err(WireError::kernel(format!("look for {name}")))?;
    let Some(link) = found else {
        return Ok(Unwired::Absent);
    };
    if link.name != *name || link.alias.as_deref() != Some(which.alias.as_str()) {
        return Ok(Unwired::NotOurs);
    }
    let removed = rtnl
        .delete_link(link.index)
        .map_err(WireError::kernel(format!("remove {name}")))?;
    Ok(if removed {
        Unwired::Removed
    } else {
        Unwired::Absent
    })
}
