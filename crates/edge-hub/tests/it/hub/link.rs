//! Links that break, fall silent, or lead to a server that dies.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use edge_hub::{
    metrics::LinkBytes,
    upstream::{Connector, Credential, Link, LinkState, Timing, TlsMaterial, Upstream},
};
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;
use testkit::api_server::FakeApiServer;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::site::{JSON, Lines, SERVICES, SOON, Site, get, names, service, twice_within, version};

const CREATED: &str = "/api/v1/namespaces/a/services";

/// Within what time it is promised that somebody who is not there any more is noticed.
const PROMISED: Duration = Duration::from_secs(5);

/// What a loaded machine may add to that.
const SLACK: Duration = Duration::from_secs(1);

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

/// A link of the node's to the site's server, as the hub has one.
async fn link(site: &Site, timing: Timing) -> (Upstream, JoinSet<()>) {
    let file = |name: &str| site.file(name);
    let material = TlsMaterial::read(&file("ca.crt"), &file("node.crt"), &file("node.key")).unwrap();
    let connector = Arc::new(Connector::new(material, timing, Arc::new(LinkBytes::default())));
    let (link, upstream) = Link::new(vec![site.server.url().parse().unwrap()], connector);
    let mut tasks = JoinSet::new();
    tasks.spawn(link.run(CancellationToken::new()));
    let mut state = upstream.state();
    timeout(SOON, state.wait_for(|state| matches!(state, LinkState::Up(_)))).await.unwrap().unwrap();
    (upstream, tasks)
}

