//! Filters and configuration as clients see them, over HTTP: what the ConfigMaps `yurt-hub-cfg` and `leader-hub-<pool>` say holds at
//! once, and clients are told what they are shown otherwise.

use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

use http::{Request, header};
use serde_json::{Value, json};
use testkit::api_server::{Cluster, Kind};
use tokio::time::sleep;

use super::site::{
    JSON, Lines, SERVICES, Site, get, list_of_component, names, of_component, one_is_the_clouds, service,
    twice_within, version, with_configuration,
};

pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// What the test kit calls them.
pub(super) const SLICE: &str = "endpointslices.discovery.k8s.io";
pub(super) const CONFIG_MAPS: &str = "configmaps";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";

pub(super) fn config_map(name: &str, data: &Value) -> Value {
    json!({ "metadata": { "namespace": "kube-system", "name": name }, "data": data })
}

pub(super) fn write(site: &Site, id: &str, object: &Value) {
    if site.server.cluster().update(id, object).is_err() {
        site.server.cluster().create(id, object.clone()).unwrap();
    }
}

pub(super) fn pool(nodes: &[&str]) -> Value {
    json!({ "metadata": { "name": "shop" }, "spec": { "type": "Edge" }, "status": { "nodes": nodes } })
}

fn pools() -> Kind {
    Kind {
        group: "apps.openyurt.io".into(),
        version: "v1beta2".into(),
        resource: "nodepools".into(),
        kind: "NodePool".into(),
        namespaced: false,
        typed: false,
        fields: Vec::new(),
    }
}

