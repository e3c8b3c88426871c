//! The router as the API server sees it.

#![allow(clippy::needless_pass_by_value, reason = "json! values read best when passed as they are")]

use std::collections::BTreeMap;
use std::time::Duration;

use api::NetworkMode;
use api::labels::{DESIRED_NODE_POOL, NODE_POOL};
use axum::body::{Body, to_bytes};
use axum::http::Request as HttpRequest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{pause, sleep};
use tower::ServiceExt as _;

use super::node_pool::plan::PoolNodes;
use super::pod::plan::NamedNode;
use super::*;
use crate::pools::{Live, LiveError, PoolView};

/// The cluster behind the webhook.
#[derive(Clone, Default)]
struct Cluster {
    pools: BTreeMap<String, PoolView>,
    nodes: BTreeMap<String, Vec<String>>,
    down: bool,
    /// Only nodes cannot be asked for.
    away: bool,
    delay: Duration,
}

impl Live for Cluster {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<PoolView>, LiveError>> {
        async move {
            if self.down { Err("the API server is away".into()) } else { Ok(self.pools.get(name).cloned()) }
        }
        .boxed()
    }
}

impl Nodes for Cluster {
    fn of_pool<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>> {
        async move {
            sleep(self.delay).await;
            if self.down {
                return Err("the API server is away".into());
            }
            Ok(PoolNodes { names: self.nodes.get(pool).cloned().unwrap_or_default(), more: false })
        }
        .boxed()
    }

    fn membership<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<NamedNode, NodesError>> {
        async move {
            sleep(self.delay).await;
            if self.away {
                return Err("the nodes are away".into());
            }
            let pool = self.nodes.iter().find(|(_, nodes)| nodes.iter().any(|node| node == name));
            Ok(pool.map_or(NamedNode::InNoPool, |(pool, _)| NamedNode::InPool(pool.clone())))
        }
        .boxed()
    }
}

struct Server {
    router: Router,
    registry: Registry,
}

impl Server {
    fn new(cluster: Cluster) -> Self {
        let mut registry = Registry::with_prefix("isthmus");
        let metrics = Metrics::register(&mut registry);
        let state = State { pools: Pools::new(cluster.clone()), nodes: Arc::new(cluster), metrics };
        Self { router: router(state), registry }
    }

