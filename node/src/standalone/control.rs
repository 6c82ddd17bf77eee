//! The control socket: the BGP half of the agent's admin API.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use margay_bgp::SpeakerHandle;
use margay_crds::admin::{Error, PeerList};
use tokio::task::JoinHandle;

use crate::admin::view::BgpView;
use crate::admin::{listen, peers, routes};

/// What is shown.
struct Shown {
    name: String,
    bgp: BgpView,
}

/// Serves on a Unix socket.
///
/// # Errors
/// The socket cannot be created.
pub(super) fn serve(
    path: &Path,
    name: String,
    handle: SpeakerHandle,
) -> anyhow::Result<JoinHandle<()>> {
    let bgp = BgpView {
        handle: Some(handle),
        ..BgpView::default()
    };
    let router = Router::new()
        .route("/v1/bgp/peers", get(list_peers))
        .route("/v1/bgp/routes", get(list_routes))
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                "paths are /v1/bgp/peers and /v1/bgp/routes".into(),
            )
        })
        .with_state(Arc::new(Shown { name, bgp }));
    listen::on_socket(path, router)
}

async fn list_peers(State(shown): State<Arc<Shown>>) -> Json<PeerList> {
    Json(PeerList {
        node: shown.name.clone(),
        peers: peers::peers(&shown.bgp).await,
    })
}

async fn list_routes(
    State(shown): State<Arc<Shown>>,
    Query(query): Query<routes::Parameters>,
) -> Response {
    match routes::of(&shown.bgp, &shown.name, &query).await {
        Ok(list) => Json(list).into_response(),
        Err(message) => refuse(StatusCode::BAD_REQUEST, message),
    }
}

fn refuse(code: StatusCode, error: String) -> Response {
    (code, Json(Error { error })).into_response()
}
