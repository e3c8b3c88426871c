//! One stream upstream however many clients, closed when nobody needs it, and held up by nobody.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use testkit::client::{ClientOptions, Recorder, TestClient};
use tokio::time::{Instant, sleep};

use super::{
    configuration::{SLICE, SLICES, asks, slice_of},
    site::{
        JSON, Lines, SERVICES, SOON, Site, WIDGETS, configured, get, list_of_component, names, of_component,
        service, version, widget, with_configuration,
    },
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What each client of a node's Services reads, as the test kit calls it, and where.
const READ: [(&str, &str); 2] = [("services", SERVICES), (SLICE, SLICES)];

fn object(id: &str, name: &str, n: u64) -> Value {
    if id == "services" {
        return service("a", name, n);
    }
    let mut slice = slice_of("a", name, name, &["n", "m"]);
    slice["metadata"]["labels"]["n"] = n.to_string().into();
    slice
}

/// Bytes of Services and their slices that `count` clients cost upstream, half of them with protobuf if there are several.
async fn cost(count: usize) -> u64 {
    let site = Site::started().await;
    // What is made before is listed, and what is made after is told of, which costs more bytes.
    for (_, path) in READ {
        site.until("they are watched", async || site.upstream_watches(path) == 1).await;
    }
    let cluster = site.server.cluster();
    let mut made = [0; READ.len()];
    for n in 0..50 {
        for (made, (id, _)) in made.iter_mut().zip(READ) {
            *made = version(&cluster.create(id, object(id, &format!("s{n:02}"), n)).unwrap());
        }
    }
    let hub = site.plain();
    let recorder = Recorder::default();
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    let each = |number: usize| READ.into_iter().enumerate().map(move |(of, (_, path))| (number, of, path));
    for (number, of, path) in (0..count).flat_map(each) {
        if number % 2 == 0 {
            let options = ClientOptions {
                watch_list: number % 4 == 2,
                ..ClientOptions::new(&number.to_string(), path)
            };
            let mut client = TestClient::start(hub.clone(), options, &recorder).unwrap();
            assert!(client.wait_for(SOON, |state| state.len() == 50).await);
            clients.push((client, of));
        } else {
            let mut list = hub.get(&format!("{path}?resourceVersion=0"), PROTOBUF).await.unwrap();
            let body = list.bytes().await.unwrap();
            assert!(list.status == 200 && body.starts_with(b"k8s\0"));
            let accept = "application/vnd.kubernetes.protobuf;stream=watch";
            let path = format!("{path}?watch=1&resourceVersion={}", made[of]);
            streams.push(hub.get(&path, accept).await.unwrap());
        }
    }
    for n in 0..200 {
        for (id, _) in READ {
            cluster.update(id, &object(id, &format!("s{:02}", n % 50), n + 1)).unwrap();
        }
    }
    let last = READ.map(|(id, _)| cluster.create(id, object(id, "last", 1)).unwrap());
    for (client, of) in &mut clients {
        let last = &last[*of];
        // All that comes through protobuf as it was.
        let is_last =
            |held: &Value| ["metadata", "spec", "status"].iter().all(|part| held[*part] == last[*part]);
        assert!(client.wait_for(SOON, |state| state.get("a/last").is_some_and(is_last)).await);
    }
    for stream in &mut streams {
        let mut seen = Vec::new();
        while !seen.windows(4).any(|part| part == b"last") {
            seen.extend_from_slice(
                &tokio::time::timeout(SOON, stream.chunk()).await.unwrap().unwrap().unwrap(),
            );
        }
    }
    for (_, path) in READ {
        assert_eq!(site.upstream_watches(path), 1, "{path}");
    }
    let is_read = |of: &str| READ.iter().any(|(_, path)| *path == of);
    let cost = site.server.log().totals(|record| is_read(&record.path)).body_bytes;
    counted(&site, count).await;
    cost
}

/// The value of a metric of the hub, of all its labels together or of those with `label`; nothing if there is none.
async fn metric(site: &Site, name: &str, label: &str) -> Option<f64> {
    let mut answer = site.admin().get("/metrics", "text/plain").await.unwrap();
    let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let of = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    };
    let values = text.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.reduce(|sum, value| sum + value)
}

