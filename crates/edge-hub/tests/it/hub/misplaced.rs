//! Paths at which the API server serves nothing, while the whole resource is held.

use testkit::api_server::Kind;

use super::site::{Lines, SERVICES, Site, WIDGETS, get, names, service, version, widget, widget_kind};

const NODES: &str = "/api/v1/nodes";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Of all namespaces, or of none.
const ALL_WIDGETS: &str = "/apis/example.com/v1/widgets";
const PLANETS: &str = "/apis/example.com/v1/planets";

/// A custom resource without namespaces.
fn planet_kind() -> Kind {
    let (resource, kind) = ("planets".into(), "Planet".into());
    Kind { resource, kind, namespaced: false, fields: Vec::new(), ..widget_kind() }
}

/// The status of a read and of a watch at a path, of any version and of the most recent.
async fn statuses(site: &Site, path: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for query in ["resourceVersion=0", "resourceVersion=", "watch=1&timeoutSeconds=1"] {
        let mut answer = site.plain().get(&format!("{path}?{query}"), "*/*").await.unwrap();
        statuses.push(answer.status.as_u16());
        let _ = answer.bytes().await;
    }
    statuses
}

#[tokio::test]
async fn what_is_looked_for_in_the_wrong_place_is_not_there_with_a_link_and_without() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create("nodes", serde_json::json!({ "metadata": { "name": "a" } })).unwrap();
    cluster.create("namespaces", serde_json::json!({ "metadata": { "name": "a" } })).unwrap();
    cluster.create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    site.caught_up(NODES, &["a"]).await;
    let found = async |when: &str| {
        for (path, expected) in [
            ("/api/v1/namespaces/a/nodes", 404),
            ("/api/v1/namespaces/a/nodes?resourceVersion=0", 404),
            ("/api/v1/namespaces/a/nodes/a?resourceVersion=0", 404),
            ("/api/v1/namespaces/a/namespaces?resourceVersion=0", 404),
            ("/api/v1/namespaces/a/namespaces/a?resourceVersion=0", 404),
            ("/api/v1/services/s?resourceVersion=0", 404),
            ("/api/v1/nodes/a?resourceVersion=0", 200),
            ("/api/v1/namespaces/a/services/s?resourceVersion=0", 200),
        ] {
            let (status, answer) = get(&site.plain(), path).await.unwrap();
            assert_eq!(status, expected, "{when}, {path}: {answer}");
        }
        let mut watch =
            site.plain().get("/api/v1/namespaces/a/nodes?watch=1&timeoutSeconds=1", "*/*").await.unwrap();
        let said = watch.bytes().await.unwrap();
        assert_eq!(watch.status.as_u16(), 404, "{when}: {said:?}");
    };
    found("with a link").await;
    site.server.cut();
    site.offline().await;
    found("without one").await;
    let (_, list) = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(names(&list), ["s"]);
}

#[tokio::test]
async fn a_path_with_an_empty_part_or_dots_is_handed_on_as_it_came() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let paths = [
        "//api/v1/services",
        "/api//v1/services",
        "/api/v1//services",
        "/api/v1/namespaces//services",
        "/api/v1/namespaces/a//services/s",
        "/api/v1/./services",
        "/api/v1/namespaces/b/../services",
    ];
    for path in paths {
        assert_eq!(get(&site.plain(), &format!("{path}?resourceVersion=0")).await.unwrap().0, 404, "{path}");
        let asked = site.server.log().totals(|record| record.path == path).requests;
        assert_eq!(asked, 1, "{path}");
    }
    let at_its_end = format!("{SERVICES}//?resourceVersion=0");
    assert_eq!(names(&get(&site.plain(), &at_its_end).await.unwrap().1), ["s"]);
    site.server.cut();
    site.offline().await;
    for path in paths {
        assert_eq!(get(&site.plain(), &format!("{path}?resourceVersion=0")).await.unwrap().0, 503, "{path}");
    }
    assert_eq!(names(&get(&site.plain(), &at_its_end).await.unwrap().1), ["s"]);
}

