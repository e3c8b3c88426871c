use std::sync::atomic::{AtomicBool, Ordering};

use aggregated_api::{Storage, User as Caller};
use api::slo::freshness::FreshnessState;
use kube::Client;
use kube_wire::list_options::WatchRequest;
use kube_wire::selectable_field::SelectableFields;
use node_report::report::{PodUsage, Report};
use node_report::{NodeUsage, Resources};
use serde_json::Value;
use testkit::api_server::access::User;
use testkit::api_server::pki::{Authority, Identity};
use tls::certificate::Certificate;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use watch_cache::{Delivery, Scope};

use super::*;
use crate::follow::follow;
use crate::freshness::Now;
use crate::record::{Status, object};
use crate::storage::{NodeLoadStorage, NodeMetricStorage};
use crate::store::{NodeFacts, Phase, Settings, Store};

const NAME: &str = "replicas.test";
const VERSION: &str = "slo.koordinator.sh/v1beta1";

/// Bound of what is waited for: a busy machine takes a part of it.
const DEADLINE: Duration = Duration::from_secs(30);

fn replica(leads: &Arc<AtomicBool>) -> Arc<NodeMetrics> {
    let clock =
        || Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::new(1_790_000_000, 0).unwrap() };
    let leads = Arc::clone(leads);
    NodeMetrics::new(Store::new(Settings::default()), VERSION, clock, move || leads.load(Ordering::Relaxed))
}

/// It has an object of a node that reports, of one that reports and goes, and of one that never has.
fn leader(leads: &Arc<AtomicBool>) -> Arc<NodeMetrics> {
    let source = replica(leads);
    source.change(|store, now| {
        for name in ["goes", "reports"] {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.node_applied(now, NodeFacts { ready: false, ..NodeFacts::alive("silent") });
        store.nodes_listed(now, &["goes".into(), "reports".into(), "silent".into()].into());
        store.promote(now, 0);
        for name in ["goes", "reports"] {
            store.report(now, report(name, 0));
        }
        assert_eq!(store.phase(), Phase::Serving);
    });
    source
}

fn report(node: &str, seq: u64) -> Report {
    let usage = Some(Resources { cpu_milli: Some(100 + seq), memory_bytes: Some(1 << 20) });
    let pod =
        |uid: &str| PodUsage { uid: uid.to_owned(), name: uid.to_owned(), usage, ..PodUsage::default() };
    Report {
        node: node.to_owned(),
        seq,
        usage: Some(NodeUsage { usage, ..NodeUsage::default() }),
        pods: vec![pod("b"), pod("a")],
        ..Report::default()
    }
}

struct Site {
    router: Router,
    identity: Identity,
    leads: Arc<AtomicBool>,
    source: Arc<NodeMetrics>,
}

impl Site {
    fn new() -> Self {
        let authority = Authority::generate("replicas").unwrap();
        let identity = authority.peer(&User::new("replica", &[]), &[NAME]).unwrap();
        let replicas = Replicas::new(NAME.to_owned());
        replicas.trust(vec![Certificate::from_der(authority.certificate().to_vec()).unwrap()]);
        let leads = Arc::new(AtomicBool::new(true));
        let source = leader(&leads);
        Self { router: router(Arc::clone(&source), replicas), identity, leads, source }
    }

    fn peer(&self) -> Peer {
        Peer { address: None, certificates: Arc::new([self.identity.certificate.clone()]) }
    }

    async fn status(&self, peer: Peer, query: &str) -> StatusCode {
        let request = http::Request::get(format!("{PATH}{query}")).extension(ConnectInfo(peer));
        let request = request.body(Body::empty()).unwrap();
        self.router.clone().oneshot(request).await.unwrap().status()
    }

    /// Follows until the task is dropped, and returns when the copy is whole.
    async fn follow(&self, copy: &Arc<NodeMetrics>) -> JoinSet<()> {
        let (router, peer, copy) = (self.router.clone(), self.peer(), Arc::clone(copy));
        let answer = move |request: http::Request<kube::client::Body>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
            router.clone().oneshot(request)
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let (whole, is_whole) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            follow(&client, &copy, || whole.send(()).unwrap()).await.unwrap();
        });
        timeout(DEADLINE, is_whole).await.unwrap().unwrap();
        tasks
    }

    /// Waits until `copy` is where the leader is, and compares what clients would see of both.
    async fn assert_same(&self, copy: &NodeMetrics) {
        let last = self.source.read(|store| store.ledger().last());
        let mut changes = copy.changes();
        let reached = changes.wait_for(|version| *version >= last);
        timeout(DEADLINE, reached).await.expect("the copy lags").unwrap();
        assert_eq!(seen(copy), seen(&self.source));
    }
}

