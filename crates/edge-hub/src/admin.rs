//! The listener of probes and metrics: what the hub tells every process of its node. No object and no credential goes out here.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/readyz` | the checks, a line each |
//! | `/v1/healthz` | `OK`, as OpenYurt's hub answers |
//! | `/v1/readyz` | `OK`, or 500 and the reason, as OpenYurt's hub answers |
//! | `/v1/status` | [`HubView`] as JSON |
//! | `/metrics` | for Prometheus |

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use daemon::{
    metrics::Metrics,
    ready::{Handle, Liveness, Readiness},
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{hub::Hub, status::HubView};

/// How often it is looked whether everything pooled is held.
const LOOK: Duration = Duration::from_millis(500);

/// All that the listener answers.
pub fn router(hub: Arc<Hub>, readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    let peer = Router::new()
        .route("/v1/healthz", get(|| async { "OK" }))
        .route("/v1/readyz", get(readyz))
        .with_state(readiness.clone());
    Router::new()
        .route("/v1/status", get(status))
        .with_state(hub)
        .merge(peer)
        .merge(daemon::admin::router(readiness, Liveness::new()))
        .merge(daemon::metrics::router(metrics))
}

async fn status(State(hub): State<Arc<Hub>>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(HubView::of(&hub))).into_response()
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let failed = readiness.checks().into_iter().find_map(|check| Some((check.name, check.result.err()?)));
    match failed {
        None => "OK".into_response(),
        Some((name, reason)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{name}: {reason}")).into_response()
        }
    }
}

/// Says through `check` whether every pooled subscription is whole, from the link or the disk.
pub async fn keep_ready(hub: Arc<Hub>, check: Handle, shutdown: CancellationToken) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let missing = hub.subscriptions.missing(&hub.sharing.load());
        if missing.is_empty() {
            check.ready();
        } else {
            let link = if hub.upstream.is_up() { "" } else { ", and there is no link" };
            check.not_ready(format_args!("not whole yet: {}{link}", missing.join(", ")));
        }
    }
}
