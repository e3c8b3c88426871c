//! An API server of a later release: it shows what is built in with other defaults, at the versions that it had, and a watch that goes on from there tells
//! nothing of it.

use std::time::Duration;

use serde_json::Value;
use testkit::api_server::FakeApiServer;
use tokio::time::sleep;

use super::site::{Lines, SERVICES, Site, WIDGETS, get, service, version, widget};

const LIST: &str = "/api/v1/services?resourceVersion=0";

/// Stands for a field with another default, of those that this API server writes.
const NOW: &str = "10.0.0.2";

fn shape(object: &mut Value) {
    object["spec"]["clusterIP"] = NOW.into();
}

/// How often all of it was listed there, and of which release the server is was asked.
fn asked(server: &FakeApiServer, path: &str) -> usize {
    let is_page_of_one = |query: &str| query.split('&').any(|part| part == "limit=1");
    let log = server.log();
    let of_hub = log.totals(|record| {
        record.path == path && !record.watch && !record.user.is_empty() && !is_page_of_one(&record.query)
    });
    of_hub.requests
}

async fn start(site: &mut Site) {
    site.start_inside(|config| config.lifetimes.before_openapi = Duration::from_millis(200)).await;
    site.linked().await;
}

/// Waits until the hub has asked once more of which release the server is, and has had the time to do something about it.
async fn told_of_the_release(site: &Site, server: &FakeApiServer, before: usize) {
    site.until("it is asked of which release it is", async || asked(server, "/version") > before).await;
    sleep(Duration::from_secs(1)).await;
}

async fn shown_as_now(site: &Site) {
    site.until("the Services are as the later release has them", async || {
        get(&site.plain(), LIST).await.is_some_and(|(_, list)| {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.len() == 2 && items.iter().all(|item| item["spec"]["clusterIP"] == NOW)
        })
    })
    .await;
}

#[tokio::test]
async fn what_is_built_in_is_listed_anew_once_from_a_server_of_a_later_release() {
    let mut site = Site::new().await;
    let second = site.server.replica().await.unwrap();
    site.server.set_release("v1.36.3");
    second.set_release("v1.37.0");
    site.set("--server-addr", &format!("{},{}", site.server.url(), second.url()));
    let cluster = site.server.cluster().clone();
    for name in ["x", "y"] {
        cluster.create("services", service("a", name, 1)).unwrap();
    }
    cluster.create("widgets.example.com", widget("w", 1)).unwrap();
    start(&mut site).await;
    let hub = site.plain();
    site.caught_up(SERVICES, &["x", "y"]).await;
    site.caught_up(WIDGETS, &["w"]).await;
    // With what it asks for clients.
    told_of_the_release(&site, &site.server, 1).await;
    let before = get(&hub, LIST).await.unwrap().1;
    let from = version(&before);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={from}")).await;

    cluster.reshape("services", shape);
    site.server.cut();
    shown_as_now(&site).await;
    assert_eq!(watch.brief().await, "ERROR 410", "who holds the old bytes lists anew");
    assert_eq!([SERVICES, WIDGETS].map(|path| asked(&second, path)), [1, 0]);

    // The first is not upgraded yet.
    let (asked_before, listed) = (asked(&site.server, "/version"), asked(&site.server, SERVICES));
    site.server.heal();
    second.cut();
    told_of_the_release(&site, &site.server, asked_before).await;
    assert_eq!(asked(&site.server, SERVICES), listed);
    let asked_before = asked(&second, "/version");
    second.heal();
    site.server.cut();
    told_of_the_release(&site, &second, asked_before).await;
    assert_eq!(asked(&second, SERVICES), 1, "it has been listed there");
}

#[tokio::test]
async fn a_release_that_changed_while_no_hub_ran_is_noticed_by_the_next() {
    let mut site = Site::new().await;
    site.server.set_release("v1.36.9");
    let cluster = site.server.cluster().clone();
    for name in ["x", "y"] {
        cluster.create("services", service("a", name, 1)).unwrap();
    }
    start(&mut site).await;
    site.caught_up(SERVICES, &["x", "y"]).await;
    told_of_the_release(&site, &site.server, 1).await;
    site.stop().await;
    site.server.set_release("v1.36.10");
    cluster.reshape("services", shape);
    start(&mut site).await;
    shown_as_now(&site).await;
    let (asked_before, listed) = (asked(&site.server, "/version"), asked(&site.server, SERVICES));
    site.stop().await;
    start(&mut site).await;
    told_of_the_release(&site, &site.server, asked_before).await;
    assert_eq!(asked(&site.server, SERVICES), listed, "once");
}
