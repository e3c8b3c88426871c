//! The file of `--config` is edited under a running hub: what it says of freshness, of agents and of filters holds from then on, and an edit that cannot
//! be read changes nothing of it and is named.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::site::{
    Lines, SERVICES, Site, WIDGETS, configured, edit, get, list_of_component, names, of_component,
    one_is_the_clouds, service, version, with_configuration,
};

/// Longer than the hub takes to look at the file again.
const LOOKED: Duration = Duration::from_millis(1500);

/// Longer than the hub takes to let go of what nobody asks for, where that is kept for no time at all.
const LET_GO: Duration = Duration::from_millis(4500);

/// What the status says of the configuration.
async fn configuration(site: &Site) -> Value {
    let (status, said) = get(&site.admin(), "/v1/status").await.unwrap();
    assert_eq!(status, 200);
    said["configuration"].clone()
}

/// Writes what cannot be read, and waits until the status says so in these words, and what was in force still is, and then for longer than it would take
/// to be put in force.
async fn spoil(site: &Site, file: &Path, text: &str, words: &str) {
    edit(file, text);
    site.until(&format!("the status says that the file is wrong: {words}"), async || {
        let place = configuration(site).await["places"][0].clone();
        let problem = place["problems"][0].as_str().unwrap_or_default();
        place["name"] == file.display().to_string()
            && place["state"] == "notInForce"
            && problem.starts_with("the configuration stays as it was: ")
            && problem.contains(words)
    })
    .await;
    sleep(LOOKED).await;
}

/// How often the API server was asked for the most recent Services, as a reader asks that the hub does not answer.
fn handed_on(site: &Site) -> usize {
    site.server
        .log()
        .totals(|record| record.path == SERVICES && !record.watch && record.query.is_empty())
        .requests
}

#[tokio::test]
async fn freshness_is_as_the_file_says_now() {
    let (site, file) = configured("freshness: { /v1/services: any }\n").await;
    site.server.cluster().create("services", service("a", "s", 1)).unwrap();
    site.caught_up(SERVICES, &["s"]).await;
    let hub = site.plain();
    let list = async || get(&hub, SERVICES).await.unwrap().0;
    // With a link the answer is the same, and who gives it is not.
    assert_eq!((list().await, handed_on(&site)), (200, 0));
    for strict in ["freshness: { /v1/services: strict }\n", "freshness: { default: strict }\n"] {
        edit(&file, strict);
        site.until("it is handed on", async || {
            let before = handed_on(&site);
            list().await == 200 && handed_on(&site) == before + 1
        })
        .await;
        edit(&file, "freshness: { /v1/services: any }\n");
        site.until("it is answered here", async || {
            let before = handed_on(&site);
            list().await == 200 && handed_on(&site) == before
        })
        .await;
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(list().await, 200);
    edit(&file, "freshness: { /v1/services: strict }\n");
    site.until("there is no answer", async || list().await == 503).await;
    assert_eq!(get(&hub, &format!("{SERVICES}?resourceVersion=0")).await.unwrap().0, 200, "of any version");
    spoil(&site, &file, "freshness: { /v1/services: sometimes }\n", "freshness./v1/services: ").await;
    assert_eq!(list().await, 503, "as it was");
    assert_eq!(configuration(&site).await["freshnessOf"]["/v1/services"], "strict");
    edit(&file, "freshness: { default: bounded:1 }\n");
    site.until("it is answered again", async || list().await == 200).await;
    assert_eq!(configuration(&site).await["places"][0]["state"], "inForce");
}

#[tokio::test]
async fn agents_are_kept_as_the_file_says_now() {
    let (mut site, file) = with_configuration("cacheAgents: []\n").await;
    site.start_inside(|config| config.lifetimes.idle = Duration::ZERO).await;
    site.linked().await;
    let hub = site.plain();
    let asks = async |component: &str| {
        list_of_component(&hub, component, &format!("{WIDGETS}?resourceVersion=0")).await;
        site.until("it is watched", async || site.upstream_watches(WIDGETS) == 1).await;
    };
    let let_go = async |what: &str| site.until(what, async || site.upstream_watches(WIDGETS) == 0).await;
    let named = async |agents: &[&str]| {
        let agents = if agents.is_empty() { Value::Null } else { json!(agents) };
        site.until("the status names the agents", async || {
            configuration(&site).await["cacheAgents"] == agents
        })
        .await;
    };
    asks("keeper").await;
    let_go("what an agent asked for that is not named is let go").await;
    edit(&file, "cacheAgents: [Keeper]\n");
    named(&["keeper"]).await;
    asks("keeper").await;
    sleep(LET_GO).await;
    assert_eq!(site.upstream_watches(WIDGETS), 1, "what the named agent asked for is kept");
    spoil(&site, &file, "cacheAgents: keeper\n", "cacheAgents: ").await;
    sleep(LET_GO).await;
    assert_eq!(site.upstream_watches(WIDGETS), 1, "as it was");
    edit(&file, "cacheAgents: [another]\n");
    let_go("what an agent asked for that is no longer named is let go").await;
    named(&["another"]).await;
    asks("keeper").await;
    let_go("and what it asks for since").await;
    edit(&file, "cacheAgents: []\n");
    named(&[]).await;
}

#[tokio::test]
async fn filters_are_for_whom_the_file_says_now() {
    let (site, file) = configured("filters: {}\n").await;
    one_is_the_clouds(&site).await;
    let hub = site.plain();
    // What it is shown, and a watch from there.
    let informs = async |component: &str, expected: &[&str]| {
        let list = list_of_component(&hub, component, SERVICES).await;
        assert_eq!(names(&list), expected, "{component}");
        let path = format!("{SERVICES}?watch=1&resourceVersion={}", version(&list));
        let answer = hub.ask(of_component(component, &path), String::new()).await.unwrap();
        assert_eq!(answer.status, 200);
        Lines::of(answer)
    };
    let mut mesh = informs("mesh", &["hidden", "shown"]).await;
    let mut proxy = informs("kube-proxy", &["shown"]).await;
    // In whichever letters.
    edit(&file, "filters: { discardcloudservice: [Mesh] }\n");
    assert_eq!(mesh.brief().await, "ERROR 410", "it is to be shown something else");
    let mut mesh = informs("mesh", &["shown"]).await;
    for (text, words) in [
        ("filters: { discardcloudservice: mesh }\n", "filters.discardcloudservice: "),
        ("filters: { discardcloud: [mesh] }\n", "filters: "),
        ("filters: {\n", "--config "),
    ] {
        spoil(&site, &file, text, words).await;
        assert!(mesh.is_silent(Duration::from_millis(50)).await, "as it was, after {text}");
        assert_eq!(configuration(&site).await["components"], json!({ "discardcloudservice": ["mesh"] }));
        drop(informs("mesh", &["shown"]).await);
    }
    edit(&file, "filters: {}\n");
    assert_eq!(mesh.brief().await, "ERROR 410");
    drop(informs("mesh", &["hidden", "shown"]).await);
    assert!(proxy.is_silent(Duration::from_millis(50)).await, "by default it is shown the same all along");
    drop(informs("kube-proxy", &["shown"]).await);
}
