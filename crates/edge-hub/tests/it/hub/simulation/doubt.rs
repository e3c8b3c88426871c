//! A doubt after a cut, on a clock that stands still: what the watch tells is held back until it fits what the API server said, for as long
//! as the server may still tell what is missing. The servers' watch caches lag here, so that they tell it late, or never. And without a doubt:
//! until it is told, what is held is not the most recent state.

use std::time::Duration;

use http::{Request, header};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    api_server::{Cluster, FakeApiServer},
    client::connection::Endpoint,
    memory::Port,
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep},
};

use super::{
    super::site::{JSON, Lines, SERVICES, get, names, service, version},
    parts::{Hub, Servers, folder},
};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

const ONE: &str = "/api/v1/namespaces/a/services/a";

/// A client that is shown all, and one that is shown Services through a filter.
const CLIENTS: [&str; 2] = ["shop/1", "kube-proxy/v1.36"];

/// A silence of the server after which it is asked again, as the hub has it.
const SILENT: Duration = Duration::from_secs(3);

/// A hub that holds the Services `a` and `b`, and one who watches them.
struct Doubt {
    cluster: Cluster,
    servers: Servers,
    hub: Hub,
    endpoint: Endpoint,
    watch: Lines,
    /// The version that both are at.
    seen: u64,
    _root: TempDir,
}

impl Doubt {
    async fn new() -> Self {
        let (cluster, root, port) = (Cluster::default(), folder(), Port::default());
        let servers = Servers::start(&cluster);
        for name in ["a", "b"] {
            cluster.create("services", service("a", name, 1)).unwrap();
        }
        let hub = Hub::start(root.path(), &servers, &port).await;
        let (endpoint, seen) = (Endpoint::within(port), cluster.revision());
        while held(&endpoint).await.is_none_or(|list| version(&list) < seen) {
            sleep(LOOK).await;
        }
        let watch = Lines::open(&endpoint, &format!("{SERVICES}?watch=1&resourceVersion={seen}")).await;
        Self { cluster, servers, hub, endpoint, watch, seen, _root: root }
    }

    /// Cuts the link, and lets `change` happen meanwhile. After it the servers' caches have come so many versions beyond `seen`.
    async fn cut(&mut self, change: impl FnOnce(&Cluster), told: u64) {
        self.servers.all.iter().for_each(FakeApiServer::cut);
        while !matches!(get(&self.endpoint, "/api/v1/nodes").await, Some((503, _))) {
            sleep(LOOK).await;
        }
        change(&self.cluster);
        for server in &self.servers.all {
            server.lag(Some(self.seen + told));
            server.heal();
        }
        self.is_asked().await;
    }

    /// Waits until the hub's watch runs again, and it has asked what there is now.
    async fn is_asked(&self) {
        let asked = || {
            let watches =
                |server: &FakeApiServer| server.log().totals(|record| record.path == SERVICES).open_watches;
            self.servers.all.iter().any(|server| watches(server) > 0)
        };
        while !asked() {
            sleep(LOOK).await;
        }
        sleep(LOOK).await;
    }

    /// The servers' caches come to what there is.
    fn catch_up(&self) {
        self.servers.all.iter().for_each(|server| server.lag(None));
    }

    async fn names(&self) -> Vec<String> {
        let list = held(&self.endpoint).await.expect("the hub answers by itself");
        names(&list).into_iter().map(str::to_owned).collect()
    }
}

/// A list that the hub answers by itself; nothing else.
async fn held(hub: &Endpoint) -> Option<Value> {
    let (list, is_held) = at_version(hub, 0).await?;
    (is_held && list["items"].is_array()).then_some(list)
}

/// A read of the most recent state by that client: what was answered, whether the hub did so by itself, and whether it said that it may be old.
async fn most_recent(hub: &Endpoint, path: &str, client: &str) -> (Value, bool, bool) {
    let request = Request::get(path).header(header::ACCEPT, JSON).header(header::USER_AGENT, client);
    let mut answer = hub.ask(request, String::new()).await.unwrap();
    let has = |name: &str| answer.headers.contains_key(name);
    let (is_held, is_old) = (!has("audit-id"), has("warning"));
    let body = answer.bytes().await.unwrap();
    (serde_json::from_slice(&body).unwrap(), is_held, is_old)
}

