//! Start, accept, stop.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::pki::{Authority, Pair, PkiError};
use crate::auth::tokens::{TokenFileError, Tokens};
use crate::auth::{self, kubeconfig};
use crate::http::{App, serve};
use crate::store::{OpenError, Store};
use crate::{bootstrap, expiry, garbage, listen, namespaces};

/// How long open requests may go on after a stop was asked for.
const GRACE: Duration = Duration::from_millis(400);
/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a server is started with.
#[derive(Debug)]
pub struct Config {
    /// Store, certificates, admin kubeconfig.
    pub data_dir: PathBuf,
    /// Addresses to listen on; port 0 = any.
    pub listen: Vec<SocketAddr>,
    /// Also accept on sockets handed over by the parent process (`LISTEN_FDS`).
    pub inherit: bool,
    /// More names and addresses for the server's certificate, besides the listening addresses and localhost.
    pub names: Vec<String>,
    /// URL written to the admin kubeconfig; default: the first listening address.
    pub advertise: Option<String>,
    /// Static tokens, see [`auth::tokens`].
    pub token_file: Option<PathBuf>,
    /// Events per resource that a watch may lag behind.
    pub history: usize,
    /// CRDs installed when missing: file name and YAML.
    pub crds: &'static [(&'static str, &'static str)],
    /// ValidatingAdmissionPolicies and bindings made when missing: YAML, several documents each.
    pub policies: &'static [&'static str],
}

impl Config {
    /// Defaults with a data directory and no listener.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: Vec::new(),
            inherit: false,
            names: Vec::new(),
            advertise: None,
            token_file: None,
            history: 10_000,
            crds: &[],
            policies: &[],
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be made.
    #[error("cannot make the data directory {path}: {cause}")]
    DataDir {
        /// The directory.
        path: String,
        /// The reason.
        cause: std::io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Tokens.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// TLS set-up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// A socket.
    #[error("{0}")]
    Listen(String),
    /// First objects could not be written.
    #[error("cannot prepare the store: {0}")]
    Bootstrap(String),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    url: String,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Server {
    /// Starts everything; when this returns, requests are answered.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&config.data_dir)
            .map_err(|cause| StartError::DataDir {
                path: config.data_dir.display().to_string(),
                cause,
            })?;
        let listeners = listeners(&config)?;
        let addresses: Vec<SocketAddr> = listeners
            .iter()
            .filter_map(|l| l.local_addr().ok())
            .collect();
        let first = addresses
            .first()
            .ok_or_else(|| StartError::Listen("no address to listen on".into()))?;
        let url = config.advertise.clone().unwrap_or_else(|| url(*first));
        let authority = Authority::open_or_create(&config.data_dir)?;
        let pair = authority.server(&certificate_names(&config, &addresses))?;
        let tls = tls(&authority, &pair).map_err(StartError::Tls)?;
        let tokens = match &config.token_file {
            Some(path) => Tokens::load(path)?,
            None => Tokens::default(),
        };
        let store = Store::open(&config.data_dir.join("store.redb"), config.history)?;
        let stop = CancellationToken::new();
        let app = Arc::new(App::new(store, tokens, stop.clone()));
        bootstrap::run(&app, config.crds, config.policies)
            .await
            .map_err(StartError::Bootstrap)?;
        let admin = config.data_dir.join("admin.kubeconfig");
        kubeconfig::write(&authority, "admin", Some("system:masters"), &url, &admin)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(namespaces::clean_up(Arc::clone(&app), stop.clone()));
        tasks.spawn(garbage::collect(Arc::clone(&app), stop.clone()));
        tasks.spawn(expiry::expire_events(Arc::clone(&app), stop.clone()));
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|e| StartError::Listen(e.to_string()))?;
            let acceptor = TlsAcceptor::from(Arc::clone(&tls));
            tasks.spawn(accept(listener, acceptor, Arc::clone(&app), stop.clone()));
        }
        Ok(Self {
            addresses,
            url,
            stop,
            tasks,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The URL in the admin kubeconfig.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends watches, lets running requests finish for a moment, closes everything.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let drained = tokio::time::timeout(GRACE + Duration::from_millis(200), async {
            while self.tasks.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

fn listeners(config: &Config) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::new();
    if config.inherit {
        listeners = listen::inherited().map_err(StartError::Listen)?;
    }
    for address in &config.listen {
        listeners.push(listen::bind(*address).map_err(StartError::Listen)?);
    }
    Ok(listeners)
}

fn url(address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("https://{address}")
}

fn certificate_names(config: &Config, addresses: &[SocketAddr]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"]
        .iter()
        .map(|&n| n.into())
        .collect();
    for name in ["kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
        names.push(name.into());
    }
    names.extend(addresses.iter().map(|a| a.ip().to_string()));
    names.extend(config.names.iter().cloned());
    names.dedup();
    names
}

fn tls(authority: &Authority, pair: &Pair) -> Result<Arc<ServerConfig>, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let certificate =
        |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| text(&e));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate(authority.certificate())?)
        .map_err(|e| text(&e))?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|e| text(&e))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|e| text(&e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| text(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate(&pair.certificate)?], key)
        .map_err(|e| text(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

async fn accept(
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    app: Arc<App>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or memory: the next accept may work again once connections close.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (acceptor, app) = (acceptor.clone(), Arc::clone(&app));
        connections.spawn(connection(stream, acceptor, app, graceful.watcher()));
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    connections.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    app: Arc<App>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let certificate = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identity = certificate
        .and_then(|c| auth::from_certificate(c))
        .map(Arc::new);
    let service = hyper::service::service_fn(move |request| {
        let (app, identity) = (Arc::clone(&app), identity.clone());
        async move { Ok::<_, std::convert::Infallible>(serve(app, identity, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .keep_alive(true)
        .timer(hyper_util::rt::TokioTimer::new());
    builder
        .http2()
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .max_concurrent_streams(1000);
    let serving = builder
        .serve_connection(TokioIo::new(tls), service)
        .into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "a connection ended");
    }
}