/// Objects as clients get them with their versions, and those of loads.
type Seen = (Vec<(u64, Value)>, Vec<(String, u64)>);

fn seen(source: &NodeMetrics) -> Seen {
    source.read(|store| {
        let value = |stored: &Arc<Stored<Record>>| {
            let object = object(stored, VERSION, |_| {}).unwrap();
            (stored.version, serde_json::from_slice(object.body()).unwrap())
        };
        let loads = store.loads().values().map(|load| (load.name.to_string(), load.version));
        (store.ledger().values().map(value).collect(), loads.collect())
    })
}

#[tokio::test]
async fn a_copy_shows_what_its_leader_shows() {
    let site = Site::new();
    let copy = replica(&Arc::new(AtomicBool::new(false)));
    let following = site.follow(&copy).await;
    site.assert_same(&copy).await;
    // It holds what the node reported, and no JSON.
    copy.read(|store| {
        assert!(matches!(store.ledger().get("reports").unwrap().value.status, Status::Reported(_)));
    });
    site.source.change(|store, now| {
        store.report(
            now,
            Report {
                base_seq: Some(0),
                removed_pods: vec!["a".to_owned()],
                pods: Vec::new(),
                ..report("reports", 1)
            },
        );
        store.node_deleted(now, "goes", "uid-goes");
        store.node_applied(now, NodeFacts { ready: false, ..NodeFacts::alive("comes") });
    });
    site.assert_same(&copy).await;
    assert_eq!(seen(&copy).0.len(), 3);

    // It goes on where it stood: what it was told before is not told again.
    drop(following);
    let before = copy.read(|store| Arc::clone(store.ledger().get("silent").unwrap()));
    site.source.change(|store, now| {
        store.report(now, report("reports", 2));
        store.node_deleted(now, "comes", "uid-comes");
    });
    let following = site.follow(&copy).await;
    site.assert_same(&copy).await;
    assert!(copy.read(|store| Arc::ptr_eq(&before, store.ledger().get("silent").unwrap())));
    drop(following);

    // And leads at once, if it must.
    let told = seen(&copy).0;
    copy.change(|store, now| {
        for name in ["reports", "silent"] {
            store.node_applied(now, NodeFacts { ready: name == "reports", ..NodeFacts::alive(name) });
        }
        store.nodes_listed(now, &["reports".into(), "silent".into()].into());
        store.promote(now, store.ledger().last() + 1_000);
        assert_eq!(store.phase(), Phase::Serving);
    });
    let (served, _) = seen(&copy);
    for ((before, told), (after, served)) in told.iter().zip(&served) {
        assert!(after > before, "each under a version of its own");
        assert_eq!((&told["status"], &told["spec"]), (&served["status"], &served["spec"]));
    }
    assert_eq!((told.len(), served.len()), (2, 2));
}

/// Whoever watches with a selector and goes on under the next leader is told of nothing that it never held, and of all that it is not to hold any more.
#[tokio::test]
async fn selectors_choose_under_the_next_leader_as_under_the_last() {
    let site = Site::new();
    let copy = replica(&Arc::new(AtomicBool::new(true)));
    let following = site.follow(&copy).await;
    let begun = site.source.read(|store| store.ledger().last());
    let state =
        |store: &Store, name: &str| store.ledger().get(name).map(|stored| stored.value.freshness.state);
    let tick = |seconds: u64| {
        site.source.change(|store, now| store.tick(Now { steady: Duration::from_secs(seconds), ..now }));
    };
    // One becomes stale and is fresh again before the standby has looked; the other stays.
    tick(30);
    assert_eq!(site.source.read(|store| state(store, "goes")), Some(FreshnessState::Stale));
    let later = site.source.read(|store| store.ledger().last());
    site.source.change(|store, now| store.report(now, report("goes", 1)));
    site.assert_same(&copy).await;
    drop(following);
    assert_eq!(copy.read(|store| state(store, "goes")), Some(FreshnessState::Fresh));
    copy.change(|store, now| {
        for name in ["goes", "reports", "silent"] {
            store.node_applied(now, NodeFacts { ready: name != "silent", ..NodeFacts::alive(name) });
        }
        store.nodes_listed(now, &["goes".into(), "reports".into(), "silent".into()].into());
        store.promote(now, store.ledger().last() + 1_000);
        assert_eq!(store.phase(), Phase::Serving);
    });
    for (since, wanted, expected) in [
        (begun, "Fresh", &["-goes", "-reports", "+goes"][..]),
        (begun, "Stale", &["+reports"]),
        (later, "Stale", &["-goes", "~reports"]),
        (later, "Fresh", &["+goes"]),
        (later, "NeverReported", &["~silent"]),
        (begun, "Expired", &[]),
    ] {
        for loads in [false, true] {
            let told = told(&copy, loads, since, wanted).await;
            assert_eq!(told, expected, "{wanted} since {since}, loads: {loads}");
        }
    }
}

