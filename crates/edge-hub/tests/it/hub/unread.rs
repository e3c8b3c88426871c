//! Callers who do not read what is handed on to them, and others who wait for the same API server.

use axum::body::Body;
use edge_hub::upstream::{Credential, Timing};
use http::{HeaderValue, Request, header};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use testkit::{
    api_server::access::User,
    wan::{Wan, Weather},
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    site::{JSON, SOON, Site, get, names},
    slow_line::link,
};

/// Never kept, so handed on.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases";

fn add_users(site: &Site, names: &[&str]) {
    for name in names {
        site.server.cluster().access().add_token(name, User::service_account("a", name));
    }
}

/// Over one connection, of whose streams it lets nothing come, it asks for more than all windows of a connection to the API server once were.
#[tokio::test]
async fn who_reads_nothing_holds_up_no_other_caller() {
    let site = Site::started().await;
    add_users(&site, &["slow", "other"]);
    let metadata =
        json!({ "namespace": "a", "name": "large", "annotations": { "filler": "x".repeat(700_000) } });
    let lease = json!({ "metadata": metadata, "spec": {} });
    site.server.cluster().create("leases.coordination.k8s.io", lease).unwrap();
    let mut client = http2::Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(0);
    let io = TokioIo::new(site.connected(&["h2"]).await);
    let (mut sender, connection) = client.handshake::<_, Body>(io).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..12 {
        let request = Request::get(format!("https://127.0.0.1{LEASES}"))
            .header(header::AUTHORIZATION, "Bearer slow")
            .header(header::ACCEPT, JSON)
            .body(Body::empty())
            .unwrap();
        sender.ready().await.unwrap();
        let answer = timeout(SOON, sender.send_request(request)).await.expect("a head").unwrap();
        assert_eq!(answer.status(), 200);
        unread.push(answer);
    }
    let other = site.secure(None).with_token("other");
    let (status, list) = timeout(SOON, get(&other, LEASES)).await.expect("an answer").unwrap();
    assert_eq!((status, names(&list)), (200, vec!["large"]));
    assert!(tasks.try_join_next().is_none(), "the others are open");
    drop(unread);
}

/// What is handed on, however much it is, is not before a review of somebody's rights.
#[tokio::test]
async fn what_the_hub_asks_with_a_token_goes_over_a_connection_of_its_own() {
    let site = Site::new().await;
    add_users(&site, &["t"]);
    let wan = Wan::start(site.server.address(), 1, Weather::CLEAR).await.unwrap();
    let (upstream, _tasks) = link(&site, wan.address(), Timing::default()).await;
    let token = Credential::Bearer(HeaderValue::from_static("Bearer t"));
    let version = || Request::get("/version").body(Body::empty()).unwrap();
    assert_eq!(upstream.hand_on(&token, version()).await.unwrap().status(), 200);
    assert_eq!(wan.accepted(), 2, "beside the node's");
    for _ in 0..2 {
        for credential in [&Credential::Node, &token] {
            assert_eq!(upstream.send(credential, version()).await.unwrap().status(), 200);
            assert_eq!(upstream.hand_on(credential, version()).await.unwrap().status(), 200);
        }
        assert_eq!(wan.accepted(), 3);
    }
}
