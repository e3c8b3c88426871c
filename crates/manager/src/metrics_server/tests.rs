//! The gate, without sockets: who comes through, and how often it asks.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use tower::ServiceExt;

use super::*;

/// Knows the tokens `good` and `poor`; everything else is no token, but `down` finds nobody to ask.
#[derive(Default, Clone)]
struct FakeReviewer {
    asked: Arc<AtomicUsize>,
}

impl Reviewer for FakeReviewer {
    async fn review(&self, token: &str) -> Result<Verdict, ReviewError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match token {
            "good" => Ok(Verdict::Allowed),
            "poor" => Ok(Verdict::Forbidden),
            "down" => Err(ReviewError("nobody there".into())),
            "slow" => {
                tokio::time::sleep(Duration::from_hours(1)).await;
                Ok(Verdict::Allowed)
            }
            _ => Ok(Verdict::Unauthenticated),
        }
    }
}

async fn scrape(router: &Router, authorization: Option<&str>) -> (u16, String) {
    let mut request = Request::get("/metrics");
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    if status == 401 {
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
    }
    let body = axum::body::to_bytes(response.into_body(), 1_000_000).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn start() -> (Router, Arc<AtomicUsize>) {
    let reviewer = FakeReviewer::default();
    let asked = reviewer.asked.clone();
    (router(Arc::new(Metrics::new()), reviewer), asked)
}

#[tokio::test]
async fn only_who_may_read_reads() {
    let (router, _) = start();
    let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 1));
    let cases = [
        (None, 401),
        (Some(""), 401),
        (Some("Bearer"), 401),
        (Some("Bearer  "), 401),
        (Some("Basic good"), 401),
        (Some("good"), 401),
        (Some(long.as_str()), 401),
        (Some("Bearer bad"), 401),
        (Some("Bearer poor"), 403),
        (Some("Bearer down"), 503),
        (Some("Bearer good"), 200),
        (Some("bearer good"), 200),
    ];
    for (authorization, expected) in cases {
        let (status, body) = scrape(&router, authorization).await;
        assert_eq!(status, expected, "{authorization:?}");
        assert_eq!(body.contains("isthmus_build_info"), expected == 200, "{authorization:?}: {body}");
    }
    let other = Request::get("/other").body(Body::empty()).unwrap();
    assert_eq!(router.oneshot(other).await.unwrap().status(), 404);
}

#[tokio::test(start_paused = true)]
async fn verdicts_are_remembered_for_a_minute_and_failures_are_not() {
    let (router, asked) = start();
    for _ in 0..3 {
        scrape(&router, Some("Bearer good")).await;
        scrape(&router, Some("Bearer poor")).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    tokio::time::advance(verdicts::LIFE).await;
    assert_eq!(scrape(&router, Some("Bearer good")).await.0, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    for _ in 0..2 {
        assert_eq!(scrape(&router, Some("Bearer down")).await.0, 503);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5);
}

#[tokio::test(start_paused = true)]
async fn a_flood_asks_no_more_than_so_many_at_a_time() {
    let (router, asked) = start();
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let router = router.clone();
        flood.spawn(async move { scrape(&router, Some("Bearer slow")).await.0 });
    }
    tokio::time::sleep(REVIEW_TIMEOUT / 2).await;
    assert_eq!(asked.load(Ordering::SeqCst), CONCURRENT_REVIEWS);
    assert!(flood.join_all().await.into_iter().all(|status| status == 503));
}
