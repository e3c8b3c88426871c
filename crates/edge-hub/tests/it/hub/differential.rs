//! The hub and the API server, asked the same: what a reader thinks of first, and what clients ask, of built-in and custom resources. That
//! both say the same shows something only if it is the hub that says it.

mod offline;

use futures::future::join_all;
use serde_json::json;
use testkit::{
    api_server::Kind,
    client::connection::Endpoint,
    differential::{Case, Common, Landmarks, Subject, Verb, compare, live, populate},
};

use super::site::{Site, get, widget_kind};

/// The least share of them that the hub is to answer by itself, in percent; it is 39 of lists and 21 of watches. The others are errors, which are the API server's to word,
/// or of versions that the hub does not have.
const HELD: u64 = 10;

/// The same of what clients ask, most of which is good: of that it is at least half.
const HELD_OF_DRAWN: u64 = 50;

/// How many are drawn of each verb.
const DRAWN: usize = 80;

/// What a reader thinks of first: these parameters of lists and of watches, each value with each.
const CORNERS: [(bool, [&str; 3]); 2] = [
    (false, ["resourceVersion", "resourceVersionMatch", "labelSelector"]),
    (true, ["resourceVersion", "resourceVersionMatch", "sendInitialEvents"]),
];

/// How many requests of a verb were answered from what is held, and how many there were.
async fn answered(admin: &Endpoint, verb: &str) -> [u64; 2] {
    let mut answer = admin.get("/metrics", "text/plain").await.unwrap();
    let text = String::from_utf8(answer.bytes().await.unwrap().to_vec()).unwrap();
    let verb = format!("verb=\"{verb}\"");
    let mut counts = [0, 0];
    for line in text.lines().filter(|line| line.contains("hub_requests_total{") && line.contains(&verb)) {
        let value: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        counts[0] += value * u64::from(line.contains("outcome=\"Held\""));
        counts[1] += value;
    }
    counts
}

/// What is asked about, and whether there is protobuf of whole objects.
fn subjects(site: &Site) -> [(Subject, bool); 3] {
    let places = Kind { resource: "places".into(), kind: "Place".into(), namespaced: false, ..widget_kind() };
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    site.server.cluster().create(definitions, places.crd()).unwrap();
    [
        // Whole, for what is left out does not come back from protobuf as it was.
        (
            "/api/v1",
            "services",
            true,
            json!({ "spec": { "clusterIP": "None", "type": "ClusterIP" }, "status": { "loadBalancer": {} } }),
        ),
        ("/apis/example.com/v1", "widgets", true, json!({ "spec": { "n": 1 } })),
        ("/apis/example.com/v1", "places", false, json!({ "spec": { "n": 1 } })),
    ]
    .map(|(root, resource, namespaced, template)| {
        let subject = Subject { root: root.to_owned(), resource: resource.to_owned(), namespaced, template };
        (subject, resource == "services")
    })
}

/// Writes objects; the hub watches them, and so has the history that is asked for, and has caught up.
async fn written(site: &Site, subject: &Subject) -> Landmarks {
    let hub = site.plain();
    assert_eq!(get(&hub, &subject.path(false)).await.unwrap().0, 200);
    let landmarks = populate(&site.direct(), subject).await.unwrap();
    let current = format!("{}?resourceVersion={}", subject.path(false), landmarks.current);
    site.until("it has caught up", async || {
        get(&hub, &current).await.is_some_and(|(status, _)| status == 200)
    })
    .await;
    landmarks
}

/// A hub that began when the first version of all was gone already, and what is asked about.
async fn begun() -> (Site, [(Subject, bool); 3]) {
    let mut site = Site::new().await;
    let subjects = subjects(&site);
    site.server.compact(site.server.cluster().revision());
    site.start();
    site.linked().await;
    (site, subjects)
}

#[tokio::test]
async fn the_hub_says_by_itself_what_the_api_server_says() {
    let (site, subjects) = begun().await;
    let (hub, server) = (site.plain(), site.direct());
    for (subject, typed) in subjects {
        let resource = &subject.resource;
        let landmarks = written(&site, &subject).await;
        for (watch, free) in CORNERS {
            agree(&site, &subject, &landmarks, Case::corners(watch, &free), HELD).await;
            // Most of them are errors.
            agree(&site, &subject, &landmarks, Case::pairs(watch, 1), 0).await;
        }
        for verb in [Verb::List, Verb::Watch, Verb::Get] {
            let drawn = Case::plausible(verb, DRAWN, 1, typed);
            agree(&site, &subject, &landmarks, drawn, HELD_OF_DRAWN).await;
        }
        let before = answered(&site.admin(), "Watch").await;
        for watch in live(&subject, &landmarks, [&server, &hub], &server, typed).await.unwrap() {
            let found = watch.difference(&subject, &landmarks);
            assert!(found.is_none(), "{resource}, written meanwhile: {}", found.unwrap());
        }
        enough(&site, "Watch", before, HELD_OF_DRAWN).await;
    }
}

/// Asks both the same, all of one verb; `least` percent of it the hub is to answer by itself.
async fn agree(site: &Site, subject: &Subject, landmarks: &Landmarks, cases: Vec<Case>, least: u64) {
    let (hub, server) = (site.plain(), site.direct());
    let verb = format!("{:?}", cases[0].verb);
    let before = answered(&site.admin(), &verb).await;
    // The fake waits for versions that never come for a moment only.
    let cases: Vec<Case> = cases.into_iter().filter(|case| !case.waits()).collect();
    let compared = cases
        .iter()
        .map(|case| compare(case, subject, (&server, landmarks), (&hub, landmarks), Common::Cluster));
    for found in join_all(compared).await {
        let found = found.unwrap();
        assert!(found.is_none(), "{}: {}", subject.resource, found.unwrap());
    }
    enough(site, &verb, before, least).await;
}

/// Asserts that since then the hub answered this share of a verb by itself.
async fn enough(site: &Site, verb: &str, before: [u64; 2], least: u64) {
    let after = answered(&site.admin(), verb).await;
    let [held, all] = [after[0] - before[0], after[1] - before[1]];
    assert!(all > 0 && held * 100 >= all * least, "of {all} of verb {verb} {held} were answered here");
}
