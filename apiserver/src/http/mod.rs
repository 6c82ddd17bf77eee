//! From an HTTP request to an answer.

mod body;
mod continuation;
mod delete;
mod discovery;
mod negotiate;
mod openapi;
mod protobuf;
mod query;
mod read;
mod reply;
mod reviews;
mod target;
mod watch;
mod write;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use http::{Method, Request, Response, header};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::auth::tokens::Tokens;
use crate::resource::Resource;
use crate::resource::catalog::Live;
use crate::resource::core::CRDS;
use crate::status::ApiError;
use crate::store::Store;

pub use body::MAX_BODY;
pub use reply::Body;

use negotiate::Accept;
use query::Query;
use target::{ResourcePath, Target};

/// What all requests share.
#[derive(Debug)]
pub struct App {
    /// Objects.
    pub(crate) store: Store,
    /// What is served.
    pub(crate) live: Live,
    tokens: Tokens,
    stop: CancellationToken,
    pages: continuation::Pages,
    documents: openapi::Documents,
}

impl App {
    /// An application over a store.
    pub(crate) fn new(store: Store, tokens: Tokens, stop: CancellationToken) -> Self {
        Self {
            store,
            live: Live::default(),
            tokens,
            stop,
            pages: continuation::Pages::default(),
            documents: openapi::Documents::default(),
        }
    }

    /// Serves what the stored CRDs say.
    pub(crate) fn refresh_catalog(&self) {
        let (crds, _) = self.store.list(CRDS, None);
        self.live
            .set_crds(crds.iter().map(|c| (c.revision, &c.object)));
    }
}

/// One request with everything handlers need.
pub(crate) struct Call {
    app: Arc<App>,
    method: Method,
    query: Query,
    accept: Accept,
    content_type: String,
    user_agent: String,
    identity: Arc<Identity>,
}

/// Answers a request. Every failure is a `Status`.
pub async fn serve(
    app: Arc<App>,
    certificate: Option<Arc<Identity>>,
    request: Request<Incoming>,
) -> Response<Body> {
    let started = std::time::Instant::now();
    let (parts, incoming) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let answering = AssertUnwindSafe(route(app, certificate, parts, incoming));
    let result = Box::pin(answering.catch_unwind())
        .await
        .unwrap_or_else(|_| {
            // The panic hook has reported it; the client gets an answer, other requests are not affected.
            Err(ApiError::internal("a fault of the server, see its log"))
        });
    let response = result.unwrap_or_else(|error| reply::error(&error));
    tracing::debug!(
        %method, path, status = response.status().as_u16(), elapsed = ?started.elapsed(), "request"
    );
    response
}

async fn route(
    app: Arc<App>,
    certificate: Option<Arc<Identity>>,
    parts: http::request::Parts,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    let text = |name: header::HeaderName| {
        parts
            .headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let target = Target::parse(parts.uri.path())?;
    match target {
        Target::Health => return Ok(reply::text("ok")),
        Target::Version => return Ok(reply::json(&discovery::version())),
        _ => {}
    }
    let identity = match certificate {
        Some(identity) => identity,
        None => {
            let authorization = text(header::AUTHORIZATION);
            let token = authorization.strip_prefix("Bearer ").map(str::trim);
            let identity = token.and_then(|t| app.tokens.identity(t));
            Arc::new(identity.ok_or_else(ApiError::unauthorized)?)
        }
    };
    let call = Call {
        app,
        method: parts.method.clone(),
        query: Query::parse(parts.uri.query().unwrap_or_default())?,
        accept: Accept::parse(&text(header::ACCEPT)),
        content_type: text(header::CONTENT_TYPE),
        user_agent: text(header::USER_AGENT),
        identity,
    };
    if let Target::Resource(path) = target {
        return Box::pin(resource(call, path, incoming)).await;
    }
    if call.method != Method::GET && call.method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let catalog = call.app.live.current();
    match target {
        Target::Root => Ok(reply::json(&discovery::root(&catalog))),
        Target::Api => discovery::api(&catalog, &call.accept),
        Target::Apis => discovery::apis(&catalog, &call.accept),
        Target::Group(group) => discovery::group(&catalog, &group),
        Target::GroupVersion(group, version) => {
            discovery::group_version(&catalog, &group, &version)
        }
        Target::OpenApiV2 => openapi::v2(&call),
        Target::OpenApiV3 => Ok(openapi::v3_index(&call)),
        Target::OpenApiV3Of(path) => openapi::v3(&call, &path),
        Target::Health | Target::Version | Target::Resource(_) => Err(ApiError::no_such_path()),
    }
}

async fn resource(
    call: Call,
    path: ResourcePath,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    if reviews::is_review(&path) {
        return reviews::review(&call, &path, incoming).await;
    }
    let catalog = call.app.live.current();
    let resource = catalog
        .find(&path.group, &path.version, &path.plural)
        .cloned()
        .ok_or_else(ApiError::no_such_path)?;
    check_scope(&resource, &path)?;
    match path.subresource.as_deref() {
        None => {}
        Some("status") if resource.has_status() => {}
        Some("finalize") if &*resource.storage == "namespaces" => {}
        Some(_) => return Err(ApiError::no_such_path()),
    }
    match (call.method.as_str(), &path.name) {
        ("GET" | "HEAD", Some(_)) if call.query.watch => {
            watch::watch(&call, &resource, &path).await
        }
        ("GET" | "HEAD", Some(name)) => read::get(&call, &resource, &path, name),
        ("GET" | "HEAD", None) if call.query.watch => watch::watch(&call, &resource, &path).await,
        ("GET" | "HEAD", None) => read::list(&call, &resource, &path),
        ("POST", None) => write::create(&call, &resource, &path, incoming).await,
        ("PUT", Some(name)) => write::replace(&call, &resource, &path, name, incoming).await,
        ("PATCH", Some(name)) => write::patch(&call, &resource, &path, name, incoming).await,
        ("DELETE", Some(name)) => delete::delete(&call, &resource, &path, name, incoming).await,
        ("DELETE", None) => delete::collection(&call, &resource, &path, incoming).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn check_scope(resource: &Resource, path: &ResourcePath) -> Result<(), ApiError> {
    if path.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    // An object of a namespaced resource is only reachable through its namespace.
    if resource.namespaced && path.namespace.is_none() && path.name.is_some() {
        return Err(ApiError::no_such_path());
    }
    Ok(())
}
