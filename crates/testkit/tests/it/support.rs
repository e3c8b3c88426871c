//! Servers, requests and objects of these tests.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::api_server::{Cluster, FakeApiServer, ServerOptions};
use testkit::client::{brief, connection::Endpoint};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/a/configmaps";
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A server that does not make tests wait for versions that never come.
pub(crate) async fn server() -> FakeApiServer {
    let options = ServerOptions { fresh_timeout: Duration::from_millis(100), ..ServerOptions::default() };
    FakeApiServer::serve(Cluster::default(), options).await.unwrap()
}

pub(crate) fn config_map(namespace: &str, name: &str, n: u64) -> Value {
    let label = if n.is_multiple_of(2) { "even" } else { "odd" };
    json!({"metadata": {"namespace": namespace, "name": name, "labels": {"n": label}}, "data": {"n": n.to_string()}})
}

pub(crate) async fn get(server: &FakeApiServer, path: &str) -> (u16, Value) {
    get_as(server, path, "application/json").await
}

pub(crate) async fn get_as(server: &FakeApiServer, path: &str, accept: &str) -> (u16, Value) {
    let mut answer = Endpoint::plain(server.address()).get(path, accept).await.unwrap();
    let body = answer.bytes().await.unwrap();
    (answer.status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// The events of a watch that ends by itself.
pub(crate) async fn events(server: &FakeApiServer, query: &str) -> Vec<String> {
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1&{query}");
    let mut answer = Endpoint::plain(server.address()).get(&path, "application/json").await.unwrap();
    assert_eq!(answer.status, 200);
    let body = answer.bytes().await.unwrap();
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| brief(&serde_json::from_slice(line).unwrap())).collect()
}
