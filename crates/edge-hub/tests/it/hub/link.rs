//! Links that break, fall silent, or lead to a server that dies.

use std::time::Duration;

use http::Request;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::site::{JSON, Lines, SERVICES, Site, get, names, service, version};

/// What a loaded machine may add to a time that is promised.
const SLACK: Duration = Duration::from_millis(500);

async fn watch(site: &Site) -> Lines {
    let (status, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(status, 200);
    Lines::open(&site.plain(), &format!("{SERVICES}?watch=1&resourceVersion={}", version(&list))).await
}

fn create(site: &Site, name: &str) -> String {
    let created = site.server.cluster().create("services", service("a", name, 1)).unwrap();
    format!("ADDED {name}@{}", created["metadata"]["resourceVersion"].as_str().unwrap())
}

#[tokio::test]
async fn a_watch_stays_open_over_a_cut_and_goes_on_where_it_was() {
    let site = Site::started().await;
    let mut watch = watch(&site).await;
    for round in 0..3 {
        let before = create(&site, &format!("before-{round}"));
        assert_eq!(watch.brief().await, before);
        site.server.cut();
        site.offline().await;
        let meanwhile = [0, 1].map(|n| create(&site, &format!("meanwhile-{round}-{n}")));
        assert!(watch.is_silent(Duration::from_millis(50)).await);
        site.server.heal();
        for expected in meanwhile {
            assert_eq!(watch.brief().await, expected);
        }
    }
    assert!(watch.is_silent(Duration::from_millis(200)).await, "nothing comes twice");
    let lists =
        site.server.log().totals(|record| record.path == SERVICES && record.query.contains("limit=2000"));
    assert_eq!(lists.requests, 1, "listed once, resumed after");
}

#[tokio::test]
async fn a_black_hole_is_noticed_in_five_seconds() {
    let site = Site::started().await;
    let mut watch = watch(&site).await;
    let began = Instant::now();
    site.server.black_hole();
    let body = service("a", "x", 1).to_string();
    let request = Request::post("/api/v1/namespaces/a/services").header("content-type", JSON);
    let answer = site.plain().ask(request, body).await.unwrap();
    let took = began.elapsed();
    assert_eq!(answer.status, 503);
    assert!(took < Duration::from_secs(5) + SLACK, "{took:?}");
    assert!(watch.is_silent(Duration::from_millis(50)).await, "the watch is open");
    site.server.reset_connections();
    site.server.heal();
    let expected = create(&site, "after");
    // What was under way when the silence began may have arrived after it.
    let mut seen = watch.brief().await;
    if seen.starts_with("ADDED x@") {
        seen = watch.brief().await;
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn another_server_takes_over_and_streams_go_on() {
    let mut site = Site::new().await;
    let second = site.server.replica().await.unwrap();
    site.set("--server-addr", &format!("{},{}", site.server.url(), second.url()));
    site.start();
    site.linked().await;
    let mut watch = watch(&site).await;
    assert_eq!(second.log().requests().len(), 0, "the first is used while it answers");
    site.server.cut();
    let expected = create(&site, "x");
    let began = Instant::now();
    assert_eq!(watch.brief().await, expected);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    // The second dies and the first is back.
    site.server.heal();
    second.cut();
    let expected = create(&site, "y");
    assert_eq!(watch.brief().await, expected);
    assert!(watch.is_silent(Duration::from_millis(200)).await, "nothing comes twice");
}

#[tokio::test]
async fn writes_without_a_link_fail_at_once() {
    let site = Site::started().await;
    site.server.cut();
    site.offline().await;
    let mut times = Vec::new();
    for method in ["POST", "PUT", "PATCH", "DELETE", "POST", "PUT", "PATCH", "DELETE", "POST"] {
        let path =
            if method == "POST" { SERVICES.to_owned() } else { "/api/v1/namespaces/a/services/x".to_owned() };
        let request = Request::builder().method(method).uri(path).header("content-type", JSON);
        let began = Instant::now();
        let answer = site.plain().ask(request, "{}").await.unwrap();
        times.push(began.elapsed());
        assert_eq!(answer.status, 503, "{method}");
        assert!(!answer.headers.contains_key("retry-after"), "clients would wait for it");
    }
    // The fastest: whatever waits for the network or tries again is slower every time, a busy machine only sometimes.
    let fastest = times.iter().min().unwrap();
    assert!(*fastest < Duration::from_millis(50), "{times:?}");
}

#[tokio::test]
async fn the_kubelet_s_lease_is_taken_without_a_link_and_nobody_elses() {
    let site = Site::started().await;
    site.server.cut();
    site.offline().await;
    let put = async |namespace: &str, name: &str| {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let lease = json!({ "metadata": { "name": name, "namespace": namespace }, "spec": { "holderIdentity": name } });
        let request = Request::put(path).header("content-type", JSON);
        let mut answer = site.plain().ask(request, lease.to_string()).await.unwrap();
        let body = answer.bytes().await.unwrap();
        (answer.status.as_u16(), serde_json::from_slice::<serde_json::Value>(&body).unwrap() == lease)
    };
    assert_eq!(put("kube-node-lease", "n").await, (200, true));
    assert_eq!(put("kube-node-lease", "other").await, (503, false));
    assert_eq!(put("kube-system", "n").await, (503, false), "an election is not the node's sign of life");
}

#[tokio::test]
async fn a_server_that_lags_takes_nothing_back() {
    let site = Site::started().await;
    create(&site, "x");
    site.caught_up(SERVICES, &["x"]).await;
    let (_, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let mut watch = watch(&site).await;
    site.server.lag(Some(version(&list) - 1));
    site.server.reset_connections();
    sleep(Duration::from_millis(300)).await;
    let expected = create(&site, "y");
    assert!(
        timeout(Duration::from_millis(200), watch.next()).await.is_err(),
        "the server does not know it yet"
    );
    let (status, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["x"]));
    site.server.lag(None);
    assert_eq!(watch.brief().await, expected);
}
