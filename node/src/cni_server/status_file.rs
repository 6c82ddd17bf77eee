//! Endpoint status files: Calico's CNI plugin, and programs that imitate it, wait for them before they start a pod.

use std::path::Path;

use margay_cni::attachment::Attachment;
use margay_cni::names;
use serde_json::json;

/// Writes the status of a pod that is fully set up. Failing to is no reason to fail ADD: we do not wait for the file.
pub(super) fn write(directory: &Path, record: &Attachment) {
    let nets = |v4: bool| -> Vec<String> {
        let nets = record.ips.iter().filter(|net| net.addr().is_ipv4() == v4);
        nets.map(ToString::to_string).collect()
    };
    let status = json!({
        "ifaceName": record.host_if,
        "mac": record.pod_mac,
        "ipv4Nets": nets(true),
        "ipv6Nets": nets(false),
        "bgpPeerName": "",
    });
    let path = directory.join(name(record));
    let written =
        std::fs::create_dir_all(directory).and_then(|()| std::fs::write(path, status.to_string()));
    if let Err(error) = written {
        tracing::debug!(%error, "endpoint status file not written");
    }
}

/// Removes the status of a pod, unless it is that of a newer sandbox.
pub(super) fn remove(directory: &Path, record: &Attachment) {
    if !record.superseded {
        let _ = std::fs::remove_file(directory.join(name(record)));
    }
}

fn name(record: &Attachment) -> String {
    names::status_file(
        &record.pod_args(),
        &record.key.container_id,
        &record.key.ifname,
    )
}
