use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kube_wire::selectable_field::SelectableFields;
use node_report::{NodeUsage, Report};
use watch_cache::Delivery;

use super::*;
use crate::record;
use crate::render::Allocatable;
use crate::store::{Copied, NodeFacts, Settings};

mod admitted;
mod shares;

struct Fixture {
    storage: NodeMetricStorage,
    leading: Arc<AtomicBool>,
}

/// A storage that leads.
fn fixture(nodes: usize) -> Fixture {
    let leading = Arc::new(AtomicBool::new(true));
    let clock =
        || Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::new(1_790_000_000, 0).unwrap() };
    let asked = Arc::clone(&leading);
    let is_leading = move || asked.load(Ordering::Relaxed);
    let metrics =
        NodeMetrics::new(Store::new(Settings::default()), "slo.koordinator.sh/v1beta1", clock, is_leading);
    lead(&metrics, nodes);
    Fixture { storage: NodeMetricStorage(metrics), leading }
}

/// Leads over `n0000` … and has heard of each.
fn lead(metrics: &NodeMetrics, nodes: usize) {
    let names: Vec<Arc<str>> = (0..nodes).map(|n| Arc::from(format!("n{n:04}"))).collect();
    metrics.change(|store, now| {
        for name in &names {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.nodes_listed(now, &names.iter().cloned().collect());
        store.promote(now, 0);
        for name in &names {
            store.report(now, report(name, 0));
        }
    });
}

fn report(node: &str, seq: u64) -> Report {
    Report { node: node.to_owned(), seq, usage: Some(NodeUsage::default()), ..Report::default() }
}

fn list(query: &str) -> ListRequest {
    ListRequest::parse(query, &SelectableFields::custom([".status.freshness.state"])).unwrap()
}

fn watch(query: &str) -> WatchRequest {
    WatchRequest::parse(query, &SelectableFields::custom([".status.freshness.state"])).unwrap()
}

fn objects(page: &Page) -> Vec<Arc<Object>> {
    page.objects().map(Result::unwrap).collect()
}

fn names(page: &Page) -> Vec<String> {
    objects(page).iter().map(|object| object.key().name().to_owned()).collect()
}

/// What is told without waiting for a change that has yet to come.
async fn soon(watcher: &mut Box<dyn Watcher>) -> Option<Vec<Delivery>> {
    let told = tokio::time::timeout(Duration::from_secs(1), watcher.next()).await;
    told.ok().map(Result::unwrap)
}

/// Nothing is waited for longer.
async fn within<T>(told: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), told).await.expect("something is not told")
}

async fn told(watcher: &mut Box<dyn Watcher>, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        for delivery in within(watcher.next()).await.unwrap() {
            told.push(match delivery {
                Delivery::Added(object) => format!("+{}", object.key().name()),
                Delivery::Modified(object) => format!("~{}", object.key().name()),
                Delivery::Deleted(object) => format!("-{}", object.key().name()),
                Delivery::InitialEnd(_) => "end".to_owned(),
                Delivery::Bookmark(_) => "bookmark".to_owned(),
            });
        }
    }
    told
}

#[tokio::test]
async fn pages_are_of_one_version_whatever_happens_between_them() {
    let Fixture { storage, .. } = fixture(7);
    let first = storage.list(&Scope::Cluster, &list("limit=3")).await.unwrap();
    assert_eq!(names(&first), ["n0000", "n0001", "n0002"]);
    assert_eq!(first.remaining, Some(4));
    storage.0.change(|store, now| store.node_deleted(now, "n0004", "uid-n0004"));
    let query = format!("limit=3&continue={}", first.continue_token.as_ref().unwrap());
    let second = storage.list(&Scope::Cluster, &list(&query)).await.unwrap();
    assert_eq!(names(&second), ["n0003", "n0004", "n0005"]);
    assert_eq!(second.resource_version, first.resource_version);
    let whole = storage.list(&Scope::Cluster, &list(&format!("{query}&resourceVersion=0"))).await.unwrap();
    assert_eq!((whole.objects.count(), whole.continue_token), (4, None), "version 0 knows no limit");
    assert_eq!(whole.resource_version, first.resource_version);
    let now = storage.list(&Scope::Cluster, &list("")).await.unwrap();
    assert_eq!((now.objects.count(), &now.continue_token), (6, &None));
    let exact = format!("resourceVersionMatch=Exact&resourceVersion={}", first.resource_version.get() - 1);
    let gone = storage.list(&Scope::Cluster, &list(&exact)).await;
    assert!(matches!(gone, Err(StorageError::Expired { .. })));
    let future = format!("resourceVersion={}", now.resource_version.get() + 9);
    assert!(matches!(storage.list(&Scope::Cluster, &list(&future)).await, Err(StorageError::Behind { .. })));
}

