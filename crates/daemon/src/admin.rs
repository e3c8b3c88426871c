//! The probes: `/livez` and `/readyz` in plain text, a line a check, as the API server answers with `?verbose`.

use std::fmt::Write;

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::ready::{Check, Liveness, Readiness};

/// Serves the probes: 200 when every check passes, 503 otherwise.
pub fn router(readiness: Readiness, liveness: Liveness) -> Router {
    Router::new()
        .route("/livez", get(async move || answer("livez", &liveness.checks())))
        .route("/readyz", get(async move || answer("readyz", &readiness.checks())))
}

fn answer(probe: &str, checks: &[Check]) -> Response {
    let passed = checks.iter().all(|check| check.result.is_ok());
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let status = if passed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, headers, report(probe, checks, passed)).into_response()
}

fn report(probe: &str, checks: &[Check], passed: bool) -> String {
    let mut report = String::new();
    for Check { name, result } in checks {
        // Writing to a String does not fail.
        let _ = match result {
            Ok(()) => writeln!(report, "[+]{name} ok"),
            // A reason is one line, so that a check is.
            Err(reason) => writeln!(report, "[-]{name} {}", reason.replace(['\n', '\r'], " ")),
        };
    }
    let _ = writeln!(report, "{probe} check {}", if passed { "passed" } else { "failed" });
    report
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{body::Body, http::Request};
    use tower::ServiceExt;

    use super::*;

    async fn probe(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_lists_what_is_waited_for() {
        let readiness = Readiness::new();
        let (cache, certificate) = (readiness.register("pool-cache"), readiness.register("certificate"));
        let router = router(readiness, Liveness::new());
        cache.ready();
        certificate.not_ready("no certificate\nyet");
        let waiting = "[+]pool-cache ok\n[-]certificate no certificate yet\nreadyz check failed\n";
        assert_eq!(probe(&router, "/readyz").await, (503, waiting.to_owned()));
        certificate.ready();
        let ready = "[+]pool-cache ok\n[+]certificate ok\nreadyz check passed\n";
        assert_eq!(probe(&router, "/readyz").await, (200, ready.to_owned()));
        assert_eq!(probe(&router, "/other").await.0, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_finds_what_hangs() {
        let liveness = Liveness::new();
        let router = router(Readiness::new(), liveness.clone());
        let heartbeat = liveness.register("rotation", Duration::from_secs(30));
        assert_eq!(probe(&router, "/livez").await, (200, "[+]rotation ok\nlivez check passed\n".to_owned()));
        tokio::time::advance(Duration::from_secs(31)).await;
        let hangs = "[-]rotation no heartbeat for 31 s\nlivez check failed\n";
        assert_eq!(probe(&router, "/livez").await, (503, hangs.to_owned()));
        heartbeat.beat();
        assert_eq!(probe(&router, "/livez").await.0, 200);
    }
}
