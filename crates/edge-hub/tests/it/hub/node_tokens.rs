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
    site::{JSON, Site},
};

/// What makes a token one, of every token in here.
const SIGNATURE: &str = "c2lnbmF0dXJlLW9mLWEtdG9rZW4";

/// Lets the API server issue tokens that look like its own; each is another one.
fn issue(site: &Site) {
    let issued = std::sync::atomic::AtomicU64::new(0);
    site.server.cluster().access().set_token_issuer(move |namespace, account, request| {
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let end = now + request["spec"]["expirationSeconds"].as_u64().unwrap();
        let claims = json!({
            "exp": end, "jti": number.to_string(), "sub": format!("system:serviceaccount:{namespace}:{account}"),
        });
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
    let path = format!("/api/v1/namespaces/a/serviceaccounts/{account}/token");
    let body = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "spec": { "audiences": [audience], "expirationSeconds": seconds },
    });
    let request = Request::post(path).header("content-type", JSON).header("accept", JSON);
    let mut answer = site.plain().ask(request, body.to_string()).await.unwrap();
    let body = answer.bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    (answer.status.as_u16(), body["status"]["token"].clone())
}

#[tokio::test]
async fn a_pods_token_is_given_again_without_a_link_while_it_is_good() {
    let mut site = Site::started().await;
    issue(&site);
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
            site.kill();
            site.start();
            site.answers().await;
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
