//! What is told is told once, though leaders change and remember nothing: of nodes, and of pools that cannot be read.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::api_server::FakeApiServer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process;

const EVENTS: &str = "events.events.k8s.io";

/// The events with that reason.
fn told(server: &FakeApiServer, reason: &str) -> Vec<Value> {
    server.cluster().list(EVENTS).into_values().filter(|event| event["reason"] == reason).collect()
}

fn waits(server: &FakeApiServer, name: &str) {
    let labels = json!({ (api::labels::NODE_POOL): "nowhere" });
    server.cluster().create("nodes", json!({ "metadata": { "name": name, "labels": labels } })).unwrap();
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..300 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_tells_nothing_that_was_told() {
    let server = process::server().await;
    let cluster = server.cluster();
    let unreadable =
        json!({ "metadata": { "name": "odd", "generation": 1 }, "spec": { "hostNetwork": "perhaps" } });
    cluster.create("nodepools.apps.openyurt.io", unreadable).unwrap();
    let condition = || {
        let pool = cluster.get("nodepools.apps.openyurt.io", "odd").unwrap();
        pool["status"]["conditions"].clone()
    };
    let mut conditions = Vec::new();
    let mut tasks = JoinSet::new();
    for (count, node) in [(1, "n1"), (2, "n2")] {
        waits(&server, node);
        let app = process::app(&server).await;
        let end = CancellationToken::new();
        let ended = end.clone();
        tasks.spawn(async move { app.run(ended).await.unwrap() });
        // The node that came with this leader shows that it looked at the others as well.
        until("the nodes are told of", || told(&server, "NodePoolMissing").len() >= count).await;
        until("the pool is told of", || !told(&server, "Unreadable").is_empty()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        conditions.push(condition());
        end.cancel();
    }
    let events = told(&server, "NodePoolMissing");
    let nodes: Vec<&str> = events.iter().map(|event| event["regarding"]["name"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["n1", "n2"], "{events:#?}");
    assert_eq!(told(&server, "Unreadable").len(), 1);
    assert_eq!(conditions[0][0]["reason"], "Unreadable");
    assert_eq!(conditions[0], conditions[1], "not even its time changes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_a_host_network_pool_is_told_of() {
    let server = process::server().await;
    let cluster = server.cluster();
    let pool = json!({ "metadata": { "name": "shop" }, "spec": { "networkMode": "HostNetwork" } });
    cluster.create("nodepools.apps.openyurt.io", pool).unwrap();
    let labels = json!({ (api::labels::NODE_POOL): "shop" });
    cluster.create("nodes", json!({ "metadata": { "name": "n1", "labels": labels } })).unwrap();
    let app = process::app(&server).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { app.run(CancellationToken::new()).await.unwrap() });

    let label = |key: &str| cluster.get("nodes", "n1").unwrap()["metadata"]["labels"][key].clone();
    until("the node is in", || label(api::labels::HOST_NETWORK) == "true").await;
    assert_eq!(told(&server, "LeftHostNetwork").len(), 0);
    let leave = json!({ "metadata": { "labels": { (api::labels::NODE_POOL): null } } });
    cluster.merge_patch("nodes", "n1", &leave).unwrap();
    until("it is told", || !told(&server, "LeftHostNetwork").is_empty()).await;
    assert_eq!(label(api::labels::HOST_NETWORK), Value::Null);
}
