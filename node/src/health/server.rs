//! The probe endpoint: `/liveness`, `/readiness` and `/bgp-readiness` on 127.0.0.1:9099.

use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use margay_crds::admin::HealthPart;

use super::{Health, table};

/// Name of the part `/bgp-readiness` looks at.
pub(crate) const BGP: &str = "BGP";

/// Routes of the probe endpoint. 200 with a table when good, 503 with the same table and the causes when not.
pub(crate) fn router(health: Health) -> Router {
    Router::new()
        .route(
            "/liveness",
            get(|State(health): State<Health>| async move { answer(&health, |part| part.live) }),
        )
        .route(
            "/readiness",
            get(|State(health): State<Health>| async move { answer(&health, |part| part.ready) }),
        )
        .route(
            "/bgp-readiness",
            get(|State(health): State<Health>| async move {
                answer(&health, |part| part.ready || part.name != BGP)
            }),
        )
        .with_state(health)
}

fn answer(health: &Health, good: impl Fn(&HealthPart) -> bool) -> (StatusCode, String) {
    let parts = health.parts(Instant::now());
    let bad: Vec<String> = parts
        .iter()
        .filter(|part| !good(part))
        .map(|part| format!("margay/node is not ready: {}: {}\n", part.name, part.detail))
        .collect();
    match bad.is_empty() {
        true => (StatusCode::OK, table(&parts)),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{}{}", bad.concat(), table(&parts)),
        ),
    }
}
