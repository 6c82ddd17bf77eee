//! `lab exec`: a command inside a node, a pod or the router.

use super::{failed, open};
use crate::failure::Failure;
use std::os::unix::process::ExitStatusExt;

/// Run a command in a node, a pod, the router (tor1) or the fabric
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is the command's.\n\nExamples:\n  margayctl lab exec n1 -- ip route\n  margayctl lab exec n1-p1 -- ping -c 3 10.88.0.65\n  margayctl lab exec tor1 -- birdc -s /run/bird/bird.ctl show route"
)]
pub(crate) struct Exec {
    /// Node, pod, tor1 or fabric
    member: String,
    /// Name of the lab
    #[arg(short, long)]
    lab: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

impl Exec {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let lab = open(self.lab.as_deref()).await?;
        let Some((program, args)) = self.command.split_first() else {
            return Err(Failure::Usage("there is no command after --".into()));
        };
        let mut command = lab.command(&self.member, program).map_err(failed)?;
        let what = || {
            format!(
                "cannot run {} in {}",
                program.to_string_lossy(),
                self.member
            )
        };
        let mut child = command
            .args(args)
            .spawn()
            .map_err(|e| Failure::new(what(), e))?;
        let waited = tokio::task::spawn_blocking(move || child.wait()).await;
        let status = waited
            .map_err(std::io::Error::other)
            .and_then(|r| r)
            .map_err(|e| Failure::new(what(), e))?;
        // As a shell reports it: 128 and the number of the signal that ended it.
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    }
}
