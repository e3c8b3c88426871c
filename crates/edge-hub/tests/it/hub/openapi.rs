//! Documents of `OpenAPI`, which the hub fetches for a node where nobody asks for them while there is a link.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::api_server::Kind;
use tokio::time::sleep;

use super::site::{JSON, Site, WIDGETS, get};

const LIST: &str = "/openapi/v3";
const CORE: &str = "/openapi/v3/api/v1";
const APPS: &str = "/openapi/v3/apis/apps/v1";
const BATCH: &str = "/openapi/v3/apis/batch/v1";
const EXAMPLE: &str = "/openapi/v3/apis/example.com/v1";
const V2: &str = "/openapi/v2";

/// As client-go asks for version 2.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// As programs may ask for documents of version 3.
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// As `kubectl get --raw` asks.
const RAW: &str = "application/json, */*";

/// A document so long that the server compresses it.
fn document(title: &str) -> Value {
    json!({ "info": { "title": title, "description": "text ".repeat(40_000) } })
}

/// Has the server serve documents of version 3, of these titles, and the list that names them. Returns the paths by which it does.
fn serve_all<const N: usize>(site: &Site, documents: [(&str, &str); N]) -> [String; N] {
    let cluster = site.server.cluster();
    let mut paths = serde_json::Map::new();
    let named = documents.map(|(path, title)| {
        let url = format!("{path}?hash={}", cluster.set_document(path, &document(title)));
        let name = path.strip_prefix("/openapi/v3/").unwrap();
        paths.insert(name.to_owned(), json!({ "serverRelativeURL": url }));
        url
    });
    cluster.set_document(LIST, &json!({ "paths": paths }));
    named
}

/// Two of them.
fn serve(site: &Site, core: &str, apps: &str) -> [String; 2] {
    serve_all(site, [(CORE, core), (APPS, apps)])
}

async fn start(site: &mut Site) {
    site.start_inside(|config| config.lifetimes.before_openapi = Duration::from_millis(500)).await;
    site.linked().await;
}

/// What the server was asked for of documents, and how it answered; nothing of an answer that is on its way.
fn asked(site: &Site) -> Vec<(String, u16)> {
    let requests = site.server.log().requests().into_iter();
    let documents = requests.filter(|record| [CORE, APPS, BATCH, EXAMPLE, V2].contains(&&*record.path));
    documents.map(|record| (record.path, record.ended.map_or(0, |_| record.status))).collect()
}

/// The same as it is expected.
fn expected<const N: usize>(documents: [(&str, u16); N]) -> Vec<(String, u16)> {
    documents.map(|(path, status)| (path.to_owned(), status)).into()
}

/// Without a link there is no such document, and it is said by which value of `--openapi` there is none.
async fn is_absent(site: &Site, path: &str, openapi: &str) {
    let (status, said) = answer(site, path, JSON).await;
    let message = said["message"].as_str().unwrap_or_default();
    assert!(status == 503 && message.contains(&format!("--openapi={openapi}")), "{path}: {status} {said}");
}

