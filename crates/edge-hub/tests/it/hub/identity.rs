//! A hub with a certificate of its own: begun with a token and a digest, renewed under an open watch, used without a link.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use testkit::api_server::{Cluster, Kind, access::User, pki::Authority};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::site::{Lines, SERVICES, Site, get, service};

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const TOKEN: &str = "abc123.0123456789abcdef";

fn digest(authority: &Authority) -> String {
    let (_, parsed) = X509Certificate::from_der(authority.certificate()).unwrap();
    format!("sha256:{}", tls::digest::Sha256Digest::of(parsed.public_key().raw))
}

/// A site whose hub has a token and a digest, and no file of anybody else.
async fn site() -> Site {
    let mut site = Site::new().await;
    let cluster = site.server.cluster();
    cluster.define(Kind {
        group: "certificates.k8s.io".into(),
        version: "v1".into(),
        resource: "certificatesigningrequests".into(),
        kind: "CertificateSigningRequest".into(),
        namespaced: false,
        typed: false,
        fields: Vec::new(),
    });
    cluster
        .access()
        .add_token(TOKEN, User::new("system:bootstrap:abc123", &["system:bootstrappers:isthmus"]));
    let authority = BASE64_STANDARD.encode(site.authority.pem());
    let kubeconfig =
        format!("clusters: [{{name: '', cluster: {{certificate-authority-data: {authority}}}}}]");
    let metadata = json!({ "namespace": "kube-public", "name": "cluster-info" });
    cluster
        .create("configmaps", json!({ "metadata": metadata, "data": { "kubeconfig": kubeconfig } }))
        .unwrap();
    fs::write(site.file("token"), TOKEN).unwrap();
    fs::set_permissions(site.file("token"), fs::Permissions::from_mode(0o600)).unwrap();
    site.unset("--ca-file");
    site.set("--ca-cert-hash", &digest(&site.authority));
    site.set("--identity", "own");
    site.set("--client-cert-file", "/nonexistent");
    site.set("--bootstrap-token-file", &site.file("token").display().to_string());
    site
}

/// Gives each request that waits what `status` says.
fn answer(cluster: &Cluster, status: impl Fn(&str) -> Value) -> usize {
    let requests = cluster.list(REQUESTS);
    let waiting = requests.iter().filter(|(_, request)| request["status"].is_null());
    waiting
        .map(|(key, request)| {
            let text = BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap()).unwrap();
            let status = status(str::from_utf8(&text).unwrap());
            cluster.merge_patch(REQUESTS, key, &json!({ "status": status })).unwrap();
        })
        .count()
}

async fn issued(site: &Site) {
    site.until("a request", async || {
        answer(
            site.server.cluster(),
            |request| json!({ "certificate": BASE64_STANDARD.encode(site.authority.sign(request).unwrap()) }),
        ) > 0
    })
    .await;
}