fn ask(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_server_that_stands_still_is_noticed_though_nobody_waits() {
    let site = Site::new().await;
    let short = Duration::from_millis(300);
    let none = Duration::ZERO;
    let timing = Timing {
        asked_within: none,
        ping_after_asked: short,
        ping_after: 2 * short,
        ping_timeout: short,
        ..Timing::default()
    };
    let (upstream, _tasks) = link(&site, timing).await;
    site.server.black_hole();
    let mut state = upstream.state();
    let down = state.wait_for(|state| matches!(state, LinkState::Down { .. }));
    timeout(SOON, down).await.expect("noticed").unwrap();
}

#[tokio::test]
async fn a_server_that_is_slow_and_alive_is_waited_for() {
    let site = Site::new().await;
    let ping_after_asked = Duration::from_millis(1);
    let (upstream, _tasks) = link(&site, Timing { ping_after_asked, ..Timing::default() }).await;
    // It waits for a version that does not come, and says then that it did not.
    let path = format!("{SERVICES}?resourceVersion=99999&resourceVersionMatch=NotOlderThan");
    let answer = upstream.send(&Credential::Node, ask(&path)).await.unwrap();
    assert_eq!(answer.status(), 504);
    assert!(upstream.is_up());
}

#[tokio::test]
async fn more_watches_than_a_connection_takes_hold_up_nobody() {
    let site = Site::new().await;
    let (upstream, _tasks) = link(&site, Timing::default()).await;
    let mut open = Vec::new();
    for _ in 0..250 {
        let answer = upstream.send(&Credential::Node, ask(&format!("{SERVICES}?watch=1&resourceVersion=1")));
        open.push(timeout(SOON, answer).await.expect("an answer").unwrap());
    }
    assert_eq!(site.upstream_watches(SERVICES), 250);
    let answer = timeout(SOON, upstream.send(&Credential::Node, ask("/version"))).await.expect("an answer");
    assert_eq!(answer.unwrap().status(), 200);
}

/// Its streams go on elsewhere then, and nobody takes what they told last for fresh.
#[tokio::test]
async fn the_streams_of_a_connection_that_is_given_up_end_with_it() {
    let site = Site::new().await;
    let timing = Timing { ping_after: Duration::from_hours(1), ..Timing::default() };
    let (upstream, _tasks) = link(&site, timing).await;
    let watch = ask(&format!("{SERVICES}?watch=1&resourceVersion=1"));
    let answer = upstream.send(&Credential::Node, watch).await.unwrap();
    let source = answer.body().source();
    site.server.black_hole();
    timeout(SOON, source.prove(Duration::ZERO)).await.expect("not waited for without end");
    let end = timeout(SOON, answer.into_body().collect()).await.expect("an end");
    assert!(end.is_err(), "and no regular one");
}

/// The server stands still, and its kernel does not: whoever waits for it learns that.
#[tokio::test]
async fn a_black_hole_is_noticed_in_five_seconds() {
    twice_within(PROMISED, async || {
        let site = Site::started().await;
        let mut watch = watch(&site).await;
        let began = Instant::now();
        site.server.black_hole();
        let body = service("a", "x", 1).to_string();
        let request = Request::post("/api/v1/namespaces/a/services").header("content-type", JSON);
        let answer = site.plain().ask(request, body).await.unwrap();
        let took = began.elapsed();
        assert_eq!(answer.status, 504, "it was sent");
        assert!(took < PROMISED + SLACK, "{took:?}");
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
        took
    })
    .await;
}

/// An idle link says too seldom that it is alive for a read of the most recent state: it is asked, and the state is not.
#[tokio::test]
async fn the_most_recent_state_is_not_fetched_over_an_idle_link() {
    let mut site = Site::new().await;
    site.set("--freshness", "/v1/services=bounded:1");
    site.start();
    site.linked().await;
    site.caught_up(SERVICES, &[]).await;
    let discovered = || site.server.log().totals(|record| record.path == "/version").requests > 0;
    site.until("the hub has asked what there is", async || discovered()).await;
    let lists =
        || site.server.log().totals(|record| record.path == SERVICES && !record.query.contains("limit"));
    let before = lists().requests;
    // The next PING comes of itself two seconds after the last byte.
    sleep(Duration::from_millis(1300)).await;
    let (status, _) = get(&site.plain(), SERVICES).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(lists().requests, before, "it was asked for a sign of life, and not for the list");
}

/// An idle link said that it was alive until it went, and what is held was current until then: the age that is told does not jump.
#[tokio::test]
async fn what_is_held_is_as_old_as_the_last_sign_of_life_when_the_link_goes() {
    const IDLE: Duration = Duration::from_secs(7);
    let site = Site::started().await;
    site.caught_up(SERVICES, &[]).await;
    let began = Instant::now();
    sleep(IDLE).await;
    site.server.cut();
    site.offline().await;
    let answer = site.plain().get(&format!("{SERVICES}?resourceVersion=0"), JSON).await.unwrap();
    let warning = answer.headers["warning"].to_str().unwrap();
    let told =
        warning.rsplit_once("was known ").and_then(|(_, age)| age.split_once("s ago\"")).expect(warning).0;
    let (told, idle) = (told.parse::<u64>().unwrap(), began.elapsed().as_secs());
    assert!(told + 3 < idle, "{warning}, after {idle} s");
}

/// What is handed on is waited for as long as the API server may take, and no longer; logs of containers take as long as they like.
#[tokio::test]
async fn an_answer_that_does_not_come_has_a_deadline() {
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.head = Duration::from_millis(200)).await;
    site.linked().await;
    site.server.black_hole();
    let reason = async |path: &str| {
        let (status, answer) = get(&site.plain(), path).await.unwrap();
        assert_eq!(status, 503, "{path}: {answer}");
        answer["message"].as_str().unwrap().to_owned()
    };
    let (late, silent) = tokio::join!(
        reason("/apis/coordination.k8s.io/v1/leases"),
        reason("/api/v1/namespaces/a/pods/p/log?follow=true")
    );
    assert!(late.contains("no answer within 200ms"), "{late}");
    assert!(!silent.contains("no answer within"), "given up with the link, not before: {silent}");
}

/// How each API server is, as the hub says.
async fn servers(site: &Site) -> Vec<String> {
    let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
    let servers = status["link"]["servers"].as_array().unwrap().iter();
    servers.map(|server| server["state"].as_str().unwrap().to_owned()).collect()
}

