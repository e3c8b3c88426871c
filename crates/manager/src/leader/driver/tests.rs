//! The driver against an API server of one Lease: real requests and answers of the client, in paused time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use api::annotations::LEASE_ADDRESS;
use axum::body::Body;
use futures::channel::mpsc;
use http::{Method, Request as HttpRequest, Response, StatusCode};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};

use super::*;
use crate::leader::LeadershipGuard;

#[path = "tests/gone.rs"]
mod gone;
#[path = "tests/terms.rs"]
mod terms;

/// What the server does with a request instead of answering it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    /// It never hears of it.
    Silence,
    /// It does what is asked and is not heard.
    Unheard,
    Refuse(StatusCode),
    /// It does what is asked when the outage is over.
    Stall,
}

#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    version: AtomicUsize,
    /// For the requests to come, by method; all later ones are served.
    mishaps: Mutex<VecDeque<(Method, Mishap)>>,
    /// While set, each request meets it.
    outage: Mutex<Option<Mishap>>,
    watchers: Mutex<Vec<mpsc::UnboundedSender<Result<String, Infallible>>>>,
    watching: AtomicUsize,
    no_watch: bool,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    async fn serve(&self, request: HttpRequest<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let method = parts.method;
        let mishap = {
            let mut mishaps = self.mishaps.lock();
            let next = mishaps.iter().position(|(of, _)| *of == method);
            (*self.outage.lock()).or_else(|| Some(mishaps.remove(next?)?.1))
        };
        match mishap {
            Some(Mishap::Silence) => return std::future::pending().await,
            Some(Mishap::Stall) => {
                while self.outage.lock().is_some() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Some(Mishap::Refuse(code)) => {
                return status(
                    code,
                    if code == StatusCode::FORBIDDEN { "Forbidden" } else { "InternalError" },
                );
            }
            Some(Mishap::Unheard) | None => {}
        }
        if parts.uri.query().is_some_and(|query| query.contains("watch=")) {
            return self.watch();
        }
        let body = body.collect_bytes().await.unwrap();
        let answer = match method {
            Method::GET => match &*self.lease.lock() {
                Some(lease) => Response::new(Body::from(lease.to_string())),
                None => status(StatusCode::NOT_FOUND, "NotFound"),
            },
            Method::POST | Method::PUT => self.store(serde_json::from_slice(&body).unwrap()),
            other => panic!("unexpected {other}"),
        };
        if mishap == Some(Mishap::Unheard) {
            return std::future::pending().await;
        }
        answer
    }

    fn store(&self, mut lease: Value) -> Response<Body> {
        let mut stored = self.lease.lock();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match &*stored {
            Some(old) if version(old) != version(&lease) => return status(StatusCode::CONFLICT, "Conflict"),
            None if version(&lease) != Value::Null => return status(StatusCode::NOT_FOUND, "NotFound"),
            _ => {}
        }
        let next = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        lease["metadata"]["resourceVersion"] = next.to_string().into();
        lease["metadata"]["uid"] = "uid".into();
        *stored = Some(lease.clone());
        self.notify("MODIFIED", &lease);
        Response::new(Body::from(lease.to_string()))
    }

    fn delete(&self) {
        let lease = self.lease.lock().take().unwrap();
        self.notify("DELETED", &lease);
    }

    fn notify(&self, kind: &str, lease: &Value) {
        let line = json!({ "type": kind, "object": lease }).to_string() + "\n";
        self.watchers.lock().retain(|watcher| watcher.unbounded_send(Ok(line.clone())).is_ok());
    }

    fn watch(&self) -> Response<Body> {
        self.watching.fetch_add(1, Ordering::Relaxed);
        if self.no_watch {
            return status(StatusCode::FORBIDDEN, "Forbidden");
        }
        let (sender, receiver) = mpsc::unbounded();
        self.watchers.lock().push(sender);
        Response::new(Body::from_stream(receiver))
    }

    fn spec(&self) -> Value {
        self.lease.lock().as_ref().map_or(Value::Null, |lease| lease["spec"].clone())
    }

    fn holder(&self) -> Value {
        self.spec()["holderIdentity"].clone()
    }
}

fn status(code: StatusCode, reason: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason,
        "code": code.as_u16(),
    });
    Response::builder().status(code).body(Body::from(body.to_string())).unwrap()
}

struct Running {
    task: JoinHandle<Result<(), Error>>,
    stop: CancellationToken,
    receiver: watch::Receiver<Option<Leadership>>,
    guard: LeadershipGuard,
    metrics: Metrics,
}

fn start(server: &Arc<Server>, identity: &str) -> Running {
    start_owned(server, identity, None)
}

fn start_owned(server: &Arc<Server>, identity: &str, owner: Option<OwnerReference>) -> Running {
    start_as(server, identity, owner, |election| election)
}