/// What the hub says of itself once so many clients have 51 Services: in its metrics and in its status; and what of it an outage changes.
async fn counted(site: &Site, clients: usize) {
    const OF_SERVICES: &str = "resource=\"services\"";
    let read = async |name: &str, label: &str| {
        let value = metric(site, &format!("isthmus_{name}"), label).await;
        value.unwrap_or_else(|| panic!("there is no {name} with {label}"))
    };
    // The hub itself looks at Services, for the topology that they ask for.
    let watchers = clients + 1;
    let watching = f64::from(u32::try_from(watchers).unwrap());
    for (name, label, expected) in [
        ("hub_link_up", "", 1.0),
        ("hub_watchers", OF_SERVICES, watching),
        ("hub_objects", OF_SERVICES, 51.0),
        ("hub_subscriptions", OF_SERVICES, 1.0),
    ] {
        let found = read(name, label).await;
        assert!((found - expected).abs() < 0.5, "{name} of {clients} clients is {found}");
    }
    let status = get(&site.admin(), "/v1/status").await.unwrap().1;
    let all = status["subscriptions"].as_array().unwrap();
    let each = f64::from(u32::try_from(all.len()).unwrap());
    // Of the others some may still be listed.
    let once = async || (read("hub_resyncs_total", "reason=\"First\"").await - each).abs() < 0.5;
    site.until("there is one list of each", once).await;
    let first_lists = read("hub_resyncs_total", "reason=\"First\"").await;
    assert!((read("hub_resyncs_total", "").await - first_lists).abs() < 0.5, "and no other");
    let [given, written] =
        [read("hub_store_given_bytes_total", "").await, read("hub_store_written_bytes_total", "").await];
    assert!(written >= given && given > 0.0, "{written} bytes written of {given} given");
    let held = read("hub_held_bytes_total", "").await;
    let received = read("hub_link_bytes_total", "direction=\"received\"").await;
    assert!(held > 0.0 && received > 0.0 && read("hub_link_bytes_total", "direction=\"sent\"").await > 0.0);
    let services = all.iter().find(|held| held["resource"] == "services").unwrap();
    assert_eq!((&services["watchers"], &services["objects"]), (&watchers.into(), &51.into()));
    let saved = services["savedBytes"].as_f64().unwrap();
    // All clients but one are given for nothing what came once.
    assert!(
        clients == 1 || (saved > 0.0 && saved < held),
        "{saved} bytes saved, {held} answered by {clients}"
    );
    assert!(read("hub_staleness_seconds", OF_SERVICES).await < 30.0, "while there is a link");
    site.server.cut();
    site.offline().await;
    assert!(read("hub_link_up", "").await < 0.5);
    let stale = read("hub_staleness_seconds", OF_SERVICES).await;
    site.until("staleness grows", async || read("hub_staleness_seconds", OF_SERVICES).await >= stale + 2.0)
        .await;
}

/// Objects of built-in kinds come as protobuf, which there is not of custom ones; lists are compressed on the way.
#[tokio::test]
async fn upstream_is_asked_in_the_cheapest_encoding() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    // A client that wants JSON changes nothing of that.
    for (path, name) in [(SERVICES, "s"), (WIDGETS, "w")] {
        site.caught_up(path, &[name]).await;
        site.until("it is watched", async || site.upstream_watches(path) == 1).await;
    }
    let asked = site.server.log().requests();
    for (path, watch, accept) in [
        (SERVICES, false, PROTOBUF),
        (SERVICES, true, "application/vnd.kubernetes.protobuf;stream=watch"),
        (WIDGETS, false, JSON),
        (WIDGETS, true, JSON),
    ] {
        // The hub's own: what it hands on is asked as the client asks.
        let own = asked.iter().filter(|record| {
            record.path == path && record.watch == watch && (watch || record.query.contains("limit=2000"))
        });
        let own: Vec<_> = own.map(|record| (&*record.accept, &*record.accept_encoding)).collect();
        // The API server compresses no watch, whatever it is asked.
        let gzip = if watch { "" } else { "gzip" };
        assert_eq!(own, [(accept, gzip)], "{path}, watch: {watch}");
    }
}

