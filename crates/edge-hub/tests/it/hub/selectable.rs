//! Custom resources that are selected by fields of which their definition alone says that they may be (`selectableFields`).

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    api_server::{Kind, access::User},
    client::{ClientOptions, Recorder, TestClient, connection::Endpoint},
};

use super::site::{Lines, SOON, Site, get, names, version, with_configuration};

const GADGETS: &str = "/apis/example.com/v1/namespaces/a/gadgets";
const ID: &str = "gadgets.example.com";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

fn kind() -> Kind {
    Kind {
        group: "example.com".into(),
        version: "v1".into(),
        resource: "gadgets".into(),
        kind: "Gadget".into(),
        namespaced: true,
        typed: false,
        fields: vec!["spec.color".into(), "spec.size".into()],
    }
}

fn gadget(name: &str, color: &str, size: u64) -> Value {
    json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "color": color, "size": size } })
}

fn define(site: &Site) {
    let cluster = site.server.cluster();
    cluster.create(CRDS, kind().crd()).unwrap();
    for (name, color, size) in [("apple", "red", 3), ("rose", "red", 4), ("sky", "blue", 3)] {
        cluster.create(ID, gadget(name, color, size)).unwrap();
    }
}

async fn site() -> Site {
    let mut site = Site::new().await;
    define(&site);
    site.start();
    site.linked().await;
    site
}

/// Status and names of what a selector selects.
async fn selected(site: &Site, selector: &str) -> (u16, Vec<String>) {
    let path = format!("{GADGETS}?resourceVersion=0&fieldSelector={selector}");
    let (status, list) = get(&site.plain(), &path).await.unwrap();
    let names = if status == 200 { names(&list) } else { Vec::new() };
    (status, names.into_iter().map(str::to_owned).collect())
}

