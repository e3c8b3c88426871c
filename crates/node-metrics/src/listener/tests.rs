use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::slo::freshness::FreshnessState;
use node_report::NodeUsage;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tls::certificate::Certificate;
use tower::ServiceExt as _;

use super::*;
use crate::freshness::Now;
use crate::policy::Policies;
use crate::store::{NodeFacts, Settings, Store};

mod handshake;

const WALL: i64 = 1_790_000_000;

/// Whose signature makes a certificate.
static ISSUER: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
});

/// What answers the holders of its certificates.
fn served(reports: &Arc<Reports>) -> Router {
    let authorities = ClientAuthorities::default();
    authorities.install(&[Certificate::from_der(ISSUER.der().to_vec()).unwrap()]).unwrap();
    router(Arc::clone(reports), Arc::new(authorities))
}

fn certificate(groups: &[&str], names: &[&str]) -> Reporter {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    // rcgen keeps one value of a type; a certificate with two is made by two types here.
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    for name in names {
        params.distinguished_name.push(DnType::CommonName, *name);
    }
    let key = KeyPair::generate().unwrap();
    Reporter::of_certificate(params.signed_by(&key, &ISSUER).unwrap().der())
}

fn reports(rate: u32, leading: Arc<AtomicBool>) -> Arc<Reports> {
    let clock = || Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::new(WALL, 0).unwrap() };
    let is_leading = move || leading.load(Ordering::Relaxed);
    let source =
        NodeMetrics::new(Store::new(Settings::default()), "slo.koordinator.sh/v1beta1", clock, is_leading);
    source.change(|store, now| {
        for name in ["a", "b"] {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.nodes_listed(now, &["a".into(), "b".into()].into());
        store.promote(now, 0);
    });
    let admission = Mutex::new(Admission::new(rate));
    let leader = Box::new(|| Some("10.0.0.2:10275".to_owned()));
    Arc::new(Reports { source, admission, leader, metrics: Metrics::default() })
}

async fn send(reports: &Arc<Reports>, reporter: &Reporter, report: &Report) -> Response {
    post_body(reports, reporter, Body::from(report.encode_to_vec())).await
}

async fn post_body(reports: &Arc<Reports>, reporter: &Reporter, body: Body) -> Response {
    let request = http::Request::post(PATH)
        .header(header::CONTENT_TYPE, CONTENT_TYPE)
        .extension(ConnectInfo(reporter.clone()))
        .body(body)
        .unwrap();
    served(reports).oneshot(request).await.unwrap()
}

