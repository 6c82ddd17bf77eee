//! DEL: success unless the environment is unusable, or the agent is away and cannot even be left a note.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{Call, Output, Personality, client, delegate};
use crate::attachment::AttachmentKey;
use crate::config::LenientConfig;
use crate::environment::Command;
use crate::error::{CniError, Code};
use crate::netns::{self, Opened};
use crate::proto::Verb;
use crate::tombstone::{Graveyard, SCHEMA, Tombstone};
use crate::version::CniVersion;

pub(super) fn del(call: &Call, stdin: &[u8]) -> Output {
    let deadline = Instant::now() + call.surroundings.limit_del;
    let hints = LenientConfig::parse(stdin);
    let (verb, netns) = match call.personality {
        Personality::Main => (Verb::Del, namespace(call)),
        Personality::Ipam => (Verb::IpamDel, None),
    };
    let surroundings = &call.surroundings;
    let request = call.request(verb, stdin);
    let fd = netns.as_ref().map(AsFd::as_fd);
    let answer = client::call(
        &surroundings.socket,
        &request,
        fd,
        surroundings.wait_del,
        deadline,
    );
    // An agent that refuses DEL is treated like one that is away: the runtime may never ask again.
    let served = answer.is_ok_and(|response| response.ok);
    if !served && let Err(error) = bury(call, &hints) {
        return Output::error(&error, CniVersion::NEWEST);
    }
    if let (Personality::Main, Some(kind)) = (call.personality, &hints.external_ipam) {
        let _ = delegate::run(kind, Command::Del, &call.environment, stdin, deadline);
    }
    Output::default()
}

/// The pod's namespace, if there still is one. Ours means that a process ID was recycled.
fn namespace(call: &Call) -> Option<File> {
    match netns::open(&call.environment.netns) {
        Ok(Opened::Namespace(file, _)) => Some(file),
        Ok(Opened::Own(file, _)) if call.environment.netns_override => Some(file),
        Ok(Opened::Own(..) | Opened::Gone(_)) | Err(_) => None,
    }
}

fn bury(call: &Call, hints: &LenientConfig) -> Result<(), CniError> {
    let environment = &call.environment;
    let tombstone = Tombstone {
        schema: SCHEMA,
        key: AttachmentKey::new(&environment.container_id, &environment.ifname),
        network: hints.name.clone(),
        args: environment.args.clone(),
        created: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    Graveyard::open(&call.surroundings.state)
        .and_then(|graveyard| graveyard.bury(&tombstone))
        .map_err(|error| {
            CniError::new(
                Code::IO,
                "the node agent is away and the request cannot be recorded",
            )
            .with_details(format!(
                "{}: {}",
                call.surroundings.state.display(),
                error.kind()
            ))
        })
}