#[tokio::test]
async fn six_clients_cost_no_more_than_one() {
    let (one, six) = (cost(1).await, cost(6).await);
    assert!(six * 100 <= one * 102, "{six} bytes for six, {one} for one");
}

/// Also for those who share a filter, which shows each of them another object than is held.
#[tokio::test]
async fn an_event_is_encoded_once_for_all_who_are_told_it_alike() {
    const EVENTS: u32 = 50;
    // Who asks, and of how many of the two endpoints it is shown.
    const READERS: [(&str, usize); 2] = [("somebody", 2), ("kube-proxy", 1)];
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    cluster.create("services", asks("a", "s", Some("kubernetes.io/hostname"))).unwrap();
    cluster.create(SLICE, slice_of("a", "s", "s-1", &["n", "far"])).unwrap();
    // All in one thread: of watchers that look at the same moment each would find that nobody has encoded it yet.
    site.start_inside(|_| ()).await;
    site.linked().await;
    let hub = site.plain();
    let endpoints = |slice: &Value| slice["endpoints"].as_array().map_or(0, Vec::len);
    let mut watches = Vec::new();
    for (component, shown) in READERS {
        site.until("it is shown what it is to be shown", async || {
            let list = list_of_component(&hub, component, &format!("{SLICES}?resourceVersion=0")).await;
            endpoints(&list["items"][0]) == shown
        })
        .await;
        let list = list_of_component(&hub, component, &format!("{SLICES}?resourceVersion=0")).await;
        let path = format!("{SLICES}?watch=1&resourceVersion={}", version(&list));
        for _ in 0..6 {
            let watch = hub.ask(of_component(component, &path), String::new()).await.unwrap();
            watches.push((Lines::of(watch), shown));
        }
    }
    let encoded = async || metric(&site, "isthmus_hub_events_encoded_total", "").await.unwrap();
    let before = encoded().await;
    for n in 0..EVENTS {
        let labels = json!({ "metadata": { "labels": { "touched": n.to_string() } } });
        cluster.merge_patch(SLICE, "a/s-1", &labels).unwrap();
        for (watch, shown) in &mut watches {
            let event = tokio::time::timeout(SOON, watch.next()).await.unwrap().unwrap();
            assert_eq!(
                (&event["type"], endpoints(&event["object"])),
                (&json!("MODIFIED"), *shown),
                "{event}"
            );
            assert_eq!(event["object"]["metadata"]["labels"]["touched"], n.to_string(), "{event}");
        }
    }
    let each = (encoded().await - before) / f64::from(EVENTS);
    let views = f64::from(u32::try_from(READERS.len()).unwrap());
    assert!((each - views).abs() < 0.001, "{each} times each, for {} watchers", watches.len());
}

#[tokio::test]
async fn a_subscription_that_nobody_uses_is_closed_upstream() {
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.idle = Duration::from_millis(100)).await;
    site.linked().await;
    let watch = Lines::open(&site.plain(), &format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
    site.until("it is watched", async || site.upstream_watches(WIDGETS) == 1).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(site.upstream_watches(WIDGETS), 1, "while somebody watches");
    drop(watch);
    site.until("it is closed", async || site.upstream_watches(WIDGETS) == 0).await;
    assert_eq!(site.upstream_watches(SERVICES), 1, "configured ones stay");
}

/// What a client may need again while there is no link is not given up while there is none.
#[tokio::test]
async fn what_a_client_asked_for_outlasts_an_outage() {
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.idle = Duration::from_millis(100)).await;
    site.linked().await;
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    let watch = Lines::open(&site.plain(), &format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
    site.until("it is watched", async || site.upstream_watches(WIDGETS) == 1).await;
    site.server.cut();
    site.offline().await;
    drop(watch);
    sleep(Duration::from_secs(5)).await;
    let (status, list) = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]));
    site.server.heal();
    site.linked().await;
    site.until("it is closed", async || site.upstream_watches(WIDGETS) == 0).await;
}