/// The text of a refusal.
async fn text(response: Response) -> String {
    let body = axum::body::to_bytes(response.into_body(), MAX_BYTES).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

fn full(node: &str, seq: u64) -> Report {
    Report { node: node.to_owned(), seq, usage: Some(NodeUsage::default()), ..Report::default() }
}

async fn answer(response: Response) -> Answer {
    Answer::decode(axum::body::to_bytes(response.into_body(), MAX_BYTES).await.unwrap()).unwrap()
}

#[test]
fn only_a_nodes_certificate_makes_a_reporter() {
    let now = jiff::Timestamp::new(WALL, 0).unwrap();
    let node = |reporter: Reporter| reporter.node(now).map(|name| name.to_string());
    assert_eq!(node(certificate(&["system:nodes"], &["system:node:a"])), Some("a".to_owned()));
    assert_eq!(node(certificate(&["system:masters"], &["system:node:a"])), None);
    assert_eq!(node(certificate(&[], &["system:node:a"])), None);
    assert_eq!(node(certificate(&["system:nodes"], &["a"])), None);
    assert_eq!(node(certificate(&["system:nodes"], &["system:node:"])), None);
    assert_eq!(node(Reporter::of_certificate(b"garbage")), None);
    let late = jiff::Timestamp::new(i64::from(u32::MAX) * 40, 0).unwrap();
    assert_eq!(certificate(&["system:nodes"], &["system:node:a"]).node(late), None, "it has expired");
}

#[tokio::test]
async fn each_report_has_its_status() {
    let leading = Arc::new(AtomicBool::new(true));
    let reports = reports(1_000, Arc::clone(&leading));
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    let taken = send(&reports, &a, &full("a", 4)).await;
    assert_eq!(taken.status(), StatusCode::OK);
    let taken = answer(taken).await;
    assert_eq!((taken.acked_seq, taken.dropped, taken.interval_ms), (4, false, 10_000));
    assert_eq!(taken.policy.as_ref().map(node_report::Policy::hash), taken.policy_hash);
    let knowing = Report { policy_hash: taken.policy_hash, ..full("a", 4) };
    let dropped = answer(send(&reports, &a, &knowing).await).await;
    assert_eq!((dropped.dropped, dropped.policy), (true, None));

    let ahead = Report { base_seq: Some(6), ..full("a", 7) };
    let missing = send(&reports, &a, &ahead).await;
    assert_eq!((missing.status(), answer(missing).await.acked_seq), (StatusCode::CONFLICT, 4));
    assert_eq!(send(&reports, &a, &full("b", 5)).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(send(&reports, &Reporter::default(), &full("a", 5)).await.status(), StatusCode::FORBIDDEN);
    let c = certificate(&["system:nodes"], &["system:node:c"]);
    assert_eq!(send(&reports, &c, &full("c", 5)).await.status(), StatusCode::NOT_FOUND);
    let empty = Report { usage: None, ..full("a", 5) };
    assert_eq!(send(&reports, &a, &empty).await.status(), StatusCode::BAD_REQUEST);

    leading.store(false, Ordering::Relaxed);
    let elsewhere = send(&reports, &a, &full("a", 5)).await;
    assert_eq!(elsewhere.status(), StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(elsewhere.headers()[LEADER_HEADER], "10.0.0.2:10275");
}

#[tokio::test]
async fn a_leader_that_does_not_know_the_nodes_yet_says_come_back() {
    let clock = || Now { steady: Duration::from_secs(1), wall: jiff::Timestamp::new(WALL, 0).unwrap() };
    let source =
        NodeMetrics::new(Store::new(Settings::default()), "slo.koordinator.sh/v1beta1", clock, || true);
    source.change(|store, now| store.promote(now, 0));
    let reports = Arc::new(Reports {
        source,
        admission: Mutex::new(Admission::new(1_000)),
        leader: Box::new(|| None),
        metrics: Metrics::default(),
    });
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    let early = send(&reports, &a, &full("a", 0)).await;
    assert_eq!(
        early.status(),
        StatusCode::TOO_MANY_REQUESTS,
        "not 404: nobody knows that there is no such Node"
    );
    assert_eq!(early.headers()[header::RETRY_AFTER], "1");
    reports.source.change(|store, now| {
        store.node_applied(now, NodeFacts::alive("a"));
        store.nodes_listed(now, &["a".into()].into());
    });
    assert_eq!(answer(send(&reports, &a, &full("a", 0)).await).await.interval_ms, 10_000);
}

#[tokio::test]
async fn what_cannot_be_taken_is_shed() {
    let reports = reports(1, Arc::new(AtomicBool::new(true)));
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    // The first of a node is for nothing.
    for seq in 0..2 {
        assert_eq!(send(&reports, &a, &full("a", seq)).await.status(), StatusCode::OK);
    }
    let shed = send(&reports, &a, &full("a", 2)).await;
    assert_eq!(shed.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(shed.headers()[header::RETRY_AFTER], "5");
    // Who is loud keeps out neither another node, nor slows it down.
    let b = certificate(&["system:nodes"], &["system:node:b"]);
    assert_eq!(answer(send(&reports, &b, &full("b", 0)).await).await.interval_ms, 10_000);
    let c = certificate(&["system:nodes"], &["system:node:c"]);
    let stranger = send(&reports, &c, &full("c", 0)).await;
    assert_eq!(stranger.status(), StatusCode::TOO_MANY_REQUESTS, "there is no such Node");
}

#[tokio::test]
async fn who_was_asked_to_slow_down_is_not_late() {
    let reports = reports(4, Arc::new(AtomicBool::new(true)));
    let second = Duration::from_secs(1);
    let epoch = reports.source.read(Store::epoch);
    let shed = |number: &u32| {
        let name = &Arc::from(format!("n{number}"));
        let interval = 10 * second;
        let asking = Asking { name, epoch, is_node: true, silent: Some(interval), interval };
        reports.admission.lock().admit(second, &asking) != Admitted::Taken
    };
    assert!((0..9).find(shed).is_some(), "more come than can be taken");
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    assert_eq!(answer(send(&reports, &a, &full("a", 0)).await).await.interval_ms, 20_000);
    let state = |silent: u32| {
        reports.source.change(|store, now| store.tick(Now { steady: now.steady + silent * second, ..now }));
        reports.source.read(|store| store.ledger().get("a").unwrap().value.freshness.state)
    };
    assert_eq!(state(50), FreshnessState::Fresh);
    assert_eq!(state(51), FreshnessState::Stale);
}

#[tokio::test]
async fn lists_that_would_fill_the_memory_are_refused_by_name() {
    let reports = reports(1_000, Arc::new(AtomicBool::new(true)));
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    let long = post_body(&reports, &a, Body::from([0x5a, 0].repeat(MAX_BYTES / 2))).await;
    assert_eq!(long.status(), StatusCode::BAD_REQUEST);
    assert_eq!(text(long).await, "the report's list pods is too long");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_do_not_come_end_and_are_few_of_each_node() {
    let reports = reports(1_000, Arc::new(AtomicBool::new(true)));
    let router = served(&reports);
    let post = async |name: &str, body: Body| {
        let reporter = certificate(&["system:nodes"], &[&format!("system:node:{name}")]);
        let request = http::Request::post(PATH)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .extension(ConnectInfo(reporter))
            .body(body)
            .unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    };
    let whole = |name: &str, seq| Body::from(full(name, seq).encode_to_vec());
    let never = || Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let begin = tokio::time::Instant::now();
    // Each over a connection of its own.
    let silent = futures::future::join_all((0..under_way::MOST).map(|_| post("a", never())));
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (post("a", whole("a", 1)).await, post("b", whole("b", 1)).await)
    };
    let (silent, meanwhile) = tokio::join!(silent, meanwhile);
    assert_eq!(meanwhile, (StatusCode::TOO_MANY_REQUESTS, StatusCode::OK));
    assert!(silent.iter().all(|status| *status == StatusCode::REQUEST_TIMEOUT), "{silent:?}");
    assert_eq!(begin.elapsed().as_secs(), READING.as_secs());
    assert_eq!(post("a", whole("a", 2)).await, StatusCode::OK);
}

#[tokio::test]
async fn a_node_keeps_a_policy_that_is_not_known_here() {
    let reports = reports(1_000, Arc::new(AtomicBool::new(true)));
    reports.source.change(|store, now| {
        let facts = NodeFacts::alive("a");
        let former = Arc::clone(&facts.policy.spec);
        let policy = Policies::default().after(Some(&former), &BTreeMap::new());
        store.node_applied(now, NodeFacts { policy, ..facts });
    });
    let a = certificate(&["system:nodes"], &["system:node:a"]);
    let told = answer(send(&reports, &a, &full("a", 1)).await).await;
    assert!(told.policy.is_some(), "one that has none is told what is known");
    let own = Report { policy_hash: Some(7), ..full("a", 2) };
    let kept = answer(send(&reports, &a, &own).await).await;
    assert_eq!((kept.policy_hash, kept.policy), (Some(7), None));
}
