//! Informers of slices that are shown through a filter, in random histories: the pool and the Service's annotation change, slices do, a component is filtered and
//! is not any more, connections break after any event, the hub is killed and the link is cut. In the end the handlers of each have been told what a list shows.
//! Two of them have one name, so that the hub cannot tell them apart, and one is told its list in pages.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::client::connection::Endpoint;
use tokio::{
    sync::{self, OwnedMutexGuard, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    configuration::{CONFIG_MAPS, SLICE, SLICES, asks, config_map, pool, slice_of, with_topology, write},
    site::{Lines, SOON, Site, list_of_component, of_component, version},
};

const NODES: [&str; 3] = ["n", "m", "far"];

/// Who they are: each its component, whether it asks for bookmarks, and how many objects of a list it takes at once, of the most recent ones, if not all of any.
/// The last two are filtered only while the cluster says so.
const INFORMERS: [(&str, bool, Option<usize>); 6] = [
    ("kube-proxy", true, None),
    ("coredns", true, None),
    ("coredns", true, Some(1)),
    ("nginx-ingress-controller", false, None),
    ("mesh", true, None),
    ("mesh", false, None),
];

/// How long a client waits before it asks again, and whoever waits for it before it looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// What happens. Nodes are bits: the first is the hub's own.
#[derive(Debug, Clone)]
enum Step {
    /// Who is in the pool.
    Pool(u8),
    /// What the Service asks for.
    Asks(Option<&'static str>),
    /// Whether the slices of `mesh` are filtered.
    Mesh(bool),
    /// On which nodes a slice has endpoints; `None`: it goes.
    Slice(u8, Option<u8>),
    /// All connections of an informer end.
    Break(usize),
    Kill,
    Cut,
    Heal,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(vec![
        None,
        Some("kubernetes.io/hostname"),
        Some("openyurt.io/nodepool"),
        Some("openyurt.io/nodepool"),
    ]);
    prop_oneof![
        4 => (0..8_u8).prop_map(Step::Pool),
        3 => key.prop_map(Step::Asks),
        4 => (0..3_u8, prop::option::weighted(0.8, 0..8_u8)).prop_map(|(slice, nodes)| Step::Slice(slice, nodes)),
        2 => any::<bool>().prop_map(Step::Mesh),
        3 => (0..INFORMERS.len()).prop_map(Step::Break),
        1 => Just(Step::Kill),
        1 => Just(Step::Cut),
        2 => Just(Step::Heal),
        4 => (0..200_u8).prop_map(Step::Wait),
    ]
}

/// What an informer of client-go holds, and what its handlers were told: of an object that comes at the version that it has they are told nothing.
#[derive(Default)]
struct Informed {
    version: Option<u64>,
    store: BTreeMap<String, u64>,
    handled: BTreeMap<String, Vec<String>>,
    lists: usize,
    /// What it heard, for people.
    heard: Vec<String>,
}

impl Informed {
    fn put(&mut self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let version = of_version(object);
        if self.store.insert(name.clone(), version) != Some(version) {
            self.handled.insert(name, nodes(object));
        }
    }

    fn replace(&mut self, list: &Value) {
        let items = list["items"].as_array().unwrap();
        let is_listed = |name: &String| items.iter().any(|item| item["metadata"]["name"] == **name);
        self.store.retain(|name, _| is_listed(name));
        self.handled.retain(|name, _| is_listed(name));
        for item in items {
            self.put(item);
        }
        self.version = Some(version(list));
        self.lists += 1;
        let items: Vec<_> = items.iter().map(in_short).collect();
        self.heard.push(format!("LIST @{} {items:?}", version(list)));
    }

    /// Whether the watch goes on.
    fn hear(&mut self, event: &Value) -> bool {
        let object = &event["object"];
        self.heard.push(format!("{} {}", event["type"], in_short(object)));
        match event["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => self.put(object),
            "DELETED" => {
                let name = object["metadata"]["name"].as_str().unwrap();
                self.store.remove(name);
                self.handled.remove(name);
            }
            "BOOKMARK" => {}
            "ERROR" => {
                self.version = None;
                return false;
            }
            other => panic!("{other}"),
        }
        self.version = Some(of_version(object));
        true
    }
}

fn in_short(object: &Value) -> String {
    let Value::String(version) = &object["metadata"]["resourceVersion"] else { return String::new() };
    format!("{}@{version} {:?}", object["metadata"]["name"].as_str().unwrap_or_default(), nodes(object))
}

fn of_version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn nodes(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.map(|endpoint| endpoint["nodeName"].as_str().unwrap().to_owned()).collect()
}

/// A list of a component, of so many objects at once; nothing if any part of it is not answered.
async fn list(hub: &Endpoint, component: &str, limit: Option<usize>) -> Option<Value> {
    let first = limit.map_or_else(|| "resourceVersion=0".to_owned(), |limit| format!("limit={limit}"));
    let mut items = Vec::new();
    let mut query = first.clone();
    loop {
        let asked = of_component(component, &format!("{SLICES}?{query}"));
        let mut answer = hub.ask(asked, String::new()).await.ok()?;
        let body = answer.bytes().await.ok()?;
        if answer.status != 200 {
            return None;
        }
        let mut page: Value = serde_json::from_slice(&body).unwrap();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => query = format!("{first}&continue={token}"),
            _ => {
                page["items"] = items.into();
                return Some(page);
            }
        }
    }
}

/// Whose turn it is to ask of those that have one name: from its list until it watches. Of two that the hub cannot tell apart one could else go on in the place of the
/// other, as is documented.
type Turns = Arc<sync::Mutex<()>>;

/// An informer that runs, as one of [`INFORMERS`]; after how many events of each connection it breaks off.
struct Informer {
    informed: Arc<Mutex<Informed>>,
    breaks: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Informer {
    fn start(
        hub: Endpoint,
        (component, bookmarks, limit): (&'static str, bool, Option<usize>),
        turns: Turns,
        after: Vec<usize>,
    ) -> Self {
        let informed = Arc::new(Mutex::new(Informed::default()));
        let (breaks, mut broken) = watch::channel(());
        let told = informed.clone();
        let task = tokio::spawn(async move {
            let mut after = after.into_iter();
            let mut turn: Option<OwnedMutexGuard<()>> = None;
            loop {
                sleep(PAUSE).await;
                if turn.is_none() {
                    turn = Some(turns.clone().lock_owned().await);
                }
                let from = told.lock().version;
                let Some(from) = from else {
                    if let Some(list) = list(&hub, component, limit).await {
                        told.lock().replace(&list);
                    }
                    continue;
                };
                let path = format!("{SLICES}?watch=1&resourceVersion={from}&allowWatchBookmarks={bookmarks}");
                let Ok(answer) = hub.ask(of_component(component, &path), String::new()).await else {
                    continue;
                };
                if answer.status != 200 {
                    continue;
                }
                turn = None;
                let mut watch = Lines::of(answer);
                let mut left = after.next().unwrap_or(usize::MAX);
                broken.borrow_and_update();
                while left > 0 {
                    left -= 1;
                    tokio::select! {
                        _ = broken.changed() => break,
                        event = watch.next() => match event {
                            Some(event) if told.lock().hear(&event) => {}
                            _ => break,
                        },
                    }
                }
            }
        });
        Self { informed, breaks, task }
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn members(bits: u8) -> Vec<&'static str> {
    NODES.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, node)| *node).collect()
}

fn put_slice(site: &Site, slice: u8, on: Option<u8>) {
    let name = format!("s-{slice}");
    match on {
        Some(on) => write(site, SLICE, &slice_of("a", "s", &name, &members(on))),
        None => _ = site.server.cluster().delete(SLICE, &format!("a/{name}")),
    }
}

/// What a list shows of each slice. Of one namespace: the informers would else be taken to have seen it.
async fn listed(site: &Site, component: &str) -> BTreeMap<String, Vec<String>> {
    let path = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices";
    let list = list_of_component(&site.plain(), component, path).await;
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), nodes(item))).collect()
}