async fn answer(site: &Site, path: &str, accept: &str) -> (u16, Value) {
    let mut answer = site.plain().get(path, accept).await.unwrap();
    let body = answer.bytes().await.unwrap();
    (answer.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn documents_that_nobody_asked_for_are_there_without_a_link_and_cross_it_once() {
    let mut site = Site::new().await;
    site.set("--openapi", "all");
    site.server.cluster().set_document(V2, &document("version 2"));
    let [core, apps] = serve(&site, "core", "apps");
    start(&mut site).await;
    let expected = [V2, CORE, APPS].map(|path| (path.to_owned(), 200));
    site.until("all are fetched", async || asked(&site) == expected).await;
    let forms = site.server.log().requests().into_iter().filter(|record| record.path == V2);
    assert_eq!(forms.map(|record| record.accept).collect::<Vec<_>>(), [PROTOBUF]);
    sleep(Duration::from_millis(300)).await;
    site.server.cut();
    site.stop().await;

    // Without a link, by the hash that the list names, by none, and by one of which the API server would send on.
    site.start_inside(|_| {}).await;
    site.answers().await;
    let other = format!("{APPS}?hash=0");
    for (path, accept, title) in [
        (&*core, JSON, "core"),
        (CORE, RAW, "core"),
        (&*apps, JSON, "apps"),
        (APPS, RAW, "apps"),
        (&*other, JSON, "apps"),
        (V2, PROTOBUF, "version 2"),
    ] {
        assert!(answer(&site, path, accept).await == (200, document(title)), "{path} {accept}");
    }
    let (status, list) = answer(&site, LIST, JSON).await;
    assert_eq!((status, list["paths"]["api/v1"]["serverRelativeURL"].as_str()), (200, Some(&*core)));
    let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
    let kept = &status["store"]["openapi"];
    assert!(kept["documents"] == 4 && kept["bytes"].as_u64() > Some(600_000), "{kept}");
    site.stop().await;

    // Another start has them all.
    site.server.heal();
    site.server.log().clear();
    start(&mut site).await;
    sleep(Duration::from_secs(7)).await;
    assert!(asked(&site).is_empty(), "nothing is fetched again: {:?}", asked(&site));

    // One changes; the hub has the new list as soon as anybody has, and looks at it at the next link.
    let [_, apps] = serve(&site, "core", "apps, changed");
    assert_eq!(get(&site.plain(), LIST).await.unwrap().0, 200);
    site.server.cut();
    site.offline().await;
    site.server.heal();
    site.linked().await;
    let expected = [(V2.to_owned(), 304), (APPS.to_owned(), 200)];
    site.until("what changed is fetched", async || asked(&site) == expected).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(&site), expected, "and that alone");
    site.server.cut();
    site.offline().await;
    assert!(answer(&site, &apps, JSON).await == (200, document("apps, changed")));
}

#[tokio::test]
async fn what_did_not_come_is_not_asked_for_at_each_link_and_others_are() {
    let mut site = Site::new().await;
    site.set("--openapi", "all");
    site.server.cluster().set_document(V2, &document("version 2"));
    serve(&site, "core", "apps");
    site.server.fail(CORE, 503);
    start(&mut site).await;
    let expected = [(V2, 200), (CORE, 503), (APPS, 200)].map(|(path, status)| (path.to_owned(), status));
    site.until("all are asked for", async || asked(&site) == expected).await;
    sleep(Duration::from_millis(300)).await;
    relink(&site).await;
    sleep(Duration::from_secs(7)).await;
    assert_eq!(asked(&site), expected, "nothing is asked for again");

    // They change; of the first the beginning comes, and then the line breaks.
    site.server.log().clear();
    let [_, apps] = serve(&site, "core, changed", "apps, changed");
    assert_eq!(get(&site.plain(), LIST).await.unwrap().0, 200);
    relink(&site).await;
    site.until("version 2 is asked for", async || asked(&site) == [(V2.to_owned(), 304)]).await;
    sleep(Duration::from_millis(300)).await;
    site.server.throttle(Some(1));
    let paths = || asked(&site).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    site.until("the next is asked for", async || paths() == [V2, CORE]).await;
    relink(&site).await;
    site.until("others go on", async || asked(&site).last() == Some(&(APPS.to_owned(), 200))).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(paths(), [V2, CORE, APPS], "each is tried once");
    site.server.cut();
    site.offline().await;
    assert!(answer(&site, &apps, JSON).await == (200, document("apps, changed")));
    // It never came.
    is_absent(&site, CORE, "all").await;
}

#[tokio::test]
async fn documents_of_what_is_used_or_was_asked_for_are_fetched_and_no_others() {
    let mut site = Site::new().await;
    site.server.cluster().set_document(V2, &document("version 2"));
    let all = |title| [CORE, APPS, BATCH, EXAMPLE].map(|path| (path, title));
    serve_all(&site, all("before"));
    start(&mut site).await;
    // Services are shared, and there is nothing of the other groups.
    let mut known = expected([(V2, 200), (CORE, 200)]);
    site.until("those of what is used are fetched", async || asked(&site) == known).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(&site), known, "and no others");

    // Another group has a stream.
    site.caught_up(WIDGETS, &[]).await;
    site.until("there is a stream", async || site.upstream_watches(WIDGETS) == 1).await;
    known.extend(expected([(EXAMPLE, 200)]));
    site.until("its document follows", async || asked(&site) == known).await;

    // A client asks for one, and for another in a form that the hub does not fetch.
    assert!(answer(&site, APPS, JSON).await == (200, document("before")));
    assert_eq!(answer(&site, BATCH, PROTOBUF_V3).await.0, 200);
    known.extend(expected([(APPS, 200), (BATCH, 200)]));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(asked(&site), known, "they are here, and are not fetched again");
    site.server.cut();
    site.stop().await;
    site.start_inside(|_| {}).await;
    site.answers().await;
    for path in [CORE, EXAMPLE, APPS] {
        assert!(answer(&site, path, JSON).await == (200, document("before")), "{path}");
    }
    is_absent(&site, BATCH, "used").await;
    site.stop().await;

    // Another start knows of what there was a stream, and what was asked for: nothing of it is fetched again before it changes.
    site.server.heal();
    site.server.log().clear();
    start(&mut site).await;
    let mut known = expected([(V2, 304)]);
    site.until("version 2 is asked for", async || asked(&site) == known).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(&site), known, "and nothing else");
    serve_all(&site, all("after"));
    assert_eq!(get(&site.plain(), LIST).await.unwrap().0, 200);
    relink(&site).await;
    known.extend(expected([(V2, 304), (CORE, 200), (APPS, 200), (EXAMPLE, 200)]));
    site.until("what changed is fetched", async || asked(&site) == known).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(&site), known, "and no others");
    site.server.cut();
    site.offline().await;
    for path in [CORE, EXAMPLE, APPS] {
        assert!(answer(&site, path, JSON).await == (200, document("after")), "{path}");
    }
}