#[tokio::test]
async fn clients_that_select_by_a_custom_field_share_a_stream_and_have_it_without_a_link() {
    const RED: &str = "spec.color%3Dred";
    let mut site = site().await;
    let mut clients: Vec<_> = (0..6)
        .map(|n| {
            let mut options = ClientOptions::new(&format!("operator-{n}"), GADGETS);
            "spec.color=red".clone_into(&mut options.fields);
            TestClient::start(site.plain(), options, &Recorder::default()).unwrap()
        })
        .collect();
    let painted = site.server.cluster().update(ID, &gadget("sky", "red", 3)).unwrap();
    for client in &mut clients {
        let is_told = client.wait_for(SOON, |state| state.get("a/sky") == Some(&painted)).await;
        assert!(is_told, "{:?}\n{}", client.progress(), site.last_log());
        let progress = client.progress();
        assert!(progress.errors.keys().all(|code| *code == 0), "{progress:?}");
    }
    // What was painted may be in the list already.
    site.until("it is watched", async || site.upstream_watches(GADGETS) == 1).await;
    let log = site.server.log();
    let is_list = |query: &str| !query.split('&').any(|part| part == "limit=1");
    let lists = log.totals(|record| record.path == GADGETS && !record.watch && is_list(&record.query));
    let watches = log.totals(|record| record.path == GADGETS && record.watch);
    assert_eq!((lists.requests, watches.requests), (1, 1), "{}", site.last_log());
    let definitions =
        log.totals(|record| record.path.ends_with("customresourcedefinitions/gadgets.example.com"));
    assert_eq!(definitions.requests, 1, "it is asked for once");
    // As the API server says it: a field of another version, or none.
    assert_eq!(selected(&site, "spec.weight%3D3").await.0, 400);

    site.server.cut();
    site.offline().await;
    let all = ["apple", "rose", "sky"].map(str::to_owned).to_vec();
    assert_eq!(selected(&site, RED).await, (200, all.clone()));
    let watch = format!(
        "{GADGETS}?watch=1&fieldSelector={RED}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut watch = Lines::open(&site.plain(), &watch).await;
    for name in &all {
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    drop(watch);
    site.restart().await;
    assert_eq!(selected(&site, RED).await, (200, all), "after a restart, too");
    // What nobody has asked for is not held, and said to be so.
    assert_eq!(selected(&site, "spec.color%3Dblue").await.0, 503);
}

/// Where the whole resource is shared, the hub selects by itself; numbers and absent fields compare as the API server compares them.
#[tokio::test]
async fn what_is_shared_is_selected_by_the_hub_itself() {
    let (mut site, _file) = with_configuration("poolScopeResources: [example.com/v1/gadgets]\n").await;
    let cluster = site.server.cluster().clone();
    cluster.create(CRDS, kind().crd()).unwrap();
    for (name, color, size) in [("apple", "red", 3), ("rose", "red", 4), ("sky", "blue", 3)] {
        cluster.create(ID, gadget(name, color, size)).unwrap();
    }
    site.start();
    site.linked().await;
    site.until("all is held", async || selected(&site, "").await.1.len() == 3).await;
    let table = [
        ("spec.size%3D3", vec!["apple", "sky"]),
        ("spec.size%3D3,spec.color%21%3Dblue", vec!["apple"]),
        ("spec.size%3D3,metadata.name%3Dsky", vec!["sky"]),
        ("spec.color%3D", vec![]),
    ];
    for link in ["with a link", "without"] {
        for (selector, expected) in &table {
            let expected = expected.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(selected(&site, selector).await, (200, expected), "{selector} {link}");
        }
        site.server.cut();
        site.offline().await;
    }
    // It is known that there is no such field, as it was before.
    assert_eq!(selected(&site, "spec.weight%3D3").await.0, 503);
}

/// The API server ends all watches of a definition that changes, and refuses whoever names a field that is selectable no more. Nobody is left with
/// a watch in which nothing happens, or is told what was held before.
#[tokio::test]
async fn a_field_that_is_selectable_no_more_ends_its_watches() {
    const RED: &str = "spec.color%3Dred";
    let site = site().await;
    let (status, list) =
        get(&site.plain(), &format!("{GADGETS}?resourceVersion=0&fieldSelector={RED}")).await.unwrap();
    assert_eq!(status, 200, "{list}");
    let watch = format!("{GADGETS}?watch=1&fieldSelector={RED}&resourceVersion={}", version(&list));
    let mut watch = Lines::open(&site.plain(), &watch).await;
    site.until("it is watched", async || site.upstream_watches(GADGETS) == 1).await;
    let versions = Kind { fields: Vec::new(), ..kind() }.crd()["spec"]["versions"].clone();
    let patch = json!({ "spec": { "versions": versions } });
    site.server.cluster().redefine(ID, &patch, |_| {}).unwrap();
    assert_eq!(watch.brief().await, "end");
    assert_eq!(selected(&site, RED).await.0, 400, "the API server says so, whatever is believed");
}

/// A site where reads of gadgets are handed on, but those of any version; with two users. They are shared, so that nothing else goes upstream in
/// the name of a user.
async fn strict(allowed: Option<Duration>) -> Site {
    let (mut site, _file) = with_configuration(
        "poolScopeResources: [example.com/v1/gadgets]\nfreshness: { example.com/v1/gadgets: strict }\n",
    )
    .await;
    define(&site);
    for name in ["alice", "carol"] {
        site.server.cluster().access().add_token(name, User::service_account("a", name));
    }
    match allowed {
        Some(allowed) => site.start_suspicious(allowed).await,
        None => site.start(),
    }
    site.linked().await;
    site
}

fn of(site: &Site, name: &str) -> Endpoint {
    site.secure(None).with_token(name)
}

/// Carol may read nothing from now on.
fn revoke(site: &Site) {
    site.server.cluster().access().set_authorizer(|asked| !asked.user.name.ends_with(":carol"));
}

#[tokio::test]
async fn a_watch_by_a_custom_field_that_was_handed_on_lasts_no_longer_than_the_right_to_it() {
    let site = strict(Some(Duration::from_millis(100))).await;
    let path = format!("{GADGETS}?watch=1&fieldSelector=spec.color%3Dred");
    let mut watch = Lines::open(&of(&site, "carol"), &path).await;
    for _ in 0..2 {
        assert!(watch.brief().await.starts_with("ADDED "));
    }
    let hers = || {
        let log = site.server.log().requests().into_iter();
        log.filter(|record| record.path == GADGETS && record.watch && record.user.ends_with(":carol")).count()
    };
    assert_eq!(hers(), 1, "it is handed on");
    revoke(&site);
    assert_eq!(watch.brief().await, "end");
}

#[tokio::test]
async fn who_was_answered_or_refused_by_the_api_server_is_so_without_a_link_by_a_custom_field_too() {
    const RED: &str = "fieldSelector=spec.color%3Dred";
    let site = strict(None).await;
    let (held, list) = (format!("{GADGETS}?resourceVersion=0&{RED}"), format!("{GADGETS}?{RED}"));
    assert_eq!(get(&site.plain(), &held).await.unwrap().0, 200);
    // Of a table nobody is asked whether she may read it, but the API server.
    let table = of(&site, "alice").get(&list, "application/json;as=Table;g=meta.k8s.io;v=v1").await.unwrap();
    assert_eq!(table.status, 200);
    assert_eq!(get(&of(&site, "carol"), &list).await.unwrap().0, 200);
    revoke(&site);
    assert_eq!(get(&of(&site, "carol"), &list).await.unwrap().0, 403);
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&of(&site, "alice"), &held).await.unwrap().0, 200, "she was answered");
    assert_eq!(get(&of(&site, "carol"), &held).await.unwrap().0, 503, "she was refused since");
}
