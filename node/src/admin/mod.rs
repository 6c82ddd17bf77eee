//! The admin API of the agent: reads on 127.0.0.1:9097 and, with the actions of later versions, on
//! `/run/margay/admin.sock`.

mod answers;
pub(crate) mod listen;
pub(crate) mod peers;
pub(crate) mod routes;
pub(crate) mod view;

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use margay_crds::admin;

use view::View;

/// Routes that only read.
pub(crate) fn read_router(view: Arc<View>) -> Router {
    Router::new()
        .route(
            "/v1/status",
            get(|State(view): State<Arc<View>>| async move { Json(answers::status(&view).await) }),
        )
        .route(
            "/v1/bgp/peers",
            get(|State(view): State<Arc<View>>| async move { Json(peers::list(&view).await) }),
        )
        .route("/v1/bgp/routes", get(bgp_routes))
        .route(
            "/v1/ipam",
            get(|State(view): State<Arc<View>>| async move { Json(answers::ipam(&view)) }),
        )
        .route(
            "/v1/endpoints",
            get(|State(view): State<Arc<View>>| async move { Json(answers::endpoints(&view)) }),
        )
        .route(
            "/v1/drift",
            get(|State(view): State<Arc<View>>| async move { Json(answers::drift(&view).await) }),
        )
        .route(
            "/v1/problems",
            get(|State(view): State<Arc<View>>| async move { Json(answers::problems(&view)) }),
        )
        .fallback(|| async {
            refuse(
                StatusCode::NOT_FOUND,
                "no such path; paths begin with /v1/".into(),
            )
        })
        .method_not_allowed_fallback(|| async {
            refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path can only be read".into(),
            )
        })
        .with_state(view)
}

async fn bgp_routes(
    State(view): State<Arc<View>>,
    Query(query): Query<routes::Parameters>,
) -> Response {
    match routes::list(&view, &query).await {
        Ok(list) => Json(list).into_response(),
        Err(message) => refuse(StatusCode::BAD_REQUEST, message),
    }
}

fn refuse(code: StatusCode, message: String) -> Response {
    (code, Json(admin::Error { error: message })).into_response()
}

/// The answer of `GET /v1/status`.
pub(crate) async fn status(view: &View) -> admin::Status {
    answers::status(view).await
}

/// The sessions of `GET /v1/bgp/peers`.
pub(crate) async fn bgp_peers(view: &View) -> Vec<admin::Peer> {
    peers::peers(&view.bgp.load_full()).await
}

/// The word for a session's source in tables and labels.
pub(crate) fn peer_type_name(kind: margay_felix::calc::sessions::PeerKind) -> &'static str {
    peers::peer_type(kind).as_str()
}