#[tokio::test]
async fn where_only_what_clients_ask_for_is_kept_nothing_is_fetched() {
    let mut site = Site::new().await;
    site.set("--openapi", "asked");
    site.server.cluster().set_document(V2, &document("version 2"));
    let [core, _] = serve(&site, "core", "apps");
    start(&mut site).await;
    assert!(answer(&site, &core, JSON).await == (200, document("core")));
    sleep(Duration::from_secs(4)).await;
    let requests = site.server.log().requests().into_iter();
    let about: Vec<_> =
        requests.map(|record| record.path).filter(|path| path.starts_with("/openapi/")).collect();
    assert_eq!(about, [CORE], "nothing that nobody asked for");
    site.server.cut();
    site.offline().await;
    assert!(answer(&site, &core, JSON).await == (200, document("core")));
    for path in [LIST, APPS, V2] {
        is_absent(&site, path, "asked").await;
    }
}

/// A definition is newer than the list of documents, and its documents a moment newer than that.
#[tokio::test]
async fn what_has_come_into_use_since_is_described_without_a_link() {
    let mut site = Site::new().await;
    site.server.cluster().set_document(V2, &document("version 2"));
    let all = |title| [(CORE, "core"), (APPS, "apps"), (EXAMPLE, title)];
    serve_all(&site, all("widgets"));
    start(&mut site).await;
    site.caught_up(WIDGETS, &[]).await;
    let mut known = expected([(V2, 200), (CORE, 200), (EXAMPLE, 200)]);
    site.until("those of what is used are fetched", async || asked(&site) == known).await;
    let before = lists(&site);
    comes_into_use(&site, "example.com", "shelves").await;
    site.until("the list is asked for", async || lists(&site) == before + 1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(asked(&site), known, "it names what is kept");
    serve_all(&site, all("widgets and shelves"));
    // Version 2 is of all of them.
    known.extend(expected([(EXAMPLE, 200), (V2, 304)]));
    site.until("what is new follows", async || asked(&site) == known).await;
    assert_eq!(lists(&site), before + 2);

    // Of another nothing is ever described.
    comes_into_use(&site, "example.com", "pens").await;
    site.until("the list is asked for twice", async || lists(&site) == before + 4).await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!((lists(&site), asked(&site)), (before + 4, known), "and no more than that");
    site.server.cut();
    site.offline().await;
    assert!(answer(&site, EXAMPLE, JSON).await == (200, document("widgets and shelves")));
}

#[tokio::test]
async fn where_only_what_clients_ask_for_is_kept_that_alone_follows_what_comes_into_use() {
    let mut site = Site::new().await;
    site.set("--openapi", "asked");
    serve_all(&site, [(CORE, "core"), (EXAMPLE, "before")]);
    start(&mut site).await;
    assert!(answer(&site, EXAMPLE, JSON).await == (200, document("before")));
    let knows = || site.server.log().requests().into_iter().any(|record| record.path == "/version");
    site.until("the hub has asked what there is", async || knows()).await;
    comes_into_use(&site, "shops.example.com", "tills").await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(lists(&site), 0, "nobody asked for that group's document");
    serve_all(&site, [(CORE, "core, changed"), (EXAMPLE, "after")]);
    comes_into_use(&site, "example.com", "shelves").await;
    let twice = expected([(EXAMPLE, 200), (EXAMPLE, 200)]);
    site.until("the document is asked for again", async || asked(&site) == twice).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!((lists(&site), asked(&site)), (1, twice), "and nothing else");
    site.server.cut();
    site.offline().await;
    assert!(answer(&site, EXAMPLE, JSON).await == (200, document("after")));
}

/// How often the list of documents was asked for.
fn lists(site: &Site) -> usize {
    site.server.log().requests().into_iter().filter(|record| record.path == LIST).count()
}

/// The server has a resource only now, and a client reads it.
async fn comes_into_use(site: &Site, group: &str, resource: &str) {
    site.server.cluster().define(Kind::built_in(group, "v1", resource, resource, true));
    site.caught_up(&format!("/apis/{group}/v1/{resource}"), &[]).await;
}

/// Breaks the link, and heals what is wrong with it.
async fn relink(site: &Site) {
    site.server.cut();
    site.offline().await;
    site.server.heal();
    site.linked().await;
}