#[tokio::test]
async fn a_list_is_made_while_it_is_sent_and_is_of_one_version() {
    let Fixture { storage, .. } = fixture(3);
    let before: Vec<_> = objects(&storage.list(&Scope::Cluster, &list("")).await.unwrap())
        .iter()
        .map(|object| object.body().clone())
        .collect();
    let slow = storage.list(&Scope::Cluster, &list("")).await.unwrap();
    let first = slow.objects.object(0).unwrap();
    storage.0.change(|store, now| {
        store.report(now, report("n0001", 1));
        store.node_deleted(now, "n0002", "uid-n0002");
    });
    let bodies: Vec<_> = objects(&slow).iter().map(|object| object.body().clone()).collect();
    assert_eq!(bodies, before, "what happened meanwhile is not in it");
    assert!(objects(&slow).iter().all(|object| object.resource_version() <= slow.resource_version));
    // Nothing keeps the JSON but who reads it, and what was made last.
    storage.0.recent.clear();
    assert_eq!(Arc::strong_count(&first), 1);
}

#[tokio::test]
async fn selectors_see_of_a_head_what_they_see_of_the_whole() {
    let Fixture { storage, .. } = fixture(3);
    let later = Now { steady: Duration::from_secs(30), ..storage.0.now() };
    storage.0.change(|store, now| {
        store.report(later, report("n0001", 1));
        store.tick(later);
        store.node_applied(now, NodeFacts::alive("n0003"));
        let before = store.ledger().get("n0000").cloned().unwrap();
        let object = record::object(&before, "slo.koordinator.sh/v1beta1", |_| {}).unwrap();
        let mut draft: serde_json::Map<_, _> = serde_json::from_slice(object.body()).unwrap();
        draft["metadata"]["labels"] = serde_json::json!({ "zone": "a", "é\"": "" });
        store
            .write(now, &before.name, Some(before.version), &draft, "slo.koordinator.sh/v1beta1")
            .map(drop)
            .unwrap();
    });
    let selectable = crate::resource("v1beta1").unwrap().selectable_fields;
    let fields = SelectableFields::custom(selectable.iter().map(String::as_str));
    let labels = ["metadata.name", "metadata.namespace"];
    let labels = labels.into_iter().chain(selectable.iter().map(|path| path.trim_start_matches('.')));
    let labels: Vec<_> = labels.collect();
    let page = storage.list(&Scope::Cluster, &list("")).await.unwrap();
    let mut states = std::collections::BTreeSet::new();
    for whole in objects(&page) {
        let stored = storage.0.read(|store| store.ledger().get(whole.key().name()).cloned().unwrap());
        let head = record::head(&stored.value.head(), stored.version, "slo.koordinator.sh/v1beta1").unwrap();
        for label in &labels {
            let (field, _) = fields.get(label).unwrap();
            assert_eq!(head.field(&field), whole.field(&field), "{label}");
            states.insert(whole.field(&field).into_owned());
        }
        assert_eq!(head.labels().collect::<Vec<_>>(), whole.labels().collect::<Vec<_>>());
        assert_eq!((head.key(), head.resource_version()), (whole.key(), whole.resource_version()));
    }
    assert!(["Fresh", "Stale", "NeverReported"].iter().all(|state| states.contains(*state)), "{states:?}");
    let labelled = storage.list(&Scope::Cluster, &list("labelSelector=zone%3Da")).await.unwrap();
    assert_eq!(names(&labelled), ["n0000"]);
}

