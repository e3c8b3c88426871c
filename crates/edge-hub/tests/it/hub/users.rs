//! One stream for all users of a node who may read the same, carried with the credential of one of them, and nothing for anybody else.

use std::time::Duration;

use serde_json::json;
use testkit::{
    api_server::{Kind, access::User, log::RequestRecord},
    client::connection::Endpoint,
};
use tokio::time::sleep;

use super::{
    security::Issuer,
    site::{
        JSON, Lines, SERVICES, Site, WIDGETS, configured, get, names, service, version, widget, widget_kind,
        with_configuration,
    },
};

const ALL: &str = "/apis/example.com/v1/widgets";
const DEFINED: &str = "widgets.example.com";

/// A user of the site by the name of its token.
fn of(site: &Site, name: &str) -> Endpoint {
    site.secure(None).with_token(name)
}

/// A site with a widget and these tokens.
async fn with_users(names: &[&str]) -> Site {
    let site = Site::started().await;
    add_users(&site, names);
    site
}

fn add_users(site: &Site, names: &[&str]) {
    site.server.cluster().create(DEFINED, widget("w", 1)).unwrap();
    for name in names {
        site.server.cluster().access().add_token(name, User::service_account("a", name));
    }
}

/// Lists as an informer does, and watches from there.
async fn inform(endpoint: &Endpoint, path: &str) -> Lines {
    let (status, list) = get(endpoint, &format!("{path}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]));
    Lines::open(
        endpoint,
        &format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={}", version(&list)),
    )
    .await
}

/// Whole lists that the hub made of a path upstream.
fn upstream_lists(site: &Site, path: &str) -> usize {
    site.server.log().totals(|record| record.path == path && record.query.contains("limit=2000")).requests
}

/// As whom a path is watched upstream.
fn watched_as(site: &Site, path: &str) -> Vec<String> {
    let open = |record: &RequestRecord| record.path == path && record.watch && record.ended.is_none();
    let short = |user: String| user.rsplit(':').next().unwrap_or_default().to_owned();
    site.server.log().requests().into_iter().filter(open).map(|record| short(record.user)).collect()
}

fn revoke_right(site: &Site, name: &'static str) {
    let access = site.server.cluster().access();
    access.set_authorizer(move |asked| {
        asked.resource != "widgets" || asked.user.name != format!("system:serviceaccount:a:{name}")
    });
}

#[tokio::test]
async fn six_operators_cost_one_stream_of_a_custom_resource() {
    let operators = ["o1", "o2", "o3", "o4", "o5", "o6"];
    let site = with_users(&operators).await;
    let together = operators.map(|name| {
        let endpoint = of(&site, name);
        async move { inform(&endpoint, WIDGETS).await }
    });
    let mut watches = futures::future::join_all(together).await;
    assert_eq!((upstream_lists(&site, WIDGETS), site.upstream_watches(WIDGETS)), (1, 1));
    for n in 0..5 {
        site.server.cluster().create(DEFINED, widget(&format!("x{n}"), n)).unwrap();
        let at = site.server.cluster().revision();
        for watch in &mut watches {
            assert_eq!(watch.brief().await, format!("ADDED x{n}@{at}"));
        }
    }
    assert_eq!((upstream_lists(&site, WIDGETS), site.upstream_watches(WIDGETS)), (1, 1));
}

#[tokio::test]
async fn who_may_not_read_it_gets_nothing_of_what_others_share() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start();
    site.linked().await;
    add_users(&site, &[]);
    let [alice, bob, eve, late] = ["alice", "bob", "eve", "late"].map(|name| issuer.token(&site, name, 3600));
    site.server
        .cluster()
        .access()
        .set_authorizer(|asked| asked.resource != "widgets" || !asked.user.name.ends_with(":eve"));
    let reads = [
        format!("{WIDGETS}?resourceVersion=0"),
        WIDGETS.to_owned(),
        format!("{WIDGETS}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        format!("{WIDGETS}/w"),
        format!("{ALL}?resourceVersion=0"),
    ];
    let nothing = async |site: &Site, token: &str, expected: &[u16]| {
        for read in &reads {
            let mut answer = of(site, token).get(read, "application/json").await.unwrap();
            let body = answer.bytes().await.unwrap();
            assert!(expected.contains(&answer.status.as_u16()), "{read}: {}", answer.status);
            assert!(!String::from_utf8_lossy(&body).contains("\"n\""), "{read}");
        }
    };
    // Alice opens it; bob has what he is served by her credential.
    let mut watches = [inform(&of(&site, &alice), WIDGETS).await, inform(&of(&site, &bob), WIDGETS).await];
    nothing(&site, &eve, &[403]).await;
    // Allowances and keys are stored.
    sleep(Duration::from_millis(2500)).await;
    site.server.cut();
    site.offline().await;
    for token in [&alice, &bob] {
        let (status, list) = get(&of(&site, token), &reads[0]).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["w"]));
        assert_eq!(get(&of(&site, token), &reads[3]).await.unwrap().0, 200, "part of what it may list");
    }
    for token in [&eve, &late] {
        nothing(&site, token, &[403, 429, 503]).await;
    }
    assert!(watches[1].is_silent(Duration::from_millis(200)).await, "it stays open");
    site.restart().await;
    // Bob comes without alice, whose stream it was.
    let (status, list) = get(&of(&site, &bob), &reads[0]).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]), "after a restart");
    assert_eq!(get(&of(&site, &bob), &reads[3]).await.unwrap().0, 200);
    for token in [&eve, &late] {
        nothing(&site, token, &[403, 429, 503]).await;
    }
}

