//! Lines that are slow and whole: far away, or thin. The link that goes over them is no black hole.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use edge_hub::{
    metrics::LinkBytes,
    upstream::{Connector, Credential, Link, LinkState, Timing, TlsMaterial, Upstream},
};
use http::{Request, StatusCode, header};
use serde_json::json;
use testkit::wan::{Wan, Weather};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::site::{SOON, Site, service};

/// What a loaded machine may add to a time that is promised.
const SLACK: Duration = Duration::from_secs(1);

/// A link of the node's to the site's server by that address.
async fn link(site: &Site, address: SocketAddr, timing: Timing) -> (Upstream, JoinSet<()>) {
    let file = |name: &str| site.file(name);
    let material = TlsMaterial::read(&file("ca.crt"), &file("node.crt"), &file("node.key")).unwrap();
    let connector = Arc::new(Connector::new(material, timing, Arc::new(LinkBytes::default())));
    let (link, upstream) = Link::new(vec![format!("https://{address}").parse().unwrap()], connector);
    let mut tasks = JoinSet::new();
    tasks.spawn(link.run(CancellationToken::new()));
    let mut state = upstream.state();
    timeout(SOON, state.wait_for(|state| matches!(state, LinkState::Up(_)))).await.unwrap().unwrap();
    (upstream, tasks)
}

/// An object that fits into what the server takes before it says anything.
fn large() -> Request<Body> {
    let mut large = service("a", "large", 1);
    large["metadata"]["annotations"] = json!({ "padding": "x".repeat(800_000) });
    Request::post("/api/v1/namespaces/a/services")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(large.to_string()))
        .unwrap()
}

/// The PING stands behind all of it, and nothing comes for longer than a black hole is given.
#[tokio::test]
async fn a_large_upload_over_a_thin_line_is_not_cut() {
    let site = Site::new().await;
    let wan = Wan::start(site.server.address(), 1, Weather::CLEAR).await.unwrap();
    let (upstream, _tasks) = link(&site, wan.address(), Timing::default()).await;
    wan.set(Weather { bandwidth: Some(100_000), ..Weather::CLEAR });
    let began = Instant::now();
    let answer = upstream.send(&Credential::Node, large());
    let answer = timeout(Duration::from_secs(30), answer).await.unwrap().expect("an answer");
    let took = began.elapsed();
    println!("uploaded in {took:?}");
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert!(took > Duration::from_secs(5), "the line is not thin: {took:?}");
    assert!(upstream.is_up() && wan.accepted() == 1, "{} connections", wan.accepted());
}

/// All times are a tenth of the usual ones.
#[tokio::test]
async fn a_round_trip_longer_than_an_answer_usually_takes_makes_no_link_flap() {
    let site = Site::new().await;
    let delay = Duration::from_millis(125);
    let timing = Timing {
        ping_after_asked: Duration::from_millis(200),
        ping_timeout: Duration::from_millis(180),
        ..Timing::default()
    };
    let wan = Wan::start(site.server.address(), 1, Weather::delayed(delay)).await.unwrap();
    let (upstream, _tasks) = link(&site, wan.address(), timing).await;
    let version = Request::get("/version").body(Body::empty()).unwrap();
    assert_eq!(upstream.send(&Credential::Node, version).await.unwrap().status(), StatusCode::OK);
    // One PING after the other.
    sleep(20 * delay).await;
    assert!(upstream.is_up() && wan.accepted() == 1, "{} connections", wan.accepted());
    wan.set(Weather { silent_up: true, silent_down: true, ..Weather::delayed(delay) });
    let began = Instant::now();
    let mut state = upstream.state();
    let down = state.wait_for(|state| matches!(state, LinkState::Down { .. }));
    timeout(SOON, down).await.expect("noticed").unwrap();
    let bound = timing.ping_after_asked + 2 * 3 * delay + SLACK;
    assert!(began.elapsed() < bound, "noticed after {:?}", began.elapsed());
}
