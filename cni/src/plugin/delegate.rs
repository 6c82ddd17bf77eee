//! Running another IPAM plugin (CNI specification, section "Plugin Delegation"): same environment, same standard
//! input, another command.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::environment::{Command, Environment};
use crate::error::{CniError, Code};

/// How often the plugin is looked at while it runs.
const POLL: Duration = Duration::from_millis(5);

/// Runs ADD and returns the plugin's result.
pub(super) fn add(
    kind: &str,
    environment: &Environment,
    stdin: &[u8],
    deadline: Instant,
) -> Result<Value, CniError> {
    let output = run(kind, Command::Add, environment, stdin, deadline)?;
    serde_json::from_slice(&output).map_err(|error| {
        CniError::new(
            Code::DECODE,
            format!("IPAM plugin {kind} printed no result"),
        )
        .with_details(error.to_string())
    })
}

/// Runs a command and returns what the plugin printed.
pub(super) fn run(
    kind: &str,
    command: Command,
    environment: &Environment,
    stdin: &[u8],
    deadline: Instant,
) -> Result<Vec<u8>, CniError> {
    let program = find(kind, &environment.path)?;
    let failed = |details: String| {
        CniError::new(Code::IO, format!("cannot run IPAM plugin {kind}")).with_details(details)
    };
    let mut child = Process::new(program)
        .env("CNI_COMMAND", command.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    // Both pipes are served by threads: a plugin that does not read must not hold us up beyond the deadline.
    let mut input = child.stdin.take();
    let content = stdin.to_vec();
    thread::spawn(move || input.as_mut().map(|pipe| pipe.write_all(&content)));
    let mut output = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut content = Vec::new();
        let read = output.as_mut().map(|pipe| pipe.read_to_end(&mut content));
        read.transpose().map(|_| content)
    });
    let success = wait(&mut child, deadline).map_err(failed)?;
    let output = reader
        .join()
        .map_err(|_| failed("reader thread failed".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if success {
        return Ok(output);
    }
    Err(
        serde_json::from_slice::<CniError>(&output).unwrap_or_else(|_| {
            CniError::new(Code::INTERNAL, format!("IPAM plugin {kind} failed"))
                .with_details(String::from_utf8_lossy(&output).trim().to_owned())
        }),
    )
}

fn wait(child: &mut Child, deadline: Instant) -> Result<bool, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it did not end in time".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The first regular, executable file of that name in `CNI_PATH`.
fn find(kind: &str, path: &str) -> Result<PathBuf, CniError> {
    if path.is_empty() {
        return Err(CniError::new(
            Code::BAD_ENVIRONMENT,
            "required env variables [CNI_PATH] missing",
        ));
    }
    if kind.contains('/') {
        return Err(CniError::invalid(format!(
            "IPAM type {kind:?} must not be a path"
        )));
    }
    path.split(':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| PathBuf::from(directory).join(kind))
        .find(|candidate| {
            candidate
                .metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            CniError::invalid(format!("IPAM plugin {kind:?} is not in CNI_PATH")).with_details(path)
        })
}