/// A right may be to what a selector chooses: reviews name it, and what was allowed is kept with it.
#[tokio::test]
async fn who_may_read_what_a_selector_chooses_reads_nothing_else() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start();
    site.linked().await;
    add_users(&site, &[]);
    site.server.cluster().create(DEFINED, widget("other", 1)).unwrap();
    let [all, part] = ["all", "part"].map(|name| issuer.token(&site, name, 3600));
    site.server.cluster().access().set_authorizer(|asked| {
        let is_chosen = asked.field_selector == "metadata.name=w" && asked.namespace == "a";
        asked.resource != "widgets" || !asked.user.name.ends_with(":part") || is_chosen
    });
    // Somebody else shares all of it.
    let (status, list) = get(&of(&site, &all), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["other", "w"]));
    let chosen = format!("{WIDGETS}?resourceVersion=0&fieldSelector=metadata.name%3Dw");
    let refused = [
        format!("{WIDGETS}?resourceVersion=0"),
        WIDGETS.to_owned(),
        format!("{WIDGETS}?resourceVersion=0&fieldSelector=metadata.name%3Dother"),
        format!("{WIDGETS}?resourceVersion=0&labelSelector=n%3Dodd"),
        format!("{ALL}?resourceVersion=0&fieldSelector=metadata.name%3Dw"),
        format!("{WIDGETS}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        format!("{WIDGETS}/other"),
    ];
    let reads = async |site: &Site, when: &str, denied: &[u16]| {
        let hub = of(site, &part);
        let (status, list) = get(&hub, &chosen).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["w"]), "{when}");
        let mut watch = Lines::open(&hub, &format!("{chosen}&watch=1")).await;
        assert!(watch.brief().await.starts_with("ADDED w@"), "{when}");
        for read in &refused {
            let mut answer = hub.get(read, JSON).await.unwrap();
            let body = answer.bytes().await.unwrap();
            let body = String::from_utf8_lossy(&body);
            assert!(denied.contains(&answer.status.as_u16()), "{when} {read}: {} {body}", answer.status);
            assert!(!body.contains("\"n\""), "{when} {read}: {body}");
        }
    };
    reads(&site, "with a link", &[403]).await;
    // Allowances and keys are stored.
    sleep(Duration::from_millis(2500)).await;
    site.server.cut();
    site.offline().await;
    // Of what was never asked, nobody can say more than that.
    reads(&site, "in a cut", &[403, 429, 503]).await;
    site.restart().await;
    reads(&site, "after a restart", &[403, 429, 503]).await;
}

