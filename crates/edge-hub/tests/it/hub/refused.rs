//! Streams that the API server refuses: it is said, and they begin once it does not.

use std::{fs, time::Duration};

use serde_json::json;
use testkit::api_server::{Kind, access::User};
use tokio::time::sleep;

use super::site::{SERVICES, Site, get, names, node, service, widget, widget_kind};

const GADGETS: &str = "/apis/example.com/v1/gadgets";

fn gadgets() -> Kind {
    Kind { resource: "gadgets".into(), kind: "Gadget".into(), ..widget_kind() }
}

/// State and reason of a resource's stream, as `edge-hub status` shows them.
async fn state(site: &Site, resource: &str) -> Option<(String, String)> {
    let (_, status) = get(&site.admin(), "/v1/status").await?;
    let streams = status["subscriptions"].as_array()?;
    let stream = streams.iter().find(|stream| stream["resource"] == resource)?;
    let text = |key: &str| stream[key].as_str().unwrap_or_default().to_owned();
    Some((text("state").to_lowercase(), text("reason")))
}

#[tokio::test]
async fn a_resource_that_is_not_there_yet_is_shared_once_it_is() {
    let mut site = Site::new().await;
    site.set("--pool-scope-resources", "/v1/services,example.com/v1/gadgets");
    site.start();
    site.linked().await;
    site.until("it is refused", async || {
        state(&site, "gadgets.example.com")
            .await
            .is_some_and(|(state, reason)| state == "refused" && !reason.is_empty())
    })
    .await;
    // One resource that is missing does not make the hub unfit for the others.
    site.until("the hub is ready", async || {
        get(&site.admin(), "/v1/readyz").await.is_some_and(|(status, _)| status == 200)
    })
    .await;
    assert_eq!(get(&site.plain(), GADGETS).await.unwrap().0, 404, "in the API server's words");
    site.server.cluster().define(gadgets());
    site.server.cluster().create("gadgets.example.com", widget("g", 1)).unwrap();
    site.caught_up(GADGETS, &["g"]).await;
    site.until("it is shared", async || site.upstream_watches(GADGETS) == 1).await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_and_given_back() {
    let site = Site::started().await;
    let cluster = site.server.cluster();
    cluster.create("services", service("a", "visible", 1)).unwrap();
    site.caught_up(SERVICES, &["visible"]).await;
    let access = cluster.access();
    access.add_token("t", User::service_account("a", "t"));
    let theirs = site.secure(None).with_token("t");
    let list = format!("{SERVICES}?resourceVersion=0");
    assert_eq!(get(&theirs, &list).await.unwrap().0, 200);
    // The node may no longer watch what it shares; others still may read it, and are answered by the API server.
    access.set_authorizer(|asked| asked.resource != "services" || asked.user.name != node().name);
    site.server.reset_connections();
    site.until("it is refused", async || {
        state(&site, "services").await.is_some_and(|(state, _)| state == "refused")
    })
    .await;
    cluster.create("services", service("a", "later", 1)).unwrap();
    let (status, held) = get(&theirs, &list).await.unwrap();
    assert_eq!((status, names(&held)), (200, vec!["later", "visible"]), "not from what was held");
    access.set_authorizer(|_| true);
    site.until("it is watched again", async || site.upstream_watches(SERVICES) == 1).await;
    site.caught_up(SERVICES, &["later", "visible"]).await;
}

/// A stream of a user's own stays on the disk when its right has gone; that it was fetched once shows nothing to who was refused since.
#[tokio::test]
async fn who_was_refused_before_the_cut_sees_nothing_of_a_stream_of_its_own() {
    const PRIVATE: &str = "/api/v1/namespaces/a/configmaps";
    let mut site = Site::new().await;
    site.start_inside(|config| config.lifetimes.allowed = Duration::from_millis(100)).await;
    site.linked().await;
    let cluster = site.server.cluster();
    cluster.create("configmaps", json!({ "metadata": { "namespace": "a", "name": "c" } })).unwrap();
    for name in ["kept", "refused"] {
        cluster.access().add_token(name, User::service_account("a", name));
    }
    let list = format!("{PRIVATE}?resourceVersion=0");
    let read = async |name: &str, path: &str| get(&site.secure(None).with_token(name), path).await.unwrap();
    for name in ["kept", "refused"] {
        let (status, held) = read(name, &list).await;
        assert_eq!((status, names(&held)), (200, vec!["c"]), "{name}");
    }
    cluster.access().set_authorizer(|asked| asked.user.name != "system:serviceaccount:a:refused");
    site.until("it is refused", async || read("refused", &list).await.0 == 403).await;
    site.server.cut();
    site.offline().await;
    assert_eq!(read("kept", &list).await.0, 200);
    for path in [&list, &format!("{PRIVATE}/c"), &format!("{PRIVATE}?watch=1&resourceVersion=0")] {
        let (status, said) = read("refused", path).await;
        assert!(
            matches!(status, 429 | 503) && said["items"].is_null() && said["metadata"]["name"].is_null(),
            "{path}: {status} {said}"
        );
    }
}

/// An API server answers 401 and closes the connection: who comes back at once does so for as long as its certificate is wrong.
#[tokio::test]
async fn who_is_unknown_to_the_api_server_comes_back_seldom_and_says_why() {
    const WHY: &str = "the API server does not know this hub's certificate (401)";
    let site = Site::started().await;
    let before = site.server.connections();
    site.server.fail("/", 401);
    for _ in 0..160 {
        site.server.reset_connections();
        sleep(Duration::from_millis(25)).await;
    }
    let made = site.server.connections() - before;
    assert!(made < 20, "{made} connections in four seconds");
    site.until("the status says why", async || {
        let (_, status) = get(&site.admin(), "/v1/status").await.unwrap();
        if status["link"]["up"] == true {
            site.server.reset_connections();
        }
        status["link"]["reason"].as_str().is_some_and(|reason| reason.ends_with(WHY))
    })
    .await;
    let log = fs::read_to_string(site.log_file()).unwrap();
    let told = log.lines().filter(|line| line.contains(WHY)).count();
    assert!((1..=5).contains(&told), "{told} times\n{}", site.last_log());
    site.server.heal();
    site.linked().await;
}

/// What is held is as good as before: nobody is told that his version has expired.
#[tokio::test]
async fn a_refusal_that_breaks_off_is_no_reason_to_list_anew() {
    let site = Site::started().await;
    site.server.cluster().create("services", service("a", "before", 1)).unwrap();
    site.caught_up(SERVICES, &["before"]).await;
    let log = site.server.log();
    log.clear();
    site.server.fail(SERVICES, 500);
    // Whatever else is asked for breaks off as well.
    (0..12).for_each(|_| site.server.cut_after_bytes(15));
    site.server.reset_connections();
    let broke_off =
        || log.totals(|asked| asked.path == SERVICES && asked.watch && asked.body_bytes == 15).requests;
    site.until("a refusal broke off", async || broke_off() > 0).await;
    site.server.heal();
    site.server.cluster().create("services", service("a", "later", 1)).unwrap();
    site.until("the watch goes on", async || {
        let list = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await;
        list.is_some_and(|(_, list)| names(&list) == ["before", "later"])
    })
    .await;
    let is_list =
        |query: &str| !query.contains("resourceVersion") && !query.split('&').any(|part| part == "limit=1");
    let lists = log.totals(|asked| asked.path == SERVICES && !asked.watch && is_list(&asked.query)).requests;
    assert_eq!(lists, 0, "it was listed anew");
}
