//! What a restart costs the link: what changed meanwhile, and little besides.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    client::{ClientOptions, Recorder, TestClient},
    wan::{Wan, Weather},
};
use tokio::time::{Instant, sleep};

use super::site::{JSON, Lines, SERVICES, SOON, Site, WIDGETS, get, names, service, version, widget};

/// How many objects there are, and how many of them change while no hub runs.
const OBJECTS: usize = 2000;
const CHANGED: usize = 1000;

/// The most bytes on the link for a byte that changed.
const RATIO: f64 = 1.2;

/// An object as large as a Service with its annotations is.
fn large(mut object: Value) -> Value {
    object["metadata"]["annotations"] = json!({ "note": "x".repeat(700) });
    object
}

/// The bytes of an object as the hub asks for it.
async fn length(site: &Site, path: &str, accept: &str) -> u64 {
    let mut answer = site.direct().get(path, accept).await.unwrap();
    assert_eq!(answer.status, 200, "{path}");
    answer.bytes().await.unwrap().len() as u64
}

/// The requests whose answers were the largest.
fn largest(site: &Site) -> Vec<String> {
    let mut requests = site.server.log().requests();
    requests.sort_by_key(|request| std::cmp::Reverse(request.body_bytes));
    let shown = requests.iter().take(10);
    shown.map(|request| format!("{} bytes: {}?{}", request.body_bytes, request.path, request.query)).collect()
}

/// Bytes on the link, once nothing has passed over it for a second.
async fn settled(wan: &Wan) -> u64 {
    let (mut bytes, deadline) = (wan.bytes(), Instant::now() + SOON);
    loop {
        sleep(Duration::from_secs(1)).await;
        let now = wan.bytes();
        // A sign of life and its answer.
        if now - bytes < 200 {
            return now;
        }
        assert!(Instant::now() < deadline, "the link does not fall quiet");
        bytes = now;
    }
}

/// `path` is what the hub lists, `collection` where one of its objects is.
// The figure is what the test is read for.
#[allow(clippy::print_stdout)]
async fn restarted(
    id: &str,
    [path, collection]: [&str; 2],
    accept: &str,
    made: impl Fn(usize, u64) -> Value,
) {
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    let wan = Wan::start(site.server.address(), 1, Weather::CLEAR).await.unwrap();
    site.set("--server-addr", &format!("https://{}", wan.address()));
    for number in 0..OBJECTS {
        cluster.create(id, made(number, 0)).unwrap();
    }
    site.start();
    site.linked().await;
    let list = format!("{path}?resourceVersion=0");
    let listed = async || get(&site.plain(), &list).await.filter(|(status, _)| *status == 200);
    site.until("all is held", async || {
        listed().await.is_some_and(|(_, list)| list["items"].as_array().unwrap().len() == OBJECTS)
    })
    .await;
    settled(&wan).await;
    site.kill();
    // Or what changes is told to the hub that is gone.
    site.until("the dead hub's watches have ended", async || site.upstream_watches(path) == 0).await;
    site.server.log().clear();
    let before = settled(&wan).await;
    for number in 0..CHANGED {
        cluster.update(id, &made(number, 1)).unwrap();
    }
    let name = |number: usize| made(number, 0)["metadata"]["name"].as_str().unwrap().to_owned();
    let changed = length(&site, &format!("{collection}/{}", name(0)), accept).await * CHANGED as u64;
    site.start();
    let newest = cluster.get(id, &format!("a/{}", name(CHANGED - 1))).unwrap();
    let is_last = |item: &Value| item["metadata"]["resourceVersion"] == newest["metadata"]["resourceVersion"];
    site.until("all that changed is held", async || {
        get(&site.plain(), &list).await.is_some_and(|(status, list)| {
            status == 200 && list["items"].as_array().unwrap().iter().any(is_last)
        })
    })
    .await;
    let moved = settled(&wan).await - before;
    // The look at two objects, by which a restored etcd is noticed, is part of the price and no list.
    let lists = site.server.log().totals(|record| record.path == path && record.query.contains("limit=2000"));
    assert_eq!(lists.requests, 0, "it resumed\n{}", site.last_log());
    #[allow(clippy::cast_precision_loss, reason = "some megabytes")]
    let ratio = moved as f64 / changed as f64;
    assert!(
        ratio <= RATIO,
        "{moved} bytes on the link for {changed} that changed: {ratio:.3}\n{:#?}",
        largest(&site)
    );
    println!("{id}: {moved} bytes on the link for {changed} that changed: {ratio:.3}");
}

