//! The library on its own, for tests and for looking at it: `serve DATA_DIR [TOKEN_FILE]`. Prints its URL, stops on
//! SIGTERM.

use std::path::PathBuf;

use margay_apiserver::{Config, Server};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let data_dir = arguments
        .next()
        .ok_or("usage: serve DATA_DIR [TOKEN_FILE]")?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut config = Config::new(data_dir);
    config.token_file = arguments.next();
    config.inherit = true;
    config.crds = margay_crds::manifests::ALL;
    if std::env::var_os("LISTEN_FDS").is_none() {
        config.listen.push(([127, 0, 0, 1], 0).into());
    }
    let server = Server::start(config).await?;
    println!("{}", server.url());
    terminate.recv().await;
    server.stop().await;
    Ok(())
}