/// The nodes of a slice's endpoints, and the version at which it stands.
fn slice(list: &Value) -> (Vec<&str>, u64) {
    let [slice] = &list["items"].as_array().unwrap()[..] else { panic!("{list}") };
    let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let nodes = endpoints.iter().map(|endpoint| endpoint["nodeName"].as_str().unwrap()).collect();
    (nodes, slice["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
}

/// A Service that asks for that topology, or for none.
pub(super) fn asks(namespace: &str, name: &str, key: Option<&str>) -> Value {
    let mut service = service(namespace, name, 1);
    if let Some(key) = key {
        service["metadata"]["annotations"] = json!({ "openyurt.io/topologyKeys": key });
    }
    service
}

/// A slice of a Service, with an endpoint on each of these nodes.
pub(super) fn slice_of(namespace: &str, service: &str, name: &str, nodes: &[&str]) -> Value {
    let labels = json!({ "kubernetes.io/service-name": service });
    let on = |(n, node): (usize, &&str)| json!({ "addresses": [format!("10.0.0.{}", n + 1)], "conditions": {}, "nodeName": node });
    let endpoints: Vec<_> = nodes.iter().enumerate().map(on).collect();
    let metadata = json!({ "namespace": namespace, "name": name, "labels": labels });
    json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": [] })
}

/// A Service in the topology of the pool, of which nodes `n` and `m` are, and an endpoint on each of three nodes.
fn with_topology_in(cluster: &Cluster) {
    cluster.define(pools());
    // Versions are large in a cluster: there is room below them.
    cluster.pass(1 << 30);
    cluster.create("nodepools.apps.openyurt.io", pool(&["n", "m"])).unwrap();
    cluster.create("services", asks("a", "s", Some("openyurt.io/nodepool"))).unwrap();
    cluster.create(SLICE, slice_of("a", "s", "s-1", &["n", "m", "far"])).unwrap();
}

/// A site with that, where it holds.
pub(super) async fn with_topology() -> Site {
    with_topology_and(&[]).await
}

async fn with_topology_and(options: &[(&str, &str)]) -> Site {
    let mut site = Site::new().await;
    for (option, value) in options {
        site.set(option, value);
    }
    with_topology_in(site.server.cluster());
    site.set("--nodepool-name", "shop");
    site.start();
    site.linked().await;
    site.until("the topology is in force", async || {
        slice(&list_of_component(&site.plain(), "kube-proxy", SLICES).await).0 == ["n", "m"]
    })
    .await;
    site
}

/// What client-go's informers do with a list: an object at the version that they have is unchanged to them, whatever is in it.
#[tokio::test]
async fn a_pool_that_changes_is_told_to_informers() {
    let site = with_topology().await;
    let hub = site.plain();
    let list = list_of_component(&hub, "kube-proxy", SLICES).await;
    let (_, before) = slice(&list);
    let all = list_of_component(&hub, "somebody", SLICES).await;
    let (unfiltered, own) = slice(&all);
    assert_eq!(unfiltered, ["n", "m", "far"], "others are shown everything");
    assert!(before < own, "{before} is older than any version to come");
    let listed = version(&list);
    let path = format!("{SLICES}?watch=1&resourceVersion={listed}");
    let mut without = Lines::of(hub.ask(of_component("kube-proxy", &path), String::new()).await.unwrap());
    let mut watch = watch_slices(&site, listed).await;
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n"]));
    let (event, nodes, after, at) = told_anew(&mut watch).await;
    assert_eq!((&*event, nodes), ("MODIFIED", vec!["n".to_owned()]));
    assert!(after != before && after < own, "{after} after {before}");
    assert!(at >= own, "{at}: the API server's, from which a watch goes on");
    assert_eq!(without.brief().await, "ERROR 410", "it knows no bookmarks and lists anew");
    for from in [after, listed, at] {
        let again = watch_slices(&site, from).await.brief().await;
        assert_eq!(again, "ERROR 410", "nobody knows whether who comes from {from} heard of it");
    }
    let list = list_of_component(&hub, "kube-proxy", SLICES).await;
    assert_eq!(slice(&list), (vec!["n"], after), "a list shows the same");
    // Of two that are called so one has listed. Metadata, or a list of a part, say nothing of this.
    let mut who_listed = watch_slices(&site, at).await;
    assert!(who_listed.is_silent(Duration::from_millis(100)).await);
    let part = SLICES.replace("endpointslices", "namespaces/a/endpointslices");
    list_of_component(&hub, "kube-proxy", &part).await;
    let metadata = Request::get(format!("{SLICES}?resourceVersion=0"))
        .header(header::ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .header(header::USER_AGENT, "kube-proxy/v1.36");
    let metadata = hub.ask(metadata, String::new()).await.unwrap();
    assert_eq!(metadata.status, 200);
    assert_eq!(
        watch_slices(&site, at).await.brief().await,
        "ERROR 410",
        "who knows that version from before"
    );
    assert!(version(&list) >= own, "the list's own version is the API server's, from which a watch goes on");
    // The Service asks for nothing any more: everything, and that is news as well.
    write(&site, "services", &service("a", "s", 1));
    site.until("the topology is gone", async || {
        slice(&list_of_component(&hub, "kube-proxy", SLICES).await).0 == ["n", "m", "far"]
    })
    .await;
    let (event, nodes, at_last, _) = told_anew(&mut watch).await;
    assert_eq!((&*event, nodes.len()), ("MODIFIED", 3));
    assert_eq!(slice(&list_of_component(&hub, "kube-proxy", SLICES).await).1, at_last);
    assert!(![before, after, own].contains(&at_last), "{at_last}");
    // What comes after it is told by the filter of now, and where it comes to that the client goes on.
    let labels = json!({ "metadata": { "labels": { "touched": "yes" } } });
    let touched = site.server.cluster().merge_patch(SLICE, "a/s-1", &labels).unwrap();
    let now = touched["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(watch.brief().await, format!("MODIFIED s-1@{now}"));
    let mut gone_on = watch_slices(&site, now.parse().unwrap()).await;
    assert!(gone_on.is_silent(Duration::from_millis(100)).await);
}

/// What is told when an object is shown otherwise: the event, its endpoints' nodes and its version, and how far the bookmark behind it says that
/// the client has come.
async fn told_anew(watch: &mut Lines) -> (String, Vec<String>, u64, u64) {
    let event = watch.next().await.unwrap();
    let (nodes, version_of) = {
        let list = json!({ "items": [event["object"]] });
        let (nodes, version) = slice(&list);
        (nodes.into_iter().map(str::to_owned).collect(), version)
    };
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
    let at = bookmark["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    (event["type"].as_str().unwrap().to_owned(), nodes, version_of, at)
}

/// A Service of which nothing is held, and a pool whose new member has no endpoints there, are nobody's business in that namespace.
#[tokio::test]
async fn a_view_by_which_nothing_is_shown_otherwise_ends_no_watch() {
    const OF_A: &str = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices";
    let site = with_topology().await;
    let hub = site.plain();
    // What shows in another namespace that the view has changed.
    let probe = async |nodes: &[&str]| {
        site.until("the view is another", async || {
            let list = list_of_component(
                &hub,
                "kube-proxy",
                &SLICES.replace("/endpointslices", "/namespaces/b/endpointslices"),
            )
            .await;
            !names(&list).is_empty() && slice(&list).0 == nodes
        })
        .await;
    };
    site.server.cluster().create(SLICE, slice_of("b", "probe", "probe-1", &["n", "m", "new"])).unwrap();
    probe(&["n", "m", "new"]).await;
    let from = version(&list_of_component(&hub, "kube-proxy", OF_A).await);
    let mut watches = Vec::new();
    for bookmarks in ["", "&allowWatchBookmarks=true"] {
        let request =
            of_component("kube-proxy", &format!("{OF_A}?watch=1&resourceVersion={from}{bookmarks}"));
        watches.push(Lines::of(hub.ask(request, String::new()).await.unwrap()));
    }
    write(&site, "services", &asks("a", "other", Some("kubernetes.io/hostname")));
    write(&site, "services", &asks("b", "probe", Some("openyurt.io/nodepool")));
    probe(&["n", "m"]).await;
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n", "m", "new"]));
    probe(&["n", "m", "new"]).await;
    for watch in &mut watches {
        assert!(watch.is_silent(Duration::from_millis(300)).await);
    }
    let made = site.server.cluster().create(SLICE, slice_of("a", "other", "other-1", &["n", "m"])).unwrap();
    for watch in &mut watches {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
        assert_eq!(event["object"]["endpoints"].as_array().unwrap().len(), 1, "by the filter of now");
    }
}

/// An event has the API server's version, and so do those that come after a list.
#[tokio::test]
async fn events_of_filtered_objects_have_the_versions_of_the_api_server() {
    let site = with_topology().await;
    let hub = site.plain();
    let list = list_of_component(&hub, "kube-proxy", SLICES).await;
    let path = format!("{SLICES}?watch=1&resourceVersion={}", version(&list));
    let request = of_component("kube-proxy", &path);
    let mut watch = Lines::of(hub.ask(request, String::new()).await.unwrap());
    let mut changed = site.server.cluster().get(SLICE, "a/s-1").unwrap();
    changed["endpoints"][2]["nodeName"] = "m".into();
    let changed = site.server.cluster().update(SLICE, &changed).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
    assert_eq!(event["object"]["endpoints"].as_array().unwrap().len(), 3);
}

/// What a filter shows cannot be asked of the API server: it is current by its word, or there is no answer.
#[tokio::test]
async fn filtered_reads_of_the_most_recent_state_are_as_fresh_as_others() {
    const INITIAL: &str =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let site = with_topology_and(&[("--freshness", "discovery.k8s.io/v1/endpointslices=strict")]).await;
    let hub = site.plain();
    // The status, and whether it is said how old the answer is.
    let asked = async |query: &str| {
        let request = of_component("kube-proxy", &format!("{SLICES}?{query}"));
        let answer = hub.ask(request, String::new()).await.unwrap();
        (answer.status.as_u16(), answer.headers.contains_key(header::WARNING))
    };
    for query in ["", INITIAL, "resourceVersion=0"] {
        assert_eq!(asked(query).await, (200, false), "{query}");
    }
    // The link is up as far as anybody knows.
    site.server.black_hole();
    assert_eq!(asked("").await.0, 503);
    site.server.cut();
    site.offline().await;
    assert_eq!(asked("").await.0, 503);
    assert_eq!(asked(INITIAL).await.0, 429);
    assert_eq!(asked("resourceVersion=0").await, (200, true));
    site.server.heal();
    site.until("it is current again", async || asked("").await == (200, false)).await;
}

/// A watch of EndpointSlices as kube-proxy opens it, from a version that it has.
async fn watch_slices(site: &Site, from: u64) -> Lines {
    let path = format!("{SLICES}?watch=1&allowWatchBookmarks=true&resourceVersion={from}");
    let request = of_component("kube-proxy", &path);
    Lines::of(site.plain().ask(request, String::new()).await.unwrap())
}

/// Waits until it is on the disk who was shown what until now: all of it is stored at once, and who is shown that namespace is the last.
async fn shown_is_stored(site: &Site, namespace: &str) {
    let of_namespace = format!("/namespaces/{namespace}/endpointslices");
    let path = SLICES.replace("/endpointslices", &of_namespace);
    list_of_component(&site.plain(), "kube-proxy", &path).await;
    site.until("it is stored", async || {
        // One of the documents, of which each says its own name.
        let documents = fs::read_dir(site.file("root/store/blobs")).unwrap().map(|file| file.unwrap().path());
        documents.filter(|path| path.extension().is_some_and(|extension| extension == "blob")).any(|path| {
            let stored = fs::read(path).unwrap_or_default();
            let stored = String::from_utf8_lossy(&stored);
            stored.contains("shown") && stored.contains(&of_namespace)
        })
    })
    .await;
}

/// A hub that is killed a moment after a list knows of it. Housekeeping, every two seconds, is seldom so soon, and never twice in a row.
#[tokio::test]
async fn a_list_is_stored_at_once() {
    let site = with_topology().await;
    let lists = Cell::new(0);
    twice_within(Duration::from_millis(500), async || {
        lists.set(lists.get() + 1);
        let began = Instant::now();
        shown_is_stored(&site, &format!("list-{}", lists.get())).await;
        began.elapsed()
    })
    .await;
}

/// `kill -9` is no more than a closed connection, for clients that are shown a part as well.
#[tokio::test]
async fn a_filtered_watch_goes_on_after_a_restart_unless_its_view_is_another() {
    let mut site = with_topology().await;
    let mut from = version(&list_of_component(&site.plain(), "kube-proxy", SLICES).await);
    shown_is_stored(&site, "last").await;
    for cut in [false, true] {
        site.kill();
        if cut {
            site.server.cut();
        }
        site.start();
        site.answers().await;
        let mut watch = watch_slices(&site, from).await;
        assert!(watch.is_silent(Duration::from_millis(300)).await, "it goes on; link cut: {cut}");
        site.server.heal();
        let labels = json!({ "metadata": { "labels": { "cut": cut.to_string() } } });
        let changed = site.server.cluster().merge_patch(SLICE, "a/s-1", &labels).unwrap();
        let now = changed["metadata"]["resourceVersion"].as_str().unwrap();
        assert_eq!(watch.brief().await, format!("MODIFIED s-1@{now}"));
        from = now.parse().unwrap();
    }
    // While its connection is away the pool changes, and the hub ends before the client is back.
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n"]));
    site.until("the pool is as it is now", async || {
        slice(&list_of_component(&site.plain(), "coredns", SLICES).await).0 == ["n"]
    })
    .await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    assert_eq!(watch_slices(&site, from).await.brief().await, "ERROR 410", "it lists anew");
    assert_eq!(slice(&list_of_component(&site.plain(), "kube-proxy", SLICES).await).0, ["n"]);
}

#[tokio::test]
async fn the_cluster_configures_who_is_shown_what() {
    let site = Site::started().await;
    one_is_the_clouds(&site).await;
    let hub = site.plain();
    let seen = async |component: &str| {
        let list = list_of_component(&hub, component, SERVICES).await;
        names(&list).iter().map(|&name| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(seen("kube-proxy").await, ["shown"], "by default");
    assert_eq!(seen("mesh").await, ["hidden", "shown"]);
    let list = list_of_component(&hub, "mesh", SERVICES).await;
    let mut watches = Vec::new();
    for bookmarks in ["", "&allowWatchBookmarks=true"] {
        let path = format!("{SERVICES}?watch=1&resourceVersion={}{bookmarks}", version(&list));
        watches.push(Lines::of(hub.ask(of_component("mesh", &path), String::new()).await.unwrap()));
    }
    let [without, watch] = &mut watches[..] else { unreachable!() };
    let own = |name: &str| {
        let service = site.server.cluster().get("services", name).unwrap();
        service["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    // In whichever letters.
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "discardcloudservice": "Mesh, a/b" })));
    assert_eq!(
        without.brief().await,
        "ERROR 410",
        "it is to be shown something else, and knows no bookmarks"
    );
    assert_eq!(watch.brief().await, format!("DELETED hidden@{}", own("a/hidden")));
    assert_eq!(watch.brief().await, format!("BOOKMARK @{}", version(&list)));
    let touch = json!({ "metadata": { "labels": { "touched": "yes" } } });
    for name in ["a/hidden", "a/shown"] {
        site.server.cluster().merge_patch("services", name, &touch).unwrap();
    }
    assert_eq!(
        watch.brief().await,
        format!("MODIFIED shown@{}", own("a/shown")),
        "of the other it hears nothing"
    );
    assert_eq!(seen("mesh").await, ["shown"]);
    assert_eq!(
        seen("kube-proxy").await,
        ["shown"],
        "what the ConfigMap says is added to what holds by default"
    );
    assert_eq!(places(&site).await, ["kube-system/yurt-hub-cfg inForce 1"], "nobody is called a/b");
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({})));
    site.until("it is taken back", async || seen("mesh").await == ["hidden", "shown"]).await;
    assert_eq!(watch.brief().await, format!("ADDED hidden@{}", own("a/hidden")));
    assert_eq!(watch.brief().await, format!("BOOKMARK @{}", own("a/shown")));
}

/// As informers take it: an object at the version that they have is unchanged. What they heard by events has the API server's.
#[tokio::test]
async fn what_no_filter_shows_otherwise_any_more_is_news_to_who_saw_it_filtered() {
    const INITIAL: &str =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let site = with_topology().await;
    let hub = site.plain();
    let shown = async |component: &str| {
        let list = list_of_component(&hub, component, &format!("{SLICES}?resourceVersion=0")).await;
        let (nodes, at) = slice(&list);
        (nodes.into_iter().map(str::to_owned).collect::<Vec<_>>(), at, version(&list))
    };
    let touch = |times: u32| {
        let labels = json!({ "metadata": { "labels": { "touched": times.to_string() } } });
        let touched = site.server.cluster().merge_patch(SLICE, "a/s-1", &labels).unwrap();
        touched["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
    };
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "servicetopology": "mesh" })));
    site.until("it is filtered", async || shown("mesh").await.0 == ["n", "m"]).await;
    let (_, _, from) = shown("mesh").await;
    let path = format!("{SLICES}?watch=1&resourceVersion={from}");
    let mut watch = Lines::of(hub.ask(of_component("mesh", &path), String::new()).await.unwrap());
    let own = touch(1);
    assert_eq!(watch.brief().await, format!("MODIFIED s-1@{own}"));
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({})));
    assert_eq!(watch.brief().await, "ERROR 410", "it knows no bookmarks");
    let all = ["n", "m", "far"];
    let (nodes, first, listed) = shown("mesh").await;
    assert!(nodes == all && first < own, "{nodes:?} at {first}");
    assert!(listed >= own, "{listed}: the API server's, from which a watch goes on");
    // Of two that are called so the other lists as well, or the answer was lost; of the most recent state; or it comes by a watch.
    assert_eq!(shown("mesh").await.1, first);
    assert_eq!(slice(&list_of_component(&hub, "mesh", SLICES).await).1, first);
    let request = of_component("mesh", &format!("{SLICES}?{INITIAL}"));
    let mut initial = Lines::of(hub.ask(request, String::new()).await.unwrap());
    assert_eq!(initial.brief().await, format!("ADDED s-1@{first}"));
    assert!(initial.brief().await.ends_with(" end"));
    assert_eq!(shown("somebody").await.1, own, "who never saw a filter is shown all as it is");
    // What comes after that is at the versions of the API server, in lists as well.
    let own = touch(2);
    assert_eq!(initial.brief().await, format!("MODIFIED s-1@{own}"));
    assert_eq!(shown("mesh").await.1, own);
}

