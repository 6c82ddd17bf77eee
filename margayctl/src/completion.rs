//! `completion`: scripts for shells.

use crate::failure::Failure;
use clap_complete::Shell;

/// Print a completion script: source <(margayctl completion bash)
#[derive(Debug, clap::Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    /// Prints the script for the given command tree.
    pub(crate) fn run(&self, command: &mut clap::Command) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "margayctl", &mut script);
        std::io::Write::write_all(&mut std::io::stdout(), &script)?;
        Ok(0)
    }
}
