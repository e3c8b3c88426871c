//! Lines that are slow and whole: far away, or thin. The link that goes over them is no black hole.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use edge_hub::{
    metrics::LinkBytes,
    upstream::{Connector, Credential, Link, LinkState, Timing, TlsMaterial, Upstream},
};
use http::{Request, StatusCode, header};
use serde_json::{Value, json};
use testkit::{
    api_server::access::User,
    wan::{Wan, Weather},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::site::{JSON, Lines, SERVICES, SOON, Site, WIDGETS, get, names, service, widget};

/// With the whole state.
const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// What a loaded machine may add to a time that is promised.
const SLACK: Duration = Duration::from_secs(1);

/// A link of the node's to the site's server by that address.
pub(super) async fn link(site: &Site, address: SocketAddr, timing: Timing) -> (Upstream, JoinSet<()>) {
    let file = |name: &str| site.file(name);
    let material = TlsMaterial::read(&file("ca.crt"), &file("node.crt"), &file("node.key")).unwrap();
    let connector = Arc::new(Connector::new(material, timing, Arc::new(LinkBytes::default())));
    let (link, upstream) = Link::new(vec![format!("https://{address}").parse().unwrap()], connector);
    let mut tasks = JoinSet::new();
    tasks.spawn(link.run(CancellationToken::new()));
    let mut state = upstream.state();
    timeout(SOON, state.wait_for(|state| matches!(state, LinkState::Up(_)))).await.unwrap().unwrap();
    (upstream, tasks)
}

/// An object that fits into what the server takes before it says anything.
fn large() -> Request<Body> {
    let mut large = service("a", "large", 1);
    large["metadata"]["annotations"] = json!({ "padding": "x".repeat(800_000) });
    Request::post("/api/v1/namespaces/a/services")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(large.to_string()))
        .unwrap()
}

/// The PING stands behind all of it, and nothing comes for longer than a black hole is given.
#[tokio::test]
async fn a_large_upload_over_a_thin_line_is_not_cut() {
    let site = Site::new().await;
    let wan = Wan::start(site.server.address(), 1, Weather::CLEAR).await.unwrap();
    let (upstream, _tasks) = link(&site, wan.address(), Timing::default()).await;
    wan.set(Weather { bandwidth: Some(100_000), ..Weather::CLEAR });
    let began = Instant::now();
    let answer = upstream.send(&Credential::Node, large());
    let answer = timeout(Duration::from_secs(30), answer).await.unwrap().expect("an answer");
    let took = began.elapsed();
    println!("uploaded in {took:?}");
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert!(took > Duration::from_secs(5), "the line is not thin: {took:?}");
    assert!(upstream.is_up() && wan.accepted() == 1, "{} connections", wan.accepted());
}

/// All times are a tenth of the usual ones.
#[tokio::test]
async fn a_round_trip_longer_than_an_answer_usually_takes_makes_no_link_flap() {
    let site = Site::new().await;
    let delay = Duration::from_millis(125);
    let timing = Timing {
        ping_after_asked: Duration::from_millis(200),
        ping_timeout: Duration::from_millis(180),
        ..Timing::default()
    };
    let wan = Wan::start(site.server.address(), 1, Weather::delayed(delay)).await.unwrap();
    let (upstream, _tasks) = link(&site, wan.address(), timing).await;
    let version = Request::get("/version").body(Body::empty()).unwrap();
    assert_eq!(upstream.send(&Credential::Node, version).await.unwrap().status(), StatusCode::OK);
    // One PING after the other.
    sleep(20 * delay).await;
    assert!(upstream.is_up() && wan.accepted() == 1, "{} connections", wan.accepted());
    wan.set(Weather { silent_up: true, silent_down: true, ..Weather::delayed(delay) });
    let began = Instant::now();
    let mut state = upstream.state();
    let down = state.wait_for(|state| matches!(state, LinkState::Down { .. }));
    timeout(SOON, down).await.expect("noticed").unwrap();
    let bound = timing.ping_after_asked + 2 * 3 * delay + SLACK;
    assert!(began.elapsed() < bound, "noticed after {:?}", began.elapsed());
}

/// The Service `a/s` with its `n`, as large as one with its annotations may be.
fn changed(n: u64) -> Value {
    let mut service = service("a", "s", n);
    service["metadata"]["annotations"] = json!({ "padding": "x".repeat(5000) });
    service
}