/// Its informers would take what the API server answers for unchanged.
#[tokio::test]
async fn who_saw_what_no_filter_shows_any_more_is_not_handed_on_for_a_version_that_is_not_held() {
    let site = with_topology().await;
    let hub = site.plain();
    let near = async || slice(&list_of_component(&hub, "mesh", SLICES).await).0 == ["n", "m"];
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "servicetopology": "mesh" })));
    site.until("it is filtered", async || near().await).await;
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({})));
    site.until("it is not any more", async || !near().await).await;
    let ahead = (site.server.cluster().revision() + (1 << 20)).to_string();
    let asked_for = format!("resourceVersionMatch=NotOlderThan&resourceVersion={ahead}");
    let list = format!("{SLICES}?{asked_for}");
    let watch = format!("{SLICES}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&{asked_for}");
    let handed_on = || site.server.log().totals(|record| record.query.contains(&ahead)).requests;
    let (listed, watched) = tokio::join!(
        hub.ask(of_component("mesh", &list), String::new()),
        hub.ask(of_component("mesh", &watch), String::new())
    );
    assert_eq!(listed.unwrap().status, 504);
    assert_eq!(Lines::of(watched.unwrap()).brief().await, "ERROR 504");
    assert_eq!(handed_on(), 0);
    hub.ask(of_component("somebody", &list), String::new()).await.unwrap();
    assert_eq!(handed_on(), 1, "the API server may have come there");
}

