//! The index with a scripted API server behind it.

#![allow(clippy::needless_pass_by_value, reason = "json! values read best when passed as they are")]

use std::collections::BTreeMap;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::time::{advance, pause, sleep};

use super::*;

fn guarded(pool: Value) -> DeserializeGuard<NodePool> {
    serde_json::from_value(pool).unwrap()
}

fn pool(name: &str, spec: Value) -> DeserializeGuard<NodePool> {
    guarded(json!({
        "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": { "name": name }, "spec": spec
    }))
}

const HOST: PoolView = PoolView::Network(NetworkMode::HostNetwork);
const CONTAINER: PoolView = PoolView::Network(NetworkMode::ContainerNetwork);

/// Pools that exist, how long an answer takes, whether there is one, and which names were asked for.
#[derive(Clone, Default)]
struct Script {
    pools: BTreeMap<&'static str, PoolView>,
    delay: Duration,
    broken: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Live for Script {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<PoolView>, LiveError>> {
        async move {
            self.asked.lock().push(name.to_owned());
            sleep(self.delay).await;
            if self.broken { Err("connection refused".into()) } else { Ok(self.pools.get(name).cloned()) }
        }
        .boxed()
    }
}

#[test]
fn a_list_counts_when_it_is_whole() {
    let pools = Pools::new(Script::default());
    let ready = pools.ready();
    pools.apply(Event::Init);
    pools.apply(Event::InitApply(pool("a", json!({ "hostNetwork": true }))));
    assert!(!*ready.borrow());
    assert_eq!(pools.get("a"), None);
    pools.apply(Event::InitDone);
    assert!(*ready.borrow());
    assert_eq!(pools.get("a"), Some(HOST));

    pools.apply(Event::Init);
    pools.apply(Event::InitApply(pool("b", json!({}))));
    assert_eq!(
        (pools.get("a"), pools.get("b")),
        (Some(HOST), None),
        "the old list counts until the new one is whole"
    );
    pools.apply(Event::InitDone);
    assert_eq!((pools.get("a"), pools.get("b")), (None, Some(CONTAINER)));
}

#[test]
fn events_change_single_pools() {
    let pools = Pools::new(Script::default());
    pools.apply(Event::Apply(pool("a", json!({ "networkMode": "HostNetwork" }))));
    assert_eq!(pools.get("a"), Some(HOST));
    pools.apply(Event::Delete(pool("a", json!({}))));
    assert_eq!(pools.get("a"), None);
}

#[test]
fn a_pool_that_cannot_be_read_is_known_as_such() {
    let pools = Pools::new(Script::default());
    pools.apply(Event::Apply(pool("a", json!({ "hostNetwork": "perhaps" }))));
    let Some(PoolView::Unreadable(error)) = pools.get("a") else { panic!("{:?}", pools.get("a")) };
    assert!(error.contains("perhaps"), "{error}");
    pools.apply(Event::Apply(pool("b", json!({ "type": "Cloud" }))));
    let types = [("a".to_owned(), None), ("b".to_owned(), Some(PoolType::Cloud))];
    assert_eq!((pools.types(), pools.all().len()), (types.into(), 1));
}

#[tokio::test]
async fn a_pool_that_the_watch_has_not_told_of_is_found() {
    pause();
    let script = Script { pools: BTreeMap::from([("new", HOST)]), ..Script::default() };
    let pools = Pools::new(script.clone());
    assert_eq!(pools.find("new").await.unwrap(), Some(HOST));
    assert_eq!(pools.get("new"), None, "only the watch fills the index");
}

#[tokio::test]
async fn an_unknown_name_is_asked_for_once_a_second() {
    pause();
    let script = Script::default();
    let pools = Pools::new(script.clone());
    for _ in 0..100 {
        assert_eq!(pools.find("nowhere").await.unwrap(), None);
    }
    assert_eq!(script.asked.lock().len(), 1);
    advance(Duration::from_secs(1)).await;
    assert_eq!(pools.find("nowhere").await.unwrap(), None);
    assert_eq!(script.asked.lock().len(), 2);
}

#[tokio::test]
async fn what_the_watch_told_of_is_not_asked_for() {
    let script = Script { broken: true, ..Script::default() };
    let pools = Pools::new(script.clone());
    pools.apply(Event::Apply(pool("a", json!({}))));
    assert_eq!(pools.find("a").await.unwrap(), Some(CONTAINER));
    assert_eq!(script.asked.lock().len(), 0);
}

#[tokio::test]
async fn no_answer_is_not_unknown() {
    pause();
    let pools = Pools::new(Script { delay: Duration::from_mins(1), ..Script::default() });
    assert_eq!(
        pools.find("a").await.unwrap_err().to_string(),
        "node pool \"a\" could not be looked up within 1000 ms"
    );
    let pools = Pools::new(Script { broken: true, ..Script::default() });
    let expected = "node pool \"a\" could not be looked up: connection refused";
    assert_eq!(pools.find("a").await.unwrap_err().to_string(), expected);
    assert_eq!(pools.find("a").await.unwrap_err().to_string(), expected, "a failure is not kept");
}

#[tokio::test]
async fn what_cannot_be_a_name_is_not_asked_for() {
    let script = Script::default();
    let pools = Pools::new(script.clone());
    let long = "a".repeat(254);
    for name in ["", "A", "a_b", "../nodes", "a/b", "a?b", "-a", "a-", "a..b", ".a", "ä", &long] {
        assert_eq!(pools.find(name).await.unwrap(), None, "{name}");
    }
    assert_eq!(*script.asked.lock(), Vec::<String>::new());
    for name in ["a", "0", "a.b-c.d"] {
        pools.find(name).await.unwrap();
    }
    assert_eq!(*script.asked.lock(), ["a", "0", "a.b-c.d"]);
}

#[tokio::test]
async fn made_up_names_do_not_fill_the_memory() {
    pause();
    let pools = Pools::new(Script::default());
    for number in 0..5_000 {
        pools.find(&format!("p{number}")).await.unwrap();
    }
    assert!(pools.shared.recent.lock().len() <= 1_024);
}
