//! Custom resources that are selected by fields of which their definition alone says that they may be (`selectableFields`).

use serde_json::{Value, json};
use testkit::{
    api_server::Kind,
    client::{ClientOptions, Recorder, TestClient},
};

use super::site::{Lines, SOON, Site, get, names};

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

async fn site() -> Site {
    let mut site = Site::new().await;
    let cluster = site.server.cluster().clone();
    cluster.create(CRDS, kind().crd()).unwrap();
    for (name, color, size) in [("apple", "red", 3), ("rose", "red", 4), ("sky", "blue", 3)] {
        cluster.create(ID, gadget(name, color, size)).unwrap();
    }
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
    site.kill();
    site.start();
    site.answers().await;
    assert_eq!(selected(&site, RED).await, (200, all), "after a restart, too");
    // What nobody has asked for is not held, and said to be so.
    assert_eq!(selected(&site, "spec.color%3Dblue").await.0, 503);
}

/// Where the whole resource is shared, the hub selects by itself; numbers and absent fields compare as the API server compares them.
#[tokio::test]
async fn what_is_shared_is_selected_by_the_hub_itself() {
    let (mut site, _file) =
        super::site::with_configuration("poolScopeResources: [example.com/v1/gadgets]\n").await;
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