/// Nothing of the run before knows any more what was shown, but by which filter.
#[tokio::test]
async fn a_filter_that_is_gone_after_a_restart_is_news_to_who_saw_it() {
    let mut site = with_topology().await;
    let from = version(&list_of_component(&site.plain(), "kube-proxy", SLICES).await);
    let mut watch = watch_slices(&site, from).await;
    let labels = json!({ "metadata": { "labels": { "touched": "yes" } } });
    let touched = site.server.cluster().merge_patch(SLICE, "a/s-1", &labels).unwrap();
    let own: u64 = touched["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert_eq!(watch.brief().await, format!("MODIFIED s-1@{own}"));
    // Until what was shown is stored.
    sleep(Duration::from_millis(2500)).await;
    site.kill();
    site.set("--disabled-resource-filters", "servicetopology");
    site.start();
    site.linked().await;
    site.until("it is to list anew", async || watch_slices(&site, own).await.brief().await == "ERROR 410")
        .await;
    // As often as it is asked for: not all that are called so have it.
    for _ in 0..2 {
        let list = list_of_component(&site.plain(), "kube-proxy", SLICES).await;
        let (nodes, at) = slice(&list);
        assert_eq!(nodes, ["n", "m", "far"]);
        assert!(at < own && version(&list) >= own, "{at} of {own}");
    }
    let list = list_of_component(&site.plain(), "somebody", SLICES).await;
    assert_eq!(slice(&list).1, own);
}

/// Who is in the pool that a node comes to is read after its label: until then clients are not sent to the endpoints of all nodes.
#[tokio::test]
async fn a_node_that_changes_its_pool_is_shown_one_pool_or_the_other() {
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    with_topology_in(&cluster);
    let of =
        |pool: &str| json!({ "metadata": { "name": "n", "labels": { "apps.openyurt.io/nodepool": pool } } });
    cluster.create("nodes", of("shop")).unwrap();
    let mut other = pool(&["n", "far"]);
    other["metadata"]["name"] = "other".into();
    cluster.create("nodepools.apps.openyurt.io", other).unwrap();
    site.start();
    site.linked().await;
    site.until("the topology is in force", async || {
        slice(&list_of_component(&site.plain(), "kube-proxy", SLICES).await).0 == ["n", "m"]
    })
    .await;
    let from = version(&list_of_component(&site.plain(), "kube-proxy", SLICES).await);
    let mut watch = watch_slices(&site, from).await;
    write(&site, "nodes", &of("other"));
    assert_eq!(told_anew(&mut watch).await.1, ["n", "far"]);
    // Of one that is not there nobody is known.
    write(&site, "nodes", &of("nowhere"));
    assert_eq!(told_anew(&mut watch).await.1, ["n", "m", "far"]);
}

/// Until Services are read nobody knows what is to be hidden.
#[tokio::test]
async fn nothing_is_shown_unfiltered_while_it_is_not_known_what_filters_look_at() {
    let mut site = Site::new().await;
    with_topology_in(site.server.cluster());
    site.set("--nodepool-name", "shop");
    // Services take half a minute over this line, whatever is made of them on the way.
    let mut state = 1_u64;
    for n in 0..40 {
        let words = (0..1000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{state:016x}")
        });
        let noise = words.collect::<Vec<_>>().concat();
        let mut long = service("b", &format!("long-{n}"), n);
        long["metadata"]["annotations"] = json!({ "noise": noise });
        site.server.cluster().create("services", long).unwrap();
    }
    site.server.throttle(Some(10_000));
    site.start();
    site.linked().await;
    let hub = site.plain();
    let asked = async |component: &str| {
        let mut answer = hub.ask(of_component(component, SLICES), String::new()).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (answer.status.as_u16(), body)
    };
    assert_eq!(asked("somebody").await.0, 200);
    let (status, body) = asked("kube-proxy").await;
    assert_eq!(status, 429, "{body}");
    assert!(body["message"].as_str().unwrap().contains("filters"), "{body}");
    site.server.throttle(None);
    site.until("Services are read", async || asked("kube-proxy").await.0 == 200).await;
    assert_eq!(slice(&asked("kube-proxy").await.1).0, ["n", "m"]);
}

/// What a component is answered that asks for slices of any version.
async fn slices_of(site: &Site, component: &str) -> (u16, Value) {
    let request = of_component(component, &format!("{SLICES}?resourceVersion=0"));
    let mut answer = site.plain().ask(request, String::new()).await.unwrap();
    let body = answer.bytes().await.unwrap();
    (answer.status.as_u16(), serde_json::from_slice(&body).unwrap())
}