fn start_as(
    server: &Arc<Server>,
    identity: &str,
    owner: Option<OwnerReference>,
    with: impl Fn(Election) -> Election,
) -> Running {
    let settings = Settings {
        namespace: "ns".to_owned(),
        name: "lease".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::default(),
        owner,
        at: None,
    };
    let origin = Instant::now();
    let clock = Clock::from_fn(move || origin.elapsed());
    let metrics = Metrics::register(&mut Registry::default());
    let (election, receiver) = Election::new(server.client(), settings, clock, metrics.clone());
    let stop = CancellationToken::new();
    let task = tokio::spawn(with(election).run(stop.clone()));
    Running { task, stop, guard: receiver.clone().into(), receiver, metrics }
}

/// The leadership once it is won; a test that waits for ever would not fail.
async fn elected(candidate: &mut Running) -> Leadership {
    let minute = Duration::from_mins(1);
    tokio::time::timeout(minute, candidate.guard.elected()).await.expect("elected in time").unwrap()
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once_and_renews() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    let begun = Instant::now();
    let first = elected(&mut a).await;
    assert!(begun.elapsed() < Duration::from_millis(100));
    let written = server.spec();
    assert_eq!(written["holderIdentity"], "a");
    assert_eq!(written["leaseDurationSeconds"], 15);
    assert_eq!(written["leaseTransitions"], 0);
    assert!(written["acquireTime"].is_string() && written["renewTime"].is_string());
    assert_eq!(a.metrics.leader.get(), 1);

    seconds(60).await;
    assert!(!first.is_current(), "the first value is long over");
    let remaining = a.guard.check().unwrap();
    assert!(remaining > Duration::from_secs(7), "{remaining:?}");
    // One creation and a renewal each two seconds, which timers round up.
    let writes = server.version.load(Ordering::Relaxed);
    assert!((30..=31).contains(&writes), "{writes}");
    assert_eq!(server.spec()["acquireTime"], written["acquireTime"]);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_noticed_at_once() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    let mut b = start(&server, "b");
    seconds(30).await;
    assert!(b.guard.check().is_err());

    let stopped = Instant::now();
    a.stop.cancel();
    a.task.await.unwrap().unwrap();
    assert!(a.guard.check().is_err());
    assert!(a.receiver.borrow().is_none());
    assert_eq!(a.metrics.leader.get(), 0);
    elected(&mut b).await;
    assert!(stopped.elapsed() < Duration::from_millis(100), "{:?}", stopped.elapsed());
    assert_eq!(server.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_prepared_lets_others_go_first() {
    let server = Arc::new(Server::default());
    let defers = |identity: &str| {
        let (prepared, is_prepared) = watch::channel(false);
        let with = |election: Election| election.deferring_until(is_prepared.clone());
        (start_as(&server, identity, None, with), prepared)
    };
    let ends = async |candidate: Running| {
        candidate.stop.cancel();
        candidate.task.await.unwrap().unwrap();
    };
    // Alone it leads, a little later.
    let begun = Instant::now();
    let (mut a, _unprepared) = defers("a");
    elected(&mut a).await;
    let waited = begun.elapsed();
    assert!((HANDICAP..HANDICAP + Duration::from_millis(100)).contains(&waited), "{waited:?}");
    // Of two the one that is prepared, which here even hears of it late; and at once the one that becomes so.
    let (mut unprepared, preparing) = defers("b");
    seconds(3).await;
    let mut c = start(&server, "c");
    seconds(30).await;
    ends(a).await;
    elected(&mut c).await;
    seconds(30).await;
    assert!(unprepared.guard.check().is_err());
    preparing.send_replace(true);
    let stopped = Instant::now();
    ends(c).await;
    elected(&mut unprepared).await;
    assert!(stopped.elapsed() < Duration::from_millis(100), "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_a_release_is_noticed_within_a_retry_period() {
    let server = Arc::new(Server { no_watch: true, ..Server::default() });
    let mut a = start(&server, "a");
    elected(&mut a).await;
    let mut b = start(&server, "b");
    seconds(30).await;
    let watches = server.watching.load(Ordering::Relaxed);
    assert!((2..=16).contains(&watches), "one try a read, not a storm: {watches}");

    a.stop.cancel();
    let stopped = Instant::now();
    elected(&mut b).await;
    assert!(stopped.elapsed() <= Duration::from_secs(2), "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_has_a_short_term_and_no_holder() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    a.stop.cancel();
    a.task.await.unwrap().unwrap();
    let spec = server.spec();
    assert_eq!(spec["holderIdentity"], "");
    assert_eq!(spec["leaseDurationSeconds"], 1);
    assert_eq!(spec["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_at_its_deadline_before_a_standby_begins() {
    for outage in [Mishap::Silence, Mishap::Unheard, Mishap::Refuse(StatusCode::INTERNAL_SERVER_ERROR)] {
        let server = Arc::new(Server::default());
        let mut a = start(&server, "a");
        elected(&mut a).await;
        seconds(11).await;
        *server.outage.lock() = Some(outage);
        let cut = Instant::now();
        let error = a.task.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Lost(Loss::Expired)), "{outage:?}: {error}");
        assert!(a.receiver.borrow().is_none());
        let lasted = cut.elapsed();
        assert!(
            lasted <= Duration::from_secs(10) && lasted > Duration::from_secs(7),
            "{outage:?}: {lasted:?}"
        );

        *server.outage.lock() = None;
        let mut b = start(&server, "b");
        let seen = Instant::now();
        elected(&mut b).await;
        assert_eq!(
            seen.elapsed().as_secs(),
            15,
            "{outage:?}: a newcomer waits a whole term from when it looked"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_fault_does_not_cost_the_leadership() {
    for mishap in [Mishap::Silence, Mishap::Unheard, Mishap::Refuse(StatusCode::TOO_MANY_REQUESTS)] {
        for method in [Method::PUT, Method::GET] {
            let server = Arc::new(Server::default());
            let mut a = start(&server, "a");
            elected(&mut a).await;
            // A failed renewal is followed by a read; with GET both fail.
            server.mishaps.lock().push_back((Method::PUT, mishap));
            if method == Method::GET {
                server.mishaps.lock().push_back((method, mishap));
            }
            for _ in 0..300 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(a.guard.check().is_ok(), "{mishap:?}");
            }
            assert!(server.mishaps.lock().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unheard_creation_is_recognised_as_the_own() {
    let server = Arc::new(Server::default());
    server.mishaps.lock().push_back((Method::POST, Mishap::Unheard));
    let mut a = start(&server, "a");
    let begun = Instant::now();
    elected(&mut a).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(server.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_replaced_or_whose_lease_was_deleted_ends() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    let mut stolen = server.lease.lock().clone().unwrap();
    stolen["spec"]["holderIdentity"] = "thief".into();
    assert!(server.store(stolen).status().is_success());
    let error = a.task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"lost the leadership: the lease is held by "thief" now"#);

    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    let mut b = start(&server, "b");
    seconds(10).await;
    server.delete();
    assert!(matches!(a.task.await.unwrap(), Err(Error::Lost(Loss::Deleted))));
    let deleted = Instant::now();
    elected(&mut b).await;
    assert!(deleted.elapsed() > Duration::from_secs(10), "b knows that somebody may still lead");
}

#[tokio::test(start_paused = true)]
async fn others_may_edit_the_lease_while_it_is_held() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    for _ in 0..20 {
        seconds(1).await;
        let mut edited = server.lease.lock().clone().unwrap();
        edited["metadata"]["annotations"]["by"] = "an admin".into();
        assert!(server.store(edited).status().is_success());
        assert!(a.guard.check().is_ok());
    }
    seconds(5).await;
    assert_eq!(server.lease.lock().as_ref().unwrap()["metadata"]["annotations"]["by"], "an admin");
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_does_not_make_a_storm() {
    let server = Arc::new(Server::default());
    let refusals = std::iter::repeat_n((Method::POST, Mishap::Refuse(StatusCode::NOT_FOUND)), 1_000);
    server.mishaps.lock().extend(refusals);
    let a = start(&server, "a");
    seconds(60).await;
    let tries = 1_000 - server.mishaps.lock().len();
    assert!((20..=31).contains(&tries), "{tries}");
    a.stop.cancel();
    a.task.await.unwrap().unwrap();
    assert_eq!(server.holder(), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_one_leads_and_each_handover_takes_the_next() {
    let server = Arc::new(Server::default());
    let mut running: Vec<_> = (0..5).map(|n| start(&server, &format!("c{n}"))).collect();
    for _ in 0..5 {
        seconds(5).await;
        let mut leaders: Vec<_> =
            running.extract_if(.., |candidate| candidate.guard.check().is_ok()).collect();
        assert_eq!(leaders.len(), 1);
        let leader = leaders.remove(0);
        leader.stop.cancel();
        leader.task.await.unwrap().unwrap();
    }
    assert!(running.is_empty());
    assert_eq!(server.holder(), "");
}

fn deployment(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "manager".to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_belongs_to_the_deployment_whoever_made_it() {
    let server = Arc::new(Server::default());
    let owners = || server.lease.lock().as_ref().unwrap()["metadata"]["ownerReferences"].clone();
    let mut a = start(&server, "a");
    elected(&mut a).await;
    assert_eq!(owners(), Value::Null);
    a.stop.cancel();
    a.task.await.unwrap().unwrap();
    let mut b = start_owned(&server, "b", Some(deployment("7")));
    elected(&mut b).await;
    assert_eq!(owners(), json!([deployment("7")]));
    b.stop.cancel();
    b.task.await.unwrap().unwrap();
    assert_eq!(owners(), json!([deployment("7")]), "given up, it still belongs to it");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_may_not_be_set_does_not_cost_the_leadership() {
    let server = Arc::new(Server::default());
    let mut a = start(&server, "a");
    elected(&mut a).await;
    a.stop.cancel();
    a.task.await.unwrap().unwrap();
    server.mishaps.lock().push_back((Method::PUT, Mishap::Refuse(StatusCode::FORBIDDEN)));
    let mut b = start_owned(&server, "b", Some(deployment("7")));
    elected(&mut b).await;
    seconds(30).await;
    assert!(b.guard.check().is_ok());
    assert_eq!(server.lease.lock().as_ref().unwrap()["metadata"]["ownerReferences"], Value::Null);
}
