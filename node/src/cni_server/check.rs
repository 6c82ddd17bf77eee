//! CHECK, STATUS and PING.

use std::sync::{Arc, PoisonError};

use margay_cni::config::NetworkConfig;
use margay_cni::machine::add::same_netns;
use margay_cni::machine::check::{compare_result, usable, verdict};
use margay_cni::machine::status::{self, StatusFacts};
use margay_cni::result::AddResult;
use margay_cni::{CniError, Code, Command};
use margay_felix::kernel::Netns;

use super::serve::Call;
use super::{Shared, add, kernel};

pub(super) async fn check(shared: &Arc<Shared>, call: Call) -> Result<(), CniError> {
    let config = NetworkConfig::parse(Command::Check, call.request.conf.as_bytes())?;
    let key = add::key(&call)?;
    let _container = shared
        .locks
        .lock(&format!("container {}", key.container_id))
        .await;
    let record = shared.records.get(&key);
    let record = usable(record.as_ref())?;
    let previous = config
        .prev_result
        .as_ref()
        .map(AddResult::from_json)
        .transpose()?;
    let netns_path = call.request.var("CNI_NETNS").to_owned();
    let mut findings = compare_result(record, &netns_path, previous.as_ref())?;
    let netns = call
        .netns
        .and_then(|fd| Netns::from_fd(fd).ok())
        .ok_or_else(|| {
            CniError::new(
                Code::INVALID_NETNS,
                "the request came without a network namespace",
            )
        })?;
    let facts = kernel::inspect(netns.clone(), key.ifname.clone()).await?;
    if !same_netns(record, &facts, &shared.deps.boot_id) {
        findings.push(format!(
            "{netns_path} is another network namespace than at ADD"
        ));
    }
    let (wiring, wired) = (
        kernel::wiring(shared, record, netns, Vec::new()),
        kernel::wired(record),
    );
    let seen = kernel::blocking(move || margay_felix::wire::check(&wiring, &wired)).await?;
    findings.extend(seen.map_err(|error| kernel::wire_error(&error))?);
    if !record.ipam.handle.is_empty() {
        for address in kernel::addresses(record) {
            if !shared.deps.addresses.holds(&record.ipam.handle, address) {
                findings.push(format!(
                    "address {address} is not allocated to this container"
                ));
            }
        }
    }
    verdict(&findings)
}

pub(super) fn status(shared: &Shared, call: &Call) -> Result<(), CniError> {
    let config = NetworkConfig::parse(Command::Status, call.request.conf.as_bytes())?;
    let state = shared.deps.state.borrow().clone();
    let wanted = [
        (
            "IPv4",
            config.ipam.is_own() && config.ipam.assign_ipv4 && !state.has_v4_pool,
        ),
        (
            "IPv6",
            config.ipam.is_own() && config.ipam.assign_ipv6 && !state.has_v6_pool,
        ),
    ];
    let exhausted = *shared
        .exhausted
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let kernel_failing = shared
        .kernel_failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    status::verdict(&StatusFacts {
        not_ready: state.unhealthy,
        no_pool_for: wanted
            .iter()
            .find(|(_, lacks)| *lacks)
            .map(|(name, _)| (*name).to_owned()),
        exhausted_for: exhausted.map(|since| since.elapsed().as_secs()),
        kernel_failing,
    })
}

/// Whether the agent has a connection to its API.
pub(super) fn ping(shared: &Shared) -> Result<(), CniError> {
    match &shared.deps.state.borrow().not_ready {
        None => Ok(()),
        Some(why) => {
            Err(CniError::try_again("the node agent is not ready").with_details(why.clone()))
        }
    }
}