#[tokio::test]
async fn a_watch_tells_the_state_and_what_comes_after() {
    let Fixture { storage, .. } = fixture(2);
    let initial =
        watch("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &initial).await.unwrap();
    assert_eq!(told(&mut watcher, 3).await, ["+n0000", "+n0001", "end"]);
    storage.0.change(|store, now| {
        store.report(now, report("n0001", 1));
        store.node_deleted(now, "n0000", "uid-n0000");
        store.node_applied(now, NodeFacts::alive("n0002"));
    });
    assert_eq!(told(&mut watcher, 3).await, ["~n0001", "-n0000", "+n0002"]);
    let seen = watcher.told().unwrap();
    // It comes back where it stood, and to what it missed.
    storage.0.change(|store, now| {
        for seq in 2..9 {
            store.report(now, report("n0001", seq));
        }
    });
    let resumed = watch(&format!("watch=1&resourceVersion={seen}"));
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &resumed).await.unwrap();
    assert_eq!(told(&mut watcher, 1).await, ["~n0001"]);
    assert!(matches!(
        storage.watch(&User::anonymous(), &Scope::Cluster, &watch("watch=1&resourceVersion=17")).await,
        Err(StorageError::Expired { .. })
    ));
}

#[tokio::test]
async fn a_selector_is_left_and_entered_by_freshness() {
    let Fixture { storage, .. } = fixture(2);
    let query = "watch=1&resourceVersion=0&fieldSelector=status.freshness.state%3DFresh";
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &watch(query)).await.unwrap();
    assert_eq!(told(&mut watcher, 2).await, ["+n0000", "+n0001"]);
    let later = Now { steady: Duration::from_secs(30), ..storage.0.now() };
    storage.0.change(|store, _| {
        store.report(later, report("n0001", 1));
        store.tick(later);
    });
    assert_eq!(told(&mut watcher, 2).await, ["~n0001", "-n0000"]);
}

#[tokio::test]
async fn what_left_a_selection_and_went_is_told_as_gone() {
    let Fixture { storage, .. } = fixture(3);
    let query = "watch=1&resourceVersion=0&fieldSelector=status.freshness.state%3DFresh";
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &watch(query)).await.unwrap();
    assert_eq!(told(&mut watcher, 3).await, ["+n0000", "+n0001", "+n0002"]);
    // Between two looks of the watch: one leaves the selection and goes, another only leaves.
    let later = Now { steady: Duration::from_secs(30), ..storage.0.now() };
    storage.0.change(|store, _| {
        store.report(later, report("n0001", 1));
        store.tick(later);
        store.node_deleted(later, "n0000", "uid-n0000");
    });
    assert_eq!(told(&mut watcher, 3).await, ["~n0001", "-n0000", "-n0002"]);
    // What was not selected when it went is no news.
    storage.0.change(|store, _| {
        store.node_deleted(later, "n0002", "uid-n0002");
        store.node_deleted(later, "n0001", "uid-n0001");
    });
    assert_eq!(told(&mut watcher, 1).await, ["-n0001"]);
}

#[tokio::test]
async fn nothing_is_told_without_leadership() {
    let Fixture { storage, leading } = fixture(1);
    let mut watcher = storage
        .watch(&User::anonymous(), &Scope::Cluster, &watch("watch=1&resourceVersion=0"))
        .await
        .unwrap();
    told(&mut watcher, 1).await;
    leading.store(false, Ordering::Relaxed);
    let unavailable = |error: StorageError| matches!(error, StorageError::Unavailable { retry_after: 1, .. });
    assert!(unavailable(storage.list(&Scope::Cluster, &list("")).await.unwrap_err()));
    assert!(unavailable(storage.get(&ObjectKey::new("", "n0000")).await.unwrap_err()));
    storage.0.wake();
    assert!(unavailable(watcher.next().await.unwrap_err()));
    // Another term of the same replica ends the watches of the one before.
    leading.store(true, Ordering::Relaxed);
    let mut watcher = storage
        .watch(&User::anonymous(), &Scope::Cluster, &watch("watch=1&resourceVersion=0"))
        .await
        .unwrap();
    told(&mut watcher, 1).await;
    storage.0.change(|store, now| {
        store.demote();
        store.promote(now, 0);
        store.report(now, report("n0000", 0));
    });
    assert!(unavailable(watcher.next().await.unwrap_err()));
}

