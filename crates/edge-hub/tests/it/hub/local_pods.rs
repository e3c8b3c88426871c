//! Pods that are elsewhere than the API server knows: a node that rebooted without a link.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use super::site::{JSON, Lines, Site, get, names, version};

const PODS: &str = "/api/v1/pods";
const POD: &str = "/api/v1/namespaces/a/pods/web";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const HANDOVER: Duration = Duration::from_secs(2);

fn pod() -> Value {
    json!({
        "metadata": { "namespace": "a", "name": "web" }, "spec": { "nodeName": "n" },
        "status": { "phase": "Running", "podIP": "10.1.0.1", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

fn slice(uid: &str, address: &str) -> Value {
    json!({
        "metadata": { "namespace": "a", "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4",
        "endpoints": [{
            "addresses": [address], "conditions": { "ready": true, "serving": true }, "nodeName": "n",
            "targetRef": { "name": "web", "uid": uid },
        }],
    })
}

/// Address, readiness and version of the only endpoint.
fn endpoint(list: &Value) -> (String, bool, u64) {
    let slice = &list["items"][0];
    let endpoint = &slice["endpoints"][0];
    let version = slice["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    (endpoint["addresses"][0].as_str().unwrap().to_owned(), endpoint["conditions"]["ready"] == true, version)
}

/// The kubelet's patch of its pod's status, and what it is answered.
async fn says(site: &Site, uid: &str, status: Value) -> u16 {
    let request = Request::patch(format!("{POD}/status"))
        .header("content-type", "application/strategic-merge-patch+json");
    let body = json!({ "metadata": { "uid": uid }, "status": status }).to_string();
    let mut answer = site.plain().ask(request, body).await.unwrap();
    answer.bytes().await.unwrap();
    answer.status.as_u16()
}

async fn listed(site: &Site) -> Value {
    let (status, list) = get(&site.plain(), &format!("{SLICES}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["web-1"]));
    list
}

#[tokio::test]
async fn endpoints_follow_the_kubelet_while_there_is_no_link_and_the_api_server_after() {
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.handover = HANDOVER).await;
    site.linked().await;
    let cluster = site.server.cluster().clone();
    let uid = cluster.create("pods", pod()).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let slices = "endpointslices.discovery.k8s.io";
    let old = cluster.create(slices, slice(&uid, "10.1.0.1")).unwrap();
    let own: u64 = old["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    // As the kubelet: its own pods, and single ones before it patches them.
    let (status, _) =
        get(&site.plain(), &format!("{PODS}?fieldSelector=spec.nodeName%3Dn&resourceVersion=0"))
            .await
            .unwrap();
    assert_eq!(status, 200);
    site.caught_up(SLICES, &["web-1"]).await;
    let online = listed(&site).await;
    assert_eq!(endpoint(&online), ("10.1.0.1".to_owned(), true, own));
    let mut watch =
        Lines::open(&site.plain(), &format!("{SLICES}?watch=1&resourceVersion={}", version(&online))).await;
    let path = format!("{SLICES}?watch=1&allowWatchBookmarks=true&resourceVersion={}", version(&online));
    let mut told = Lines::open(&site.plain(), &path).await;

    site.server.cut();
    site.offline().await;
    let (status, held) = get(&site.plain(), POD).await.unwrap();
    assert_eq!(
        (status, held["metadata"]["uid"].as_str()),
        (200, Some(uid.as_str())),
        "from the stream of the node's pods"
    );
    assert_eq!(
        says(&site, &uid, json!({ "conditions": [{ "type": "Ready", "status": "False" }] })).await,
        503
    );
    assert_eq!(watch.brief().await, "ERROR 410", "what was told is no longer so");
    let unready = listed(&site).await;
    let (address, ready, first) = endpoint(&unready);
    assert!((address.as_str(), ready) == ("10.1.0.1", false) && first < own, "{unready}");
    assert_eq!(version(&unready), version(&online), "the list is of the same moment");
    assert_eq!(told.brief().await, format!("MODIFIED web-1@{first}"));
    assert_eq!(told.brief().await, format!("BOOKMARK @{}", version(&online)), "clients go on from here");

    // As after a restart of the hub: from a bookmark that was not stored. More of them than the hub has threads.
    let mut ahead = Vec::new();
    for _ in 0..4 {
        let path =
            format!("{SLICES}?watch=1&allowWatchBookmarks=true&resourceVersion={}", version(&unready) + 1000);
        ahead.push(Lines::open(&site.plain(), &path).await);
    }
    // A newer address; the condition is again as the API server has it.
    let mut watch =
        Lines::open(&site.plain(), &format!("{SLICES}?watch=1&resourceVersion={}", version(&unready))).await;
    assert_eq!(says(&site, "another", json!({ "podIP": "10.1.0.9" })).await, 503);
    assert!(watch.is_silent(Duration::from_millis(100)).await, "a pod of that name that is gone");
    assert_eq!(says(&site, &uid, json!({ "podIP": "10.1.0.2" })).await, 503);
    assert_eq!(watch.brief().await, "ERROR 410");
    let moved = listed(&site).await;
    let (address, ready, second) = endpoint(&moved);
    assert!((address.as_str(), ready) == ("10.1.0.2", true) && second < own && second != first, "{moved}");
    assert_eq!(version(&listed(&site).await), version(&moved), "whoever is ahead holds nobody up");
    for watch in &mut ahead {
        assert_eq!(watch.brief().await, format!("MODIFIED web-1@{second}"));
        assert_eq!(watch.brief().await, format!("BOOKMARK @{}", version(&moved)));
    }
    let event = told.next().await.unwrap();
    assert_eq!(endpoint(&json!({ "items": [event["object"]] })), ("10.1.0.2".to_owned(), true, second));
    assert_eq!(told.brief().await, format!("BOOKMARK @{}", version(&moved)));
    let answer = site.plain().get(&format!("{SLICES}?resourceVersion=0"), JSON).await.unwrap();
    let warnings: Vec<_> =
        answer.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(warnings.iter().any(|warning| warning.contains("1 pods of this node")), "{warnings:?}");
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Lines::open(&site.plain(), &format!("{SLICES}?{initial}")).await;
    assert_eq!(watch.brief().await, format!("ADDED web-1@{second}"));
    assert_eq!(watch.brief().await, format!("BOOKMARK @{} end", version(&moved)), "clients go on from here");

    // The link is back. A slice that was written for another reason still has the old address: no event goes out with it.
    let mut touched = slice(&uid, "10.1.0.1");
    touched["metadata"]["labels"]["touched"] = "yes".into();
    cluster.update(slices, &touched).unwrap();
    site.server.heal();
    assert_eq!(watch.brief().await, "ERROR 410", "a correction is no event");
    for watch in &mut ahead {
        assert_eq!(watch.brief().await, "ERROR 410", "nor is it one to who was ahead");
    }
    assert_eq!(endpoint(&listed(&site).await).0, "10.1.0.2");
    // The kubelet says it again, the endpoints are written anew, and half a minute later nothing is corrected.
    site.linked().await;
    assert_eq!(says(&site, &uid, json!({ "podIP": "10.1.0.2" })).await, 200);
    let new = cluster.update(slices, &slice(&uid, "10.1.0.2")).unwrap();
    let rv = new["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    site.until("the API server's word", async || {
        endpoint(&listed(&site).await) == ("10.1.0.2".to_owned(), true, rv.parse().unwrap())
    })
    .await;
    tokio::time::sleep(HANDOVER + Duration::from_secs(2)).await;
    let mut watch = Lines::open(&site.plain(), &format!("{SLICES}?watch=1&resourceVersion={rv}")).await;
    let last = cluster.update(slices, &slice(&uid, "10.1.0.3")).unwrap();
    let rv = last["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert_eq!(watch.brief().await, format!("MODIFIED web-1@{rv}"), "the API server's word counts");
}

/// A client that has a bookmark which was not stored before the hub was killed. Were it left there, it could not come back while there is no link.
#[tokio::test]
async fn a_watch_that_is_ahead_is_told_where_it_is_though_nothing_is_shown_otherwise() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    let uid = cluster.create("pods", pod()).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.create("endpointslices.discovery.k8s.io", slice("another", "10.1.0.1")).unwrap();
    let pods = format!("{PODS}?fieldSelector=spec.nodeName%3Dn&resourceVersion=0");
    assert_eq!(get(&site.plain(), &pods).await.unwrap().0, 200);
    site.caught_up(SLICES, &["web-1"]).await;
    site.server.cut();
    site.offline().await;
    let from = version(&listed(&site).await);
    let watch = |from: u64| format!("{SLICES}?watch=1&allowWatchBookmarks=true&resourceVersion={from}");
    let mut there = Lines::open(&site.plain(), &watch(from)).await;
    let mut ahead = Lines::open(&site.plain(), &watch(from + 1000)).await;
    // Addresses are corrected from here on, and in no slice that is held.
    assert_eq!(says(&site, &uid, json!({ "podIP": "10.1.0.2" })).await, 503);
    assert_eq!(ahead.brief().await, format!("BOOKMARK @{from}"));
    assert!(there.is_silent(Duration::from_millis(300)).await, "it is there already");
    // Both are told what follows.
    let mut touched = slice("another", "10.1.0.1");
    touched["metadata"]["labels"]["touched"] = "yes".into();
    let touched = cluster.update("endpointslices.discovery.k8s.io", &touched).unwrap();
    site.server.heal();
    let expected = format!("MODIFIED web-1@{}", touched["metadata"]["resourceVersion"].as_str().unwrap());
    for watch in [&mut there, &mut ahead] {
        assert_eq!(watch.brief().await, expected);
    }
}
