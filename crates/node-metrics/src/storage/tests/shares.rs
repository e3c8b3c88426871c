//! Watches that begin, of users who read them as slowly as they may.

use axum::Router;
use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use tower::ServiceExt as _;

use super::admitted::{PATH, api};
use super::*;

/// A watch that begins with the state, or the status and `Retry-After` of the refusal.
async fn begin(api: &Router, user: &str) -> Result<BodyDataStream, (u16, String)> {
    let request = http::Request::get(format!("{PATH}?watch=1&resourceVersion=0")).header("user", user);
    let response = api.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    if response.status() == 200 {
        return Ok(response.into_body().into_data_stream());
    }
    let retry_after = response.headers()[http::header::RETRY_AFTER].to_str().unwrap().to_owned();
    Err((response.status().as_u16(), retry_after))
}

#[tokio::test(start_paused = true)]
async fn who_begins_as_many_watches_as_it_may_keeps_nobody_out() {
    let (metrics, seconds) = timed();
    lead(&metrics, 500);
    let api = api(NodeMetricStorage(Arc::clone(&metrics)));
    let mut slow = Vec::new();
    let refused = loop {
        match begin(&api, "slow").await {
            Ok(body) => slow.push(body),
            Err(refused) => break refused,
        }
    };
    assert_eq!((slow.len(), refused), (100, (503, "1".to_owned())), "a quarter of the places");
    // One piece of each, and the next when that is due.
    for minute in 0..3 {
        seconds.store(1 + 59 * minute, Ordering::Relaxed);
        metrics.release();
        for body in &mut slow {
            assert!(body.next().await.unwrap().is_ok());
        }
        assert!(begin(&api, "slow").await.is_err());
        let mut watch = begin(&api, "scheduler").await.unwrap();
        let mut told = 0;
        while told < 500 {
            let piece = within(watch.next()).await.unwrap().unwrap();
            told += memchr::memchr_iter(b'\n', &piece).count();
        }
    }
    slow.pop();
    assert!(begin(&api, "slow").await.is_ok());
}
