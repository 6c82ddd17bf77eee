//! CHECK, GC, STATUS and the connection test.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::{Call, Output, Surroundings, client, delegate};
use crate::config::{self, NetworkConfig};
use crate::environment::Command;
use crate::error::{CniError, Code};
use crate::netns;
use crate::proto::{PROTO, Request, Verb};
use crate::version::CniVersion;

/// How long STATUS trusts the agent's last sign of health: a restart must not make the node not ready.
const GRACE: Duration = Duration::from_secs(60);

/// Bound of the connection test.
const TEST_LIMIT: Duration = Duration::from_secs(2);

pub(super) fn check(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
) -> Result<Option<Value>, CniError> {
    let deadline = Instant::now() + call.surroundings.limit;
    let environment = &call.environment;
    let netns = netns::open_required(&environment.netns, environment.netns_override)?;
    let surroundings = &call.surroundings;
    let request = call.request(Verb::Check, stdin);
    client::call(
        &surroundings.socket,
        &request,
        Some(netns.as_fd()),
        surroundings.wait,
        deadline,
    )
    .map_err(|error| error.into_error(&surroundings.socket))
    .and_then(client::settle)?;
    forward(call, config, stdin, deadline)
}

pub(super) fn gc(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
) -> Result<Option<Value>, CniError> {
    let deadline = Instant::now() + call.surroundings.limit;
    let surroundings = &call.surroundings;
    let request = call.request(Verb::Gc, stdin);
    let answer = client::call(
        &surroundings.socket,
        &request,
        None,
        surroundings.wait,
        deadline,
    )
    .map_err(|error| error.into_error(&surroundings.socket))
    .and_then(client::settle);
    forward(call, config, stdin, deadline)?;
    answer.map(|_| None)
}

pub(super) fn status(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
) -> Result<Option<Value>, CniError> {
    let deadline = Instant::now() + call.surroundings.limit_status;
    let surroundings = &call.surroundings;
    let request = call.request(Verb::Status, stdin);
    match client::call(
        &surroundings.socket,
        &request,
        None,
        Duration::ZERO,
        deadline,
    ) {
        Ok(response) => client::settle(response).map(|_| ())?,
        Err(_) if recently_healthy(&surroundings.status_file) => {}
        Err(error) => {
            let error = error.into_error(&surroundings.socket);
            return Err(CniError {
                code: Code::UNAVAILABLE,
                ..error
            });
        }
    }
    forward(call, config, stdin, deadline)
}

/// Has an external IPAM plugin do its part.
fn forward(
    call: &Call,
    config: &NetworkConfig,
    stdin: &[u8],
    deadline: Instant,
) -> Result<Option<Value>, CniError> {
    if !config.ipam.is_own() {
        let command: Command = call.environment.command;
        delegate::run(
            &config.ipam.kind,
            command,
            &call.environment,
            stdin,
            deadline,
        )?;
    }
    Ok(None)
}

fn recently_healthy(path: &Path) -> bool {
    let touched = fs::metadata(path).and_then(|metadata| metadata.modified());
    touched.is_ok_and(|touched| {
        // A time in the future is a clock that was set back: not a sign of sickness.
        SystemTime::now()
            .duration_since(touched)
            .is_ok_and(|age| age < GRACE)
            || touched > SystemTime::now()
    })
}

/// `-t`: can the agent be reached, and has it a connection to its API?
pub(super) fn test_connection(surroundings: &Surroundings, stdin: &mut dyn Read) -> Output {
    let deadline = Instant::now() + TEST_LIMIT;
    let failed = |details: String| {
        let error =
            CniError::new(Code::TEST_FAILED, "data store connection failed").with_details(details);
        Output::error(&error, CniVersion::NEWEST)
    };
    let stdin = match super::read(stdin) {
        Ok(stdin) => stdin,
        Err(error) => return failed(error.to_string()),
    };
    if let Err(error) = config::parse_object(&stdin) {
        return failed(error.to_string());
    }
    let request = Request {
        proto: PROTO,
        cmd: Verb::Ping,
        env: std::collections::BTreeMap::new(),
        conf: String::new(),
        deadline_ms: 0,
        client: env!("CARGO_PKG_VERSION").to_owned(),
        ipam_result: None,
    };
    let answer = client::call(&surroundings.socket, &request, None, TEST_LIMIT, deadline)
        .map_err(|error| error.into_error(&surroundings.socket))
        .and_then(client::settle);
    match answer {
        Ok(_) => Output::default(),
        Err(error) => failed(error.to_string()),
    }
}