/// An API server that has just started, or has too much to do, says nothing of what is to be hidden: with a link that breaks as well, and without one what is
/// held counts. Services or the own Node are below that path; of the slice's endpoints these are shown without a link.
async fn is_told_to_wait(below: &str, without_link: Option<&[&str]>) {
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    with_topology_in(&cluster);
    let labels = json!({ "apps.openyurt.io/nodepool": "shop" });
    cluster.create("nodes", json!({ "metadata": { "name": "n", "labels": labels } })).unwrap();
    site.server.fail(below, 503);
    site.start();
    site.linked().await;
    site.until("slices are held", async || slices_of(&site, "somebody").await.0 == 200).await;
    for breaks in [false, true] {
        if breaks {
            site.server.reset_connections();
            site.linked().await;
        }
        let (status, body) = slices_of(&site, "kube-proxy").await;
        assert_eq!(status, 429, "{body}");
        assert!(body["message"].as_str().unwrap().contains("filters"), "{body}");
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(slices_of(&site, "somebody").await.0, 200);
    let (status, body) = slices_of(&site, "kube-proxy").await;
    assert_eq!((status == 200).then(|| slice(&body).0).as_deref(), without_link, "{status} {body}");
    site.server.heal();
    site.until("all is known", async || {
        let (status, body) = slices_of(&site, "kube-proxy").await;
        let shown = if status == 200 { slice(&body).0 } else { Vec::new() };
        assert!(!shown.contains(&"far"), "{body}");
        shown == ["n", "m"]
    })
    .await;
}

#[tokio::test]
async fn nothing_is_shown_unfiltered_while_services_are_refused_for_a_moment() {
    is_told_to_wait(SERVICES, None).await;
}

/// It would be taken for a pool of itself.
#[tokio::test]
async fn nothing_is_shown_by_a_pool_that_is_not_known_while_the_node_is_refused_for_a_moment() {
    is_told_to_wait("/api/v1/nodes", Some(&["n"])).await;
}

/// What the site's server refuses from the start on is shown as if it were not there once that has lasted, and as it is once it heals.
async fn is_waited_for_while_it_may_pass(mut site: Site, heals: impl FnOnce(&Site)) {
    site.set("--nodepool-name", "shop");
    let began = Instant::now();
    site.start();
    site.linked().await;
    site.until("it has lasted", async || slices_of(&site, "kube-proxy").await.0 == 200).await;
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(slice(&slices_of(&site, "kube-proxy").await.1).0, ["n", "m", "far"]);
    heals(&site);
    site.until("it is read", async || slice(&slices_of(&site, "kube-proxy").await.1).0 == ["n", "m"]).await;
}

/// A hub without the right to read Services has no topology to go by, and keeps nobody waiting for good.
#[tokio::test]
async fn a_refusal_that_lasts_keeps_nobody_waiting() {
    let site = Site::new().await;
    let cluster = site.server.cluster().clone();
    with_topology_in(&cluster);
    cluster.access().set_authorizer(|asked| asked.resource != "services");
    is_waited_for_while_it_may_pass(site, |_| cluster.access().set_authorizer(|_| true)).await;
}

/// Of a pool that is not known nobody is hidden: where the API server has too much to do for a moment, a first start would send clients to the nodes of others.
#[tokio::test]
async fn nothing_is_shown_by_a_pool_that_is_refused_for_a_moment() {
    let mut site = Site::new().await;
    with_topology_in(site.server.cluster());
    site.set("--nodepool-name", "shop");
    site.server.fail(POOLS, 503);
    site.start();
    site.linked().await;
    let is_refused =
        || site.server.log().requests().iter().any(|record| record.path == POOLS && record.status == 503);
    site.until("the pool is refused", async || is_refused()).await;
    let heals = async {
        sleep(Duration::from_secs(1)).await;
        site.server.heal();
    };
    let ((status, body), ()) = tokio::join!(slices_of(&site, "kube-proxy"), heals);
    assert_eq!(status, 200, "{body}");
    assert_eq!(slice(&body).0, ["n", "m"]);
}

/// What converts NodePools may be down for good, which is an error of the API server's each time.
#[tokio::test]
async fn a_pool_that_fails_for_good_keeps_nobody_waiting() {
    let site = Site::new().await;
    with_topology_in(site.server.cluster());
    site.server.fail(POOLS, 500);
    is_waited_for_while_it_may_pass(site, |site| site.server.heal()).await;
}

/// Each read of a kubelet would take five seconds.
#[tokio::test]
async fn filters_that_look_at_nothing_of_the_cluster_do_not_wait_for_it() {
    let mut site = Site::new().await;
    let serving = site.authority.server(&["127.0.0.1", "10.0.0.5", "kubernetes.default.svc"]).unwrap();
    fs::write(site.file("hub.crt"), serving.certificate_pem).unwrap();
    fs::write(site.file("hub.key"), serving.key_pem).unwrap();
    site.set("--secure-bind-address", "0.0.0.0");
    let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.5" }]);
    write(&site, "nodes", &json!({ "metadata": { "name": "n" }, "status": { "addresses": addresses } }));
    let config = json!({ "config.conf": "clientConnection:\n  kubeconfig: /kubeconfig.conf\n" });
    write(&site, CONFIG_MAPS, &config_map("kube-proxy", &config));
    site.server.fail(SERVICES, 503);
    site.start();
    site.linked().await;
    let hub = site.plain();
    // Whether it is shown through the filter, and how long that took.
    let asked = async || {
        let began = Instant::now();
        let request = of_component("kubelet", "/api/v1/namespaces/kube-system/configmaps/kube-proxy");
        let mut answer = hub.ask(request, String::new()).await.unwrap();
        let body = answer.bytes().await.unwrap();
        assert_eq!(answer.status, 200);
        (String::from_utf8_lossy(&body).contains("#kubeconfig"), began.elapsed())
    };
    site.until("pods reach the hub", async || asked().await.0).await;
    twice_within(Duration::from_secs(1), async || {
        let (is_filtered, took) = asked().await;
        assert!(is_filtered);
        took
    })
    .await;
    let (status, body) = slices_of(&site, "kube-proxy").await;
    assert_eq!(status, 429, "others wait: {body}");
}

/// What a client was told last is on the disk before it goes out: the view may be as before when the hub is back.
#[tokio::test]
async fn a_hub_that_was_killed_knows_what_it_told_though_the_view_is_as_before() {
    let mut site = with_topology().await;
    let from = version(&list_of_component(&site.plain(), "kube-proxy", SLICES).await);
    shown_is_stored(&site, "last").await;
    let mut watch = watch_slices(&site, from).await;
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n"]));
    let (_, nodes, _, at) = told_anew(&mut watch).await;
    site.kill();
    assert_eq!(nodes, ["n"]);
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n", "m"]));
    site.start();
    site.linked().await;
    site.until("the pool is as before", async || {
        slice(&list_of_component(&site.plain(), "coredns", SLICES).await).0 == ["n", "m"]
    })
    .await;
    assert_eq!(watch_slices(&site, at).await.brief().await, "ERROR 410", "it would miss a node");
}

/// A list says much better.
#[tokio::test]
async fn a_watch_by_which_much_is_shown_otherwise_ends() {
    let site = with_topology().await;
    for n in 0..1200 {
        let mut slice = slice_of("a", "s", &format!("s-{n}"), &["m"]);
        slice["metadata"]["annotations"] = json!({ "long": "x".repeat(1000) });
        write(&site, SLICE, &slice);
    }
    let latest = site.server.cluster().get(SLICE, "a/s-1199").unwrap();
    let latest: u64 = latest["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    site.until("all are held", async || {
        version(&list_of_component(&site.plain(), "kube-proxy", SLICES).await) >= latest
    })
    .await;
    let mut watch = watch_slices(&site, latest).await;
    write(&site, "nodepools.apps.openyurt.io", &pool(&["n"]));
    assert_eq!(watch.brief().await, "ERROR 410", "and nothing before");
}