/// The one who opened it may no more, or its token is no good; the other goes on and misses nothing.
async fn one_is_lost(lose: impl Fn(&Site)) {
    let site = with_users(&["alice", "bob"]).await;
    let mut alice = inform(&of(&site, "alice"), WIDGETS).await;
    let mut bob = inform(&of(&site, "bob"), WIDGETS).await;
    assert_eq!(watched_as(&site, WIDGETS), ["alice"]);
    lose(&site);
    let create = |name: &str| {
        site.server.cluster().create(DEFINED, widget(name, 1)).unwrap();
        format!("ADDED {name}@{}", site.server.cluster().revision())
    };
    let before = create("before");
    assert_eq!((alice.brief().await, bob.brief().await), (before.clone(), before));
    site.server.cut();
    site.offline().await;
    let during = create("during");
    site.server.heal();
    assert_eq!(bob.brief().await, during);
    let after = create("after");
    assert_eq!(bob.brief().await, after);
    assert_eq!((watched_as(&site, WIDGETS), upstream_lists(&site, WIDGETS)), (vec!["bob".to_owned()], 1));
}

#[tokio::test]
async fn others_go_on_when_the_right_of_the_opener_is_revoked() {
    one_is_lost(|site| revoke_right(site, "alice")).await;
}

#[tokio::test]
async fn others_go_on_when_the_token_of_the_opener_is_revoked() {
    one_is_lost(|site| site.server.cluster().access().revoke_token("alice")).await;
}

#[tokio::test]
async fn who_is_revoked_is_served_no_more_and_others_are() {
    let mut site = Site::new().await;
    site.start_suspicious(Duration::from_millis(100)).await;
    add_users(&site, &["alice", "bob"]);
    let mut alice = inform(&of(&site, "alice"), WIDGETS).await;
    let mut bob = inform(&of(&site, "bob"), WIDGETS).await;
    revoke_right(&site, "alice");
    assert_eq!(alice.brief().await, "end");
    let list = format!("{WIDGETS}?resourceVersion=0");
    let get_one = format!("{WIDGETS}/w");
    assert_eq!(
        get(&of(&site, "alice"), &format!("{WIDGETS}?watch=1&resourceVersion=0")).await.unwrap().0,
        403
    );
    site.server.cut();
    site.offline().await;
    // She was refused a watch, and did not ask for a list since.
    for read in [&list, &get_one] {
        let (status, body) = get(&of(&site, "alice"), read).await.unwrap();
        assert!(status != 200 && body["items"].is_null() && body["spec"].is_null(), "{status} {body}");
    }
    assert_eq!(get(&of(&site, "bob"), &list).await.unwrap().0, 200);
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    let at = site.server.cluster().revision();
    site.server.heal();
    assert_eq!(bob.brief().await, format!("ADDED x@{at}"));
    assert_eq!(watched_as(&site, WIDGETS), ["bob"], "who left carries nothing");
}

/// It may be who asks that keeps the API server from answering, and would keep a right that has gone. What was allowed counts without a link.
#[tokio::test]
async fn who_cannot_be_reviewed_is_not_believed_for_long_while_there_is_a_link() {
    let mut site = Site::new().await;
    site.start_suspicious(Duration::from_secs(1)).await;
    add_users(&site, &["alice"]);
    let (node, alice) = (site.plain(), of(&site, "alice"));
    let list = format!("{WIDGETS}?resourceVersion=0");
    assert_eq!(get(&node, &list).await.unwrap().0, 200);
    let mut watch = inform(&alice, WIDGETS).await;
    revoke_right(&site, "alice");
    site.server.fail("/apis/authorization.k8s.io", 503);
    site.until("she is told to ask again", async || get(&alice, &list).await.unwrap().0 == 429).await;
    assert_eq!(watch.brief().await, "end");
    for path in [format!("{WIDGETS}/w"), format!("{WIDGETS}?watch=1&resourceVersion=0")] {
        assert_eq!(get(&alice, &path).await.unwrap().0, 429, "{path}");
    }
    assert_eq!(get(&node, &list).await.unwrap().0, 200, "what is held for the node comes with its own right");
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&alice, &list).await.unwrap().0, 200, "she was not refused");
}

