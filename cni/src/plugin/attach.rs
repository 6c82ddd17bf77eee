//! ADD.

use std::os::fd::AsFd;
use std::time::Instant;

use serde_json::Value;

use super::{Call, client, delegate};
use crate::config::NetworkConfig;
use crate::environment::Command;
use crate::error::{CniError, Code};
use crate::netns;
use crate::proto::Verb;
use crate::result::AddResult;

pub(super) fn add(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
) -> Result<Option<Value>, CniError> {
    let deadline = Instant::now() + call.surroundings.limit;
    let environment = &call.environment;
    let netns = netns::open_required(&environment.netns, environment.netns_override)?;
    let mut request = call.request(Verb::Add, stdin);
    let external = (!config.ipam.is_own()).then_some(config.ipam.kind.as_str());
    if let Some(kind) = external {
        request.ipam_result = Some(delegate::add(kind, environment, stdin, deadline)?);
    }
    let surroundings = &call.surroundings;
    let answer = client::call(
        &surroundings.socket,
        &request,
        Some(netns.as_fd()),
        surroundings.wait,
        deadline,
    )
    .map_err(|error| error.into_error(&surroundings.socket))
    .and_then(client::settle)
    .and_then(|result| print(config, result));
    if let (Err(_), Some(kind)) = (&answer, external) {
        // What goes wrong here is found by the DEL that follows every failed ADD.
        let _ = delegate::run(kind, Command::Del, environment, stdin, deadline);
    }
    answer
}

pub(super) fn ipam_add(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
) -> Result<Option<Value>, CniError> {
    let deadline = Instant::now() + call.surroundings.limit;
    let surroundings = &call.surroundings;
    let request = call.request(Verb::IpamAdd, stdin);
    client::call(
        &surroundings.socket,
        &request,
        None,
        surroundings.wait,
        deadline,
    )
    .map_err(|error| error.into_error(&surroundings.socket))
    .and_then(client::settle)
    .and_then(|result| print(config, result))
}

fn print(config: &NetworkConfig, result: Option<Value>) -> Result<Option<Value>, CniError> {
    let result = result.ok_or_else(|| {
        CniError::new(Code::INTERNAL, "the node agent succeeded without a result")
    })?;
    AddResult::from_json(&result)?
        .to_json(config.cni_version)
        .map(Some)
}