/// A report of that share of the node's CPU.
fn busy(node: &str, seq: u64, percent: u64) -> Report {
    let usage = node_report::Resources { cpu_milli: Some(percent * 40), memory_bytes: None };
    Report { usage: Some(NodeUsage { usage: Some(usage), ..NodeUsage::default() }), ..report(node, seq) }
}

fn sized(name: &str) -> NodeFacts {
    NodeFacts {
        allocatable: Allocatable { cpu_milli: 4_000, memory_bytes: 8 << 30 },
        ..NodeFacts::alive(name)
    }
}

#[tokio::test(start_paused = true)]
async fn loads_tell_of_thresholds_and_of_nothing_else() {
    let Fixture { storage, .. } = fixture(1);
    storage.0.change(|store, now| store.node_applied(now, sized("n0000")));
    let loads = NodeLoadStorage(Arc::clone(&storage.0));
    let fields = SelectableFields::custom([".status.state"]);
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let request = WatchRequest::parse(initial, &fields).unwrap();
    let mut watcher = loads.watch(&User::anonymous(), &Scope::Cluster, &request).await.unwrap();
    assert_eq!(told(&mut watcher, 2).await, ["+n0000", "end"]);
    let mut raw = storage.watch(&User::anonymous(), &Scope::Cluster, &watch(initial)).await.unwrap();
    assert_eq!(told(&mut raw, 2).await, ["+n0000", "end"]);

    let walk = [40, 49, 51, 48, 46, 52, 47, 66, 64, 61, 66, 30];
    let mut seen = Vec::new();
    let mut raw_count = 0;
    for (seq, percent) in (1..).zip(walk) {
        storage.0.change(|store, now| store.report(now, busy("n0000", seq, percent)));
        raw_count += told(&mut raw, 1).await.len();
        for delivery in soon(&mut watcher).await.into_iter().flatten() {
            let Delivery::Modified(object) = delivery else { panic!("{delivery:?}") };
            let load: serde_json::Value = serde_json::from_slice(object.body()).unwrap();
            assert_eq!(load["status"]["state"], "Fresh");
            seen.push((percent, load["status"]["cpu"]["atLeast"].as_i64().unwrap()));
        }
    }
    assert_eq!(seen, [(40, 0), (51, 50), (66, 65), (30, 0)]);
    assert_eq!(raw_count, walk.len());

    // Silence is told as well, and the end.
    let later = Now { steady: Duration::from_secs(100), ..storage.0.now() };
    storage.0.change(|store, _| store.tick(later));
    assert_eq!(told(&mut watcher, 1).await, ["~n0000"]);
    let object = loads.get(&ObjectKey::new("", "n0000")).await.unwrap().unwrap();
    let load: serde_json::Value = serde_json::from_slice(object.body()).unwrap();
    assert_eq!(load["status"]["state"], "Expired");
    assert!(object.body().len() < 400, "{}", object.body().len());
    let metric = storage.get(&ObjectKey::new("", "n0000")).await.unwrap().unwrap();
    assert_eq!(metric.resource_version(), object.resource_version(), "they are of one version");
    storage.0.change(|store, now| store.node_deleted(now, "n0000", "uid-n0000"));
    assert_eq!(told(&mut watcher, 1).await, ["-n0000"]);
    let draft = Draft(serde_json::Map::new());
    let written = loads.write(&ObjectKey::new("", "n0000"), Expected::Absent, draft).await;
    assert!(matches!(written, Err(StorageError::Refused(_))));
}