/// The stream of the namespace is refused and withdrawn then; that of all goes on, and is empty.
#[tokio::test]
async fn a_definition_that_came_again_without_namespaces_is_in_none() {
    let mut site = Site::started().await;
    let cluster = site.server.cluster().clone();
    let any = format!("{WIDGETS}?resourceVersion=0");
    // The narrower one first: else it is read from that of all.
    let (status, list) = get(&site.plain(), &any).await.unwrap();
    assert_eq!(status, 200, "{list}");
    let watch = format!("{WIDGETS}?watch=1&resourceVersion={}", version(&list));
    let watch = Lines::open(&site.plain(), &watch).await;
    site.caught_up(ALL_WIDGETS, &[]).await;
    site.until("both are watched", async || {
        site.upstream_watches(WIDGETS) == 1 && site.upstream_watches(ALL_WIDGETS) == 1
    })
    .await;
    site.server.cut();
    site.offline().await;
    cluster.delete(CRDS, "widgets.example.com").unwrap();
    cluster.create(CRDS, Kind { namespaced: false, ..widget_kind() }.crd()).unwrap();
    site.server.heal();
    site.until("the narrower one is withdrawn", async || site.last_log().contains("withdrawn")).await;
    drop(watch);
    for _ in 0..3 {
        assert_eq!(statuses(&site, WIDGETS).await, [404; 3], "{}", site.last_log());
        assert_eq!(get(&site.plain(), &format!("{ALL_WIDGETS}?resourceVersion=0")).await.unwrap().0, 200);
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(statuses(&site, WIDGETS).await, [404; 3], "without a link");
    site.restart().await;
    assert_eq!(statuses(&site, WIDGETS).await, [404; 3], "nor after a restart");
    // It comes again as it was.
    cluster.delete(CRDS, "widgets.example.com").unwrap();
    cluster.create(CRDS, widget_kind().crd()).unwrap();
    cluster.create("widgets.example.com", widget("x", 1)).unwrap();
    site.server.heal();
    site.linked().await;
    site.caught_up(WIDGETS, &["x"]).await;
}

#[tokio::test]
async fn a_custom_resource_without_namespaces_is_in_none_and_not_selected_by_them() {
    let site = Site::started().await;
    let cluster = site.server.cluster().clone();
    cluster.create(CRDS, planet_kind().crd()).unwrap();
    cluster.create("widgets.example.com", widget("x", 1)).unwrap();
    let of_namespace = "/apis/example.com/v1/namespaces/a/planets";
    // Nothing that is held says whether there are namespaces.
    site.caught_up(PLANETS, &[]).await;
    site.caught_up(ALL_WIDGETS, &["x"]).await;
    for link in ["with a link", "without"] {
        assert_eq!(statuses(&site, of_namespace).await, [404; 3], "{link}");
        for selector in
            ["metadata.namespace%3Da", "metadata.namespace%3D", "metadata.name%3Dx,metadata.namespace%21%3Da"]
        {
            for query in ["resourceVersion=0", "limit=1", "watch=1&timeoutSeconds=1"] {
                let path = format!("{PLANETS}?{query}&fieldSelector={selector}");
                let (status, answer) = get(&site.plain(), &path).await.unwrap();
                assert_eq!(status, 400, "{link}, {path}: {answer}");
                assert_eq!(
                    answer["message"], "field label not supported: metadata.namespace",
                    "{link}, {path}"
                );
            }
        }
        let widgets = format!("{ALL_WIDGETS}?resourceVersion=0&fieldSelector=metadata.namespace%3Da");
        let (status, list) = get(&site.plain(), &widgets).await.unwrap();
        assert_eq!((status, names(&list)), (200, vec!["x"]), "{link}: others have namespaces");
        site.server.cut();
        site.offline().await;
    }
}