/// What a watch that goes on is told of objects in a state before it has to wait.
async fn told(source: &Arc<NodeMetrics>, loads: bool, since: u64, state: &str) -> Vec<String> {
    let field = if loads { "status.state" } else { "status.freshness.state" };
    let query = format!("watch=1&resourceVersion={since}&fieldSelector={field}%3D{state}");
    let request = WatchRequest::parse(&query, &SelectableFields::custom([&*format!(".{field}")])).unwrap();
    let watcher = if loads {
        NodeLoadStorage(Arc::clone(source)).watch(&Caller::anonymous(), &Scope::Cluster, &request).await
    } else {
        NodeMetricStorage(Arc::clone(source)).watch(&Caller::anonymous(), &Scope::Cluster, &request).await
    };
    let (mut watcher, mut told) = (watcher.unwrap(), Vec::new());
    while let Ok(deliveries) = timeout(Duration::from_millis(200), watcher.next()).await {
        for delivery in deliveries.unwrap() {
            let (sign, object) = match delivery {
                Delivery::Added(object) => ("+", object),
                Delivery::Modified(object) => ("~", object),
                Delivery::Deleted(object) => ("-", object),
                other => panic!("{other:?}"),
            };
            told.push(format!("{sign}{}", object.key().name()));
        }
    }
    told
}

#[tokio::test]
async fn replicas_alone_are_told_and_only_what_is_known() {
    let site = Site::new();
    let last = site.source.read(|store| store.ledger().last());
    assert_eq!(site.status(site.peer(), "").await, StatusCode::OK);
    assert_eq!(site.status(site.peer(), &format!("?after={last}")).await, StatusCode::OK);
    assert_eq!(site.status(Peer::default(), "").await, StatusCode::FORBIDDEN);
    let other = Authority::generate("others").unwrap().peer(&User::new("replica", &[]), &[NAME]).unwrap();
    let stranger = Peer { address: None, certificates: Arc::new([other.certificate]) };
    assert_eq!(site.status(stranger, "").await, StatusCode::FORBIDDEN);
    assert_eq!(site.status(site.peer(), "?after=1").await, StatusCode::GONE);
    assert_eq!(site.status(site.peer(), "?after=x").await, StatusCode::BAD_REQUEST);
    let beyond = format!("?after={}", last + 1);
    assert_eq!(site.status(site.peer(), &beyond).await, StatusCode::SERVICE_UNAVAILABLE);
    site.leads.store(false, Ordering::Relaxed);
    assert_eq!(site.status(site.peer(), "").await, StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn what_is_no_frame_is_refused() {
    let mut buffer = BytesMut::from(&[0, 0, 0][..]);
    assert!(matches!(Frame::take(&mut buffer), Ok(None)), "its length is not there yet");
    let mut buffer = BytesMut::from(&[0, 0, 0, 2, 8][..]);
    assert!(matches!(Frame::take(&mut buffer), Ok(None)));
    let mut buffer = BytesMut::from(&u32::MAX.to_be_bytes()[..]);
    assert!(matches!(Frame::take(&mut buffer), Err(wire::MalformedFrame::Long(_))));
    let mut buffer = BytesMut::from(&[0, 0, 0, 1, 0xff][..]);
    assert!(matches!(Frame::take(&mut buffer), Err(wire::MalformedFrame::Message(_))));
}
