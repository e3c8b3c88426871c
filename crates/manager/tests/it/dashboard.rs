//! That the chart's dashboard asks for what a manager shows: names, labels and values of a whole one that leads.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process;

const DASHBOARD: &str = include_str!("../../../../charts/isthmus/files/dashboard.json");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_asks_for_metrics_that_there_are() {
    let server = process::server().await;
    let cluster = server.cluster();
    // What appears only with its object: a pool's nodes, and the certificates, for which the chart makes the Secrets.
    let pool = json!({ "metadata": { "name": "shop" }, "spec": { "type": "Edge" } });
    cluster.create("nodepools.apps.openyurt.io", pool).unwrap();
    for name in ["isthmus-webhook-ca", "isthmus-webhook-serving"] {
        let secret = json!({ "metadata": { "name": name, "namespace": "isthmus-system" } });
        cluster.create("secrets", secret).unwrap();
    }
    let app = process::app(&server).await;
    let metrics = app.metrics();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { app.run(CancellationToken::new()).await.unwrap() });

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut amiss = Vec::new();
    for _ in 0..300 {
        let (found, expressions) = testkit::dashboard::unanswered(&dashboard, &metrics.encode().unwrap());
        assert!(expressions > 10, "{expressions}");
        if found.is_empty() {
            return;
        }
        amiss = found;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{amiss:#?}\n{}", metrics.encode().unwrap());
}
