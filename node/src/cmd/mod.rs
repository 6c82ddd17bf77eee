//! One file per subcommand. Each has `Args` (clap) and `run(Args) -> anyhow::Result<ExitCode>`, called on the main
//! thread; a command that needs an async runtime builds its own.

pub(crate) mod apiserver;
pub(crate) mod bgp;
pub(crate) mod controller;
pub(crate) mod health;
pub(crate) mod install_cni;
pub(crate) mod node;
