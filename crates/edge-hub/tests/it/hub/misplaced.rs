//! Paths at which the API server serves nothing, while the whole resource is held.

use super::site::{SERVICES, Site, get, names, service};

const NODES: &str = "/api/v1/nodes";

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