#[tokio::test]
async fn a_restart_moves_what_changed_of_a_built_in_resource() {
    let made = |number, n| large(service("a", &format!("s{number:04}"), n));
    restarted(
        "services",
        [SERVICES, "/api/v1/namespaces/a/services"],
        "application/vnd.kubernetes.protobuf",
        made,
    )
    .await;
}

#[tokio::test]
async fn a_restart_moves_what_changed_of_a_custom_resource() {
    let made = |number, n| large(widget(&format!("w{number:04}"), n));
    restarted("widgets.example.com", [WIDGETS; 2], JSON, made).await;
}

/// A part of a resource to which nothing happens, beside others of which the API server's history is full: its version is the API server's
/// bookmark, which the hub that ends leaves to the next one.
#[tokio::test]
async fn a_quiet_part_of_a_busy_resource_is_not_listed_anew_after_a_restart() {
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    for n in 0..3 {
        cluster.create("widgets.example.com", widget(&format!("quiet-{n}"), n)).unwrap();
    }
    site.start_inside(|_| {}).await;
    site.linked().await;
    let mut options = ClientOptions::new("quiet", WIDGETS);
    "metadata.name=quiet-1".clone_into(&mut options.fields);
    let mut client = TestClient::start(site.plain(), options, &Recorder::default()).unwrap();
    assert!(client.wait_for(SOON, |_| true).await);
    for n in 0..200 {
        cluster.create("widgets.example.com", widget(&format!("busy-{n}"), n)).unwrap();
    }
    let busy = cluster.revision();
    let list = format!("{WIDGETS}?fieldSelector=metadata.name%3Dquiet-1&resourceVersion=0");
    let held = async || {
        // None is sent while events are on their way.
        site.server.send_bookmarks();
        get(&site.plain(), &list).await.map(|(_, list)| version(&list))
    };
    site.until("the API server's bookmark has come", async || held().await == Some(busy)).await;
    site.stop().await;
    // What the client and the first list of the hub came to is forgotten.
    cluster.compact(busy - 10);
    site.server.log().clear();
    site.start_inside(|_| {}).await;
    site.until("it is watched again", async || site.upstream_watches(WIDGETS) == 1).await;
    let mut changed = widget("quiet-1", 77);
    changed["metadata"]["labels"] = json!({ "n": "77" });
    let changed = cluster.update("widgets.example.com", &changed).unwrap();
    let is_told = client.wait_for(SOON, |state| state.get("a/quiet-1") == Some(&changed)).await;
    assert!(is_told, "{:?}\n{}", client.progress(), site.last_log());
    let is_list = |query: &str| !query.split('&').any(|part| part == "limit=1");
    let lists =
        site.server.log().totals(|record| record.path == WIDGETS && !record.watch && is_list(&record.query));
    assert_eq!(lists.requests, 0, "{:?}\n{}", largest(&site), site.last_log());
    let progress = client.progress();
    assert_eq!(progress.lists, 1, "the client resumed: {progress:?}");
    assert!(progress.errors.keys().all(|code| *code == 0), "{progress:?}");
}