async fn identity(site: &Site) -> Value {
    get(&site.admin(), "/v1/status").await.map(|(_, status)| status["identity"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_certificate_is_asked_for_renewed_under_a_watch_and_used_without_a_link() {
    let mut site = site().await;
    site.start();
    issued(&site).await;
    site.linked().await;
    assert_eq!(identity(&site).await["state"], "own");
    let first =
        site.server.log().requests().into_iter().filter(|record| record.path.contains("certificatesigning"));
    assert!(
        first.clone().count() > 1 && first.clone().all(|record| record.user == "system:bootstrap:abc123")
    );

    site.caught_up(SERVICES, &[]).await;
    let mut watch = Lines::open(&site.plain(), "/api/v1/services?watch=1&resourceVersion=0").await;
    let opened =
        |site: &Site| site.server.log().totals(|record| record.path == SERVICES && record.watch).requests;
    let (before, key) = (opened(&site), fs::read(site.file("root/pki/client.pem")).unwrap());
    site.signal("HUP");
    issued(&site).await;
    site.until("the new certificate is kept", async || {
        fs::read(site.file("root/pki/client.pem")).unwrap() != key
    })
    .await;
    site.linked().await;
    site.server.cluster().create("services", service("a", "after", 1)).unwrap();
    assert!(watch.brief().await.starts_with("ADDED after@"), "the client's watch goes on");
    assert_eq!(opened(&site), before, "and so does the stream upstream");
    let renewal =
        site.server.log().requests().into_iter().rfind(|record| record.path.contains("certificatesigning"));
    assert_eq!(renewal.unwrap().user, "system:node:n", "the renewal is asked for with the certificate");
    assert_eq!(fs::metadata(site.file("root/pki/client.pem")).unwrap().permissions().mode() & 0o777, 0o600);

    // Without the token and without a link: what is there is used.
    site.kill();
    fs::remove_file(site.file("token")).unwrap();
    site.server.cut();
    site.start();
    site.answers().await;
    let held = get(&site.plain(), &format!("{SERVICES}?resourceVersion=0")).await.unwrap();
    assert_eq!((held.0, super::site::names(&held.1)), (200, vec!["after"]));
    assert_eq!(identity(&site).await["state"], "own");
    site.server.heal();
    site.linked().await;
}

/// The kubelet's certificate is there, and no token: it is shown once, and never after.
#[tokio::test]
async fn with_the_kubelet_s_certificate_a_node_needs_no_token() {
    let mut site = site().await;
    site.unset("--bootstrap-token-file");
    let kubelets = site.file("node.crt");
    site.set("--client-cert-file", &kubelets.display().to_string());
    site.start();
    issued(&site).await;
    site.until("the hub has its own", async || identity(&site).await["state"] == "own").await;
    let asked: Vec<_> = site
        .server
        .log()
        .requests()
        .into_iter()
        .filter(|record| record.path.contains("certificatesigning"))
        .map(|record| record.user)
        .collect();
    assert!(!asked.is_empty() && asked.iter().all(|user| user == "system:node:n"), "{asked:?}");
    site.linked().await;
    // Gone for good: what is shown from here on is the hub's own, over a new connection and after a restart.
    for name in ["node.crt", "node.key"] {
        fs::remove_file(site.file(name)).unwrap();
    }
    site.server.reset_connections();
    site.linked().await;
    site.kill();
    site.server.log().clear();
    site.start();
    site.linked().await;
    assert_eq!(identity(&site).await["state"], "own");
    let records = site.server.log().requests();
    assert!(records.iter().all(|record| record.user == "system:node:n"), "{records:?}");
    assert!(
        !records.iter().any(|record| record.path.contains("certificatesigning")),
        "nothing is asked again"
    );
}

/// To the API server, which takes it no longer, the node would be nobody: 401 for what is held.
#[tokio::test]
async fn what_is_held_is_answered_after_the_kubelet_s_certificate_has_ended() {
    let mut site = Site::new().await;
    let write = |site: &Site, life: u64| {
        let given = site.authority.peer_for(&super::site::node(), &[], Duration::from_secs(life)).unwrap();
        fs::write(site.file("node.crt"), given.certificate_pem).unwrap();
        fs::write(site.file("node.key"), given.key_pem).unwrap();
    };
    write(&site, 5);
    site.server.cluster().create("services", service("a", "held", 1)).unwrap();
    site.start();
    site.caught_up(SERVICES, &["held"]).await;
    site.offline().await;
    let held = get(&site.plain(), SERVICES).await.unwrap();
    assert_eq!((held.0, super::site::names(&held.1)), (200, vec!["held"]));
    let said = identity(&site).await;
    assert_eq!(said["state"], "expired", "{said}");
    assert!(said["problem"].as_str().unwrap().contains("node.crt expired at"), "{said}");
    write(&site, 3600);
    site.linked().await;
    assert_eq!(identity(&site).await["state"], "given");
}

/// The link is up, and what fails is refused by the API server: nothing else would say why.
#[tokio::test]
async fn the_certificate_of_another_node_is_told_of_until_it_is_that_of_this_one() {
    let mut site = Site::new().await;
    site.set("--node-name", "other");
    site.start();
    site.linked().await;
    let said = identity(&site).await;
    assert_eq!((&said["state"], &said["user"]), (&json!("given"), &json!("system:node:n")), "{said}");
    let problem = said["problem"].as_str().unwrap();
    assert!(problem.starts_with("the certificate is that of another node than --node-name"), "{said}");
    let given = site.authority.client(&User::new("system:node:other", &["system:nodes"])).unwrap();
    fs::write(site.file("node.crt"), given.certificate_pem).unwrap();
    fs::write(site.file("node.key"), given.key_pem).unwrap();
    site.signal("HUP");
    site.until("it is that of this node", async || identity(&site).await["problem"].is_null()).await;
    assert_eq!(identity(&site).await["user"], "system:node:other");
}

#[tokio::test]
async fn a_denial_is_told_and_asked_again_with_another_key() {
    let mut site = site().await;
    site.start();
    let denial = json!({ "conditions": [{ "type": "Denied", "reason": "NodeExists", "message": "this Node exists" }] });
    site.until("a request", async || answer(site.server.cluster(), |_| denial.clone()) > 0).await;
    site.until("the denial is told", async || {
        identity(&site).await["problem"]
            .as_str()
            .is_some_and(|problem| problem.contains("NodeExists: this Node exists"))
    })
    .await;
    assert_eq!(get(&site.plain(), SERVICES).await.unwrap().0, 503);
    issued(&site).await;
    site.linked().await;
    assert_eq!(site.server.cluster().list(REQUESTS).len(), 2);
    assert!(identity(&site).await["problem"].is_null());
    let log = fs::read_to_string(site.log_file()).unwrap();
    assert!(!log.contains("0123456789abcdef") && !log.contains("PRIVATE KEY"), "no secret in the log");
}

#[tokio::test]
async fn another_cluster_behind_the_address_gets_nothing() {
    let mut site = site().await;
    let other = Authority::generate("other").unwrap();
    site.set("--ca-cert-hash", &digest(&other));
    site.start();
    site.until("it is said", async || site.last_log().contains("this is not the cluster")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let records = site.server.log().requests();
    assert!(
        records
            .iter()
            .all(|record| record.path.ends_with("/cluster-info") && record.user == "system:anonymous")
    );
    assert!(!site.file("root/pki/ca.crt").exists());
}