/// A hub with two API servers of one cluster, linked to the first.
async fn with_another_server() -> (Site, FakeApiServer) {
    let mut site = Site::new().await;
    let second = site.server.replica().await.unwrap();
    site.set("--server-addr", &format!("{},{}", site.server.url(), second.url()));
    site.start();
    site.linked().await;
    (site, second)
}

#[tokio::test]
async fn another_server_takes_over_and_streams_go_on() {
    let (site, second) = with_another_server().await;
    let mut watch = watch(&site).await;
    assert_eq!(second.log().requests().len(), 0, "the first is used while it answers");
    assert_eq!(servers(&site).await, ["connected", "untried"]);
    site.server.cut();
    let expected = create(&site, "x");
    let began = Instant::now();
    assert_eq!(watch.brief().await, expected);
    let took = began.elapsed();
    assert!(took < PROMISED + SLACK, "{took:?}");
    assert_eq!(servers(&site).await, ["failed", "connected"]);
    // The second dies and the first is back.
    site.server.heal();
    second.cut();
    let expected = create(&site, "y");
    assert_eq!(watch.brief().await, expected);
    assert!(watch.is_silent(Duration::from_millis(200)).await, "nothing comes twice");
}

/// It takes connections and says nothing: that is noticed, and the other asked, in the time that is promised for noticing alone.
#[tokio::test]
async fn another_server_takes_over_from_one_that_falls_silent() {
    twice_within(PROMISED, async || {
        let (site, _second) = with_another_server().await;
        let mut watch = watch(&site).await;
        site.server.black_hole();
        let began = Instant::now();
        let expected = create(&site, "x");
        // Who asks has to wait, and is answered by the other in the end.
        let asked = async {
            while !matches!(get(&site.plain(), "/apis/coordination.k8s.io/v1/leases").await, Some((200, _))) {
                sleep(Duration::from_millis(50)).await;
            }
            began.elapsed()
        };
        let (served, told) =
            tokio::join!(timeout(SOON, asked), async { (watch.brief().await, began.elapsed()) });
        assert_eq!(told.0, expected);
        let took = served.expect("served").max(told.1);
        assert!(took < PROMISED + SLACK, "{took:?}");
        assert_eq!(servers(&site).await, ["failed", "connected"]);
        took
    })
    .await;
}

