//! Requests and responses on the agent's socket.
//!
//! One request per connection, the namespace descriptor with its first byte ([`crate::scm`]), framed by
//! [`crate::frame`]. Executable and agent are upgraded one after the other, so each accepts the other's previous
//! protocol number, and both ignore fields they do not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::Command;
use crate::error::CniError;

/// Protocol spoken here.
pub const PROTO: u32 = 1;
/// Oldest protocol still accepted: the one before [`PROTO`], and there is none before 1.
pub const OLDEST_PROTO: u32 = if PROTO > 1 { PROTO - 1 } else { 1 };

/// Where the agent listens.
pub const SOCKET: &str = "/run/margay/cni.sock";

/// Touched by the agent after each healthy self-check; STATUS trusts it for a while when the agent is away.
pub const STATUS_FILE: &str = "/run/margay/status";

/// What the agent shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verb {
    /// CNI ADD; the namespace comes along.
    Add,
    /// CNI DEL; the namespace comes along if it still exists.
    Del,
    /// CNI CHECK; the namespace comes along.
    Check,
    /// CNI GC.
    Gc,
    /// CNI STATUS.
    Status,
    /// ADD of the IPAM half alone.
    IpamAdd,
    /// DEL of the IPAM half alone.
    IpamDel,
    /// Is the agent there and connected to its API?
    Ping,
}

impl Verb {
    /// The verb of a CNI command; `None` for VERSION, which no agent is asked.
    pub fn of(command: Command) -> Option<Verb> {
        Some(match command {
            Command::Add => Verb::Add,
            Command::Del => Verb::Del,
            Command::Check => Verb::Check,
            Command::Gc => Verb::Gc,
            Command::Status => Verb::Status,
            Command::Version => return None,
        })
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Protocol of the sender.
    pub proto: u32,
    /// What to do.
    pub cmd: Verb,
    /// The `CNI_*` variables that are set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Standard input as it came, or empty. Text, because DEL must get through with what is no JSON.
    #[serde(default)]
    pub conf: String,
    /// How long the sender waits for the answer, in milliseconds.
    pub deadline_ms: u64,
    /// Version of the sending executable, for the log.
    #[serde(default)]
    pub client: String,
    /// Result of an external IPAM plugin the sender has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam_result: Option<Value>,
}

impl Request {
    /// A `CNI_*` variable, empty when it is not set.
    pub fn var(&self, name: &str) -> &str {
        self.env.get(name).map_or("", String::as_str)
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Protocol of the agent, or the newest it speaks when it refuses the request's.
    pub proto: u32,
    /// Whether the request succeeded.
    pub ok: bool,
    /// ADD: the result in the layout of 1.1.0; the executable converts it. Others: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The error when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CniError>,
}

impl Response {
    /// Success.
    pub fn success(result: Option<Value>) -> Response {
        Response {
            proto: PROTO,
            ok: true,
            result,
            error: None,
        }
    }

    /// Failure.
    pub fn failure(error: CniError) -> Response {
        Response {
            proto: PROTO,
            ok: false,
            result: None,
            error: Some(error),
        }
    }
}

/// Whether a protocol number is accepted.
pub fn accepts(proto: u32) -> bool {
    (OLDEST_PROTO..=PROTO).contains(&proto)
}

/// The agent's answer to a protocol it does not speak; the sender may fall back to the number in it.
pub fn refusal(proto: u32) -> Response {
    Response::failure(
        CniError::try_again("the node agent and the CNI executable are too many versions apart")
            .with_details(format!(
                "executable speaks protocol {proto}, agent {OLDEST_PROTO} to {PROTO}"
            )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn request_has_the_documented_keys_and_tolerates_others() {
        let text = json!({"proto":1,"cmd":"IPAM_ADD","env":{"CNI_IFNAME":"eth0"},"conf":"{","deadline_ms":5,
            "client":"0.1.0","later":true});
        let request: Request = serde_json::from_value(text).expect("request");
        assert_eq!(
            (request.cmd, request.var("CNI_IFNAME"), request.var("X")),
            (Verb::IpamAdd, "eth0", "")
        );
        let text = serde_json::to_value(&request).expect("text");
        assert_eq!(text["cmd"], "IPAM_ADD");
        assert_eq!(text.get("ipam_result"), None);
    }

    #[test]
    fn only_this_protocol_and_the_one_before_are_accepted() {
        assert!(accepts(PROTO) && accepts(OLDEST_PROTO));
        assert!(!accepts(PROTO + 1) && !accepts(OLDEST_PROTO - 1));
        assert_eq!(
            refusal(9).error.map(|error| error.code),
            Some(crate::Code::TRY_AGAIN)
        );
    }
}
