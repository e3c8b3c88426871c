//! Tokens that the kubelet asks for on behalf of its pods: kept as they pass, and given again while there is no link.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use http::Request;
use serde_json::{Value, json};

use super::{
    security::on_disk,
    site::{JSON, Site, get, names},
};

const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&resourceVersion=0";

/// What makes a token one, of every token in here.
const SIGNATURE: &str = "c2lnbmF0dXJlLW9mLWEtdG9rZW4";

/// Lets the API server issue tokens that look like its own; each is another one. They are issued so many seconds from now.
fn issue(site: &Site, ahead: u64) {
    let issued = std::sync::atomic::AtomicU64::new(0);
    site.server.cluster().access().set_token_issuer(move |namespace, account, request| {
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = ahead + SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let end = now + request["spec"]["expirationSeconds"].as_u64().unwrap();
        let mut claims = json!({
            "iat": now, "exp": end, "jti": number.to_string(), "sub": format!("system:serviceaccount:{namespace}:{account}"),
        });
        let bound = &request["spec"]["boundObjectRef"];
        if !bound.is_null() {
            let pod = json!({ "name": bound["name"], "uid": bound["uid"] });
            claims["kubernetes.io"] = json!({ "namespace": namespace, "pod": pod });
        }
        let token = format!("{}.{}.{SIGNATURE}", BASE64.encode(r#"{"alg":"ES256"}"#), BASE64.encode(claims.to_string()));
        let mut answer = request.clone();
        answer["kind"] = "TokenRequest".into();
        answer["apiVersion"] = "authentication.k8s.io/v1".into();
        answer["status"] = json!({ "token": token, "expirationTimestamp": "2030-01-01T00:00:00Z" });
        Ok(answer)
    });
}

/// Asks as the kubelet does; what the answer is, and the token in it.
async fn ask(site: &Site, account: &str, audience: &str, seconds: u64) -> (u16, Value) {
    ask_for(site, account, &json!({ "audiences": [audience], "expirationSeconds": seconds })).await
}

async fn ask_for(site: &Site, account: &str, spec: &Value) -> (u16, Value) {
    let path = format!("/api/v1/namespaces/a/serviceaccounts/{account}/token");
    let body = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec });
    let request = Request::post(path).header("content-type", JSON).header("accept", JSON);
    let mut answer = site.plain().ask(request, body.to_string()).await.unwrap();
    let body = answer.bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (answer.status.as_u16(), body["status"]["token"].clone())
}

#[tokio::test]
async fn a_pods_token_is_given_again_without_a_link_while_it_is_good() {
    let mut site = Site::started().await;
    issue(&site, 0);
    let (status, first) = ask(&site, "s", "api", 3600).await;
    assert_eq!((status, first.is_string()), (201, true));
    let (status, second) = ask(&site, "s", "api", 3600).await;
    assert_eq!(status, 201);
    assert!(first != second, "with a link the API server says");
    // It would end on its way to the pod.
    assert_eq!(ask(&site, "short", "api", 5).await.0, 201);
    let root = site.file("root");
    assert!(!on_disk(&root, SIGNATURE), "a token is on the disk");

    site.server.cut();
    site.offline().await;
    for restarted in [false, true] {
        if restarted {
            site.restart().await;
        }
        assert_eq!(ask(&site, "s", "api", 3600).await, (201, second.clone()), "restarted: {restarted}");
        assert_eq!(ask(&site, "short", "api", 5).await.0, 503, "it has ended");
        assert_eq!(ask(&site, "s", "other", 3600).await.0, 503, "another audience");
        assert_eq!(ask(&site, "s", "api", 7200).await.0, 503, "another lifetime");
        assert_eq!(ask(&site, "other", "api", 3600).await.0, 503, "another account");
    }
    assert!(!on_disk(&root, SIGNATURE), "a token is on the disk");
    let log = fs::read_to_string(site.log_file()).unwrap();
    assert!(!log.contains(SIGNATURE), "a token is in the log");
}

/// Waits until the hub holds these pods of the node.
async fn holds(site: &Site, pods: &[&str]) {
    site.until("the hub holds the node's pods", async || {
        let answer = get(&site.plain(), PODS).await;
        answer.is_some_and(|(status, list)| status == 200 && names(&list) == pods)
    })
    .await;
}

/// With what is known of the node's pods, it is the API server that would refuse one that is gone.
#[tokio::test]
async fn the_token_of_a_pod_that_is_gone_is_withdrawn() {
    let site = Site::started().await;
    issue(&site, 0);
    let cluster = site.server.cluster();
    let pod =
        |name: &str| json!({ "metadata": { "namespace": "a", "name": name }, "spec": { "nodeName": "n" } });
    for name in ["stays", "goes"] {
        cluster.create("pods", pod(name)).unwrap();
    }
    holds(&site, &["goes", "stays"]).await;
    let uid = |name: &str| cluster.get("pods", &format!("a/{name}")).unwrap()["metadata"]["uid"].clone();
    let uids = ["stays", "goes"].map(uid);
    let of = |name: &str, uid: &Value| {
        let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid });
        json!({ "audiences": ["api"], "expirationSeconds": 3600, "boundObjectRef": bound })
    };
    let [stays, goes, former] = [
        of("stays", &uids[0]),
        of("goes", &uids[1]),
        of("stays", &json!("ab0e7a52-59e7-4a0d-a0b0-000000000000")),
    ];
    for spec in [&stays, &goes, &former] {
        assert_eq!(ask_for(&site, "s", spec).await.0, 201);
    }
    cluster.delete("pods", "a/goes").unwrap();
    holds(&site, &["stays"]).await;
    site.server.cut();
    site.offline().await;
    for (what, spec, expected) in [
        ("a pod that is there", stays, 201),
        ("one that is gone", goes, 503),
        ("one of its name before it", former, 503),
    ] {
        assert_eq!(ask_for(&site, "s", &spec).await.0, expected, "{what}");
    }
}

/// After a reboot the clock may be behind; that the newest token was issued is later than what it says.
#[tokio::test]
async fn a_token_that_ended_before_another_was_issued_is_not_given_again() {
    let mut site = Site::started().await;
    issue(&site, 0);
    assert_eq!(ask(&site, "old", "api", 3600).await.0, 201);
    issue(&site, 7200);
    assert_eq!(ask(&site, "new", "api", 3600).await.0, 201);
    site.server.cut();
    site.offline().await;
    let asked =
        async |site: &Site| [ask(site, "old", "api", 3600).await.0, ask(site, "new", "api", 3600).await.0];
    assert_eq!(asked(&site).await, [503, 201], "before a restart");
    site.restart().await;
    assert_eq!(asked(&site).await, [503, 201], "after it");
}