#[tokio::test(start_paused = true)]
async fn loads_are_the_same_under_the_next_leader() {
    let Fixture { storage, .. } = fixture(3);
    storage.0.change(|store, now| {
        for n in 0..3 {
            store.node_applied(now, sized(&format!("n000{n}")));
            store.report(now, busy(&format!("n000{n}"), 1, 51));
            // Within the margin: only who knows the step before says 50.
            store.report(now, busy(&format!("n000{n}"), 2, 47));
        }
    });
    let other = fixture(0).storage;
    other.0.change(|store, now| {
        store.demote();
        let list = storage.0.read(|leader| {
            let copied = |stored: &Arc<Stored<Record>>| {
                let object = record::object(stored, "slo.koordinator.sh/v1beta1", |_| {}).unwrap();
                let record = Record::from_json(object.body().clone()).unwrap().0;
                let Stored { name, version, added, .. } = &**stored;
                Copied { name: Arc::clone(name), version: *version, added: *added, record }
            };
            leader.ledger().values().map(copied).collect()
        });
        let version = storage.0.read(|leader| leader.ledger().last());
        store.copy_list(now, list, version);
        for n in 0..3 {
            store.node_applied(now, sized(&format!("n000{n}")));
        }
        store.nodes_listed(now, &(0..3).map(|n| Arc::from(format!("n000{n}"))).collect());
        store.promote(now, version);
        for n in 0..3 {
            store.report(now, busy(&format!("n000{n}"), 3, 46));
        }
    });
    let steps = |source: &Arc<NodeMetrics>| {
        source.read(|store| {
            let step = |stored: &Arc<Stored<LoadRecord>>| (Arc::clone(&stored.name), stored.value.status);
            store.loads().values().map(step).collect::<Vec<_>>()
        })
    };
    assert_eq!(steps(&storage.0), steps(&other.0));
    assert_eq!(steps(&other.0)[0].1.load.cpu.unwrap().at_least, 50);
    // Who watched the last leader goes on with the next, and is told of nothing that did not change.
    let seen = storage.0.read(|leader| leader.ledger().last());
    let request = WatchRequest::parse(
        &format!("watch=1&resourceVersion={seen}"),
        &SelectableFields::custom([".status.state"]),
    );
    let mut watcher = NodeLoadStorage(Arc::clone(&other.0))
        .watch(&User::anonymous(), &Scope::Cluster, &request.unwrap())
        .await
        .unwrap();
    let quiet = soon(&mut watcher).await;
    assert!(quiet.is_none(), "{quiet:?}");
    other.0.change(|store, now| store.report(now, busy("n0001", 4, 81)));
    assert_eq!(told(&mut watcher, 1).await, ["~n0001"]);
}

