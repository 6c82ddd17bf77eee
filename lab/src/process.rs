//! Processes of a lab: started detached with a log file, known by pid and start time, found again by a mark in their
//! environment.

use crate::error::{Error, Result, Tried};
use crate::names::MARK;
use crate::namespaces::{Placement, place};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid as RawPid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the kernel may take to end a killed process.
const END: Duration = Duration::from_secs(5);

/// A process that cannot be mistaken for another one with a recycled number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pid {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start: u64,
}

impl Pid {
    /// The running process with this number.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|s| Self {
            pid,
            start: s.start,
        })
    }

    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(RawPid::this().as_raw())
    }

    /// Whether it still runs. A zombie does not; one whose other threads are still ending does, because they hold its
    /// sockets open.
    pub fn is_alive(&self) -> bool {
        let threads =
            || fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count);
        stat(self.pid).is_some_and(|s| s.start == self.start && (s.state != 'Z' || threads() > 1))
    }

    /// Sends a signal, unless the process has gone.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end between the look and the signal; gone is what is wanted then.
            let _ = kill(RawPid::from_raw(self.pid), signal);
        }
    }

    /// Waits until the process has gone, and lets the kernel forget it if it was our child.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            // Not our child is the usual case; then the caller's init forgets it.
            let _ = waitpid(RawPid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
            if !self.is_alive() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it and waits until it has gone.
    pub fn kill(&self) -> bool {
        self.signal(Signal::SIGKILL);
        self.wait_gone(END)
    }

    /// Resident memory in bytes, and processor time used so far.
    pub(crate) fn usage(&self) -> Option<(u64, Duration)> {
        let s = stat(self.pid).filter(|s| s.start == self.start)?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some((
            kibibytes << 10,
            Duration::from_millis(s.ticks * MILLISECONDS_PER_TICK),
        ))
    }
}

/// The unit of times in procfs: USER_HZ is 100 on every Linux (time(7)).
const MILLISECONDS_PER_TICK: u64 = 10;

struct Stat {
    state: char,
    start: u64,
    ticks: u64,
}

/// The few fields of proc_pid_stat(5) that matter here.
fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The second field is the command in parentheses and may hold anything, parentheses too.
    let fields: Vec<&str> = text
        .get(text.rfind(')')? + 1..)?
        .split_whitespace()
        .collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        start: number(22)?,
        ticks: number(14)? + number(15)?,
    })
}

/// What to start, and where.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    /// Executable.
    pub(crate) program: PathBuf,
    /// Arguments.
    pub(crate) args: Vec<OsString>,
    /// Its whole environment, besides PATH and the mark.
    pub(crate) env: Vec<(String, String)>,
    /// Namespaces and sockets.
    pub(crate) into: Placement,
    /// Standard output and error are appended here.
    pub(crate) log: PathBuf,
}

/// Where programs of a lab look for programs.
pub(crate) fn search_path() -> String {
    let base = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    match crate::programs::peer_directory() {
        Some(dir) => format!("{}:{base}", dir.display()),
        None => base.to_owned(),
    }
}

impl Daemon {
    /// Starts it. It outlives the caller.
    ///
    /// # Errors
    /// The executable, a namespace or the log file cannot be opened.
    pub(crate) fn start(self, lab: &str) -> Result<Pid> {
        let name = self.program.display().to_string();
        let what = || format!("cannot start {name}");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .tried(what)?;
        // The hand-over protocol wants the receiver's own pid in its environment, which only a shell can know.
        let mut command = if self.into.sockets.is_empty() {
            Command::new(&self.program)
        } else {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""])
                .arg(&self.program);
            shell
        };
        command.args(&self.args).env_clear();
        if !self.into.sockets.is_empty() {
            command.env("LISTEN_FDS", self.into.sockets.len().to_string());
        }
        command
            .env("PATH", search_path())
            .env(MARK, lab)
            .env(
                "HOME",
                std::env::var_os("HOME").unwrap_or_else(|| "/".into()),
            )
            .envs(self.env);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().tried(what)?).stderr(log);
        place(&mut command, self.into).tried(what)?;
        let child = command.spawn().tried(what)?;
        let pid = i32::try_from(child.id()).map_err(|e| Error::new(what(), e))?;
        Pid::of(pid).ok_or_else(|| Error::new(what(), "it ended at once"))
    }
}

/// Opens a listening TCP socket in the namespace of the calling thread.
pub(crate) fn listener(address: std::net::SocketAddr) -> std::io::Result<OwnedFd> {
    Ok(std::net::TcpListener::bind(address)?.into())
}

/// All processes that carry the mark of a lab, except the calling one.
pub(crate) fn marked(lab: &str) -> Vec<Pid> {
    let own = RawPid::this().as_raw();
    let entry = format!("{MARK}={lab}");
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| *pid != own && has_variable(*pid, entry.as_bytes()))
        .filter_map(Pid::of)
        .filter(Pid::is_alive)
        .collect()
}

fn has_variable(pid: i32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|b| *b == 0)
        .any(|variable| variable == entry)
}

/// Last lines of a log file, for error messages.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 1 0 4711 1000 25 18446744073709551615";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.start, stat.ticks), ('S', 4711, 7));
    }

    #[test]
    fn a_recycled_process_number_is_another_process() {
        let own = Pid::own().unwrap();
        assert!(own.is_alive());
        assert!(
            !Pid {
                start: own.start + 1,
                ..own
            }
            .is_alive()
        );
    }

    #[test]
    #[expect(
        clippy::zombie_processes,
        reason = "that Pid::kill collects the child is what is tested"
    )]
    fn a_killed_child_is_gone_not_a_zombie() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(pid.is_alive());
        assert!(pid.kill());
        assert!(!pid.is_alive());
    }

    #[test]
    fn a_marked_process_is_found_by_its_environment_alone() {
        let lab = format!("t{}", std::process::id());
        let mut child = Command::new("sleep")
            .arg("60")
            .env(MARK, &lab)
            .spawn()
            .unwrap();
        // The mark is in place once the child has executed the new program.
        let deadline = Instant::now() + Duration::from_secs(5);
        while marked(&lab).is_empty() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = marked(&lab);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1);
        assert!(marked(&lab).is_empty());
    }
}