/// A kubelet whose `configMapAndSecretChangeDetectionStrategy` is `Get` lists and watches none of them.
#[tokio::test]
async fn one_object_that_nobody_watches_is_shown_through_filters_as_well() {
    let mut site = Site::new().await;
    // Without an address that pods reach kube-proxy must go on with what it has.
    site.set("--secure-bind-address", "127.0.0.1");
    site.start();
    site.linked().await;
    let config = "clientConnection:\n  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf\nmode: nftables\n";
    write(&site, CONFIG_MAPS, &config_map("kube-proxy", &json!({ "config.conf": config })));
    write(&site, CONFIG_MAPS, &config_map("other", &json!({ "config.conf": config })));
    let hub = site.plain();
    let asked = async |component: &str, name: &str, accept: &str| {
        let request = Request::get(format!("/api/v1/namespaces/kube-system/configmaps/{name}"))
            .header(header::ACCEPT, accept)
            .header(header::ACCEPT_ENCODING, "gzip")
            .header(header::USER_AGENT, format!("{component}/v1.36"));
        let mut answer = hub.ask(request, String::new()).await.unwrap();
        let body = answer.bytes().await.unwrap().to_vec();
        assert_eq!(answer.status, 200, "{component} {name}");
        body
    };
    let protobuf = "application/vnd.kubernetes.protobuf,application/json";
    let shows = async |component: &str, name: &str, accept: &str| {
        let body = asked(component, name, accept).await;
        let text = String::from_utf8_lossy(&body);
        (text.contains("#kubeconfig"), text.contains("mode: nftables"))
    };
    for accept in [JSON, protobuf] {
        assert_eq!(
            shows("kubelet", "kube-proxy", accept).await,
            (false, true),
            "{accept}, listening on loopback"
        );
    }
    site.kill();
    let serving = site.authority.server(&["127.0.0.1", "10.0.0.5", "kubernetes.default.svc"]).unwrap();
    fs::write(site.file("hub.crt"), serving.certificate_pem).unwrap();
    fs::write(site.file("hub.key"), serving.key_pem).unwrap();
    let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.5" }]);
    write(&site, "nodes", &json!({ "metadata": { "name": "n" }, "status": { "addresses": addresses } }));
    site.set("--secure-bind-address", "0.0.0.0");
    site.start();
    site.linked().await;
    for accept in [JSON, protobuf] {
        site.until("pods reach the hub", async || {
            shows("kubelet", "kube-proxy", accept).await == (true, true)
        })
        .await;
        assert_eq!(shows("kubelet", "other", accept).await, (false, true), "{accept}");
        assert_eq!(shows("somebody", "kube-proxy", accept).await, (false, true), "{accept}");
    }
    let read: Value = serde_json::from_slice(&asked("kubelet", "kube-proxy", JSON).await).unwrap();
    let mut expected = site.server.cluster().get(CONFIG_MAPS, "kube-system/kube-proxy").unwrap();
    expected["data"]["config.conf"] = config.replace("kubeconfig:", "#kubeconfig:").into();
    assert_eq!((&read["data"], &read["kind"]), (&expected["data"], &json!("ConfigMap")));
    assert_eq!(read["metadata"]["uid"], expected["metadata"]["uid"]);
    assert!(kube_wire::frame::read::envelope(&asked("kubelet", "kube-proxy", protobuf).await.into()).is_ok());
}

#[tokio::test]
async fn the_pools_leader_says_what_is_shared() {
    const WIDGETS: &str = "/apis/example.com/v1/widgets";
    const LESS: &str = "/v1/services,discovery.k8s.io/v1/endpointslices";
    const ALL: &str = "/v1/services,discovery.k8s.io/v1/endpointslices,example.com/v1/widgets";
    const PROMISED: Duration = Duration::from_secs(1);
    let mut site = Site::new().await;
    site.set("--nodepool-name", "shop");
    site.start();
    site.linked().await;
    let shares = |resources: &str| {
        let data = json!({ "leaders": "n/10.0.0.1", "pool-scoped-metadata": resources });
        write(&site, CONFIG_MAPS, &config_map("leader-hub-shop", &data));
    };
    write(
        &site,
        CONFIG_MAPS,
        &config_map("leader-hub-other", &json!({ "pool-scoped-metadata": "/v1/pods" })),
    );
    assert_eq!(site.upstream_watches(WIDGETS), 0);
    let fetched = async || {
        site.until("it is fetched before anybody asks", async || site.upstream_watches(WIDGETS) == 1).await;
    };
    let closed = async || site.until("it is closed", async || site.upstream_watches(WIDGETS) == 0).await;
    twice_within(PROMISED, async || {
        shares(ALL);
        fetched().await;
        let began = Instant::now();
        shares(LESS);
        closed().await;
        began.elapsed()
    })
    .await;
    let asked = || site.server.log().totals(|record| record.path == WIDGETS).requests;
    twice_within(PROMISED, async || {
        let (before, began) = (asked(), Instant::now());
        shares(ALL);
        site.until("its synchronisation begins", async || asked() > before).await;
        let took = began.elapsed();
        fetched().await;
        shares(LESS);
        closed().await;
        took
    })
    .await;
    site.until("others stay", async || site.upstream_watches(SERVICES) == 1).await;
    assert_eq!(site.upstream_watches("/api/v1/pods"), 0, "another pool's");
}

/// It says what the file can say, to every node, and what it does not say any more is undone.
#[tokio::test]
async fn the_clusters_config_map_says_what_is_shared_what_is_passed_through_and_how_fresh() {
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/a/widgets";
    const ALL: &str = "/apis/example.com/v1/widgets";
    const ANY: &str = "resourceVersion=0";
    const PROMISED: Duration = Duration::from_secs(1);
    let mut site = Site::new().await;
    site.start();
    site.linked().await;
    let hub = site.plain();
    let says = |data: &Value| write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", data));
    let asked = |path: &str, query: &str| {
        site.server
            .log()
            .totals(|record| record.path == path && !record.watch && record.query == query)
            .requests
    };
    // Whether the API server is asked what a client asks.
    let is_handed_on = async |path: &str, query: &str| {
        let (before, mark) = (asked(path, query), if query.is_empty() { "" } else { "?" });
        assert_eq!(get(&hub, &format!("{path}{mark}{query}")).await.unwrap().0, 200, "{path}{mark}{query}");
        asked(path, query) > before
    };
    let kept = async || {
        site.until("it is kept", async || {
            !is_handed_on(WIDGETS, ANY).await && site.upstream_watches(WIDGETS) == 1
        })
        .await;
    };
    twice_within(PROMISED, async || {
        kept().await;
        let began = Instant::now();
        says(&json!({ "pass_through_resources": "example.com/v1/widgets" }));
        site.until("its stream is closed", async || site.upstream_watches(WIDGETS) == 0).await;
        let took = began.elapsed();
        assert!(is_handed_on(WIDGETS, ANY).await, "it is passed through");
        says(&json!({}));
        took
    })
    .await;
    kept().await;
    site.caught_up(SERVICES, &[]).await;
    let answered_here = async || {
        site.until("it is answered here", async || !is_handed_on(SERVICES, "").await).await;
    };
    for strict in ["/v1/services=strict", "default=strict,/v1/nodes=any"] {
        answered_here().await;
        says(&json!({ "freshness": strict }));
        site.until("it is handed on", async || is_handed_on(SERVICES, "").await).await;
        assert!(!is_handed_on(SERVICES, ANY).await, "of any version");
        says(&json!({}));
    }
    answered_here().await;
    says(&json!({ "pool_scope_resources": "/v1/services,example.com/v1/widgets,/v1/secrets" }));
    site.until("it is fetched before anybody asks", async || site.upstream_watches(ALL) == 1).await;
    // EndpointSlices are left out, and Secrets are never shared.
    let problems = async |number: usize| {
        let expected = [format!("kube-system/yurt-hub-cfg inForce {number}")];
        site.until("the status says so", async || places(&site).await == expected).await;
    };
    problems(2).await;
    says(
        &json!({ "pass_through_resources": "widgets", "freshness": "default=any,pods=any", "passthrough": "" }),
    );
    site.until("it is closed", async || site.upstream_watches(ALL) == 0).await;
    // A key that nothing reads, an entry, and a key of which nothing can be read, with its entry.
    problems(4).await;
    says(&json!({}));
    problems(0).await;
}

