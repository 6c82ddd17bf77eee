//! The MTU pods get.

use margay_felix::calc::sessions::BgpNode;

/// MTU when the interface cannot be read.
const DEFAULT: u32 = 1500;

/// The MTU of the interface that carries the node's BGP address: what pods can send to other nodes in one piece.
pub(crate) fn of_pods(node: &BgpNode) -> u32 {
    let addresses = [node.addresses.v4, node.addresses.v6].into_iter().flatten();
    let Ok(interfaces) = super::interfaces::list() else {
        return DEFAULT;
    };
    addresses
        .filter_map(|address| {
            let owner = interfaces
                .iter()
                .find(|i| i.addresses.iter().any(|net| net.addr() == address.ip()))?;
            let text =
                std::fs::read_to_string(format!("/sys/class/net/{}/mtu", owner.name)).ok()?;
            text.trim().parse().ok()
        })
        .min()
        .unwrap_or(DEFAULT)
}
