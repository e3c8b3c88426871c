//! Another front proxy, as the cluster says it: the `ConfigMap` is followed while connections last, over a break of the API server, and who is
//! trusted at a moment is believed at each request of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aggregated_api::authenticate::extension_config;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Client, Config};
use serde_json::{Value, json};
use testkit::api_server::{Cluster, FakeApiServer};
use tokio::task::JoinSet;

use crate::authentication::{Authority, CLAIM, Connection, Served, config};

const CLAIMS: [(&str, &str); 2] = [CLAIM, ("X-Remote-Group", "dev")];

/// How long it may take until what stands in the cluster is known.
const SOON: Duration = Duration::from_secs(30);

/// Requests that must all be believed.
const MANY: usize = 20;

fn config_map(data: &BTreeMap<String, String>) -> Value {
    let metadata = json!({ "namespace": "kube-system", "name": "extension-apiserver-authentication" });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
}

fn tell(cluster: &Cluster, data: &BTreeMap<String, String>) {
    cluster.update("configmaps", &config_map(data)).unwrap();
}

/// Asks until the answer has this status.
async fn until(connection: &mut Connection, status: &str) {
    let asked = async {
        while !connection.ask(&CLAIMS).await.starts_with(status) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, asked).await.expect(status);
}

async fn is_believed(connection: &mut Connection, when: &str) {
    for _ in 0..MANY {
        assert_eq!(
            connection.ask(&CLAIMS).await,
            "200 claimed of dev,system:authenticated with []",
            "{when}"
        );
    }
}

#[tokio::test]
async fn a_rotation_of_the_front_proxy_is_followed_and_fails_no_request() {
    let (clients, old, new) = (Authority::new("clients"), Authority::new("old"), Authority::new("new"));
    let allowed = ["front-proxy-client"];
    let api = Served::start().await;
    let server = FakeApiServer::start().await.unwrap();
    let cluster = server.cluster();
    cluster.create("configmaps", config_map(&config(&clients, &old, &allowed))).unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let mut following = JoinSet::new();
    following.spawn(extension_config::follow(
        client,
        api.trust.clone(),
        DefaultBackoff::default(),
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        },
    ));

    let mut before = api.connect(Some(old.client("front-proxy-client", &[]))).await;
    let mut after = api.connect(Some(new.client("front-proxy-client", &[]))).await;
    until(&mut before, "200").await;
    assert_eq!(after.ask(&CLAIMS).await, "401", "nobody knows it yet");

    // The API server tells of both, then shows the new certificate, then tells of the new authority alone.
    let mut both = config(&clients, &old, &allowed);
    both.insert("requestheader-client-ca-file".to_owned(), format!("{}{}", old.pem, new.pem));
    tell(cluster, &both);
    until(&mut after, "200").await;
    is_believed(&mut before, "the old one, of both").await;
    is_believed(&mut after, "the new one, of both").await;

    // One that is not there for a while takes nobody's trust away, and what it says then is heard.
    server.cut();
    is_believed(&mut after, "while nobody can be asked").await;
    server.heal();
    tell(cluster, &config(&clients, &new, &allowed));
    until(&mut before, "401").await;
    is_believed(&mut after, "the new one, alone").await;

    // What cannot be read changes nothing.
    let known = told.load(Ordering::SeqCst);
    let mut broken = config(&clients, &old, &allowed);
    broken.insert("requestheader-client-ca-file".to_owned(), "no certificate".to_owned());
    tell(cluster, &broken);
    is_believed(&mut after, "beside what cannot be read").await;
    // And back.
    tell(cluster, &both);
    until(&mut before, "200").await;
    is_believed(&mut after, "the new one, of both again").await;
    assert!(told.load(Ordering::SeqCst) > known, "a server is told when it knows whom to trust");
}