/// A node of 110 pods whose use of CPU rises and falls within an hour, and swings by 4 % from report to report.
fn swinging(node: &str, seq: u64, phase: u64) -> Report {
    let noise = (seq.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(phase) >> 33) % 5;
    let at = (seq / 4 + phase) % 90;
    let percent = 30 + if at < 45 { at } else { 90 - at } + noise;
    let pod = |number: u64| node_report::PodUsage {
        uid: format!("0f5d3c1e-0000-4000-8000-{number:012}"),
        namespace: "default".to_owned(),
        name: format!("deployment-7c5ddbdf54-{number:05}"),
        usage: Some(node_report::Resources {
            cpu_milli: Some(10 + (seq + number) % 7),
            memory_bytes: Some((64 << 20) + ((seq * number) << 12)),
        }),
        ..node_report::PodUsage::default()
    };
    Report { pods: (0..110).map(pod).collect(), ..busy(node, seq, percent) }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_loads_is_a_small_part_of_one_of_metrics() {
    let Fixture { storage, .. } = fixture(10);
    let names: Vec<String> = (0..10).map(|n| format!("n{n:04}")).collect();
    storage.0.change(|store, now| {
        for name in &names {
            store.node_applied(now, sized(name));
        }
    });
    let loads = NodeLoadStorage(Arc::clone(&storage.0));
    let request = || watch("watch=1&resourceVersion=0");
    let mut watchers = [
        storage.watch(&User::anonymous(), &Scope::Cluster, &request()).await.unwrap(),
        loads.watch(&User::anonymous(), &Scope::Cluster, &request()).await.unwrap(),
    ];
    let mut told = [(0_usize, 0_usize); 2];
    // An hour of reports every ten seconds.
    for seq in 1..=360 {
        storage.0.change(|store, now| {
            for (phase, name) in (0..).zip(&names) {
                store.report(now, swinging(name, seq, phase * 9));
            }
        });
        for (watcher, (events, bytes)) in watchers.iter_mut().zip(&mut told) {
            while let Some(deliveries) = soon(watcher).await {
                for delivery in deliveries {
                    let (Delivery::Added(object) | Delivery::Modified(object)) = delivery else { continue };
                    *events += 1;
                    *bytes += object.body().len();
                }
            }
        }
    }
    let [(metrics, metric_bytes), (crossings, load_bytes)] = told;
    println!(
        "{metrics} events, {metric_bytes} bytes of metrics; {crossings} events, {load_bytes} bytes of loads"
    );
    assert!(metrics >= 3_600, "{metrics}");
    assert!(crossings * 20 < metrics, "at least 95 % fewer events: {crossings} of {metrics}");
    assert!(load_bytes * 500 < metric_bytes, "{load_bytes} of {metric_bytes}");
}

/// What is told of versions, in order.
async fn versions(watcher: &mut Box<dyn Watcher>, count: usize) -> Vec<(String, u64)> {
    let mut told = Vec::new();
    while told.len() < count {
        for delivery in within(watcher.next()).await.unwrap() {
            let (Delivery::Added(object) | Delivery::Modified(object) | Delivery::Deleted(object)) = delivery
            else {
                panic!("{delivery:?}")
            };
            told.push((object.key().name().to_owned(), object.resource_version().get()));
        }
    }
    told
}

#[tokio::test]
async fn who_resumes_a_watch_of_one_object_hears_of_no_other() {
    let Fixture { storage, .. } = fixture(4);
    let begun = storage.0.read(|store| store.ledger().last());
    storage.0.change(|store, now| {
        store.report(now, report("n0000", 1));
        store.node_deleted(now, "n0001", "uid-n0001");
        store.report(now, report("n0002", 1));
        store.report(now, report("n0003", 1));
    });
    let query = |selector: &str| format!("watch=1&resourceVersion={begun}&fieldSelector={selector}");
    let one = query("metadata.name%3Dn0002");
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &watch(&one)).await.unwrap();
    assert_eq!(told(&mut watcher, 1).await, ["~n0002"]);
    let gone = query("metadata.name%3Dn0001");
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &watch(&gone)).await.unwrap();
    assert_eq!(told(&mut watcher, 1).await, ["-n0001"]);
    let loads = NodeLoadStorage(Arc::clone(&storage.0));
    let mut watcher = loads.watch(&User::anonymous(), &Scope::Cluster, &watch(&one)).await.unwrap();
    assert_eq!(soon(&mut watcher).await.map(|told| told.len()), None);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_it_catches_up_is_told_of_all_that_left_its_selection() {
    let Fixture { storage, .. } = fixture(80);
    let begun = storage.0.read(|store| store.ledger().last());
    let later = Now { steady: Duration::from_secs(30), ..storage.0.now() };
    storage.0.change(|store, _| {
        for n in 1..80 {
            store.report(later, report(&format!("n{n:04}"), 1));
        }
        // It leaves the selection, and changes once more behind the others.
        store.tick(later);
        for n in 1..80 {
            store.report(later, report(&format!("n{n:04}"), 2));
        }
        let labelled = store.ledger().get("n0000").cloned().unwrap();
        let object = record::object(&labelled, "slo.koordinator.sh/v1beta1", |_| {}).unwrap();
        let mut draft: serde_json::Map<_, _> = serde_json::from_slice(object.body()).unwrap();
        draft["spec"] = serde_json::json!({ "a": "b" });
        store
            .write(later, &labelled.name, Some(labelled.version), &draft, "slo.koordinator.sh/v1beta1")
            .map(drop)
            .unwrap();
    });
    let fresh = |version: u64| {
        let query = format!("watch=1&resourceVersion={version}&fieldSelector=status.freshness.state%3DFresh");
        watch(&query)
    };
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &fresh(begun)).await.unwrap();
    let first = versions(&mut watcher, 32).await;
    assert_eq!(first[0].0, "n0000", "it is told where it left, though it changed once more");
    let seen = first.last().unwrap().1;
    assert_eq!(watcher.told(), None, "no bookmark while it catches up");
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &fresh(seen)).await.unwrap();
    let rest = told(&mut watcher, 48).await;
    assert!(rest.len() == 48 && rest.iter().all(|told| told.starts_with('~')), "{rest:?}");
    assert_eq!(watcher.told().map(ResourceVersion::get), Some(storage.0.read(|store| store.ledger().last())));
}

