//! The webhook as the API server reaches it: a real socket, TLS, an `AdmissionReview` as bytes in, one out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::NetworkMode;
use api::labels::DESIRED_NODE_POOL;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{Client, Config};
use manager::pools::{Live, LiveError, PoolView, Pools};
use manager::webhook::node_pool::plan::PoolNodes;
use manager::webhook::nodes::{Nodes, NodesError};
use manager::webhook::pod::plan::NamedNode;
use manager::webhook::{self, Metrics, PODS_PATH, State};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tls::issue::CertificateAuthority;
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A cluster with host-network pool `h` and container-network pool `c`.
struct Cluster;

impl Live for Cluster {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<PoolView>, LiveError>> {
        let mode = match name {
            "h" => Some(NetworkMode::HostNetwork),
            "c" => Some(NetworkMode::ContainerNetwork),
            _ => None,
        };
        async move { Ok(mode.map(PoolView::Network)) }.boxed()
    }
}

impl Nodes for Cluster {
    fn of_pool<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<PoolNodes, NodesError>> {
        async { Err("not asked".into()) }.boxed()
    }

    fn membership<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<NamedNode, NodesError>> {
        async { Err("not asked".into()) }.boxed()
    }
}

/// A served webhook and a client that trusts its authority only; the server ends with it.
struct Served {
    client: Client,
    _server: JoinSet<()>,
}

impl Served {
    async fn new() -> Self {
        tls::install_provider();
        let ca = CertificateAuthority::generate("test", Duration::from_hours(2), Timestamp::now()).unwrap();
        let leaf = ca.issue(&["webhook.test".to_owned()], Duration::from_hours(1), Timestamp::now()).unwrap();
        let serving = ServingCertificate::new();
        serving.install(&leaf.certificate.to_pem(), leaf.key.expose()).unwrap();
        let socket = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = socket.local_addr().unwrap();
        let state = State {
            pools: Pools::new(Cluster),
            nodes: Arc::new(Cluster),
            metrics: Metrics::register(&mut Registry::default()),
        };
        let listener = TlsListener::new(socket, serving.server_config().unwrap(), Limits::default());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, webhook::router(state)).await.unwrap() });

        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![ca.certificate().der().to_vec()]);
        config.tls_server_name = Some("webhook.test".to_owned());
        Self { client: Client::try_from(config).unwrap(), _server: server }
    }

    /// What becomes of the pod: as the API server has it after the patch.
    async fn admitted(&self, pod: &Value) -> Value {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "futureReview": {},
            "request": {
                "uid": "u1", "operation": "CREATE", "namespace": "default", "userInfo": { "futureUser": [] },
                "futureRequest": 1, "object": pod
            }
        });
        let request = http::Request::post(PODS_PATH)
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .unwrap();
        let answer: Value = self.client.request(request).await.unwrap();
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(true)), "{answer}");
        let operations = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let operations: json_patch::Patch = serde_json::from_slice(&operations).unwrap();
        let mut after = pod.clone();
        json_patch::patch(&mut after, &operations).unwrap();
        after
    }
}

/// Where members stand whose names begin with `future`, and what they say.
fn unknown_fields(value: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let at = format!("{at}/{name}");
                if name.starts_with("future") {
                    found.push((at.clone(), member.clone()));
                }
                unknown_fields(member, &at, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unknown_fields(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// A pod of a Kubernetes version that we do not know. The number is one that no float holds.
fn pod(pool: &str) -> Value {
    let requirement =
        json!({ "key": "nodepool.openyurt.io/hostnetwork", "operator": "NotIn", "values": ["true"] });
    json!({
        "apiVersion": "v1", "kind": "Pod", "futurePod": [1, 2.5, null],
        "metadata": { "generateName": "web-", "labels": { DESIRED_NODE_POOL: pool }, "futureMetadata": "m" },
        "spec": {
            "futureSpec": { "futureDeep": 9_007_199_254_740_993_i64 },
            "containers": [{
                "name": "web", "image": "web", "futureContainer": { "a": false },
                "ports": [{ "containerPort": 80, "futurePort": null }]
            }],
            "affinity": {
                "futureAffinity": 1,
                "nodeAffinity": {
                    "futureNodeAffinity": 2,
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "futureRequired": 3,
                        "nodeSelectorTerms": [
                            {
                                "futureTerm": 4,
                                "matchExpressions": [
                                    { "key": "disk", "operator": "In", "values": ["ssd"], "futureExpression": 5 },
                                    requirement
                                ]
                            },
                            { "futureTerm": 6, "matchFields": [{ "key": "metadata.name", "futureField": 7 }] }
                        ]
                    }
                }
            }
        }
    })
}

#[tokio::test]
async fn fields_that_nobody_knows_survive_the_patch() {
    let served = Served::new().await;
    let mut results = Vec::new();
    for pool in ["h", "c", "nowhere"] {
        let before = pod(pool);
        let after = served.admitted(&before).await;
        assert_ne!(after, before, "{pool}: nothing was patched, so nothing is tested");
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        unknown_fields(&before, "", &mut expected);
        unknown_fields(&after, "", &mut found);
        assert_eq!(expected.len(), 13);
        assert_eq!(found, expected, "{pool}");
        results.push(after);
    }
    // Both kinds of patch were there: one that rewrites the terms, and one that adds to them.
    let [host, container, _] = results.as_slice() else { panic!("three pools") };
    assert_eq!(host["spec"]["hostNetwork"], true);
    assert!(!host.to_string().contains("NotIn"), "{host}");
    assert_eq!(container.to_string().matches("NotIn").count(), 2, "{container}");
}
