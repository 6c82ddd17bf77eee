//! Places of the agent's files. Each may be moved by an environment variable, for hosts that keep state elsewhere and
//! for tests.

use std::path::PathBuf;

use crate::cni_server::CniPaths;

/// Directory of runtime state: gone after a reboot of the host.
pub(crate) fn run_directory() -> PathBuf {
    directory("MARGAY_RUN_DIR", "/run/margay")
}

/// Directory of durable state.
pub(crate) fn state_directory() -> PathBuf {
    directory("MARGAY_STATE_DIR", "/var/lib/margay")
}

/// What the next process has to know.
pub(crate) fn restart_file() -> PathBuf {
    run_directory().join("restart.json")
}

/// Socket of the admin API.
pub(crate) fn admin_socket() -> PathBuf {
    run_directory().join("admin.sock")
}

/// Records of kernel drift.
pub(crate) fn drift_log() -> PathBuf {
    state_directory().join("drift.jsonl")
}

/// Journal of address assignments.
pub(crate) fn ipam_journal() -> PathBuf {
    run_directory().join("ipam/journal")
}

/// Files of the CNI server.
pub(crate) fn cni() -> CniPaths {
    CniPaths {
        socket: run_directory().join("cni.sock"),
        state: state_directory().join("cni"),
        status_file: run_directory().join("status"),
        ..CniPaths::default()
    }
}

fn directory(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable)
        .filter(|path| !path.is_empty())
        .map_or_else(|| PathBuf::from(default), PathBuf::from)
}