/// The API server looks at the right of its watcher only once.
#[tokio::test]
async fn who_is_revoked_keeps_no_watch_that_was_handed_on() {
    let (mut site, _) = with_configuration("freshness: { /v1/services: strict }\n").await;
    site.start_suspicious(Duration::from_millis(100)).await;
    add_users(&site, &["alice"]);
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let mut watch = Lines::open(&of(&site, "alice"), &format!("{SERVICES}?watch=1")).await;
    assert!(watch.brief().await.starts_with("ADDED s@"));
    let hers = || watched_as(&site, SERVICES).contains(&"alice".to_owned());
    assert!(hers(), "it is handed on");
    site.server.cluster().access().set_authorizer(|asked| !asked.user.name.ends_with(":alice"));
    assert_eq!(watch.brief().await, "end");
    site.until("it is closed upstream", async || !hers()).await;
}

/// A `kubectl get` is the API server's to answer; who was answered may read the same without a link.
#[tokio::test]
async fn what_was_handed_on_and_answered_is_read_without_a_link_too() {
    let (site, _) = configured("freshness: { /v1/services: strict }\n").await;
    add_users(&site, &["alice", "bob", "carol"]);
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let reads = async |user: &str, path: &str| get(&of(&site, user), path).await.unwrap().0;
    assert_eq!((reads("alice", SERVICES).await, reads("carol", SERVICES).await), (200, 200));
    let answered = site.server.log().totals(|record| record.path == SERVICES && record.query.is_empty());
    assert_eq!(answered.requests, 2, "they are handed on");
    let slices = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";
    assert_eq!(reads("bob", slices).await, 200, "it is known who he is");
    site.server.cluster().access().set_authorizer(|asked| !asked.user.name.ends_with(":carol"));
    assert_eq!(reads("carol", SERVICES).await, 403);
    let held = format!("{SERVICES}?resourceVersion=0");
    site.server.cut();
    site.offline().await;
    assert_eq!(reads("alice", &held).await, 200);
    assert_eq!(reads("carol", &held).await, 503, "she was refused since");
    let (status, body) = get(&of(&site, "bob"), &held).await.unwrap();
    let message = body["message"].as_str().unwrap_or_default();
    assert_eq!(status, 503);
    assert!(message.contains("bob may list services cannot be asked"), "{message}");
}

#[tokio::test]
async fn who_may_read_a_part_has_a_stream_of_the_part() {
    let site = with_users(&["alice", "bob"]).await;
    site.server.cluster().access().set_authorizer(|asked| {
        asked.resource != "widgets" || !asked.user.name.ends_with(":bob") || asked.namespace == "a"
    });
    let mut alice = inform(&of(&site, "alice"), ALL).await;
    let mut bob = inform(&of(&site, "bob"), WIDGETS).await;
    assert_eq!(
        (watched_as(&site, ALL), watched_as(&site, WIDGETS)),
        (vec!["alice".into()], vec!["bob".into()])
    );
    assert_eq!(get(&of(&site, "bob"), &format!("{ALL}?resourceVersion=0")).await.unwrap().0, 403);
    // Who may carry the whole needs no stream of the part.
    let mut part = inform(&of(&site, "alice"), WIDGETS).await;
    assert_eq!(site.upstream_watches(WIDGETS), 1);
    site.server.cluster().create(DEFINED, widget("x", 1)).unwrap();
    for watch in [&mut alice, &mut bob, &mut part] {
        assert!(watch.brief().await.starts_with("ADDED x@"));
    }
}

/// Which objects of these a caller may see is decided by name, or by a server that answers each caller otherwise.
#[tokio::test]
async fn private_and_aggregated_resources_stay_apart() {
    let site = with_users(&["alice", "bob"]).await;
    let cluster = site.server.cluster();
    cluster.define(Kind { group: "aggregated.example.com".into(), ..widget_kind() });
    cluster.create("widgets.aggregated.example.com", widget("w", 1)).unwrap();
    for resource in ["secrets", "configmaps"] {
        cluster.create(resource, json!({ "metadata": { "namespace": "a", "name": "w" } })).unwrap();
    }
    for path in [
        "/api/v1/namespaces/a/secrets",
        "/api/v1/namespaces/a/configmaps",
        "/apis/aggregated.example.com/v1/namespaces/a/widgets",
    ] {
        let watches = [inform(&of(&site, "alice"), path).await, inform(&of(&site, "bob"), path).await];
        site.until("both are watched", async || site.upstream_watches(path) == 2).await;
        let mut users = watched_as(&site, path);
        users.sort();
        assert_eq!((users, upstream_lists(&site, path)), (vec!["alice".into(), "bob".into()], 2), "{path}");
        drop(watches);
    }
}

