//! The executable, minus `main`: from environment and standard input to standard output and exit code.
//!
//! One program under four names: `margay` and `calico` are the main plugin, `margay-ipam` and `calico-ipam` its IPAM
//! half. It blocks, has a deadline for everything, and prints exactly one JSON document or nothing: a runtime parses
//! standard output even of a failed call.

mod attach;
mod client;
mod delegate;
mod detach;
mod survey;

pub use client::{CallError, call};

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::attachment::STATE_DIRECTORY;
use crate::config::{self, MAX_STDIN, NetworkConfig};
use crate::environment::{Command, Environment};
use crate::error::{CniError, Code};
use crate::proto::{PROTO, Request, SOCKET, STATUS_FILE, Verb};
use crate::version::CniVersion;

/// Which of the two plugins is meant, by the name the program was called under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Personality {
    /// `margay`, `calico`, and every other name.
    Main,
    /// `margay-ipam`, `calico-ipam`.
    Ipam,
}

impl Personality {
    /// From `argv[0]`.
    pub fn of(program: &str) -> Personality {
        let name = program.rsplit('/').next().unwrap_or(program);
        if config::OWN_IPAM.contains(&name) {
            Personality::Ipam
        } else {
            Personality::Main
        }
    }
}

/// Where things are and how long to wait. Every value can be set in the environment; tests and labs do.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The agent's socket (`MARGAY_CNI_SOCKET`).
    pub socket: PathBuf,
    /// State directory, for tombstones (`MARGAY_CNI_STATE`).
    pub state: PathBuf,
    /// File the agent touches while healthy (`MARGAY_STATUS_FILE`).
    pub status_file: PathBuf,
    /// How long ADD, CHECK and GC wait for the socket (`MARGAY_CNI_WAIT_MS`).
    pub wait: Duration,
    /// How long DEL waits for the socket; never longer than `wait`.
    pub wait_del: Duration,
    /// Bound of a whole ADD, CHECK or GC.
    pub limit: Duration,
    /// Bound of a whole DEL.
    pub limit_del: Duration,
    /// Bound of a whole STATUS.
    pub limit_status: Duration,
}

impl Default for Surroundings {
    fn default() -> Self {
        Surroundings {
            socket: PathBuf::from(SOCKET),
            state: PathBuf::from(STATE_DIRECTORY),
            status_file: PathBuf::from(STATUS_FILE),
            wait: Duration::from_secs(10),
            wait_del: Duration::from_secs(5),
            limit: Duration::from_secs(55),
            limit_del: Duration::from_secs(25),
            limit_status: Duration::from_secs(1),
        }
    }
}

impl Surroundings {
    /// The defaults, as far as the environment does not say otherwise.
    pub fn from_vars(vars: &[(String, String)]) -> Surroundings {
        let mut surroundings = Surroundings::default();
        for (name, value) in vars.iter().filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                "MARGAY_CNI_SOCKET" => surroundings.socket = PathBuf::from(value),
                "MARGAY_CNI_STATE" => surroundings.state = PathBuf::from(value),
                "MARGAY_STATUS_FILE" => surroundings.status_file = PathBuf::from(value),
                "MARGAY_CNI_WAIT_MS" => {
                    if let Ok(wait) = value.parse() {
                        surroundings.wait = Duration::from_millis(wait).min(surroundings.limit);
                        surroundings.wait_del = surroundings.wait_del.min(surroundings.wait);
                    }
                }
                _ => {}
            }
        }
        surroundings
    }
}

/// What to print and how to exit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The document for standard output.
    pub stdout: Option<String>,
    /// Text for standard error; empty on success, because the runtime copies it into its log.
    pub stderr: String,
    /// Exit code: 0 or 1.
    pub code: u8,
}

impl Output {
    fn document(value: &Value) -> Output {
        Output {
            stdout: Some(value.to_string()),
            ..Output::default()
        }
    }

    /// The error document, exit code 1.
    pub fn error(error: &CniError, version: CniVersion) -> Output {
        Output {
            stdout: Some(error.to_json(version).to_string()),
            code: 1,
            ..Output::default()
        }
    }
}

