//! From attachment records to the dataplane's and the wiring's terms.

use std::net::IpAddr;

use ipnet::IpNet;
use margay_cni::attachment::{Attachment, AttachmentKey, State};
use margay_cni::machine::add::NetnsFacts;
use margay_cni::{CniError, Code, names, plan};
use margay_felix::kernel::rtnl::Rtnl;
use margay_felix::kernel::{MacAddr, Netns};
use margay_felix::wire::{PodWiring, Unwired, Unwiring, WireError, WiredPod};
use margay_felix::{EndpointDesired, EndpointId, Provenance};

use super::Shared;

/// MTU of a pod when nobody says otherwise: that of Ethernet.
const DEFAULT_MTU: u32 = 1500;

pub(super) fn endpoint_id(key: &AttachmentKey) -> EndpointId {
    EndpointId(key.to_string())
}

/// The endpoint of a record. It takes traffic once its interface is wired.
pub(super) fn endpoint(record: &Attachment, active: bool) -> EndpointDesired {
    let provenance = match &record.pod {
        Some(pod) => Provenance::namespaced("Pod", &pod.namespace, &pod.name),
        None => Provenance::cluster("Container", &record.key.container_id),
    };
    EndpointDesired {
        id: endpoint_id(&record.key),
        provenance,
        interface: record.host_if.clone(),
        addresses: record.ips.iter().map(IpNet::addr).collect(),
        mac: parse_mac(&record.pod_mac),
        active,
        elevated: false,
    }
}

fn parse_mac(text: &str) -> Option<MacAddr> {
    plan::parse_mac(text).map(MacAddr)
}

/// The wiring of a record. `superseded` are aliases that may be in the way.
pub(super) fn wiring(
    shared: &Shared,
    record: &Attachment,
    pod: Netns,
    superseded: Vec<String>,
) -> PodWiring {
    PodWiring {
        host: shared.deps.netns.clone(),
        pod,
        host_interface: record.host_if.clone(),
        pod_interface: record.key.ifname.clone(),
        alias: record.alias(),
        superseded,
        mtu: if record.mtu > 0 {
            record.mtu
        } else {
            DEFAULT_MTU
        },
        pod_mac: parse_mac(&record.pod_mac),
        queues: record.num_queues.max(1),
        addresses: record.ips.iter().map(IpNet::addr).collect(),
        routes: record.routes.clone(),
        pod_forwarding: record.allow_ip_forwarding,
    }
}

/// What the record says was made.
pub(super) fn wired(record: &Attachment) -> WiredPod {
    WiredPod {
        host_index: record.host_ifindex,
        host_mac: margay_felix::wire::HOST_MAC,
        pod_index: record.pod_ifindex,
        pod_mac: parse_mac(&record.pod_mac).unwrap_or(MacAddr([0; 6])),
    }
}

/// An error of the wiring for the runtime.
pub(super) fn wire_error(error: &WireError) -> CniError {
    match error {
        WireError::PodInterfaceExists(name) => CniError::new(
            Code::INTERFACE_EXISTS,
            format!("interface {name} already exists in the container"),
        ),
        WireError::InvalidMac(_) => CniError::invalid(error.to_string()),
        _ => CniError::kernel("the pod's interface could not be set up")
            .with_details(error.to_string()),
    }
}

/// Removes the interface of a record, if it still is that record's.
pub(super) async fn unwire(shared: &Shared, record: &Attachment) -> Result<Unwired, CniError> {
    if record.host_ifindex == 0 || record.boot_id != shared.deps.boot_id {
        return Ok(Unwired::Absent);
    }
    let which = Unwiring {
        host: shared.deps.netns.clone(),
        host_interface: record.host_if.clone(),
        host_index: record.host_ifindex,
        alias: record.alias(),
    };
    blocking(move || margay_felix::wire::unwire(&which))
        .await?
        .map_err(|error| wire_error(&error))
}

/// Runs blocking work and waits for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CniError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))
}

