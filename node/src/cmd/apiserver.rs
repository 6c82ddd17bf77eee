//! `margay apiserver`: the embedded Kubernetes API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use margay_apiserver::auth::kubeconfig;
use margay_apiserver::auth::pki::Authority;
use margay_apiserver::{Config, Server};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `margay apiserver`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Issue a client certificate and write a kubeconfig with it; works while the server runs.
    Kubeconfig(Kubeconfig),
}

/// Runs the server until SIGTERM or SIGINT. Whoever can authenticate may do everything.
#[derive(Debug, clap::Args)]
struct Serve {
    /// Store, certificates and the admin kubeconfig.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/margay/apiserver")]
    data_dir: PathBuf,
    /// Address to listen on; may be repeated; port 0 picks a free one. Sockets handed over by the parent
    /// (LISTEN_FDS) are used as well, and alone when this is not given. Default: 127.0.0.1:6443.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// More host names or addresses for the server's certificate; may be repeated.
    #[arg(long = "san", value_name = "NAME")]
    names: Vec<String>,
    /// URL in the admin kubeconfig. Default: the first listening address.
    #[arg(long, value_name = "URL")]
    advertise_url: Option<String>,
    /// Static tokens, one `token,user,uid,"group1,group2"` per line; the file must have mode 0600.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Events per resource a watch may lag behind before it has to start over.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    watch_history: usize,
    /// Severity (`info`, `debug`, ...) or a list of directives (`info,margay_apiserver=debug`).
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// What a kubeconfig says.
#[derive(Debug, clap::Args)]
struct Kubeconfig {
    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/margay/apiserver")]
    data_dir: PathBuf,
    /// User name (the certificate's common name).
    #[arg(long)]
    user: String,
    /// Group (the certificate's organisation).
    #[arg(long)]
    group: Option<String>,
    /// URL of the server.
    #[arg(long, value_name = "URL")]
    server: String,
    /// File to write, mode 0600.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::Kubeconfig(args)) => {
            let authority = Authority::open(&args.data_dir)?;
            let group = args.group.as_deref();
            kubeconfig::write(&authority, &args.user, group, &args.server, &args.out)?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            crate::logging::start(Some(&args.serve.log_level))?;
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .thread_name("apiserver")
                .build()
                .context("cannot start the runtime")?;
            let result = runtime.block_on(serve(args.serve));
            // Blocking reads of the runtime must not hold up the end of the process.
            runtime.shutdown_background();
            result
        }
    }
}

async fn serve(args: Serve) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let handed_over = std::env::var_os("LISTEN_FDS").is_some();
    let mut listen = args.listen;
    if listen.is_empty() && !handed_over {
        listen.push(SocketAddr::from(([127, 0, 0, 1], 6443)));
    }
    let server = Server::start(Config {
        listen,
        inherit: true,
        names: args.names,
        advertise: args.advertise_url,
        token_file: args.token_auth_file,
        history: args.watch_history,
        crds: margay_crds::manifests::ALL,
        policies: &[margay_crds::manifests::VALIDATING_ADMISSION],
        ..Config::new(args.data_dir)
    })
    .await?;
    tracing::info!(url = server.url(), addresses = ?server.addresses(), "ready");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    server.stop().await;
    Ok(ExitCode::SUCCESS)
}