/// The `n` of the Service in an answer, or in the list that it is, and whether it was said that it may be old, and whether the hub gave it by itself.
async fn shown(site: &Site, path: &str) -> (String, bool, bool) {
    let mut answer = site.plain().get(path, JSON).await.unwrap();
    let has = |name: &str| answer.headers.contains_key(name);
    let (is_old, is_held) = (has("warning"), !has("audit-id"));
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    let service = if body["items"].is_array() { &body["items"][0] } else { &body };
    (service["spec"]["selector"]["n"].as_str().unwrap_or_default().to_owned(), is_old, is_held)
}

/// No two are alike, as a list is compressed.
fn filler(n: u64) -> String {
    let parts = (0..300).map(|part| format!("{:016x}", (n * 300 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    parts.collect()
}

/// The Service's last `n`.
const LAST: u64 = 60;

/// A site whose Service changed so often during a cut.
async fn changed_meanwhile() -> Site {
    let site = Site::started().await;
    let cluster = site.server.cluster();
    cluster.create("services", changed(0)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    site.server.cut();
    site.offline().await;
    for n in 1..=LAST {
        cluster.update("services", &changed(n)).unwrap();
    }
    site
}

/// The connection is alive, and has still to carry most of what changed during a cut.
#[tokio::test]
async fn what_comes_slowly_after_a_cut_is_not_current_before_it_has_come() {
    let initial = format!("{SERVICES}?watch=1&{INITIAL}");
    let site = changed_meanwhile().await;
    let friend = site.secure(Some(site.authority.client(&User::new("friend", &[])).unwrap()));
    site.server.heal();
    site.server.throttle(Some(30_000));
    let (last, deadline) = (LAST.to_string(), Instant::now() + SOON);
    let mut asked = 0;
    loop {
        assert!(Instant::now() < deadline, "it does not come");
        let (held, is_old, _) = shown(&site, &format!("{SERVICES}?resourceVersion=0")).await;
        if held == last {
            break;
        }
        // The watch runs, then, and whoever takes any state is shown what has come so far.
        if !is_old {
            asked += 1;
            for path in [SERVICES, "/api/v1/namespaces/a/services/s"] {
                let (n, is_old, _) = shown(&site, path).await;
                assert!(n == last || is_old, "{path}: {n} of {last}, and {held} was held");
            }
            if asked == 1 {
                // The API server cannot be asked in its name.
                let (status, services) = get(&friend, SERVICES).await.unwrap();
                assert_eq!((status, names(&services)), (200, vec!["s"]));
            }
            let first = Lines::open(&site.plain(), &initial).await.next().await.unwrap();
            assert_eq!(first["object"]["spec"]["selector"]["n"], *last, "{held} was held");
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(asked > 0, "all came before the watch was known to run");
    site.until("the hub answers by itself again", async || {
        shown(&site, SERVICES).await == (last.clone(), false, true)
    })
    .await;
}

/// A watch of one's own would carry the state over a line that is busy with what changed, and stay.
#[tokio::test]
async fn watches_that_begin_meanwhile_open_no_streams_of_their_own() {
    let path = format!("{SERVICES}?watch=1&{INITIAL}");
    let site = changed_meanwhile().await;
    site.server.heal();
    site.server.throttle(Some(30_000));
    site.linked().await;
    let began = Instant::now();
    let watches = (0..6).map(|_| async {
        let mut watch = Lines::open(&site.plain(), &path).await;
        let first = watch.next().await.unwrap();
        (first["object"]["spec"]["selector"]["n"].clone(), watch)
    });
    let watches = futures::future::join_all(watches).await;
    // Longer than it takes to know that nothing happened.
    assert!(began.elapsed() > Duration::from_secs(5), "the line is not thin: {:?}", began.elapsed());
    for (n, _) in &watches {
        assert_eq!(*n, LAST.to_string());
    }
    assert_eq!(site.upstream_watches(SERVICES), 1);
}

/// The same, and the API server has forgotten what happened, so that all is listed anew; by now it is more, and that is on its way over a thin line.
async fn listed_anew() -> Site {
    let site = changed_meanwhile().await;
    let cluster = site.server.cluster();
    for n in 0..100 {
        let mut service = service("a", &format!("t{n:02}"), n);
        service["metadata"]["annotations"] = json!({ "filler": filler(n) });
        cluster.create("services", service).unwrap();
    }
    cluster.compact(cluster.revision());
    site.server.heal();
    site.server.throttle(Some(30_000));
    site.linked().await;
    site
}

#[tokio::test]
async fn watches_that_begin_while_all_is_listed_anew_open_no_streams_of_their_own() {
    let path = format!("{SERVICES}?watch=1&{INITIAL}");
    let site = listed_anew().await;
    let began = Instant::now();
    let watches = (0..6).map(|_| async {
        let mut watch = Lines::open(&site.plain(), &path).await;
        loop {
            let event = watch.next().await.unwrap();
            if event["object"]["metadata"]["name"] == "s" {
                return (event["object"]["spec"]["selector"]["n"].clone(), watch);
            }
        }
    });
    let watches = futures::future::join_all(watches).await;
    assert!(began.elapsed() > Duration::from_secs(2), "the line is not thin: {:?}", began.elapsed());
    for (n, _) in &watches {
        assert_eq!(*n, LAST.to_string());
    }
    site.until("the hub's own is there, and no other", async || site.upstream_watches(SERVICES) == 1).await;
}

/// The upstream watch does not run before the cut nor after it: that says nothing of the stream that is new.
#[tokio::test]
async fn a_watch_that_waits_is_shown_what_is_held_once_there_is_no_link() {
    let path = format!("{SERVICES}?watch=1&{INITIAL}");
    let site = listed_anew().await;
    let hub = site.plain();
    let watch = tokio::spawn(async move { hub.get(&path, JSON).await.unwrap() });
    sleep(Duration::from_secs(1)).await;
    assert!(!watch.is_finished(), "it does not wait");
    site.server.cut();
    let cut = Instant::now();
    let answer = watch.await.unwrap();
    assert!(cut.elapsed() < Duration::from_secs(10), "after {:?}", cut.elapsed());
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.headers.contains_key(header::WARNING), "{:?}", answer.headers);
    let first = Lines::of(answer).next().await.unwrap();
    assert_eq!(first["object"]["spec"]["selector"]["n"], "0");
}

/// Each list ends before it is whole: whoever waited for one would be told to ask again for good.
#[tokio::test]
async fn what_does_not_come_over_a_link_that_stands_is_not_waited_for() {
    let path = format!("{SERVICES}?watch=1&{INITIAL}");
    let site = changed_meanwhile().await;
    site.server.heal();
    site.server.fail(SERVICES, 410);
    site.linked().await;
    let asked = Instant::now();
    let answer = site.plain().get(&path, JSON).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(15), "after {:?}", asked.elapsed());
    assert_eq!(answer.status, StatusCode::GONE, "the API server's own answer");
}

/// What changes while a list is on its way comes after it, over a line that takes its time for both.
#[tokio::test]
async fn what_changes_while_a_first_list_is_on_its_way_is_not_taken_as_told() {
    let mut site = Site::new().await;
    let file = site.log_file().with_extension("yaml");
    std::fs::write(&file, "freshness: { example.com/v1/widgets: bounded:1 }\n").unwrap();
    site.set("--config", &file.display().to_string());
    let cluster = site.server.cluster().clone();
    let changed = |name: &str, n: u64| {
        let mut widget = widget(name, n);
        widget["spec"]["filler"] = filler(n).into();
        widget
    };
    for n in 0..30 {
        cluster.create("widgets.example.com", changed(&format!("w{n:02}"), n)).unwrap();
    }
    site.start();
    site.linked().await;
    // That it may read them is known by then.
    assert_eq!(get(&site.plain(), &format!("{WIDGETS}/none")).await.unwrap().0, 404);
    site.server.throttle(Some(30_000));
    let asked = Instant::now();
    let first = tokio::spawn({
        let hub = site.plain();
        async move { hub.get(WIDGETS, JSON).await.unwrap() }
    });
    let is_listed = || {
        let requests = site.server.log().requests();
        requests.iter().any(|request| request.path == WIDGETS && request.query.contains("limit="))
    };
    site.until("the list is on its way", async || is_listed()).await;
    for n in 1..=LAST {
        cluster.update("widgets.example.com", &changed("w00", n)).unwrap();
    }
    first.await.unwrap();
    assert!(asked.elapsed() > Duration::from_secs(1), "the list took no longer than the policy allows");
    let deadline = Instant::now() + SOON;
    let mut old = 0;
    loop {
        assert!(Instant::now() < deadline, "it does not come");
        let mut shown = Vec::new();
        for path in [WIDGETS, &format!("{WIDGETS}/w00")] {
            let mut answer = site.plain().get(path, JSON).await.unwrap();
            let (is_old, is_held) =
                (answer.headers.contains_key("warning"), !answer.headers.contains_key("audit-id"));
            let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            let widget = if body["items"].is_array() { &body["items"][0] } else { &body };
            let n = widget["spec"]["n"].as_u64().unwrap_or_else(|| panic!("{path}: {body}"));
            assert!(n == LAST || is_old, "{path}: {n} of {LAST} as the most recent state");
            old += usize::from(n != LAST);
            shown.push((n, is_old, is_held));
        }
        if shown == [(LAST, false, true); 2] {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(old > 0, "all came with the list");
}