/// A whole resource to which nothing happens. What is stored is its last change, of which another server, or the same when it was started anew, may know
/// nothing: that one has accepted a later version, from which the next hub goes on as well.
#[tokio::test]
async fn what_another_server_accepted_is_gone_on_from_after_a_kill() {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create("services", service("a", "quiet", 1)).unwrap();
    site.caught_up(SERVICES, &["quiet"]).await;
    for n in 0..20 {
        cluster.create("widgets.example.com", widget(&format!("busy-{n}"), n)).unwrap();
    }
    let busy = cluster.revision();
    let held = async || {
        site.server.send_bookmarks();
        let (_, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await?;
        Some(version(&list))
    };
    site.until("the API server's bookmark has come", async || held().await == Some(busy)).await;
    site.server.cut();
    site.offline().await;
    site.server.heal();
    let watched = async || {
        let status = get(&site.admin(), "/v1/status").await;
        let streams = status.and_then(|(_, status)| status["subscriptions"].as_array().cloned());
        let is_watched = |stream: &Value| stream["resource"] == "services" && stream["state"] == "watching";
        streams.is_some_and(|streams| streams.iter().any(is_watched))
    };
    site.until("it is watched over another connection", watched).await;
    cluster.compact(busy - 1);
    site.server.log().clear();
    site.kill();
    site.start();
    site.until("it is watched again", async || site.upstream_watches(SERVICES) == 1).await;
    cluster.create("services", service("a", "next", 1)).unwrap();
    site.caught_up(SERVICES, &["next", "quiet"]).await;
    let is_list = |path: &str, query: &str| path == SERVICES && query.contains("limit=2000");
    let lists = site.server.log().totals(|record| is_list(&record.path, &record.query));
    assert_eq!(lists.requests, 0, "{:?}\n{}", largest(&site), site.last_log());
}

/// A widget that is selected by its label.
fn labelled(name: &str, n: u64) -> Value {
    let mut widget = widget(name, n);
    widget["metadata"]["labels"] = json!({ "part": "one" });
    widget
}

/// What is selected, of the site's hub.
const SELECTED: &str = "/apis/example.com/v1/namespaces/a/widgets?labelSelector=part%3Done";

/// A site whose hub watches all widgets, of which one is selected.
async fn watching_all() -> Site {
    let site = Site::started().await;
    site.server.cluster().create("widgets.example.com", labelled("selected", 1)).unwrap();
    site.caught_up(WIDGETS, &["selected"]).await;
    site.until("all are watched", async || site.upstream_watches(WIDGETS) == 1).await;
    site
}

/// Who selects was answered from the stream of all, comes first after a kill, and knows a version of that stream.
#[tokio::test]
async fn who_selects_goes_on_after_a_kill_from_the_stream_of_all() {
    let mut site = watching_all().await;
    let cluster = site.server.cluster().clone();
    let (_, list) = get(&site.plain(), SELECTED).await.unwrap();
    let path = format!("{SELECTED}&watch=1&resourceVersion={}", version(&list));
    // Of what it does not select, so that nothing else says how far it is.
    cluster.create("widgets.example.com", widget("other", 1)).unwrap();
    site.caught_up(WIDGETS, &["other", "selected"]).await;
    site.kill();
    site.server.log().clear();
    site.start();
    site.linked().await;
    let mut watch = Lines::open(&site.plain(), &path).await;
    let changed = cluster.update("widgets.example.com", &labelled("selected", 2)).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &changed));
    site.caught_up(WIDGETS, &["other", "selected"]).await;
    assert_eq!(site.upstream_watches(WIDGETS), 1);
    let lists = site
        .server
        .log()
        .totals(|record| record.path == WIDGETS && !record.watch && !record.query.contains("limit=1"));
    assert_eq!(lists.requests, 0, "{:?}", largest(&site));
}

/// The same, but the node may read no more than what is selected when it comes back: that has a stream of its own then.
#[tokio::test]
async fn who_selects_has_a_stream_after_a_kill_that_took_the_right_to_all() {
    let mut site = watching_all().await;
    let cluster = site.server.cluster().clone();
    let (_, known) = get(&site.plain(), SELECTED).await.unwrap();
    site.kill();
    site.server.log().clear();
    cluster.access().set_authorizer(|asked| asked.resource != "widgets" || !asked.label_selector.is_empty());
    site.start();
    site.linked().await;
    let watch = format!("{SELECTED}&watch=1&resourceVersion={}", version(&known));
    let _watch = Lines::open(&site.plain(), &watch).await;
    let is_the_hubs = |query: &str| query.contains("labelSelector") && query.contains("timeoutSeconds");
    let watched = || site.server.log().totals(|record| record.path == WIDGETS && is_the_hubs(&record.query));
    site.until("the hub watches what is selected", async || {
        let (status, list) = get(&site.plain(), SELECTED).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["selected"]));
        watched().open_watches == 1
    })
    .await;
}