/// What they said last holds without a link even if it is that ConfigMaps are not kept, or the file says so.
#[tokio::test]
async fn the_config_maps_hold_without_a_link_where_config_maps_are_passed_through() {
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/a/widgets";
    for (file, by_cluster) in [
        ("{}\n", "example.com/v1/widgets,/v1/configmaps"),
        ("passThroughResources: [/v1/configmaps]\n", "example.com/v1/widgets"),
    ] {
        let (mut site, _file) = with_configuration(file).await;
        site.set("--nodepool-name", "shop");
        site.start();
        site.linked().await;
        write(
            &site,
            CONFIG_MAPS,
            &config_map("yurt-hub-cfg", &json!({ "pass_through_resources": by_cluster })),
        );
        write(
            &site,
            CONFIG_MAPS,
            &config_map("leader-hub-shop", &json!({ "pool-scoped-metadata": "/v1/nodes" })),
        );
        let in_force = ["kube-system/yurt-hub-cfg inForce 0", "kube-system/leader-hub-shop inForce 0"];
        let are_in_force = async |site: &Site| places(site).await.ends_with(&in_force.map(str::to_owned));
        site.until("they are in force", async || are_in_force(&site).await).await;
        // Until what they say is stored.
        sleep(Duration::from_secs(3)).await;
        site.kill();
        for _ in 0..2 {
            site.server.cut();
            site.start();
            site.answers().await;
            site.until("they are in force without a link", async || are_in_force(&site).await).await;
            let (status, said) = get(&site.plain(), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
            site.kill();
            assert!(status == 503 && said["message"].as_str().unwrap().contains("passed through"), "{said}");
        }
    }
}

/// A hub that may not read yet what its new pool shares does not share what counts in no pool meanwhile.
#[tokio::test]
async fn a_node_that_changes_its_pool_shares_what_it_did_until_the_new_one_says_what() {
    let mut site = Site::new().await;
    let of =
        |pool: &str| json!({ "metadata": { "name": "n", "labels": { "apps.openyurt.io/nodepool": pool } } });
    site.server.cluster().create("nodes", of("shop")).unwrap();
    let says = |name: &str, data: &Value| write(&site, CONFIG_MAPS, &config_map(name, data));
    let shared = "/v1/services,discovery.k8s.io/v1/endpointslices";
    says("leader-hub-shop", &json!({ "pool-scoped-metadata": shared }));
    says("leader-hub-other", &json!({ "pool-scoped-metadata": format!("{shared},/v1/nodes") }));
    says("yurt-hub-cfg", &json!({ "pool_scope_resources": "" }));
    site.start();
    site.linked().await;
    let are = async |first: &str, second: &str| {
        places(&site).await == [format!("kube-system/yurt-hub-cfg {first}"), format!("kube-system/{second}")]
    };
    site.until("both are in force", async || are("inForce 1", "leader-hub-shop inForce 0").await).await;
    let lists = || site.server.log().totals(|record| record.path == SLICES && !record.watch).requests;
    site.until("slices are shared", async || site.upstream_watches(SLICES) == 1).await;
    let before = lists();
    site.server.fail("/api/v1/namespaces/kube-system/configmaps", 403);
    write(&site, "nodes", &of("other"));
    // That it cannot be read stands below it.
    site.until("it may not be read", async || are("inForce 0", "leader-hub-other unread 1").await).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!((site.upstream_watches(SLICES), lists()), (1, before));
    site.server.heal();
    site.until("the new one says what", async || site.upstream_watches("/api/v1/nodes") == 1).await;
    assert_eq!((site.upstream_watches(SLICES), lists()), (1, before));
}

/// In a pool `leader-hub-<pool>` says what is shared, and after it `yurt-hub-cfg`, before the file.
#[tokio::test]
async fn the_pools_config_map_counts_before_the_clusters_and_that_before_the_file() {
    const WIDGETS: &str = "/apis/example.com/v1/widgets";
    let standard = "/v1/services,discovery.k8s.io/v1/endpointslices";
    let (mut site, _file) = with_configuration("poolScopeResources: [/v1/pods]\n").await;
    site.set("--nodepool-name", "shop");
    site.start();
    site.linked().await;
    let open = || ["/api/v1/pods", WIDGETS, "/api/v1/nodes"].map(|path| site.upstream_watches(path));
    site.until("the file counts", async || open() == [1, 0, 0]).await;
    let by_cluster = json!({ "pool_scope_resources": format!("{standard},example.com/v1/widgets") });
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &by_cluster));
    site.until("the cluster's counts", async || open() == [0, 1, 0]).await;
    let by_pool = json!({ "pool-scoped-metadata": format!("{standard},/v1/nodes") });
    write(&site, CONFIG_MAPS, &config_map("leader-hub-shop", &by_pool));
    site.until("the pool's counts", async || open() == [0, 0, 1]).await;
    // Each is told that the pool's counts before it.
    site.until("the status says so", async || {
        let seen = places(&site).await;
        let [file, cluster, pool] = &seen[..] else { return false };
        file.ends_with("yaml inForce 1")
            && cluster == "kube-system/yurt-hub-cfg inForce 1"
            && pool == "kube-system/leader-hub-shop inForce 0"
    })
    .await;
    site.server.cluster().delete(CONFIG_MAPS, "kube-system/leader-hub-shop").unwrap();
    site.until("the cluster's counts again", async || open() == [0, 1, 0]).await;
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({})));
    site.until("the file counts again", async || open() == [1, 0, 0]).await;
}

/// What the places that configure the hub are said to be, by `edge-hub status`.
async fn places(site: &Site) -> Vec<String> {
    let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
    let places = status["configuration"]["places"].as_array().unwrap();
    let shown = |place: &Value| {
        let problems = place["problems"].as_array().map_or(0, Vec::len);
        format!("{} {} {problems}", place["name"].as_str().unwrap(), place["state"].as_str().unwrap())
    };
    places.iter().map(shown).collect()
}