/// A list of any version from this one on, and whether the hub answered it by itself.
async fn at_version(hub: &Endpoint, version: u64) -> Option<(Value, bool)> {
    let path = format!("{SERVICES}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    let mut answer = hub.get(&path, JSON).await.ok()?;
    let is_held = !answer.headers.contains_key("audit-id");
    let body = answer.bytes().await.ok()?;
    Some((serde_json::from_slice(&body).ok()?, is_held))
}

fn run(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
}

fn create(cluster: &Cluster, name: &str) {
    cluster.create("services", service("a", name, 1)).unwrap();
}

fn delete(cluster: &Cluster, name: &str) {
    cluster.delete("services", &format!("a/{name}")).unwrap();
}

/// One comes and another goes: as long as only the first is told there is one too many.
fn exchange(cluster: &Cluster) {
    create(cluster, "c");
    delete(cluster, "a");
}

#[test]
fn what_is_told_in_doubt_is_shown_once_it_fits_whole_and_in_order() {
    run(async {
        let mut doubt = Doubt::new().await;
        let seen = doubt.seen;
        doubt.cut(exchange, 1).await;
        assert!(
            doubt.watch.is_silent(SILENT / 2).await,
            "a third one was told beside two that cannot both be there"
        );
        assert_eq!(doubt.names().await, ["a", "b"]);
        doubt.catch_up();
        assert_eq!(doubt.watch.brief().await, format!("ADDED c@{}", seen + 1));
        assert_eq!(doubt.watch.brief().await, format!("DELETED a@{}", seen + 2));
        assert_eq!(doubt.names().await, ["b", "c"]);
        doubt.hub.kill().await;
    });
}

/// A link that never stands for long must not keep everything back.
#[test]
fn what_was_held_back_when_the_link_broke_is_shown_after_it() {
    run(async {
        let mut doubt = Doubt::new().await;
        let seen = doubt.seen;
        doubt.cut(exchange, 1).await;
        assert!(doubt.watch.is_silent(SILENT / 2).await);
        doubt.cut(|_| {}, 1).await;
        assert_eq!(doubt.watch.brief().await, format!("ADDED c@{}", seen + 1));
        assert_eq!(doubt.names().await, ["a", "b", "c"]);
        doubt.catch_up();
        assert_eq!(doubt.watch.brief().await, format!("DELETED a@{}", seen + 2));
        doubt.hub.kill().await;
    });
}

/// The first silence may be the link's: only after a second one what is held is what upstream never had.
#[test]
fn after_one_silence_a_doubt_is_asked_about_and_after_two_all_is_listed_anew() {
    for (silence, told) in [(SILENT * 3 / 2, "DELETED b@"), (SILENT * 5 / 2, "ERROR 410")] {
        run(async {
            let mut doubt = Doubt::new().await;
            doubt.cut(|cluster| delete(cluster, "b"), 0).await;
            sleep(silence).await;
            doubt.catch_up();
            let first = doubt.watch.brief().await;
            assert!(first.starts_with(told), "{first} after {silence:?}");
            assert_eq!(doubt.names().await, ["a"]);
            doubt.hub.kill().await;
        });
    }
}

/// Who waits for a doubt to end is shown what ended it. Who has waited for a second is to ask again, and not handed on: what the API server says may
/// be ahead of what is held when the link breaks.
#[test]
fn a_read_in_doubt_is_answered_with_what_ends_it_or_is_to_be_asked_again() {
    for (ends, expected) in [(300, Some(vec!["a"])), (1500, None)] {
        run(async {
            let mut doubt = Doubt::new().await;
            doubt.cut(|cluster| delete(cluster, "b"), 0).await;
            let read = at_version(&doubt.endpoint, doubt.seen);
            let catch_up = async {
                sleep(Duration::from_millis(ends)).await;
                doubt.catch_up();
            };
            let (answer, ()) = tokio::join!(read, catch_up);
            let (list, is_held) = answer.unwrap();
            assert!(is_held, "handed on");
            match expected {
                Some(expected) => assert_eq!(names(&list), expected),
                None => assert_eq!(list["code"], 429, "{list}"),
            }
            doubt.hub.kill().await;
        });
    }
}

/// The watch runs, nothing is in doubt, and what was changed is still on its way.
#[test]
fn what_is_of_before_a_cut_is_not_shown_as_the_most_recent_state() {
    run(async {
        let mut doubt = Doubt::new().await;
        let seen = doubt.seen;
        let [unfiltered, filtered] = CLIENTS;
        for client in CLIENTS {
            let (list, is_held, is_old) = most_recent(&doubt.endpoint, SERVICES, client).await;
            assert_eq!((version(&list), is_held, is_old), (seen, true, false), "{client}");
        }
        let change = |cluster: &Cluster| _ = cluster.update("services", &service("a", "a", 2)).unwrap();
        doubt.cut(change, 0).await;
        for _ in 0..2 {
            for path in [SERVICES, ONE] {
                let (answer, is_held, is_old) = most_recent(&doubt.endpoint, path, unfiltered).await;
                assert_eq!((version(&answer), is_held, is_old), (seen + 1, false, false), "{path}");
            }
            // Who takes any state, or what he has seen, has it at once.
            assert_eq!(version(&held(&doubt.endpoint).await.unwrap()), seen);
            let (list, is_held) = at_version(&doubt.endpoint, seen).await.unwrap();
            assert_eq!((version(&list), is_held), (seen, true));
            sleep(SILENT / 4).await;
        }
        // What is shown through a filter waits for it.
        let began = Instant::now();
        let waits = most_recent(&doubt.endpoint, SERVICES, filtered);
        let catch_up = async {
            sleep(SILENT / 6).await;
            doubt.catch_up();
        };
        let ((list, is_held, is_old), ()) = tokio::join!(waits, catch_up);
        assert_eq!((version(&list), is_held, is_old), (seen + 1, true, false));
        assert!(began.elapsed() < SILENT / 3, "{:?}", began.elapsed());
        let (list, is_held, is_old) = most_recent(&doubt.endpoint, SERVICES, unfiltered).await;
        assert_eq!((version(&list), is_held, is_old), (seen + 1, true, false), "it has told all");
        doubt.hub.kill().await;
    });
}

/// Nothing will ever be told of the version that the API server has come to: it is another resource's.
#[test]
fn what_nobody_changed_during_a_cut_is_the_most_recent_state_after_a_silence() {
    run(async {
        let mut doubt = Doubt::new().await;
        let other = |cluster: &Cluster| {
            let map = json!({ "metadata": { "namespace": "a", "name": "other" }, "data": {} });
            cluster.create("configmaps", map).unwrap();
        };
        doubt.cut(other, 1).await;
        let client = CLIENTS[0];
        let is_held = async || {
            let (list, is_held, is_old) = most_recent(&doubt.endpoint, SERVICES, client).await;
            assert!(names(&list) == ["a", "b"] && !is_old);
            is_held
        };
        assert!(!is_held().await, "it is not known yet");
        sleep(SILENT * 3 / 2).await;
        assert!(is_held().await);
        doubt.hub.kill().await;
    });
}