#[tokio::test(start_paused = true)]
async fn within_a_watch_versions_never_go_back() {
    let Fixture { storage, .. } = fixture(2);
    let mut watcher = storage
        .watch(&User::anonymous(), &Scope::Cluster, &watch("watch=1&resourceVersion=0"))
        .await
        .unwrap();
    versions(&mut watcher, 2).await;
    storage.0.change(|store, now| {
        store.node_applied(now, NodeFacts::alive("goes"));
        store.report(now, report("n0000", 1));
        store.node_deleted(now, "goes", "uid-goes");
        store.report(now, report("n0001", 1));
    });
    let seen = versions(&mut watcher, 2).await;
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["n0000", "n0001"], "what came and went between two looks is no news");
    assert!(seen.is_sorted_by_key(|(_, version)| *version), "{seen:?}");
    // Who comes back may have seen it.
    let resumed = watch(&format!("watch=1&resourceVersion={}", seen[0].1));
    let mut watcher = storage.watch(&User::anonymous(), &Scope::Cluster, &resumed).await.unwrap();
    assert_eq!(told(&mut watcher, 2).await, ["-goes", "~n0001"]);
}

/// A leader of nothing, and its clock.
fn timed() -> (Arc<NodeMetrics>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1));
    let at = Arc::clone(&seconds);
    let clock = move || Now {
        steady: Duration::from_secs(at.load(Ordering::Relaxed)),
        wall: jiff::Timestamp::new(1_790_000_000, 0).unwrap(),
    };
    let store = Store::new(Settings::default());
    (NodeMetrics::new(store, "slo.koordinator.sh/v1beta1", clock, || true), seconds)
}

#[tokio::test(start_paused = true)]
async fn who_stands_still_holds_no_state() {
    let (metrics, seconds) = timed();
    let storage = NodeMetricStorage(Arc::clone(&metrics));
    lead(&metrics, 100);
    let page = storage.list(&Scope::Cluster, &list("")).await.unwrap();
    let from_start = watch("watch=1&resourceVersion=0");
    let mut slow = storage.watch(&User::anonymous(), &Scope::Cluster, &from_start).await.unwrap();
    let mut still = storage.watch(&User::anonymous(), &Scope::Cluster, &from_start).await.unwrap();
    assert_eq!(told(&mut still, 32).await.len(), 32);
    let last = metrics.read(|store| Arc::downgrade(store.ledger().get("n0099").unwrap()));
    metrics.change(|store, now| drop(store.report(now, report("n0099", 1))));
    for (minute, first) in (1..=3).zip(0..) {
        seconds.store(1 + 60 * minute, Ordering::Relaxed);
        metrics.release();
        assert_eq!(told(&mut slow, 32).await.len(), 32, "who reads goes on");
        assert!(minute > 1 || page.objects.object(first).is_ok());
    }
    assert!(last.upgrade().is_some());
    assert_eq!(told(&mut slow, 4).await.last().map(String::as_str), Some("+n0099"));
    seconds.store(400, Ordering::Relaxed);
    metrics.release();
    assert!(last.upgrade().is_none(), "the version of before is held by nobody");
    assert!(matches!(within(still.next()).await, Err(StorageError::Unavailable { .. })));
    assert!(matches!(page.objects.object(99), Err(StorageError::Unavailable { .. })));
    assert_eq!(told(&mut slow, 1).await, ["~n0099"], "a watch that has begun may be as slow as it likes");
}