/// Of resources that are called as namespaces are, those of a namespace are no more than that; and `namespaces` within a namespace is a path
/// that no API server answers.
#[tokio::test]
async fn a_right_within_a_namespace_shows_nothing_of_others_whatever_it_is_called() {
    let site = with_users(&["alice", "bob"]).await;
    let cluster = site.server.cluster();
    let kind = Kind { resource: "namespaces".into(), kind: "Namespace".into(), ..widget_kind() };
    cluster.create("customresourcedefinitions.apiextensions.k8s.io", kind.crd()).unwrap();
    cluster
        .create("namespaces.example.com", json!({ "metadata": { "namespace": "b", "name": "w" } }))
        .unwrap();
    cluster.access().set_authorizer(|asked| {
        asked.resource != "namespaces" || !asked.user.name.ends_with(":bob") || asked.namespace == "a"
    });
    let (alice, bob) = (of(&site, "alice"), of(&site, "bob"));
    let _watch = inform(&alice, "/apis/example.com/v1/namespaces").await;
    let within = "/apis/example.com/v1/namespaces/a/namespaces";
    for up in [true, false] {
        for read in [format!("{within}?resourceVersion=0"), within.to_owned(), format!("{within}/w")] {
            let (status, body) = get(&bob, &read).await.unwrap();
            let items = body["items"].as_array().map_or(0, Vec::len);
            assert!(items == 0 && body["metadata"]["name"].is_null(), "{up} {read}: {status} {body}");
        }
        site.server.cut();
        site.offline().await;
    }
    let (status, list) = get(&alice, "/apis/example.com/v1/namespaces?resourceVersion=0").await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]));
}

#[tokio::test]
async fn who_watches_one_object_gets_it_without_a_link() {
    let site = with_users(&["alice", "bob"]).await;
    let one = format!("{WIDGETS}?fieldSelector=metadata.name%3Dw");
    let (status, list) = get(&of(&site, "alice"), &format!("{one}&resourceVersion=0")).await.unwrap();
    assert_eq!((status, names(&list)), (200, vec!["w"]));
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&of(&site, "alice"), &format!("{WIDGETS}/w")).await.unwrap().0, 200);
    assert_ne!(get(&of(&site, "bob"), &format!("{WIDGETS}/w")).await.unwrap().0, 200, "he never asked");
}

/// It is fetched with the node's credential: that somebody read it says nothing of others, and one verb says the other two.
#[tokio::test]
async fn who_read_what_the_node_shares_reads_it_by_any_verb_without_a_link() {
    let site = with_users(&["lister", "watcher", "part", "stranger"]).await;
    for namespace in ["a", "b"] {
        site.server.cluster().create("services", service(namespace, "s", 1)).unwrap();
    }
    site.caught_up(SERVICES, &["s", "s"]).await;
    let within = |namespace: &str| SERVICES.replace("services", &format!("namespaces/{namespace}/services"));
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    assert_eq!(get(&of(&site, "lister"), SERVICES).await.unwrap().0, 200);
    let _watch = Lines::open(&of(&site, "watcher"), &format!("{SERVICES}?{initial}")).await;
    assert_eq!(get(&of(&site, "part"), &within("a")).await.unwrap().0, 200);
    assert_eq!(get(&of(&site, "stranger"), WIDGETS).await.unwrap().0, 200);
    site.server.cut();
    site.offline().await;
    let status =
        async |name: &str, path: &str| of(&site, name).get(path, JSON).await.unwrap().status.as_u16();
    let statuses = async |name: &str| {
        let (a, b) = (within("a"), within("b"));
        let watch = format!("{SERVICES}?{initial}");
        let paths = [SERVICES, &a, &format!("{a}/s"), &b, &format!("{b}/s"), &watch].map(str::to_owned);
        let mut statuses = Vec::new();
        for path in &paths {
            statuses.push(status(name, path).await);
        }
        statuses
    };
    for name in ["lister", "watcher"] {
        assert_eq!(statuses(name).await, [200; 6], "{name}");
        assert_eq!(status(name, &format!("{}/none", within("a"))).await, 404, "it is known not to be there");
    }
    assert_eq!(statuses("part").await, [503, 200, 200, 503, 503, 429]);
    assert_eq!(statuses("stranger").await, [503, 503, 503, 503, 503, 429]);
}