#[tokio::test]
async fn what_was_stored_and_nobody_asks_for_again_is_let_go() {
    let mut site = Site::new().await;
    site.start_inside(|_| ()).await;
    site.linked().await;
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    site.caught_up(WIDGETS, &["w"]).await;
    site.stop().await;
    site.start_inside(|config| config.lifetimes.unasked_for = Duration::from_secs(1)).await;
    site.linked().await;
    sleep(Duration::from_secs(7)).await;
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap().0, 503);
    site.stop().await;
    site.start_inside(|_| ()).await;
    site.answers().await;
    let list = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await;
    assert_eq!(list.unwrap().0, 503, "nor is it on the disk");
}

/// The hub reads Services itself, for the topology that they ask for.
#[tokio::test]
async fn services_that_are_no_longer_shared_go_on_for_the_hub_and_its_node() {
    let (site, file) = configured("poolScopeResources: [/v1/services]\n").await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let hub = site.plain();
    let (_, list) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let mut watch =
        Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={}", version(&list))).await;
    std::fs::write(&file, "poolScopeResources: []\n").unwrap();
    let log = || std::fs::read_to_string(site.log_file()).unwrap_or_default();
    site.until("it is no longer shared", async || log().contains("no longer shared")).await;
    sleep(Duration::from_secs(1)).await;
    let created = site.server.cluster().create("services", service("a", "t", 1)).unwrap();
    let at = created["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(watch.brief().await, format!("ADDED t@{at}"));
    let lists =
        site.server.log().totals(|record| record.path == SERVICES && record.query.contains("limit=2000"));
    assert_eq!((lists.requests, site.upstream_watches(SERVICES)), (1, 1));
}

/// Without the filter that looks at them the hub has no use for Services: their stream ends as any other.
#[tokio::test]
async fn services_that_are_no_longer_shared_and_that_no_filter_needs_are_closed() {
    let (mut site, file) = with_configuration("poolScopeResources: [/v1/services]\n").await;
    site.set("--disabled-resource-filters", "servicetopology");
    site.start();
    site.linked().await;
    site.until("they are watched", async || site.upstream_watches(SERVICES) == 1).await;
    std::fs::write(&file, "poolScopeResources: []\n").unwrap();
    site.until("they are closed", async || site.upstream_watches(SERVICES) == 0).await;
    // Who lists them has a stream of its own, and the hub begins no other.
    site.until("they are no longer shared", async || {
        std::fs::read_to_string(site.log_file()).unwrap().contains("no longer shared")
    })
    .await;
    assert_eq!(site.upstream_watches(SERVICES), 0);
}

/// It cannot be had again then, and whoever takes it out of a file by mistake puts it back.
#[tokio::test]
async fn what_is_no_longer_shared_without_a_link_is_held_until_there_is_one() {
    let (mut site, file) = with_configuration("poolScopeResources: [/v1/services]\n").await;
    site.set("--disabled-resource-filters", "servicetopology");
    site.start();
    site.linked().await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    site.server.cut();
    site.offline().await;
    let (_, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let path = format!("{SERVICES}?watch=1&resourceVersion={}", version(&list));
    let watch = Lines::open(&site.plain(), &path).await;
    let said = async |site: &Site, what: &str, times: usize| {
        let log = || std::fs::read_to_string(site.log_file()).unwrap_or_default();
        site.until(what, async || log().matches(what).count() == times).await;
    };
    std::fs::write(&file, "poolScopeResources: []\n").unwrap();
    said(&site, "no longer shared", 1).await;
    let held =
        async |site: &Site| get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(names(&held(&site).await.1), ["s"]);
    std::fs::write(&file, "poolScopeResources: [/v1/services]\n").unwrap();
    said(&site, "shared from now on", 1).await;
    site.restart().await;
    assert_eq!(names(&held(&site).await.1), ["s"], "the disk has it as well");
    drop(watch);
    std::fs::write(&file, "poolScopeResources: []\n").unwrap();
    said(&site, "no longer shared", 2).await;
    site.server.heal();
    site.linked().await;
    site.until("it is closed", async || site.upstream_watches(SERVICES) == 0).await;
}

/// What clients have open, and what an earlier run left that nobody has asked for since.
#[tokio::test]
async fn what_is_passed_through_from_now_on_is_let_go() {
    let other = WIDGETS.replace("/a/", "/b/");
    let (mut site, file) = configured("passThroughResources: []\n").await;
    site.server.cluster().create("widgets.example.com", widget("w", 1)).unwrap();
    site.caught_up(WIDGETS, &["w"]).await;
    site.caught_up(&other, &[]).await;
    site.kill();
    site.start();
    site.linked().await;
    let hub = site.plain();
    site.caught_up(WIDGETS, &["w"]).await;
    let mut watch = Lines::open(&hub, &format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
    assert!(watch.brief().await.starts_with("ADDED w@"));
    site.until("it is watched", async || site.upstream_watches(WIDGETS) == 1).await;
    std::fs::write(&file, "passThroughResources: [example.com/v1/widgets]\n").unwrap();
    assert_eq!(watch.brief().await, "end");
    site.until("its stream is closed", async || site.upstream_watches(WIDGETS) == 0).await;
    // Kept again from now on; what was held before is not there any more.
    std::fs::write(&file, "passThroughResources: []\n").unwrap();
    site.until("it is kept again", async || {
        get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
        site.upstream_watches(WIDGETS) == 1
    })
    .await;
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await.unwrap().0, 200);
    assert_eq!(get(&hub, &format!("{other}?resourceVersion=0")).await.unwrap().0, 503);
}

#[tokio::test]
async fn what_is_never_kept_says_so_without_a_link() {
    let (site, _file) = configured("passThroughResources: [example.com/v1/widgets]\n").await;
    site.server.cut();
    site.offline().await;
    let passed_through = "example.com/v1/widgets is passed through (`passThroughResources` in the file of --config, --pass-through-resources, or `pass_through_resources` of ConfigMap yurt-hub-cfg), and so never kept";
    for (path, why) in [(WIDGETS, passed_through), ("/api/v1/events", "events are never kept")] {
        let (status, said) = get(&site.plain(), path).await.unwrap();
        let message = said["message"].as_str().unwrap();
        assert_eq!(status, 503, "{path}: {message}");
        assert!(message.starts_with("edge-hub: the API server cannot be reached: "), "{path}: {message}");
        assert!(message.ends_with(&format!("without the API server: {why}")), "{path}: {message}");
    }
}

/// What the hub reads for its filters it goes on reading, and tells nobody of it any more.
#[tokio::test]
async fn what_filters_need_is_passed_through_as_well() {
    let (mut site, file) = with_configuration("passThroughResources: []\n").await;
    site.start_inside(|config| config.lifetimes.review = Duration::from_millis(200)).await;
    site.linked().await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let mut watch = Lines::open(&site.plain(), &format!("{SERVICES}?watch=1&resourceVersion=0")).await;
    assert!(watch.brief().await.starts_with("ADDED s@"));
    std::fs::write(&file, "passThroughResources: [/v1/services]\n").unwrap();
    assert_eq!(watch.brief().await, "end");
    get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let asked =
        site.server.log().totals(|record| record.path == SERVICES && record.query == "resourceVersion=0");
    assert_eq!(asked.requests, 1);
    assert_eq!(site.upstream_watches(SERVICES), 1, "the hub's own");
}

/// A client that does not say which version it wants wants the most recent one, of a watch as of a list.
#[tokio::test]
async fn a_watch_of_the_most_recent_state_is_as_fresh_as_a_list() {
    const INITIAL: &str =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (site, _) = configured("freshness: { /v1/services: strict }\n").await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let hub = site.plain();
    let mut upstream = 1;
    for (query, handed_on) in [
        (format!("{INITIAL}&resourceVersion=0"), false),
        (INITIAL.to_owned(), true),
        ("watch=1".to_owned(), true),
        ("watch=1&resourceVersion=0".to_owned(), false),
    ] {
        let mut watch = Lines::open(&hub, &format!("{SERVICES}?{query}")).await;
        assert!(watch.brief().await.starts_with("ADDED s@"), "{query}");
        upstream += usize::from(handed_on);
        assert_eq!(site.upstream_watches(SERVICES), upstream, "{query}");
        // Kept open, so that it counts.
        std::mem::forget(watch);
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&hub, SERVICES).await.unwrap().0, 503);
    assert_eq!(get(&hub, &format!("{SERVICES}?{INITIAL}")).await.unwrap().0, 429);
    let mut any = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion=0")).await;
    assert!(any.brief().await.starts_with("ADDED s@"));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let site = Site::started().await;
    let hub = site.plain();
    let cluster = site.server.cluster();
    assert_eq!(get(&hub, &format!("{WIDGETS}?resourceVersion=0")).await.unwrap().0, 200);
    let from = cluster.revision();
    let path = format!("{WIDGETS}?watch=1&resourceVersion={from}");
    let mut stalled = Lines::open(&hub, &path).await;
    let mut reading = Lines::open(&hub, &path).await;
    let before = site.memory();
    for n in 0..200 {
        let mut object = widget("w", n);
        object["spec"]["filler"] = "x".repeat(200_000).into();
        if cluster.update("widgets.example.com", &object).is_err() {
            cluster.create("widgets.example.com", object).unwrap();
        }
        let began = Instant::now();
        assert!(reading.brief().await.contains(&format!(" w@{}", cluster.revision())));
        assert!(began.elapsed() < Duration::from_secs(5), "event {n} took {:?}", began.elapsed());
    }
    let grown = site.memory().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB for 40 MB of events");
    // It gets all that there was, in order, or is told that it is too late.
    let mut last = 0;
    loop {
        let brief = stalled.brief().await;
        if brief == "ERROR 410" {
            break;
        }
        let version: u64 = brief.rsplit_once('@').unwrap().1.parse().unwrap();
        assert!(version == last + 1 || last == 0, "{brief} after {last}");
        last = version;
        if last == cluster.revision() {
            break;
        }
    }
    let answer = hub.get(&format!("{WIDGETS}?resourceVersion=0"), JSON).await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn what_is_no_longer_shared_is_closed_and_its_memory_given_back() {
    const ALL: &str = "/apis/example.com/v1/widgets";
    let mut site = Site::new().await;
    let file = site.log_file().with_extension("yaml");
    let shared =
        |list: &str| std::fs::write(&file, format!("poolScopeResources: [/v1/services{list}]\n")).unwrap();
    for n in 0..15_000 {
        let mut object = widget(&format!("w{n:05}"), n);
        object["spec"]["filler"] = "x".repeat(2_000).into();
        site.server.cluster().create("widgets.example.com", object).unwrap();
    }
    shared(", example.com/v1/widgets");
    site.set("--config", &file.display().to_string());
    site.start();
    site.linked().await;
    site.until("it is watched before anybody asks", async || site.upstream_watches(ALL) == 1).await;
    let full = site.memory();
    let mut took = Vec::new();
    for _ in 0..4 {
        let changed = Instant::now();
        shared("");
        site.until("it is closed", async || site.upstream_watches(ALL) == 0).await;
        took.push(changed.elapsed());
        // The 30 MB of objects, which have their indices beside them.
        let without = full - (30 << 10);
        site.until("its memory is given back", async || site.memory() < without).await;
        shared(", example.com/v1/widgets");
        site.until("it is watched again", async || site.upstream_watches(ALL) == 1).await;
    }
    // From the change of the file on. Not each time: other tests may have the machine.
    took.sort();
    assert!(took[1] <= Duration::from_secs(1) && took[3] <= Duration::from_secs(5), "closed after {took:?}");
    // 30 MB of objects each time: kept four times they would be 120 MB.
    let grown = site.memory().saturating_sub(full);
    assert!(grown < 20 << 10, "{grown} KiB more after {full}");
    assert_eq!(site.upstream_watches(SERVICES), 1, "others stay");
}

/// Whoever asks for the most recent state while a list is on its way must not be given what that list was of before.
#[tokio::test]
async fn a_first_list_that_was_begun_before_the_question_is_no_answer_to_it() {
    const ALL: &str = "/apis/example.com/v1/widgets";
    let (site, _) = configured("freshness: { example.com/v1/widgets: strict }\n").await;
    let cluster = site.server.cluster();
    for n in 0..4100 {
        let mut object = widget(&format!("w-{n:04}"), n);
        object["spec"]["filler"] = format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).repeat(8).into();
        cluster.create("widgets.example.com", object).unwrap();
    }
    // All of it takes some seconds.
    site.server.throttle(Some(256 << 10));
    let hub = site.plain();
    let first = tokio::spawn(async move { get(&hub, ALL).await });
    let pages = || {
        let requests = site.server.log().requests();
        requests.iter().filter(|request| request.path == ALL && request.query.contains("continue=")).count()
    };
    site.until("the second page is on its way", async || pages() > 0).await;
    cluster.create("widgets.example.com", widget("late", 1)).unwrap();
    let second = tokio::spawn({
        let hub = site.plain();
        async move { get(&hub, ALL).await }
    });
    sleep(Duration::from_millis(100)).await;
    site.server.throttle(None);
    let (_, list) = second.await.unwrap().unwrap();
    assert_eq!(names(&list).len(), 4101);
    assert!(names(&list).contains(&"late"));
    // Of its own question the first list is the answer; a reader that wakes late finds the second.
    let of_the_first = names(&first.await.unwrap().unwrap().1).len();
    assert!([4100, 4101].contains(&of_the_first), "{of_the_first}");
}

/// Read your writes: the API server's watch cache, and so the stream, may not have it yet.
#[tokio::test]
async fn who_writes_through_the_hub_reads_what_it_wrote() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let hub = site.plain();
    let path = "/api/v1/namespaces/a/services";
    let held =
        async || names(&get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap().1).join(",");
    let sends = async |request: http::request::Builder, body: &Value| {
        let request = request.header("content-type", JSON).header("accept", JSON);
        let mut answer = hub.ask(request, body.to_string()).await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.status);
        serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap()
    };
    site.server.lag(Some(site.server.cluster().revision()));
    let made = sends(Request::post(path), &service("a", "t", 1)).await;
    let (_, list) = get(&hub, SERVICES).await.unwrap();
    assert_eq!(names(&list), ["s", "t"], "made");
    assert!(version(&list) >= version(&made));
    assert_eq!(held().await, "s", "the stream was not told");
    let (_, part) = get(&hub, &format!("{SERVICES}?labelSelector=n%3Dodd")).await.unwrap();
    assert_eq!(names(&part), ["s", "t"]);
    sends(Request::put(format!("{path}/s")), &service("a", "s", 2)).await;
    let (_, one) = get(&hub, &format!("{path}/s")).await.unwrap();
    assert_eq!(one["spec"]["selector"]["n"], "2", "changed");
    let mut watch = Lines::open(
        &hub,
        &format!("{SERVICES}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=n%3Deven"),
    )
    .await;
    // A server that lags has nothing to begin a watch with, and says so.
    assert_eq!(watch.brief().await, "ERROR 504");
    sends(Request::delete(format!("{path}/s")), &json!({})).await;
    assert_eq!(get(&hub, &format!("{path}/s")).await.unwrap().0, 404, "deleted");
    assert_eq!(names(&get(&hub, SERVICES).await.unwrap().1), ["t"]);
    site.server.lag(None);
    site.until("the stream is told", async || held().await == "t").await;
    let asked = site.server.log().requests().len();
    assert_eq!(names(&get(&hub, SERVICES).await.unwrap().1), ["t"]);
    let handed_on =
        site.server.log().requests().iter().skip(asked).filter(|request| request.path == SERVICES).count();
    assert_eq!(handed_on, 0, "what the stream has is answered here");
}