/// All endpoints of the slices.
fn all(site: &Site) -> BTreeMap<String, Vec<String>> {
    let slices = (0..3).filter_map(|slice| site.server.cluster().get(SLICE, &format!("a/s-{slice}")));
    slices.map(|slice| (slice["metadata"]["name"].as_str().unwrap().to_owned(), nodes(&slice))).collect()
}

/// What the Service and the pool make of the slices.
fn expected(site: &Site) -> BTreeMap<String, Vec<String>> {
    let cluster = site.server.cluster();
    let service = cluster.get("services", "a/s").unwrap();
    let asks = service["metadata"]["annotations"]["openyurt.io/topologyKeys"].as_str();
    let pool = cluster.get("nodepools.apps.openyurt.io", "shop").unwrap();
    let members: Vec<&str> =
        pool["status"]["nodes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let near = |node: &String| match asks {
        None => true,
        Some("kubernetes.io/hostname") => node == "n",
        Some(_) => node == "n" || members.contains(&&**node),
    };
    let slices = all(site).into_iter();
    slices.map(|(name, nodes)| (name, nodes.into_iter().filter(near).collect())).collect()
}

async fn run(steps: &[Step], after: &[Vec<usize>]) {
    let mut site = with_topology().await;
    for slice in 0..3 {
        put_slice(&site, slice, Some(7));
    }
    let mut turns = BTreeMap::<&str, Turns>::new();
    let informers: Vec<_> = INFORMERS
        .into_iter()
        .zip(after)
        .map(|(informer, after)| {
            let turns = turns.entry(informer.0).or_default().clone();
            Informer::start(site.plain(), informer, turns, after.clone())
        })
        .collect();
    let mut filters_mesh = false;
    for step in steps {
        match *step {
            Step::Pool(bits) => write(&site, "nodepools.apps.openyurt.io", &pool(&members(bits))),
            Step::Asks(key) => write(&site, "services", &asks("a", "s", key)),
            Step::Mesh(is_filtered) => {
                filters_mesh = is_filtered;
                let data = if is_filtered { json!({ "servicetopology": "mesh" }) } else { json!({}) };
                write(&site, CONFIG_MAPS, &config_map("yurt-hub-cfg", &data));
            }
            Step::Slice(slice, on) => put_slice(&site, slice, on),
            Step::Break(informer) => _ = informers[informer].breaks.send(()),
            Step::Kill => {
                site.kill();
                site.start();
            }
            Step::Cut => site.server.cut(),
            Step::Heal => site.server.heal(),
            Step::Wait(n) => sleep(Duration::from_millis(n.into())).await,
        }
    }
    site.server.heal();
    site.linked().await;
    let (expected, all) = (expected(&site), all(&site));
    let of_mesh = if filters_mesh { &expected } else { &all };
    let of = |component: &str| if component == "mesh" { of_mesh } else { &expected };
    let began = Instant::now();
    loop {
        let mut lists = Vec::new();
        for component in ["kube-proxy", "coredns", "mesh"] {
            lists.push((component, listed(&site, component).await));
        }
        let told: Vec<_> =
            informers.iter().map(|informer| informer.informed.lock().handled.clone()).collect();
        let mut told_to = INFORMERS.iter().zip(&told);
        if lists.iter().all(|&(component, ref seen)| seen == of(component))
            && told_to.all(|(&(component, ..), seen)| seen == of(component))
        {
            break;
        }
        let heard =
            || informers.iter().map(|informer| informer.informed.lock().heard.join("\n")).collect::<Vec<_>>();
        assert!(
            began.elapsed() < SOON,
            "expected {expected:?} of {all:?}, mesh filtered: {filters_mesh}, lists {lists:?}, told {told:?} after {}",
            heard().join("\n\n")
        );
        sleep(PAUSE).await;
    }
    // Nobody is told to list anew for ever. Connections that were still to break may have.
    let lists = || informers.iter().map(|informer| informer.informed.lock().lists).collect::<Vec<_>>();
    let mut before = Vec::new();
    while before != lists() {
        assert!(began.elapsed() < SOON, "somebody lists on: {before:?}");
        before = lists();
        sleep(10 * PAUSE).await;
    }
}

/// A case takes a second or two, so there are few unless more are asked for: of what `PROPTEST_CASES` says, this part.
const SHARE: u32 = 32;

proptest! {
    #![proptest_config(ProptestConfig { cases: (ProptestConfig::default().cases / SHARE).max(1), max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn informers_come_to_what_a_list_shows_however_it_changes(
        steps in prop::collection::vec(step(), 8..40),
        after in prop::collection::vec(prop::collection::vec(1..6_usize, 0..12), INFORMERS.len()),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(Duration::from_mins(2), run(&steps, &after)).await.unwrap() });
    }
}
