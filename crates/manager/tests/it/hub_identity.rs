//! Requests for certificates within a whole manager that leads, against a fake API server: what is asked for with the group of hubs is decided
//! on, and what others ask for is left alone.

use std::time::Duration;

use api::names::{GATEWAY_SERVER_NAME, GATEWAY_SIGNER, HUB_GROUP, HUB_SIGNER, NODE_GROUP};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use testkit::api_server::{Cluster, FakeApiServer};
use tls::request::{Subject, generate_key, make, make_serving};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

const AS_CLIENT: [&str; 2] = ["digital signature", "client auth"];
const AS_SERVER: [&str; 2] = ["digital signature", "server auth"];

fn subject(common_name: &str, organizations: &[&str]) -> Subject {
    let organizations = organizations.iter().map(|&group| group.to_owned()).collect();
    Subject { common_name: common_name.to_owned(), organizations }
}

fn for_client(common_name: &str, organizations: &[&str]) -> String {
    make(&subject(common_name, organizations), &generate_key().unwrap()).unwrap()
}

fn for_server(common_name: &str, dns_name: &str) -> String {
    let subject = subject(common_name, &[NODE_GROUP]);
    make_serving(&subject, &[dns_name.to_owned()], &generate_key().unwrap()).unwrap()
}

/// The kubelet of `shop-1` asks.
fn ask(cluster: &Cluster, name: &str, signer: &str, text: &str) {
    let usages = if signer == HUB_SIGNER { AS_CLIENT } else { AS_SERVER };
    let request = json!({
        "metadata": { "name": name },
        "spec": {
            "request": ByteString(text.as_bytes().to_vec()),
            "signerName": signer,
            "usages": usages,
            "expirationSeconds": 86_400,
            "username": "system:node:shop-1",
            "groups": [NODE_GROUP, "system:authenticated"],
        },
    });
    cluster.create(REQUESTS, request).unwrap();
}

/// The conditions of a request once it has some: type, reason and message of each.
async fn decided(server: &FakeApiServer, name: &str) -> Vec<[String; 3]> {
    for _ in 0..300 {
        let request = server.cluster().get(REQUESTS, name).unwrap();
        if let Some(conditions) = request["status"]["conditions"].as_array() {
            let words = |condition: &Value| {
                ["type", "reason", "message"].map(|key| condition[key].as_str().unwrap().to_owned())
            };
            return conditions.iter().map(words).collect();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no decision on {name}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_hub_makes_is_denied_and_says_why() {
    let server = process::server().await;
    let cluster = server.cluster();
    cluster.create("nodes", json!({ "metadata": { "name": "shop-1" } })).unwrap();
    let others = [
        ("other-client", HUB_SIGNER, for_client("system:node:Cloud-1", &[NODE_GROUP])),
        ("other-kubelet", GATEWAY_SIGNER, for_server("system:node:Cloud-1", "cloud-1")),
    ];
    for (name, signer, text) in &others {
        ask(cluster, name, signer, text);
    }
    let hub = for_client("system:node:shop-1", &[NODE_GROUP, HUB_GROUP]);
    let (of_hub, of_gateway) = ("SubjectNotOfAHub", "SubjectNotOfAGateway");
    let ours = [
        ("capital", HUB_SIGNER, for_client("system:node:Cloud-1", &[NODE_GROUP, HUB_GROUP]), of_hub),
        ("foo", HUB_SIGNER, for_client("foo", &[HUB_GROUP]), of_hub),
        ("gateway", GATEWAY_SIGNER, for_server("system:node:Cloud-1", GATEWAY_SERVER_NAME), of_gateway),
    ];
    for (name, signer, text, _) in &ours {
        ask(cluster, name, signer, text);
    }
    ask(cluster, "hub", HUB_SIGNER, &hub);

    let app = process::app(&server).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { app.run(CancellationToken::new()).await.unwrap() });
    for (name, _, _, expected) in &ours {
        let conditions = decided(&server, name).await;
        let [[type_, reason, message]] = conditions.as_slice() else { panic!("{name}: {conditions:?}") };
        assert_eq!((type_.as_str(), reason.as_str()), ("Denied", *expected), "{name}");
        assert!(message.contains(" of a hub") || message.contains(" of a gateway"), "{name}: {message}");
    }
    assert_eq!(decided(&server, "hub").await[0][0], "Approved");
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (name, _, _) in &others {
        assert_eq!(cluster.get(REQUESTS, name).unwrap()["status"], Value::Null, "{name}");
    }
}
