//! The IPAM half alone: `margay-ipam` or `calico-ipam` called by another main plugin.

use std::sync::Arc;

use ipnet::IpNet;
use margay_cni::args::PodArgs;
use margay_cni::attachment::PodRef;
use margay_cni::config::{LenientConfig, NetworkConfig};
use margay_cni::machine::add::Allocation;
use margay_cni::plan::{AddressPlan, plan};
use margay_cni::result::{IpConfig, Route};
use margay_cni::{AddResult, CniError, CniVersion, Code, Command, names};
use serde_json::Value;

use super::serve::Call;
use super::{Shared, add, kernel};

pub(super) async fn add(shared: &Arc<Shared>, call: &Call) -> Result<Value, CniError> {
    let config = NetworkConfig::parse(Command::Add, call.request.conf.as_bytes())?;
    let args = PodArgs::parse(call.request.var("CNI_ARGS"))?;
    let key = add::key(call)?;
    let facts = if args.is_pod() {
        Some(
            shared
                .deps
                .pods
                .find(args.namespace.clone(), args.name.clone())
                .await?,
        )
    } else {
        None
    };
    let _container = shared
        .locks
        .lock(&format!("container {}", key.container_id))
        .await;
    let handle = kernel::handle(&config.name, &key.container_id);
    let addresses = match plan(&config, &args, facts.as_ref(), None)?.addresses {
        own @ (AddressPlan::Automatic { .. } | AddressPlan::Specific(_)) => {
            let pod = args.is_pod().then(|| PodRef {
                namespace: args.namespace.clone(),
                name: args.name.clone(),
                uid: args.uid.clone(),
            });
            let facts = facts.map(Box::new);
            let allocation = Allocation {
                handle: handle.clone(),
                addresses: own,
                pod,
                facts,
            };
            shared.deps.addresses.allocate(allocation).await?.0
        }
        AddressPlan::WithoutIpam(addresses) | AddressPlan::External(addresses) => addresses,
    };
    if call.cancel.is_cancelled() {
        shared.deps.addresses.release(handle, addresses).await?;
        return Err(CniError::new(
            Code::TRY_AGAIN,
            "no address was assigned in time",
        ));
    }
    let ip = |address| IpConfig {
        interface: None,
        address: IpNet::from(address),
        gateway: None,
    };
    let result = AddResult {
        ips: addresses.iter().copied().map(ip).collect(),
        routes: addresses
            .iter()
            .copied()
            .map(|a| Route::to(IpNet::from(a)))
            .collect(),
        ..AddResult::default()
    };
    result.to_json(CniVersion::NEWEST)
}

pub(super) async fn del(shared: &Arc<Shared>, call: &Call) -> Result<(), CniError> {
    let key = add::key(call)?;
    let hints = LenientConfig::parse(call.request.conf.as_bytes());
    let network = hints.name.as_deref().unwrap_or(names::DEFAULT_NETWORK);
    let _container = shared
        .locks
        .lock(&format!("container {}", key.container_id))
        .await;
    let handle = kernel::handle(network, &key.container_id);
    shared.deps.addresses.release_handle(handle).await
}