/// Runs one call. `args` are the arguments after the program's name: a runtime gives none.
pub fn run(
    program: &str,
    args: &[String],
    vars: Vec<(String, String)>,
    stdin: &mut dyn Read,
) -> Output {
    let surroundings = Surroundings::from_vars(&vars);
    match args.first().map(String::as_str) {
        None => {}
        Some("-v" | "--version") => {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            return Output {
                stdout: Some(version),
                ..Output::default()
            };
        }
        Some("-t" | "--test") => return survey::test_connection(&surroundings, stdin),
        Some(other) => {
            let error = CniError::new(
                Code::TEST_FAILED,
                format!("unknown argument {other}; only -v and -t exist"),
            );
            return Output::error(&error, CniVersion::NEWEST);
        }
    }
    let environment = match Environment::from_vars(vars) {
        Ok(Some(environment)) => environment,
        Ok(None) => return about(),
        Err(error) => return Output::error(&error, CniVersion::NEWEST),
    };
    if environment.command == Command::Version {
        return Output::document(&CniVersion::report());
    }
    let call = Call {
        personality: Personality::of(program),
        environment,
        surroundings,
    };
    let stdin = match read(stdin) {
        Ok(stdin) => stdin,
        // DEL goes on with what the environment says.
        Err(_) if call.environment.command == Command::Del => Vec::new(),
        Err(error) => {
            let error = CniError::new(Code::IO, "cannot read standard input")
                .with_details(error.to_string());
            return Output::error(&error, CniVersion::NEWEST);
        }
    };
    call.run(&stdin)
}

fn about() -> Output {
    let supported: Vec<_> = CniVersion::SUPPORTED
        .iter()
        .map(|version| version.as_str())
        .collect();
    Output {
        stderr: format!(
            "Margay CNI plugin {}; container runtimes run it, people do not\nCNI protocol versions supported: {}\n",
            env!("CARGO_PKG_VERSION"),
            supported.join(", ")
        ),
        ..Output::default()
    }
}

/// Reads to the end, keeping one byte more than is allowed: leaving early would break the runtime's pipe.
fn read(stdin: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    Read::take(&mut *stdin, MAX_STDIN as u64 + 1).read_to_end(&mut content)?;
    std::io::copy(stdin, &mut std::io::sink())?;
    Ok(content)
}

/// One call by a runtime.
struct Call {
    personality: Personality,
    environment: Environment,
    surroundings: Surroundings,
}

impl Call {
    fn run(&self, stdin: &[u8]) -> Output {
        let command = self.environment.command;
        if command == Command::Del {
            return detach::del(self, stdin);
        }
        // The version of an error's document is that of the configuration, if it can be read.
        let version = config::parse_object(stdin).and_then(|map| config::version_of(&map));
        let version = version.unwrap_or(CniVersion::NEWEST);
        let config = match NetworkConfig::parse(command, stdin) {
            Ok(config) => config,
            Err(error) => return Output::error(&error, version),
        };
        let result = match (self.personality, command) {
            (Personality::Main, Command::Add) => attach::add(self, &config, stdin),
            (Personality::Ipam, Command::Add) => attach::ipam_add(self, &config, stdin),
            (Personality::Main, Command::Check) => survey::check(self, &config, stdin),
            (Personality::Main, Command::Gc) => survey::gc(self, &config, stdin),
            (_, Command::Status) => survey::status(self, &config, stdin),
            // Addresses are checked and collected by the main plugin.
            (Personality::Ipam, Command::Check | Command::Gc)
            | (_, Command::Del | Command::Version) => Ok(None),
        };
        match result {
            Ok(Some(document)) => Output::document(&document),
            Ok(None) => Output::default(),
            Err(error) => Output::error(&error, version),
        }
    }

    fn request(&self, verb: Verb, stdin: &[u8]) -> Request {
        Request {
            proto: PROTO,
            cmd: verb,
            env: self.environment.to_map(),
            conf: String::from_utf8_lossy(stdin).into_owned(),
            deadline_ms: 0,
            client: env!("CARGO_PKG_VERSION").to_owned(),
            ipam_result: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_decides_the_personality() {
        for (program, personality) in [
            ("/opt/cni/bin/margay", Personality::Main),
            ("calico", Personality::Main),
            ("/opt/cni/bin/calico-ipam", Personality::Ipam),
            ("margay-ipam", Personality::Ipam),
            ("", Personality::Main),
        ] {
            assert_eq!(Personality::of(program), personality, "{program}");
        }
    }

    #[test]
    fn waits_can_be_shortened_but_not_beyond_the_limit() {
        let var = |value: &str| vec![("MARGAY_CNI_WAIT_MS".to_owned(), value.to_owned())];
        let short = Surroundings::from_vars(&var("100"));
        assert_eq!(
            (short.wait, short.wait_del),
            (Duration::from_millis(100), Duration::from_millis(100))
        );
        assert_eq!(
            Surroundings::from_vars(&var("900000")).wait,
            Duration::from_secs(55)
        );
        assert_eq!(
            Surroundings::from_vars(&var("soon")).wait,
            Duration::from_secs(10)
        );
    }

    #[test]
    fn oversized_input_is_read_to_the_end_and_refused() {
        let mut input = std::io::repeat(b' ').take(MAX_STDIN as u64 + 100);
        let content = read(&mut input).expect("read");
        assert_eq!(content.len(), MAX_STDIN + 1);
        assert_eq!(input.limit(), 0);
        assert_eq!(
            config::parse_object(&content).expect_err("long").code,
            Code::DECODE
        );
    }
}
