use jiff::Timestamp;

use super::*;
use crate::freshness::Now;
use crate::store::{Settings, Store};

fn copy() -> Arc<NodeMetrics> {
    let clock = || Now { steady: Duration::ZERO, wall: Timestamp::UNIX_EPOCH };
    NodeMetrics::new(Store::new(Settings::default()), "slo.koordinator.sh/v1beta1", clock, || false)
}

fn line(type_: &str, name: &str, version: u64) -> Bytes {
    let object = format!(
        r#"{{"apiVersion":"slo.koordinator.sh/v1beta1","kind":"NodeMetric","metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}},"spec":{{}}}}"#
    );
    Bytes::from(format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n"))
}

fn bookmark(version: u64, end: bool) -> Bytes {
    let annotations = if end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let object =
        format!(r#"{{"kind":"NodeMetric","metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#);
    Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
}

fn names(copy: &NodeMetrics) -> Vec<(String, u64)> {
    copy.read(|store| store.ledger().values().map(|s| (s.name.to_string(), s.version)).collect())
}

#[test]
fn a_copy_is_whole_or_it_is_none() {
    let copy = copy();
    let mut copying = Copying { initial: Some(Vec::new()) };
    copying.take(&line("ADDED", "a", 5), &copy).unwrap();
    copying.take(&line("ADDED", "b", 7), &copy).unwrap();
    copying.take(&bookmark(7, false), &copy).unwrap();
    assert!(names(&copy).is_empty() && !copy.read(Store::is_copied));
    copying.take(&bookmark(9, true), &copy).unwrap();
    assert_eq!(names(&copy), [("a".to_owned(), 5), ("b".to_owned(), 7)]);
    assert_eq!(copy.read(|store| (store.is_copied(), store.ledger().last())), (true, 9));
    copying.take(&line("MODIFIED", "a", 11), &copy).unwrap();
    copying.take(&line("DELETED", "b", 12), &copy).unwrap();
    copying.take(&bookmark(20, false), &copy).unwrap();
    assert_eq!(names(&copy), [("a".to_owned(), 11)]);
    assert_eq!(copy.read(|store| store.ledger().last()), 20);
}

#[test]
fn after_an_error_the_copy_begins_anew() {
    let copy = copy();
    let mut copying = Copying { initial: Some(Vec::new()) };
    copying.take(&line("ADDED", "a", 5), &copy).unwrap();
    copying.take(&bookmark(9, true), &copy).unwrap();
    let error = Bytes::from("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n");
    assert!(matches!(copying.take(&error, &copy), Err(FollowError::Ended(_))));
    assert!(!copy.read(Store::is_copied));
    copying.initial = Some(Vec::new());
    copying.take(&bookmark(9, true), &copy).unwrap();
    let end = Bytes::from("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":503}}\n");
    assert!(matches!(copying.take(&end, &copy), Err(FollowError::Ended(_))));
    assert!(copy.read(Store::is_copied), "the end of a leadership spoils no copy");
    assert!(matches!(copying.take(&line("TICK", "a", 5), &copy), Err(FollowError::Ended(_))));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_says_nothing_is_given_up() {
    use axum::body::Body as Stream;
    use futures::StreamExt as _;
    let began = tokio::time::Instant::now();
    // One that begins and says no more, and one that never answers.
    for answers in [true, false] {
        let leader = move |request: http::Request<Body>| async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            if request.uri().path() == copy_stream::PATH {
                // One of a version before is followed by an ordinary watch.
                let unknown = http::Response::builder().status(http::StatusCode::NOT_FOUND);
                return Ok(unknown.body(Stream::empty()).unwrap());
            }
            let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(bookmark(9, true))]);
            Ok::<_, std::convert::Infallible>(http::Response::new(Stream::from_stream(
                first.chain(futures::stream::pending()),
            )))
        };
        let client = Client::new(tower::service_fn(leader), "default");
        let copy = copy();
        let ended = follow(&client, &copy, || ()).await;
        assert!(matches!(ended, Err(FollowError::Silent(_))), "{ended:?}");
        assert_eq!(copy.read(Store::is_copied), answers);
    }
    assert_eq!(began.elapsed(), 2 * SILENCE);
}