#[tokio::test]
async fn what_was_sent_of_a_list_is_held_no_more() {
    let Fixture { storage, .. } = fixture(3);
    let page = storage.list(&Scope::Cluster, &list("")).await.unwrap();
    // Who looks at a list before it is sent has all of it.
    assert_eq!(names(&page), names(&page));
    let held = |name: &str| storage.0.read(|store| Arc::downgrade(store.ledger().get(name).unwrap()));
    let versions = ["n0000", "n0001", "n0002"].map(held);
    storage.0.change(|store, now| {
        for name in ["n0000", "n0001", "n0002"] {
            store.report(now, report(name, 1));
        }
    });
    let mut left = Vec::new();
    for object in page.into_objects() {
        assert_eq!(object.unwrap().key().name(), format!("n000{}", left.len()));
        left.push(versions.iter().filter(|version| version.upgrade().is_some()).count());
    }
    assert_eq!(left, [2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn so_many_watches_begin_at_the_same_time() {
    let (metrics, seconds) = timed();
    let storage = NodeMetricStorage(Arc::clone(&metrics));
    lead(&metrics, 33);
    let (from_start, live) = (watch("watch=1&resourceVersion=0"), watch("watch=1&resourceVersion=1"));
    let users = std::cell::Cell::new(0);
    let begin = || async {
        let name = format!("u{}", users.replace(users.get() + 1));
        let user = User { name, ..User::default() };
        storage.watch(&user, &Scope::Cluster, &from_start).await
    };
    let mut under_way = Vec::new();
    for _ in 0..400 {
        under_way.push(begin().await.unwrap());
    }
    assert!(matches!(begin().await, Err(StorageError::Unavailable { retry_after: 1, .. })));
    assert!(!matches!(
        storage.watch(&User::anonymous(), &Scope::Cluster, &live).await,
        Err(StorageError::Unavailable { .. })
    ));
    // One that has begun makes room, and so does one that is given up.
    assert_eq!(told(&mut under_way[0], 33).await.len(), 33);
    under_way.push(begin().await.unwrap());
    assert!(begin().await.is_err());
    under_way.pop();
    under_way.push(begin().await.unwrap());
    assert!(begin().await.is_err());
    // And all who stand still.
    seconds.store(62, Ordering::Relaxed);
    metrics.release();
    assert!(begin().await.is_ok());
}

#[tokio::test]
async fn a_leader_becomes_warm_by_those_who_report_through_the_api() {
    let (metrics, seconds) = timed();
    let storage = NodeMetricStorage(Arc::clone(&metrics));
    let key = |name: &str| ObjectKey::new("", name);
    let refused = |error: StorageError| matches!(error, StorageError::Unavailable { retry_after: 1, .. });
    metrics.change(|store, now| store.promote(now, 0));
    assert!(refused(storage.get_to_write(&key("n0")).await.unwrap_err()), "it may be there");
    metrics.change(|store, now| {
        for name in ["n0", "n1"] {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.nodes_listed(now, &["n0".into(), "n1".into()].into());
    });
    seconds.store(2, Ordering::Relaxed);
    for name in ["n0", "n1"] {
        assert!(refused(storage.get(&key(name)).await.unwrap_err()), "nobody reads yet");
        let object = storage.get_to_write(&key(name)).await.unwrap().unwrap();
        let mut draft: serde_json::Map<_, _> = serde_json::from_slice(object.body()).unwrap();
        draft["status"] = serde_json::json!({ "nodeMetric": { "nodeUsage": {} } });
        let expected = Expected::Version(object.resource_version());
        storage.write(&key(name), expected, Draft(draft)).await.unwrap();
    }
    assert_eq!(metrics.read(Store::phase), Phase::Serving);
    assert_eq!(names(&storage.list(&Scope::Cluster, &list("")).await.unwrap()), ["n0", "n1"]);
    assert!(storage.get_to_write(&key("n2")).await.unwrap().is_none());
}