/// What the pool's ConfigMap shares is in vain as long as the file passes it through, whichever of them came last.
#[tokio::test]
async fn what_counts_for_nothing_follows_from_all_places() {
    let (mut site, file) = with_configuration("passThroughResources: []\n").await;
    site.set("--nodepool-name", "shop");
    site.set("--pass-through-resources", "/v1/endpoints");
    let shared = json!({ "pool-scoped-metadata": "/v1/services,example.com/v1/widgets" });
    write(&site, CONFIG_MAPS, &config_map("leader-hub-shop", &shared));
    site.start();
    site.linked().await;
    let says = async |file: usize, leader: usize| {
        let seen = places(&site).await;
        [("yaml inForce", file), ("kube-system/leader-hub-shop inForce", leader)]
            .iter()
            .all(|(place, problems)| seen.iter().any(|seen| seen.ends_with(&format!("{place} {problems}"))))
    };
    site.until("nothing is in vain", async || says(0, 0).await).await;
    fs::write(&file, "passThroughResources: [example.com/v1/widgets]\n").unwrap();
    site.until("the pool names in vain what the file passes through", async || says(0, 1).await).await;
    // One problem more of the file: its own list does not count beside the pool's.
    fs::write(&file, "poolScopeResources: [/v1/endpoints]\n").unwrap();
    site.until("and so does the file what a flag passes through", async || says(2, 0).await).await;
}

/// An etcd that is restored from a backup of before it: everything is listed anew, and nobody tells that it was deleted.
#[tokio::test]
async fn what_the_cluster_said_goes_with_its_config_maps_though_nobody_tells_of_their_end() {
    const WIDGETS: &str = "/apis/example.com/v1/widgets";
    let mut site = Site::new().await;
    site.set("--nodepool-name", "shop");
    let cluster = site.server.cluster().clone();
    let mut hidden = service("a", "hidden", 1);
    hidden["metadata"]["annotations"] = json!({ "svc.openyurt.io/discard": "true" });
    hidden["spec"]["type"] = "LoadBalancer".into();
    cluster.create("services", hidden).unwrap();
    let backup = cluster.revision();
    let shared = json!({ "pool-scoped-metadata": "/v1/services,example.com/v1/widgets,services" });
    write(&site, CONFIG_MAPS, &config_map("leader-hub-shop", &shared));
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "discardcloudservice": "mesh" })));
    site.start();
    site.linked().await;
    let seen = async || {
        let list = list_of_component(&site.plain(), "mesh", &format!("{SERVICES}?resourceVersion=0")).await;
        names(&list).iter().map(|&name| name.to_owned()).collect::<Vec<_>>()
    };
    site.until("both are in force", async || site.upstream_watches(WIDGETS) == 1 && seen().await.is_empty())
        .await;
    // What is shared is changed first, and may have ended by itself in the restore.
    site.until("both are said to be", async || {
        places(&site).await == ["kube-system/yurt-hub-cfg inForce 0", "kube-system/leader-hub-shop inForce 1"]
    })
    .await;
    site.server.cut();
    site.offline().await;
    site.server.restore(backup);
    site.server.heal();
    site.until("neither is any more", async || {
        site.upstream_watches(WIDGETS) == 0 && seen().await == ["hidden"]
    })
    .await;
    site.until("neither is said to be", async || {
        places(&site).await == ["kube-system/yurt-hub-cfg absent 0", "kube-system/leader-hub-shop absent 0"]
    })
    .await;
}

#[tokio::test]
async fn agents_whose_answers_are_kept_are_named_by_the_cluster() {
    const NAMED: &str = "/apis/example.com/v1/namespaces/a/widgets";
    const OTHER: &str = "/apis/example.com/v1/namespaces/b/widgets";
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.idle = Duration::ZERO).await;
    site.linked().await;
    let hub = site.plain();
    let asks = async |component: &str| {
        list_of_component(&hub, component, &format!("{NAMED}?resourceVersion=0")).await;
    };
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "cache_agents": "keeper" })));
    // Until the ConfigMap is read what the agent asked for is let go again.
    site.until("what the named agent asked for stays", async || {
        asks("keeper").await;
        sleep(Duration::from_millis(4500)).await;
        site.upstream_watches(NAMED) == 1
    })
    .await;
    list_of_component(&hub, "somebody", &format!("{OTHER}?resourceVersion=0")).await;
    site.until("what others asked for is let go", async || site.upstream_watches(OTHER) == 0).await;
    assert_eq!(site.upstream_watches(NAMED), 1);
    write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &json!({ "cache_agents": "another" })));
    site.until("what an agent asked for that is no longer named is let go", async || {
        site.upstream_watches(NAMED) == 0
    })
    .await;
}

/// Pods come to the address that the Node names, once there is one and the certificate is made for them; until then the status says why not.
#[tokio::test]
async fn pods_are_sent_to_the_nodes_address_where_the_hub_listens_everywhere() {
    let mut site = Site::new().await;
    let mut kubernetes = service("default", "kubernetes", 1);
    kubernetes["spec"]["ports"] = json!([{ "name": "https", "port": 443, "targetPort": 6443 }]);
    site.server.cluster().create("services", kubernetes).unwrap();
    site.server.cluster().create("nodes", json!({ "metadata": { "name": "n" } })).unwrap();
    let serving = site.authority.server(&["127.0.0.1", "10.0.0.5", "kubernetes.default.svc"]).unwrap();
    fs::write(site.file("hub.crt"), serving.certificate_pem).unwrap();
    fs::write(site.file("hub.key"), serving.key_pem).unwrap();
    let idle = async |site: &Site| {
        get(&site.admin(), "/v1/status")
            .await
            .map(|(_, status)| status["idleFilters"].clone())
            .unwrap_or_default()
    };
    let shown = async |site: &Site| {
        let list = list_of_component(&site.plain(), "kubelet", SERVICES).await;
        list["items"][0]["spec"]["clusterIP"].as_str().unwrap().to_owned()
    };

    site.start();
    site.linked().await;
    assert_eq!(shown(&site).await, "10.0.0.1", "it listens on loopback");
    let found = idle(&site).await;
    assert_eq!(
        found["names"],
        json!(["masterservice", "forwardkubesvctraffic", "inclusterconfig", "serviceenvupdater"])
    );
    assert!(found["reason"].as_str().unwrap().contains("--secure-bind-address"), "{found}");
    assert!(site.last_log().contains("pods of this node are not sent to the hub"), "{}", site.last_log());
    site.kill();

    site.set("--secure-bind-address", "0.0.0.0");
    site.start();
    site.linked().await;
    site.until("it asks for the address", async || {
        idle(&site).await["reason"].as_str().unwrap_or_default().contains("InternalIP")
    })
    .await;
    assert_eq!(shown(&site).await, "10.0.0.1");
    let addresses =
        json!([{ "type": "Hostname", "address": "n" }, { "type": "InternalIP", "address": "10.0.0.5" }]);
    write(&site, "nodes", &json!({ "metadata": { "name": "n" }, "status": { "addresses": addresses } }));
    site.until("the kubelet is shown the address", async || shown(&site).await == "10.0.0.5").await;
    assert_eq!(idle(&site).await, Value::Null);
    // What is stored of the Node does without a link.
    sleep(Duration::from_millis(300)).await;
    site.kill();
    site.server.cut();
    site.start();
    site.answers().await;
    assert_eq!(shown(&site).await, "10.0.0.5");
}
