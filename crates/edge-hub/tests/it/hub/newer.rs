//! An API server that is newer than the hub: its objects have fields that the hub has no names for.

use super::site::{JSON, Lines, SERVICES, Site, get, names, service, version};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const INITIAL: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn a_field_that_the_hub_does_not_know_is_told_by_the_api_server_and_never_left_out() {
    let site = Site::started().await;
    let hub = site.plain();
    site.server.cluster().create("services", service("a", "old", 1)).unwrap();
    site.caught_up(SERVICES, &["old"]).await;
    let (_, before) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    let from = version(&before);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={from}")).await;
    let mut newer = service("a", "new", 1);
    newer["spec"]["newerThanAnyTable"] = "yes".into();
    let newer = site.server.cluster().create("services", newer).unwrap();
    assert_eq!(watch.brief().await, "end", "a good end: the client goes on from where it was");

    let of = |list: &serde_json::Value| list["items"][0]["spec"]["newerThanAnyTable"] == "yes";
    for query in ["", "?resourceVersion=0", "?limit=1"] {
        let (status, list) = get(&hub, &format!("{SERVICES}{query}")).await.unwrap();
        assert!(status == 200 && names(&list)[0] == "new" && of(&list), "{query}: {list}");
    }
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={from}")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], newer["spec"]);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?{INITIAL}")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], newer["spec"]);

    site.server.cut();
    site.offline().await;
    let (status, refused) = get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!(status, 503);
    assert!(refused["message"].as_str().unwrap().contains("field number 1000"), "{refused}");
    assert_eq!(get(&hub, &format!("{SERVICES}?{INITIAL}")).await.unwrap().0, 429);
    let mut protobuf = hub.get(&format!("{SERVICES}?resourceVersion=0"), PROTOBUF).await.unwrap();
    assert_eq!(protobuf.status, 200, "as it came");
    assert!(protobuf.bytes().await.unwrap().windows(3).any(|part| part == b"new"));

    // Without that object all is as before; who has not come past it is told by the API server.
    site.server.heal();
    site.linked().await;
    site.server.cluster().delete("services", "a/new").unwrap();
    site.until("the hub shows what it holds", async || {
        let mut answer = hub.get(&format!("{SERVICES}?{INITIAL}"), JSON).await.unwrap();
        let chunk = answer.chunk().await.unwrap().unwrap();
        let upstream = site.upstream_watches(SERVICES);
        String::from_utf8_lossy(&chunk).contains("old") && upstream == 1
    })
    .await;
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={from}")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], newer["spec"]);
}