    async fn send(&self, path: &str, content_type: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        let request = HttpRequest::post(path).header("content-type", content_type).body(body.into()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let code = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn review(&self, path: &str, request: Value) -> Value {
        let review =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let (code, body) = self.send(path, "application/json", review.to_string()).await;
        assert_eq!(code, StatusCode::OK, "{body}");
        assert_eq!(
            (&body["apiVersion"], &body["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
        body["response"].clone()
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

fn pools(all: &[(&str, NetworkMode)]) -> BTreeMap<String, PoolView> {
    all.iter().map(|(name, mode)| ((*name).to_owned(), PoolView::Network(*mode))).collect()
}

fn create(pool: &str, spec: Value) -> Value {
    json!({
        "uid": "u1", "operation": "CREATE", "namespace": "default", "userInfo": { "username": "someone" },
        "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "generateName": "web-", "labels": { DESIRED_NODE_POOL: pool } }, "spec": spec
        },
        "oldObject": null, "dryRun": false, "options": null
    })
}

fn delete(pool: &str) -> Value {
    json!({ "uid": "u2", "operation": "DELETE", "name": pool, "userInfo": {}, "object": null, "oldObject": {} })
}

fn patch_of(response: &Value) -> Value {
    serde_json::from_slice(&STANDARD.decode(response["patch"].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_pod_for_a_host_network_pool_is_patched() {
    let server =
        Server::new(Cluster { pools: pools(&[("p", NetworkMode::HostNetwork)]), ..Cluster::default() });
    let response = server.review(PODS_PATH, create("p", json!({ "schedulingGroup": {} }))).await;
    assert_eq!(
        patch_of(&response),
        json!([
            { "op": "add", "path": "/spec/hostNetwork", "value": true },
            { "op": "add", "path": "/spec/nodeSelector", "value": { NODE_POOL: "p" } }
        ])
    );
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
}

#[tokio::test]
async fn a_pod_for_another_pool_is_kept_off_host_network_nodes() {
    let server =
        Server::new(Cluster { pools: pools(&[("c", NetworkMode::ContainerNetwork)]), ..Cluster::default() });
    for pool in ["c", "nowhere", "../nodes", ""] {
        let response = server.review(PODS_PATH, create(pool, json!({}))).await;
        assert_eq!(response["allowed"], true, "{pool}");
        assert_eq!(patch_of(&response)[0]["path"], "/spec/affinity", "{pool}");
        assert_eq!(response["warnings"].as_array().unwrap().len(), 1, "{pool}");
    }
}

#[tokio::test]
async fn a_contradiction_is_refused_as_forbidden() {
    let server =
        Server::new(Cluster { pools: pools(&[("p", NetworkMode::HostNetwork)]), ..Cluster::default() });
    let response = server.review(PODS_PATH, create("p", json!({ "nodeSelector": { NODE_POOL: "q" } }))).await;
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(false)));
    assert_eq!(response["status"]["code"], 403);
    assert_eq!(response["status"]["reason"], "Forbidden");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.nodeSelector[apps.openyurt.io/nodepool] is \"q\""), "{message}");
}

#[tokio::test]
async fn a_node_outside_the_pool_is_refused_and_only_asked_for_when_it_is_named() {
    let nodes =
        BTreeMap::from([("p".to_owned(), vec!["n1".to_owned()]), ("q".to_owned(), vec!["n2".to_owned()])]);
    let all = pools(&[("p", NetworkMode::HostNetwork), ("c", NetworkMode::ContainerNetwork)]);
    let server = Server::new(Cluster { pools: all.clone(), nodes, ..Cluster::default() });
    for (node, allowed) in [("n1", true), ("n2", false), ("n3", false)] {
        let response = server.review(PODS_PATH, create("p", json!({ "nodeName": node }))).await;
        assert_eq!(response["allowed"], allowed, "{node}");
    }
    let away = Server::new(Cluster { pools: all, away: true, ..Cluster::default() });
    for (pool, spec) in
        [("p", json!({})), ("p", json!({ "nodeName": "" })), ("c", json!({ "nodeName": "n2" }))]
    {
        assert_eq!(away.review(PODS_PATH, create(pool, spec)).await["allowed"], true, "{pool}");
    }
}

#[tokio::test]
async fn other_operations_on_pods_pass() {
    let server = Server::new(Cluster { down: true, ..Cluster::default() });
    let mut request = create("p", json!({}));
    request["operation"] = json!("UPDATE");
    assert_eq!(server.review(PODS_PATH, request).await, json!({ "uid": "u1", "allowed": true }));
}

#[tokio::test]
async fn a_pool_goes_when_it_is_empty() {
    let nodes = BTreeMap::from([("full".to_owned(), vec!["n1".to_owned(), "n2".to_owned()])]);
    let server = Server::new(Cluster { nodes, ..Cluster::default() });
    assert_eq!(
        server.review(NODE_POOLS_PATH, delete("empty")).await,
        json!({ "uid": "u2", "allowed": true })
    );
    // One of a collection is named by itself only.
    let mut of_collection = delete("");
    of_collection["oldObject"] = json!({ "metadata": { "name": "full" } });
    assert_eq!(server.review(NODE_POOLS_PATH, of_collection).await["allowed"], false);
    let response = server.review(NODE_POOLS_PATH, delete("full")).await;
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("node pool \"full\" still has 2 nodes (n1, n2): "), "{message}");
}

#[tokio::test]
async fn a_pool_whose_name_no_label_can_hold_goes_without_a_question() {
    let server = Server::new(Cluster { down: true, ..Cluster::default() });
    let response = server.review(NODE_POOLS_PATH, delete(&"p".repeat(64))).await;
    assert_eq!(response, json!({ "uid": "u2", "allowed": true }));
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_left_to_the_failure_policy() {
    pause();
    let down = Server::new(Cluster { down: true, ..Cluster::default() });
    let slow = Server::new(Cluster { delay: Duration::from_mins(1), ..Cluster::default() });
    let unreadable = BTreeMap::from([("p".to_owned(), PoolView::Unreadable("bad spec".into()))]);
    let unreadable = Server::new(Cluster { pools: unreadable, ..Cluster::default() });
    let host = || pools(&[("p", NetworkMode::HostNetwork)]);
    let away = Server::new(Cluster { pools: host(), away: true, ..Cluster::default() });
    let slow_nodes =
        Server::new(Cluster { pools: host(), delay: Duration::from_mins(1), ..Cluster::default() });
    for (server, path, request, message) in [
        (
            &away,
            PODS_PATH,
            create("p", json!({ "nodeName": "n1" })),
            "node \"n1\" of spec.nodeName could not be looked up: the nodes are away",
        ),
        (
            &slow_nodes,
            PODS_PATH,
            create("p", json!({ "nodeName": "n1" })),
            "node \"n1\" of spec.nodeName could not be looked up: no answer within 2 s",
        ),
        (
            &down,
            PODS_PATH,
            create("p", json!({})),
            "node pool \"p\" could not be looked up: the API server is away",
        ),
        (
            &down,
            NODE_POOLS_PATH,
            delete("p"),
            "the nodes of node pool \"p\" could not be listed: the API server is away",
        ),
        (
            &slow,
            NODE_POOLS_PATH,
            delete("p"),
            "the nodes of node pool \"p\" could not be listed: no answer within 2 s",
        ),
        (
            &unreadable,
            PODS_PATH,
            create("p", json!({})),
            "node pool \"p\" cannot be read, so it is not known what its pods need: bad spec",
        ),
    ] {
        let review =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let (code, body) = server.send(path, "application/json", review.to_string()).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(
            (&body["kind"], &body["message"], &body["code"]),
            (&json!("Status"), &json!(message), &json!(500))
        );
    }
}

#[tokio::test]
async fn garbage_is_answered_with_what_is_wrong() {
    let server = Server::new(Cluster::default());
    let review = |change: Value| {
        let mut review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": create("p", json!({}))
        });
        json_patch::merge(&mut review, &change);
        review.to_string()
    };
    let deep = format!("{{\"apiVersion\":{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (content_type, body, code, message) in [
        (
            "text/plain",
            review(json!({})),
            415,
            "the content type must be application/json, not \"text/plain\"",
        ),
        ("application/json", String::new(), 400, "the body is no AdmissionReview: EOF while parsing"),
        ("application/json", "{".to_owned(), 400, "the body is no AdmissionReview: EOF while parsing"),
        ("application/json", "[]".to_owned(), 400, "the body is no AdmissionReview: "),
        ("application/json", deep, 400, "the body is no AdmissionReview: "),
        (
            "application/json",
            review(json!({ "apiVersion": "admission.k8s.io/v1beta1" })),
            400,
            "the body is a \"AdmissionReview\" of \"admission.k8s.io/v1beta1\", not an",
        ),
        ("application/json", review(json!({ "kind": "Pod" })), 400, "the body is a \"Pod\" of"),
        ("application/json", review(json!({ "request": null })), 400, "the AdmissionReview holds no request"),
        ("application/json", review(json!({ "request": { "uid": "" } })), 400, "the request has no uid"),
        (
            "application/json",
            review(json!({ "request": { "operation": "GUESS" } })),
            400,
            "the body is no AdmissionReview: unknown variant",
        ),
        ("application/json", "x".repeat(7 * 1024 * 1024 + 1), 413, "the body could not be read: "),
    ] {
        let (status, answer) = server.send(PODS_PATH, content_type, body).await;
        let found = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status.as_u16(), code, "{answer}");
        assert!(found.starts_with(message), "{found} does not start with {message}");
    }
}

#[tokio::test]
async fn a_pod_of_the_size_that_the_api_server_takes_is_read() {
    let server = Server::new(Cluster::default());
    let spec = json!({ "containers": [{ "args": ["x".repeat(3 * 1024 * 1024)] }] });
    assert_eq!(server.review(PODS_PATH, create("p", spec)).await["allowed"], true);
}

#[tokio::test]
async fn other_paths_and_methods_are_not_there() {
    let server = Server::new(Cluster::default());
    assert_eq!(server.send("/", "application/json", "{}").await.0, StatusCode::NOT_FOUND);
    let get = HttpRequest::get(PODS_PATH).body(Body::empty()).unwrap();
    assert_eq!(server.router.clone().oneshot(get).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn every_outcome_is_counted_under_its_name() {
    let nodes = BTreeMap::from([("p".to_owned(), vec!["n1".to_owned()])]);
    let pools = pools(&[("p", NetworkMode::HostNetwork)]);
    let mut registry = Registry::with_prefix("isthmus");
    let metrics = Metrics::register(&mut registry);
    let up = Cluster { pools, nodes, ..Cluster::default() };
    let down = Cluster { down: true, ..Cluster::default() };
    let server = |cluster: Cluster| Server {
        router: router(State {
            pools: Pools::new(cluster.clone()),
            nodes: Arc::new(cluster),
            metrics: metrics.clone(),
        }),
        registry: Registry::default(),
    };
    let (up, down) = (server(up), server(down));
    up.review(PODS_PATH, create("p", json!({}))).await;
    up.review(PODS_PATH, create("p", json!({ "hostUsers": false }))).await;
    let allowed = up.review(PODS_PATH, create("q", json!({ "nodeName": "n1" }))).await;
    assert_eq!((allowed.get("patch"), allowed.get("patchType")), (None, None));
    up.review(NODE_POOLS_PATH, delete("p")).await;
    up.send(NODE_POOLS_PATH, "application/json", "{").await;
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": create("p", json!({})) });
    down.send(PODS_PATH, "application/json", review.to_string()).await;

    let text = Server { router: Router::new(), registry }.metrics();
    for line in [
        r#"isthmus_webhook_requests_total{webhook="pod",outcome="patched"} 1"#,
        r#"isthmus_webhook_requests_total{webhook="pod",outcome="refused"} 1"#,
        r#"isthmus_webhook_requests_total{webhook="pod",outcome="allowed"} 1"#,
        r#"isthmus_webhook_requests_total{webhook="pod",outcome="error"} 1"#,
        r#"isthmus_webhook_requests_total{webhook="node_pool",outcome="refused"} 1"#,
        r#"isthmus_webhook_requests_total{webhook="node_pool",outcome="invalid"} 1"#,
        r#"isthmus_webhook_duration_seconds_count{webhook="pod"} 4"#,
        r#"isthmus_webhook_duration_seconds_count{webhook="node_pool"} 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