/// Looks at a pod's namespace.
pub(super) async fn inspect(pod: Netns, ifname: String) -> Result<NetnsFacts, CniError> {
    let failed = |details: String| {
        CniError::kernel("the container's network namespace cannot be read").with_details(details)
    };
    blocking(move || {
        let id = pod.id().map_err(|error| failed(error.to_string()))?;
        let link = pod
            .run(move || Rtnl::open().and_then(|mut rtnl| rtnl.link_by_name(&ifname)))
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        Ok(NetnsFacts {
            dev: id.device,
            ino: id.inode,
            cookie: 0,
            has_interface: link.is_some(),
        })
    })
    .await?
}

/// Aliases that may be replaced under a host interface name: those of superseded sandboxes of the same pod, and one
/// that no live record knows (its sandbox died without a trace).
pub(super) async fn replaceable(shared: &Shared, record: &Attachment) -> Vec<String> {
    let records = shared.records.all();
    let mut aliases: Vec<String> = records
        .iter()
        .filter(|other| other.host_if == record.host_if && other.superseded)
        .map(Attachment::alias)
        .collect();
    let live: Vec<String> = records
        .iter()
        .filter(|other| other.state == State::Ready && !other.superseded)
        .map(Attachment::alias)
        .collect();
    let (netns, name) = (shared.deps.netns.clone(), record.host_if.clone());
    let found =
        blocking(move || Rtnl::open_in(&netns).and_then(|mut r| r.link_by_name(&name))).await;
    if let Ok(Ok(Some(link))) = found
        && let Some(alias) = link.alias
        && alias.starts_with("margay:")
        && !live.contains(&alias)
    {
        aliases.push(alias);
    }
    aliases
}

/// Whether the host interface of a record exists and is still its own.
pub(super) fn is_live(rtnl: &mut Rtnl, record: &Attachment) -> bool {
    record.host_ifindex != 0
        && rtnl.link_by_index(record.host_ifindex).is_ok_and(|link| {
            link.is_some_and(|link| {
                link.name == record.host_if && link.alias.as_deref() == Some(&record.alias())
            })
        })
}

/// Removes `CNI_IFNAME` from a namespace when there is no record of it, provided that its other end is in the host's
/// namespace and has our prefix, as interfaces of Calico's plugin and of lost records have.
pub(super) async fn remove_stray(
    shared: &Shared,
    pod: Netns,
    ifname: String,
) -> Result<(), CniError> {
    let (host, prefix) = (
        shared.deps.netns.clone(),
        shared.deps.interface_prefix.clone(),
    );
    let live: Vec<u32> = shared
        .records
        .all()
        .iter()
        .filter(|record| record.state == State::Ready)
        .map(|record| record.host_ifindex)
        .collect();
    let failed =
        |details: String| CniError::kernel("a left-over interface stays").with_details(details);
    blocking(move || {
        let Ok(Ok(Some(inside))) =
            pod.run(move || Rtnl::open().and_then(|mut rtnl| rtnl.link_by_name(&ifname)))
        else {
            return Ok(());
        };
        let mut rtnl = Rtnl::open_in(&host).map_err(|error| failed(error.to_string()))?;
        let peer = inside
            .parent
            .and_then(|index| rtnl.link_by_index(index).ok().flatten());
        let Some(peer) = peer else { return Ok(()) };
        let paired = peer.parent == Some(inside.index);
        let is_pod_interface = matches!(peer.kind.as_deref(), Some("veth" | "netkit"));
        if paired
            && is_pod_interface
            && peer.name.starts_with(&prefix)
            && !live.contains(&peer.index)
        {
            rtnl.delete_link(peer.index)
                .map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    })
    .await?
}

/// Addresses a record holds.
pub(super) fn addresses(record: &Attachment) -> Vec<IpAddr> {
    record.ips.iter().map(IpNet::addr).collect()
}

/// The handle of a call.
pub(super) fn handle(network: &str, container_id: &str) -> String {
    names::ipam_handle(network, container_id)
}
