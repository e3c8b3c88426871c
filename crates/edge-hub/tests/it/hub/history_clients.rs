//! The clients of a random history: informers of a built-in and of a custom resource, in the ways that informers have; and a watch that is
//! read by hand.

use std::time::Duration;

use serde_json::Value;
use testkit::{
    client::{ClientOptions, Recorder, Recording, TestClient, connection::Endpoint},
    history::{Change, End, Observation, Request, Scope},
};
use tokio::sync::watch;

use super::site::{JSON, Lines, SERVICES, WIDGETS, service};

/// What the test kit calls the custom resource.
pub(super) const WIDGET_ID: &str = "widgets.example.com";

/// What a client selects by: labels, and fields.
type Selectors = (&'static str, &'static str);

const ALL: Selectors = ("", "");

/// A client: what of, its name, path, selectors, the size of its pages, and whether it begins with a watch.
type Variant = (&'static str, &'static str, &'static str, Selectors, Option<u64>, bool);

const OF_THE_NODE: [Variant; 7] = [
    ("services", "plain", SERVICES, ALL, None, false),
    ("services", "odd", SERVICES, ("n=odd", ""), Some(2), false),
    ("services", "streaming", "/api/v1/namespaces/a/services", ("n=even", ""), None, true),
    ("services", "of a type", SERVICES, ("", "spec.type=NodePort"), None, false),
    ("services", "odd of a type", SERVICES, ("n=odd", "spec.type!=NodePort"), None, true),
    (WIDGET_ID, "widgets", WIDGETS, ALL, Some(2), false),
    (WIDGET_ID, "streaming", WIDGETS, ("n!=even", ""), None, true),
];

/// A Service as histories write it: what clients select by, a label and a field, changes with `n`, each by itself.
pub(super) fn written(namespace: &str, name: &str, n: u64) -> Value {
    let mut service = service(namespace, name, n);
    service["spec"]["type"] = if n % 4 < 2 { "ClusterIP" } else { "NodePort" }.into();
    service
}

/// A client that is away: what of, its name, path, labels, and for how many seconds.
type Away = (&'static str, &'static str, &'static str, &'static str, u64);

pub(super) const AWAY_OF_THE_NODE: [Away; 3] = [
    ("services", "away", SERVICES, "", 3),
    (WIDGET_ID, "away", WIDGETS, "", 8),
    (WIDGET_ID, "away odd", WIDGETS, "n=odd", 8),
];

pub(super) const AWAY_OF_ANOTHER: [Away; 1] = [(WIDGET_ID, "away another", WIDGETS, "", 8)];

/// Each list of those of the node, as the hub holds it at whatever version: the resource, the scope, and its path.
pub(super) fn lists() -> impl Iterator<Item = (&'static str, Scope, String)> {
    OF_THE_NODE.iter().map(|&(id, name, path, selectors, ..)| held(id, name, path, selectors))
}

/// The same of clients that are away: their watches are too short for them to be told that they are ahead.
pub(super) fn lists_away(away: &[Away]) -> impl Iterator<Item = (&'static str, Scope, String)> {
    away.iter().map(|&(id, name, path, labels, _)| held(id, name, path, (labels, "")))
}

fn held(id: &'static str, name: &str, path: &str, selectors: Selectors) -> (&'static str, Scope, String) {
    let mut options = ClientOptions::new(name, path);
    (options.labels, options.fields) = (selectors.0.to_owned(), selectors.1.to_owned());
    (id, options.scope().unwrap(), options.path_with(&[("resourceVersion", "0".to_owned())]))
}

/// Starts those of the node; each is with the resource that it is of. With `happens` those that are refused ask more seldom while nothing does.
pub(super) fn start(
    endpoint: impl Fn() -> Endpoint,
    generation: usize,
    backoff: Duration,
    recorder: &Recorder,
    happens: Option<&watch::Receiver<()>>,
) -> Vec<(&'static str, TestClient)> {
    start_variants(&OF_THE_NODE, endpoint, generation, backoff, recorder, happens)
}

/// Starts those that are away most of the time, and come back with the version that they have.
pub(super) fn start_away(
    away: &[Away],
    endpoint: impl Fn() -> Endpoint,
    generation: usize,
    backoff: Duration,
    recorder: &Recorder,
    happens: Option<&watch::Receiver<()>>,
) -> Vec<(&'static str, TestClient)> {
    away.iter()
        .map(|&(id, name, path, labels, seconds)| {
            let mut options = ClientOptions::new(&format!("{name} {generation}"), path);
            labels.clone_into(&mut options.labels);
            options.backoff = backoff;
            options.happens = happens.cloned();
            (options.watch_timeout, options.away) = (Duration::from_secs(1), Duration::from_secs(seconds));
            (id, TestClient::start(endpoint(), options, recorder).unwrap())
        })
        .collect()
}

/// Starts those of an identity that is not the node.
pub(super) fn start_of_another(
    endpoint: impl Fn() -> Endpoint,
    generation: usize,
    backoff: Duration,
    recorder: &Recorder,
    happens: Option<&watch::Receiver<()>>,
) -> Vec<(&'static str, TestClient)> {
    let variants = [
        ("services", "another", SERVICES, ALL, None, false),
        (WIDGET_ID, "another", WIDGETS, ALL, None, true),
    ];
    start_variants(&variants, endpoint, generation, backoff, recorder, happens)
}

fn start_variants(
    variants: &[Variant],
    endpoint: impl Fn() -> Endpoint,
    generation: usize,
    backoff: Duration,
    recorder: &Recorder,
    happens: Option<&watch::Receiver<()>>,
) -> Vec<(&'static str, TestClient)> {
    variants
        .iter()
        .map(|&(id, name, path, (labels, fields), page_size, watch_list)| {
            let mut options = ClientOptions::new(&format!("{name} {generation}"), path);
            (options.labels, options.fields) = (labels.to_owned(), fields.to_owned());
            options.page_size = page_size;
            options.watch_list = watch_list;
            // One that lists in pages and one that begins with a watch; others ask for the same as JSON.
            options.protobuf = ["odd", "streaming"].contains(&name) && id == "services";
            options.backoff = backoff;
            options.happens = happens.cloned();
            (id, TestClient::start(endpoint(), options, recorder).unwrap())
        })
        .collect()
}

/// A watch of services from their state on. What comes is noted as it is read.
pub(super) struct Reader {
    pub(super) lines: Lines,
    recording: Recording,
}

impl Reader {
    /// Opens it, if the hub lets it.
    pub(super) async fn open(hub: &Endpoint, recorder: &Recorder, name: &str) -> Option<Self> {
        let answer = hub.get(&format!("{SERVICES}?watch=1&resourceVersion=0"), JSON).await.ok()?;
        if answer.status != 200 {
            return None;
        }
        let request = Request::WatchInitial { at_least: Some(0), bookmarks: false };
        let recording = recorder.begin(name, "services", &Scope::default(), request);
        recording.opened();
        Some(Self { lines: Lines::of(answer), recording })
    }

    /// Notes an event, and says whether the watch goes on after it.
    pub(super) fn note(&self, event: &Value) -> bool {
        let object = &event["object"];
        let change = match event["type"].as_str() {
            Some("ADDED") => Change::Added,
            Some("MODIFIED") => Change::Modified,
            Some("DELETED") => Change::Deleted,
            _ => {
                let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
                self.recording.observe(Observation::Error { code, message: object["message"].to_string() });
                return false;
            }
        };
        self.recording.observe(Observation::Event(change, object.clone()));
        true
    }

    /// It is over.
    pub(super) fn end(self, how: End) {
        self.recording.end(how);
    }
}
