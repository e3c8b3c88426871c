//! Requests that come while the API server is away, or soon after: whoever asks for a certificate waits for the answer.

use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{NODE, object};
use crate::{
    controllers::hub_identity::{Controller, HubIdentityMetrics, observe::Purpose},
    controllers::told_events::ToldEvents,
    leader::LeadershipGuard,
};

/// An API server that knows of no request at first, is away for so many attempts to watch, and then tells of one; what it was asked, and
/// when.
#[derive(Clone)]
struct Server {
    away: usize,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
}

/// The list, and the watch that breaks.
const BEFORE: usize = 2;

impl Server {
    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let path = request.uri().path();
        let number = {
            let mut asked = self.asked.lock();
            asked.push((path.to_owned(), Instant::now()));
            asked.len()
        };
        let list = json!({"kind": "CertificateSigningRequestList", "metadata": {"resourceVersion": "1"}, "items": []});
        let failure = json!({"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503, "message": ""});
        let (status, body) = match number {
            1 => (StatusCode::OK, Body::from(list.to_string())),
            BEFORE => (StatusCode::OK, Body::empty()),
            _ if number <= BEFORE + self.away => {
                (StatusCode::SERVICE_UNAVAILABLE, Body::from(failure.to_string()))
            }
            _ if path.ends_with("/certificatesigningrequests") => {
                let mut request = object("system:node:shop-1", &["system:nodes", "isthmus:edge-hubs"], NODE);
                request.metadata.resource_version = Some("2".to_owned());
                let event =
                    Ok::<_, Infallible>(json!({"type": "ADDED", "object": request}).to_string() + "\n");
                (StatusCode::OK, Body::from_stream(stream::iter([event]).chain(stream::pending())))
            }
            _ => (
                StatusCode::OK,
                Body::from(json!({"metadata": {"name": "shop-1", "resourceVersion": "1"}}).to_string()),
            ),
        };
        Response::builder().status(status).body(body).unwrap()
    }

    /// When a path that ends so was first asked for.
    fn first(&self, path: &str) -> Option<Instant> {
        self.asked.lock().iter().find(|(asked, _)| asked.ends_with(path)).map(|(_, at)| *at)
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_decided_on_soon_after_an_outage_however_long_it_was() {
    for away in [1, 4, 12, 40] {
        let server = Server { away, asked: Arc::default() };
        let copy = server.clone();
        let answer = move |request| ready(Ok::<_, Infallible>(copy.answer(&request)));
        let client = Client::new(tower::service_fn(answer), "default");
        let (_publish, leadership) = watch::channel(None);
        let controller = Controller {
            events: ToldEvents::new(client.clone(), "test".into()),
            client,
            leadership: LeadershipGuard::from(leadership),
            metrics: HubIdentityMetrics::default(),
            gateways: false,
        };
        let decides = async {
            while server.first("/nodes/shop-1").is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = controller.follow(Purpose::Hub) => unreachable!("it never ends"),
            () = decides => {}
        }
        let last_failure = server.asked.lock()[BEFORE + away - 1].1;
        let waited = server.first("/nodes/shop-1").unwrap() - last_failure;
        assert!(waited <= Duration::from_secs(9), "{waited:?} after {away} failures");
    }
}