/// As a run leaves it in which somebody read more objects than allowances are kept of.
fn fill_allowances(site: &Site) {
    let key = std::fs::read(site.file("root/storage.key")).unwrap().try_into().unwrap();
    let (storage, _) = edge_hub::storage::Storage::open(&site.file("root/store"), key).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let allowance = |n: usize| {
        let attributes = json!({
            "verb": "get", "group": "example.com", "version": "v1", "resource": "widgets", "namespace": "a",
            "name": format!("x{n}"), "labels": "", "fields": "",
        });
        let question =
            json!({ "user": "system:serviceaccount:a:many", "groups": [], "attributes": attributes });
        json!({ "question": question, "at": now })
    };
    let allowances: Vec<_> = (0..4096).map(allowance).collect();
    storage.put_blob("allowances", &serde_json::to_vec(&allowances).unwrap()).unwrap();
}

#[tokio::test]
async fn who_reads_thousands_of_objects_leaves_room_for_what_others_are_allowed() {
    let mut site = Site::new().await;
    site.start_inside(|_| ()).await;
    site.linked().await;
    site.stop().await;
    fill_allowances(&site);
    site.start_inside(|_| ()).await;
    site.linked().await;
    add_users(&site, &["late"]);
    assert_eq!(get(&of(&site, "late"), &format!("{WIDGETS}?resourceVersion=0")).await.unwrap().0, 200);
    site.server.cut();
    site.offline().await;
    // It was allowed to list, and that must have been kept: of the object itself nobody was asked.
    assert_eq!(get(&of(&site, "late"), &format!("{WIDGETS}/w")).await.unwrap().0, 200);
}

#[tokio::test]
async fn a_user_that_opens_ever_more_streams_leaves_room_for_the_node_and_others() {
    let site = with_users(&["greedy", "other"]).await;
    let greedy = site.plain().with_token("greedy");
    let status = async || get(&site.admin(), "/v1/status").await.unwrap().1;
    let held = async |selector: &str| {
        let status = status().await;
        let all = status["subscriptions"].as_array().unwrap().clone();
        all.iter().any(|held| held["scope"].as_str().unwrap().contains(selector))
    };
    // Lists only: the stream that nobody has used for longest makes room.
    for n in 0..130 {
        let list = format!("{WIDGETS}?resourceVersion=0&labelSelector=l%3D{n}x");
        assert_eq!(get(&greedy, &list).await.unwrap().0, 200);
    }
    assert!(!held("%3D0x").await && held("%3D129x").await);
    assert_eq!(status().await["crowdedOut"], 0);
    // Watches: what is in use stays, and there is no room beside it.
    let mut watches = Vec::new();
    for n in 0..130 {
        let watch = format!("{WIDGETS}?watch=1&resourceVersion=0&labelSelector=w%3D{n}x");
        watches.push(Lines::open(&greedy, &watch).await);
    }
    assert!(held("%3D0x").await && !held("%3D129x").await);
    assert_eq!(status().await["crowdedOut"], 2);
    let others = [(site.plain(), "n%3Dnode"), (of(&site, "other"), "n%3Dother")];
    for (endpoint, selector) in others {
        let list = format!("{WIDGETS}?resourceVersion=0&labelSelector={selector}");
        assert_eq!(get(&endpoint, &list).await.unwrap().0, 200);
        assert!(held(selector).await, "{selector}");
    }
}