/// Its connection is as good as ever, and all that it answers is errors: another is asked, and streams that it would tell nothing over go on there.
#[tokio::test]
async fn another_server_takes_over_from_one_that_answers_nothing_but_errors() {
    for status in [500, 503] {
        let (site, second) = with_another_server().await;
        let mut watch = watch(&site).await;
        site.server.fail("/", status);
        let began = Instant::now();
        while !matches!(get(&site.plain(), "/apis/coordination.k8s.io/v1/leases").await, Some((200, _))) {
            assert!(began.elapsed() < PROMISED + SLACK, "{status}");
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(servers(&site).await, ["failed", "connected"]);
        let expected = create(&site, "x");
        assert_eq!(watch.brief().await, expected);
        // It is not taken again before it is well, though the other is gone.
        second.cut();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(servers(&site).await, ["failed", "failed"]);
        site.server.heal();
        let expected = create(&site, "y");
        assert_eq!(watch.brief().await, expected);
        assert_eq!(servers(&site).await, ["connected", "failed"]);
    }
}

/// An API that the server hands on to is gone, or a webhook: errors in a row, of a server that is ready.
#[tokio::test]
async fn a_server_that_is_ready_is_kept_whatever_it_answers() {
    let (site, second) = with_another_server().await;
    let asked = || site.server.log().totals(|record| record.path == "/readyz").requests;
    let before = asked();
    site.server.fail("/apis/coordination", 503);
    let fail = async || get(&site.plain(), "/apis/coordination.k8s.io/v1/leases").await;
    site.until("it is asked how it is", async || {
        let answered = fail().await;
        assert!(matches!(answered, Some((503, _))), "{answered:?}");
        asked() > before
    })
    .await;
    // Not again so soon. The hub asks once by itself, to keep what is said of health.
    for _ in 0..10 {
        fail().await;
    }
    assert!(asked() <= before + 2, "{}", asked());
    assert_eq!(servers(&site).await, ["connected", "untried"]);
    assert_eq!(second.log().requests().len(), 0);
}

/// Of one alone nothing is expected either until it is well: what is held is told as without a link.
#[tokio::test]
async fn an_only_server_that_answers_nothing_but_errors_is_no_link() {
    let site = Site::started().await;
    let mut watch = watch(&site).await;
    let expected = create(&site, "x");
    assert_eq!(watch.brief().await, expected);
    site.server.fail("/", 500);
    let began = Instant::now();
    let path = "/api/v1/services";
    loop {
        if let Some((200, list)) = get(&site.plain(), path).await {
            assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
            if servers(&site).await == ["failed"] {
                break;
            }
        }
        let _ = get(&site.plain(), "/apis/coordination.k8s.io/v1/leases").await;
        assert!(began.elapsed() < PROMISED + SLACK);
        sleep(Duration::from_millis(50)).await;
    }
    site.server.heal();
    site.linked().await;
    let expected = create(&site, "y");
    assert_eq!(watch.brief().await, expected);
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
        let mut answer = site.plain().ask(request, "{}").await.unwrap();
        let body = answer.bytes().await.unwrap();
        times.push(began.elapsed());
        assert_eq!(answer.status, 503, "{method}");
        assert!(!answer.headers.contains_key("retry-after"), "clients would wait for it");
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (said["kind"].as_str(), said["reason"].as_str()),
            (Some("Status"), Some("ServiceUnavailable"))
        );
        let message = said["message"].as_str().unwrap();
        assert!(
            message.starts_with("edge-hub: the API server cannot be reached: https://"),
            "{method}: {message}"
        );
        assert!(message.ends_with("this request cannot be answered without the API server"), "{message}");
    }
    // The one in the middle: a busy machine may be slow once or twice, and what waits for the network is every time.
    times.sort();
    assert!(times[times.len() / 2] < Duration::from_millis(500), "{times:?}");
}

/// The API server did what was asked, and its answer went with the link: whoever repeats that unseen does it twice.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_said_to_be_undone() {
    let site = Site::started().await;
    let one = format!("{CREATED}/x");
    for (method, path, object, there) in [
        ("POST", CREATED, service("a", "x", 1), true),
        ("PUT", one.as_str(), service("a", "x", 2), true),
        ("DELETE", one.as_str(), json!({}), false),
    ] {
        site.linked().await;
        site.server.lose_answer(CREATED);
        let request = Request::builder().method(method).uri(path).header("content-type", JSON);
        let mut answer = site.plain().ask(request, object.to_string()).await.unwrap();
        let body = answer.bytes().await.unwrap();
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer.status, 504, "{method}: {said}");
        assert!(!answer.headers.contains_key("retry-after"), "{method}: clients would repeat it");
        assert_eq!(
            (said["kind"].as_str(), said["reason"].as_str(), said["code"].as_u64()),
            (Some("Status"), Some("Timeout"), Some(504)),
            "{method}"
        );
        let message = said["message"].as_str().unwrap();
        let begins = "edge-hub: the connection to the API server broke after the request had been sent (";
        assert!(message.starts_with(begins), "{method}: {message}");
        assert!(message.ends_with("read the object before you try again"), "{method}: {message}");
        assert!(!message.contains("http2 error"), "{method}: {message}");
        let done = site.server.cluster().get("services", "a/x").is_some();
        assert_eq!(done, there, "{method} was done");
        site.linked().await;
        let expected = if there { 200 } else { 404 };
        let read = async || get(&site.plain(), &one).await.is_some_and(|(status, _)| status == expected);
        site.until("who reads it sees that", read).await;
    }
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
