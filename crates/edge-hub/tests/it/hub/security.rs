//! Who gets what: credentials, reviews, revocation, and what must never be written down.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};
use testkit::{
    api_server::{access::User, pki::Authority},
    client::connection::Endpoint,
};
use tokio::{io::AsyncReadExt as _, time::sleep};

use super::site::{JSON, Lines, SERVICES, Site, get, names, service};

const LIST: &str = "/api/v1/services?resourceVersion=0";
const READS: [&str; 4] = [
    LIST,
    "/api/v1/namespaces/a/services/visible",
    "/api/v1/services?watch=1&resourceVersion=0&timeoutSeconds=1",
    "/api/v1/services?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
];

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A cluster's key, and tokens of it.
pub(super) struct Issuer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { key, random }
    }

    /// A site whose cluster publishes the key, and no hub yet.
    pub(super) async fn with_site() -> (Site, Self) {
        let (site, issuer) = (Site::new().await, Self::new());
        issuer.publish(&site);
        (site, issuer)
    }

    /// The same with a hub, which holds a Service.
    async fn with_hub() -> (Site, Self) {
        let (mut site, issuer) = Self::with_site().await;
        site.start();
        site.linked().await;
        with_service(&site).await;
        (site, issuer)
    }

    /// Lets the cluster publish the key.
    fn publish(&self, site: &Site) {
        let point = &self.key.public_key().as_ref()[1..];
        let (x, y) = point.split_at(32);
        let key =
            json!({ "kty": "EC", "crv": "P-256", "kid": "k", "x": BASE64.encode(x), "y": BASE64.encode(y) });
        let cluster = site.server.cluster();
        cluster.set_document("/openid/v1/jwks", &json!({ "keys": [key] }));
        cluster.set_document("/.well-known/openid-configuration", &json!({ "issuer": "https://cluster" }));
    }

    /// A token of a `ServiceAccount`, which the API server knows.
    pub(super) fn token(&self, site: &Site, name: &str, seconds: u64) -> String {
        self.token_of(site, name, [now() - 1, now() + seconds])
    }

    /// The same, with when it was issued and when it ends.
    fn token_of(&self, site: &Site, name: &str, [from, to]: [u64; 2]) -> String {
        let claims = json!({
            "iss": "https://cluster", "aud": ["https://cluster"], "exp": to, "nbf": from,
            "sub": format!("system:serviceaccount:a:{name}"),
        });
        let header = json!({ "alg": "ES256", "kid": "k" });
        let part = |value: &Value| BASE64.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        let token = format!("{signed}.{}", BASE64.encode(signature));
        site.server.cluster().access().add_token(&token, User::service_account("a", name));
        token
    }
}

async fn with_service(site: &Site) {
    site.server.cluster().create("services", service("a", "visible", 1)).unwrap();
    site.caught_up(SERVICES, &["visible"]).await;
}

async fn statuses(endpoint: &Endpoint) -> [u16; 4] {
    let mut found = [0; 4];
    for (status, path) in found.iter_mut().zip(READS) {
        let mut answer = endpoint.get(path, JSON).await.unwrap();
        *status = answer.status.as_u16();
        let body = answer.bytes().await.unwrap();
        let shows = String::from_utf8_lossy(&body).contains("10.0.0.1");
        assert_eq!(shows, *status == 200, "{path}: {status} {}", String::from_utf8_lossy(&body));
    }
    found
}

#[tokio::test]
async fn each_identity_gets_what_is_its_own() {
    let site = Site::started().await;
    with_service(&site).await;
    let access = site.server.cluster().access();
    access.set_authorizer(|asked| {
        let is_denied = ["system:serviceaccount:a:denied", "stranger"].contains(&&*asked.user.name);
        // By a binding to all who have shown who they are.
        let is_somebody = asked.user.groups.iter().any(|group| group == "system:authenticated");
        !is_denied && (is_somebody || asked.user.name != "member")
    });
    for name in ["allowed", "denied"] {
        access.add_token(name, User::service_account("a", name));
    }
    let certificate = |name: &str, groups: &[&str]| {
        site.secure(Some(site.authority.client(&User::new(name, groups)).unwrap()))
    };
    let cases = [
        ("nobody, from elsewhere", site.secure(None), [401; 4]),
        ("a token that nobody knows", site.secure(None).with_token("unknown"), [401; 4]),
        ("a token that is allowed", site.secure(None).with_token("allowed"), [200; 4]),
        ("the same over HTTP", site.plain().with_token("allowed"), [200; 4]),
        ("a token that is not allowed", site.secure(None).with_token("denied"), [403; 4]),
        (
            "that token over the node's connection",
            certificate("system:node:n", &["system:nodes"]).with_token("denied"),
            [403; 4],
        ),
        ("that token over HTTP", site.plain().with_token("denied"), [403; 4]),
        ("the node", certificate("system:node:n", &["system:nodes"]), [200; 4]),
        ("the node's local user", site.plain(), [200; 4]),
        ("another certificate that is allowed", certificate("friend", &[]), [200; 4]),
        ("one that is allowed as anybody is", certificate("member", &[]), [200; 4]),
    ];
    for (who, endpoint, expected) in cases {
        assert_eq!(statuses(&endpoint).await, expected, "{who}");
    }
    // It cannot be handed on to be refused by the API server, so the hub says it.
    assert_eq!(statuses(&certificate("stranger", &[])).await, [403; 4]);
    // A node of another name is nobody's node.
    let other = certificate("system:node:other", &["system:nodes"]);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    assert_eq!(get(&other, lease).await.unwrap().0, 400, "its requests do not go upstream as ours");
    a_certificate_is_not_handed_on(&certificate("friend", &[])).await;
    let foreign = Authority::generate("another").unwrap().client(&super::site::node()).unwrap();
    let refused = site.secure(Some(foreign)).get(LIST, JSON).await;
    assert!(refused.is_err(), "a certificate of another authority");
}

/// What only the API server can do needs a credential that can be shown there.
async fn a_certificate_is_not_handed_on(caller: &Endpoint) {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (method, path, accept) in [
        ("POST", "/api/v1/namespaces/a/services", JSON),
        ("DELETE", "/api/v1/namespaces/a/services/visible", JSON),
        ("GET", SERVICES, table),
    ] {
        let request = http::Request::builder().method(method).uri(path).header("accept", accept);
        let mut answer = caller.ask(request.header("content-type", JSON), "{}").await.unwrap();
        let said: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(
            (answer.status.as_u16(), said["reason"].as_str()),
            (400, Some("BadRequest")),
            "{method} {path}"
        );
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("a client certificate cannot be handed on"), "{method} {path}: {message}");
        assert!(message.contains("send a ServiceAccount token instead"), "{method} {path}: {message}");
    }
}

#[tokio::test]
async fn a_local_user_that_is_not_the_kubelet_gets_nothing() {
    let mut site = Site::new().await;
    site.set("--node-uids", "4242");
    site.start();
    site.answers().await;
    assert_eq!(statuses(&site.plain()).await, [401; 4]);
    let lists = site.server.log().totals(|record| record.query.contains("resourceVersion=0")).requests;
    assert_eq!(lists, 0, "nothing of it went upstream");
}

/// A site with a service, whose hub asks anew after a moment whether a watcher still may.
async fn suspicious() -> Site {
    let mut site = Site::new().await;
    site.start_suspicious(Duration::from_millis(100)).await;
    with_service(&site).await;
    site
}

#[tokio::test]
async fn a_revoked_permission_ends_an_open_watch() {
    let site = suspicious().await;
    let access = site.server.cluster().access();
    access.add_token("t", User::service_account("a", "t"));
    let revoked = Arc::new(AtomicBool::new(false));
    let decide = revoked.clone();
    access.set_authorizer(move |asked| {
        asked.user.name.starts_with("system:node") || !decide.load(Ordering::Relaxed)
    });
    let theirs = site.secure(None).with_token("t");
    let mut watch = Lines::open(&theirs, "/api/v1/services?watch=1&resourceVersion=0").await;
    let mut nodes = Lines::open(&site.plain(), "/api/v1/services?watch=1&resourceVersion=0").await;
    assert!(
        watch.brief().await.starts_with("ADDED visible@")
            && nodes.brief().await.starts_with("ADDED visible@")
    );
    assert!(watch.is_silent(Duration::from_millis(700)).await, "it goes on while it may");
    revoked.store(true, Ordering::Relaxed);
    assert_eq!(watch.brief().await, "end");
    assert_eq!(statuses(&theirs).await, [403; 4]);
    site.server.cluster().create("services", service("a", "after", 1)).unwrap();
    assert!(nodes.brief().await.starts_with("ADDED after@"), "others' watches go on");
}

#[tokio::test]
async fn secrets_of_one_are_never_served_to_another() {
    let site = Site::started().await;
    let cluster = site.server.cluster();
    let secret = json!({ "metadata": { "namespace": "a", "name": "s" }, "type": "Opaque", "data": { "k": "aHVudGVyMg==" } });
    cluster.create("secrets", secret).unwrap();
    let token = |name: &str| format!("token-of-{name}");
    for name in ["alice", "bob", "eve"] {
        cluster.access().add_token(&token(name), User::service_account("a", name));
    }
    cluster
        .access()
        .set_authorizer(|asked| asked.resource != "secrets" || !asked.user.name.ends_with(":eve"));
    let path = "/api/v1/namespaces/a/secrets";
    let of = |name: &str| site.secure(None).with_token(&token(name));
    for (user, expected) in [("alice", 200), ("eve", 403), ("bob", 200)] {
        for query in ["?resourceVersion=0", "?watch=1&resourceVersion=0&timeoutSeconds=1", "/s"] {
            let mut answer = of(user).get(&format!("{path}{query}"), JSON).await.unwrap();
            let body = answer.bytes().await.unwrap();
            let shows = String::from_utf8_lossy(&body).contains("aHVudGVyMg==");
            assert_eq!((answer.status.as_u16(), shows), (expected, expected == 200), "{user} {query}");
        }
    }
    // Two may read, so two streams are open, each as its owner.
    site.until("both are watched", async || site.upstream_watches(path) == 2).await;
    let owners: Vec<String> = site
        .server
        .log()
        .requests()
        .into_iter()
        .filter(|record| record.path == path && record.watch && record.ended.is_none())
        .map(|record| record.user)
        .collect();
    assert!(
        owners.iter().any(|user| user.ends_with(":alice"))
            && owners.iter().any(|user| user.ends_with(":bob")),
        "{owners:?}"
    );
    assert_eq!(
        site.server.log().totals(|record| record.path == path && record.user == "system:node:n").requests,
        0
    );
    let by_name = "/api/v1/namespaces/b/secrets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dhidden";
    assert_eq!(of("alice").get(by_name, JSON).await.unwrap().status, 200);
    let status = get(&site.admin(), "/v1/status").await.unwrap().1.to_string();
    assert!(status.contains("b?by name") && !status.contains("hidden"), "{status}");
    // What is no secret, as it is and in base64, is on the disk: there a secret would be found, too.
    let data = json!({ "plain": "correct-horse", "coded": "YmF0dGVyeS1zdGFwbGU=" });
    let config_map = json!({ "metadata": { "namespace": "a", "name": "c" }, "data": data });
    cluster.create("configmaps", config_map).unwrap();
    let config_maps = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
    assert_eq!(get(&of("alice"), config_maps).await.unwrap().0, 200);
    let root = site.file("root");
    for text in ["correct-horse", "battery-staple"] {
        site.until("what is no secret is on the disk", async || on_disk(&root, text)).await;
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(get(&of("alice"), &format!("{path}?resourceVersion=0")).await.unwrap().0, 200);
    let (status, body) = get(&of("eve"), &format!("{path}?resourceVersion=0")).await.unwrap();
    assert!([403, 503].contains(&status) && names(&body).is_empty(), "{status} {body}");
    assert!(!on_disk(&root, "hunter2"), "secrets are sealed");
    for name in ["alice", "bob", "eve"] {
        assert!(!on_disk(&root, &token(name)), "{name}'s token is on the disk");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_an_open_watch() {
    let site = suspicious().await;
    let access = site.server.cluster().access();
    access.add_token("t", User::service_account("a", "t"));
    let theirs = site.secure(None).with_token("t");
    let mut watch = Lines::open(&theirs, "/api/v1/services?watch=1&resourceVersion=0").await;
    assert!(watch.brief().await.starts_with("ADDED visible@"));
    access.revoke_token("t");
    assert_eq!(watch.brief().await, "end");
}

#[tokio::test]
async fn a_token_that_expires_without_a_link_ends_its_watch() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_inside(|config| config.lifetimes.review = Duration::from_millis(200)).await;
    site.linked().await;
    with_service(&site).await;
    let (short, long) = (issuer.token(&site, "a", 4), issuer.token(&site, "a", 3600));
    let watch = "/api/v1/services?watch=1&resourceVersion=0";
    let mut ends = Lines::open(&site.secure(None).with_token(&short), watch).await;
    let mut goes_on = Lines::open(&site.secure(None).with_token(&long), watch).await;
    for watch in [&mut ends, &mut goes_on] {
        assert!(watch.brief().await.starts_with("ADDED visible@"));
    }
    site.server.cut();
    site.offline().await;
    assert_eq!(ends.brief().await, "end");
    assert!(goes_on.is_silent(Duration::from_millis(500)).await, "the same user's other token is good");
}

#[tokio::test]
async fn a_revoked_token_ends_its_watch_though_its_owner_has_another() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_suspicious(Duration::from_secs(3)).await;
    with_service(&site).await;
    let access = site.server.cluster().access();
    let (first, second) = (issuer.token(&site, "a", 3600), issuer.token(&site, "a", 3601));
    let of = |token: &str| site.secure(None).with_token(token);
    let path = "/api/v1/services?watch=1&resourceVersion=0";
    let mut watch = Lines::open(&of(&first), path).await;
    assert!(watch.brief().await.starts_with("ADDED visible@"));
    access.revoke_token(&first);
    // The other holder asks the same all the time, and is answered: its own token is good.
    let asking = async {
        loop {
            drop(Lines::open(&of(&second), path).await);
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = watch.brief() => assert_eq!(end, "end"),
        () = asking => {}
    }
    assert_eq!(statuses(&of(&second)).await, [200; 4]);
    // What the API server refused does not come back by its signature.
    assert_eq!(get(&of(&first), LIST).await.unwrap().0, 401);
    site.server.cut();
    site.offline().await;
    assert_eq!(statuses(&of(&second)).await, [200; 4], "its owner is still allowed");
    assert_eq!(statuses(&of(&first)).await, [401; 4]);
}

/// More of them than the hub keeps; a restart without a link changes nothing of it.
#[tokio::test]
async fn tokens_that_nobody_issued_do_not_hide_that_another_was_refused() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_inside(|config| config.lifetimes.allowed = Duration::from_millis(100)).await;
    site.linked().await;
    with_service(&site).await;
    let [revoked, good] = ["a", "b"].map(|name| issuer.token(&site, name, 3600));
    let of = |token: &str| site.secure(None).with_token(token);
    for token in [&revoked, &good] {
        assert_eq!(statuses(&of(token)).await, [200; 4]);
    }
    for batch in 0..70 {
        let junk = (0..20).map(|n| {
            let endpoint = site.plain().with_token(&format!("junk-{batch}-{n}"));
            async move { get(&endpoint, LIST).await.unwrap().0 }
        });
        let answers = futures::future::join_all(junk).await;
        assert!(answers.iter().all(|status| *status == 401), "{answers:?}");
    }
    site.server.cluster().access().revoke_token(&revoked);
    site.until("it is refused", async || get(&of(&revoked), LIST).await.unwrap().0 == 401).await;
    site.server.cut();
    site.offline().await;
    assert_eq!(statuses(&of(&revoked)).await, [401; 4], "its signature says nothing against that");
    site.stop().await;
    site.start_inside(|config| config.lifetimes.allowed = Duration::from_millis(100)).await;
    site.answers().await;
    let of = |token: &str| site.secure(None).with_token(token);
    assert_eq!(statuses(&of(&good)).await, [200; 4]);
    assert_eq!(statuses(&of(&revoked)).await, [401; 4], "it was refused before the restart");
}

/// However many show a token at once, the API server is asked of it once; and of one that is forged not at all.
#[tokio::test]
async fn what_nobody_issued_costs_the_link_little() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_inside(|_| ()).await;
    site.linked().await;
    with_service(&site).await;
    let reviews = || reviews(&site);
    let ask = async |token: &str| {
        let asked = (0..30).map(|_| {
            let endpoint = site.plain().with_token(token);
            async move { get(&endpoint, LIST).await.unwrap().0 }
        });
        futures::future::join_all(asked).await
    };
    let before = reviews();
    assert_eq!(ask("junk").await, [401; 30]);
    assert_eq!(reviews(), before + 1);
    let good = issuer.token(&site, "a", 3600);
    assert_eq!(get(&site.plain().with_token(&good), LIST).await.unwrap().0, 200);
    keys_are_known(&site).await;
    let (before, forged) = (reviews(), forged(&site));
    assert_eq!(ask(&forged).await, [401; 30]);
    assert_eq!(reviews(), before);
    // What is handed on is the API server's to judge, but for that.
    let path = "/api/v1/namespaces/a/services";
    let handed_on = || site.server.log().totals(|record| record.path == path).requests;
    for (token, expected, crossed) in [(&*forged, 401, 0), ("other junk", 401, 1), (&*good, 201, 2)] {
        let write = http::Request::post(path).header("content-type", JSON);
        let written = site.plain().with_token(token).ask(write, service("a", "new", 1).to_string()).await;
        assert_eq!((written.unwrap().status.as_u16(), handed_on()), (expected, crossed), "{token}");
    }
}

fn reviews(site: &Site) -> usize {
    let of_tokens = |path: &str| path.ends_with("/tokenreviews");
    site.server.log().totals(|record| of_tokens(&record.path)).requests
}

/// A token that names the cluster's key and is signed by another, a new one each time.
fn forged(site: &Site) -> String {
    let forged = Issuer::new().token(site, "a", 3600);
    site.server.cluster().access().revoke_token(&forged);
    forged
}

async fn keys_are_known(site: &Site) {
    site.until("the keys are known", async || {
        let before = reviews(site);
        let forged = site.plain().with_token(&forged(site));
        get(&forged, LIST).await.unwrap().0 == 401 && reviews(site) == before
    })
    .await;
}

async fn unread_keys(site: &Site) -> Value {
    get(&site.admin(), "/v1/status").await.map(|(_, status)| status["unreadKeys"].clone()).unwrap_or_default()
}

/// With the link up nothing else would say it, and without one it is too late.
#[tokio::test]
async fn that_the_cluster_s_keys_cannot_be_read_is_told_until_they_were() {
    let (mut site, issuer) = (Site::new().await, Issuer::new());
    site.start_inside(|_| ()).await;
    let expected = json!({ "reason": "the API server answered 404 Not Found", "earlier": false });
    site.until("it is told", async || unread_keys(&site).await == expected).await;
    site.stop().await;
    issuer.publish(&site);
    site.start_inside(|_| ()).await;
    site.linked().await;
    keys_are_known(&site).await;
    assert_eq!(unread_keys(&site).await, Value::Null);
    site.stop().await;
    site.server.fail("/openid/", 403);
    site.start_inside(|_| ()).await;
    let expected = json!({ "reason": "the API server answered 403 Forbidden", "earlier": true });
    site.until("it is told, and that there are some", async || unread_keys(&site).await == expected).await;
}

/// Whoever shows ever new ones waits behind himself, and no longer than others wait for him.
#[tokio::test]
async fn a_flood_of_what_nobody_issued_delays_no_token_of_the_cluster() {
    const JUNK: usize = 600;
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_inside(|_| ()).await;
    site.linked().await;
    with_service(&site).await;
    keys_are_known(&site).await;
    let good = issuer.token(&site, "a", 3600);
    site.server.throttle(Some(48 << 10));
    let refused = AtomicUsize::new(0);
    let junk = futures::future::join_all((0..JUNK).map(|n| {
        let (endpoint, refused) = (site.plain().with_token(&format!("junk-{n}")), &refused);
        async move {
            let answer = endpoint.get(LIST, JSON).await.unwrap();
            let is_told_when = answer.headers.contains_key("retry-after");
            if answer.status == 401 {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            (answer.status.as_u16(), is_told_when)
        }
    }));
    let before = async {
        sleep(Duration::from_millis(300)).await;
        assert_eq!(get(&site.plain().with_token(&good), LIST).await.unwrap().0, 200);
        refused.load(Ordering::Relaxed)
    };
    let (junk, before) = tokio::join!(junk, before);
    assert!(before < JUNK / 3, "{before} were asked about before it");
    assert!(junk.iter().all(|answer| [(401, false), (429, true)].contains(answer)), "{junk:?}");
    assert!(junk.contains(&(429, true)), "so many do not wait");
}

/// Those who say who they are are not disturbed.
#[tokio::test]
async fn who_connects_and_shows_nothing_is_cut() {
    let site = Site::started().await;
    with_service(&site).await;
    let friend = site.secure(Some(site.authority.client(&User::new("friend", &[])).unwrap()));
    let mut watch = Lines::open(&friend, "/api/v1/services?watch=1&resourceVersion=0").await;
    assert!(watch.brief().await.starts_with("ADDED visible@"));
    let mut silent = site.connected(&[]).await;
    let closed = tokio::time::timeout(super::site::SOON, silent.read(&mut [0; 64])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    site.server.cluster().create("services", service("a", "after", 1)).unwrap();
    assert!(watch.brief().await.starts_with("ADDED after@"));
}

#[tokio::test]
async fn certificates_of_one_name_have_the_rights_of_their_own_groups() {
    let site = Site::started().await;
    with_service(&site).await;
    site.server.cluster().access().set_authorizer(|asked| {
        asked.user.name != "friend" || asked.user.groups.iter().any(|group| group == "readers")
    });
    let friend =
        |groups: &[&str]| site.secure(Some(site.authority.client(&User::new("friend", groups)).unwrap()));
    let (reader, other) = (friend(&["readers"]), friend(&["others"]));
    assert_eq!(statuses(&reader).await, [200; 4]);
    assert_eq!(statuses(&other).await, [403; 4]);
    assert_eq!(statuses(&reader).await, [200; 4], "a refusal of one is none of the other");
    site.server.cut();
    site.offline().await;
    assert_eq!(statuses(&reader).await, [200; 4]);
    let refused = statuses(&other).await;
    assert!(refused.iter().all(|status| [403, 429, 503].contains(status)), "{refused:?}");
}

#[tokio::test]
async fn without_a_link_it_is_told_whether_the_api_server_refused_it_or_was_not_asked() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.start_inside(|config| config.lifetimes.refused = Duration::from_millis(1)).await;
    site.linked().await;
    with_service(&site).await;
    let is_refused = |name: &str| name == "refused" || name.ends_with(":refused");
    site.server.cluster().access().set_authorizer(move |asked| !is_refused(&asked.user.name));
    let certificate =
        |name: &str| site.secure(Some(site.authority.client(&User::new(name, &["some"])).unwrap()));
    let token = site.secure(None).with_token(&issuer.token(&site, "refused", 3600));
    let (refused, never) = (certificate("refused"), certificate("never"));
    for of in [&token, &refused] {
        assert_eq!(get(of, LIST).await.unwrap().0, 403);
    }
    site.server.cut();
    site.offline().await;
    let last = "the API server refused it when it was last asked";
    let not_asked = "it was not seen to be allowed while there was a link";
    for (of, words) in [(&token, last), (&refused, last), (&never, not_asked)] {
        let (status, said) = get(of, LIST).await.unwrap();
        assert!(status == 503 && said["message"].as_str().unwrap().contains(words), "{status} {said}");
    }
}

/// Whether a file beneath `folder` has this text, in whatever form it may be stored.
pub(super) fn on_disk(folder: &Path, text: &str) -> bool {
    has_any(folder, &forms(text))
}

/// A text as it is, as protobuf has it, and whatever of it stands in base64 where it is a part of what is encoded: in JSON that is the form of bytes.
fn forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned()];
    for before in 0..3 {
        let encoded = BASE64.encode([vec![0; before].as_slice(), text.as_bytes()].concat());
        // Six bits each: those of other bytes are left out.
        let of_it = &encoded[(before * 8).div_ceil(6)..(before + text.len()) * 8 / 6];
        forms.extend([of_it.to_owned(), of_it.replace('-', "+").replace('_', "/")]);
    }
    forms
}

fn has_any(folder: &Path, texts: &[String]) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return has_any(&path, texts);
        }
        let has =
            |content: &[u8], text: &str| content.windows(text.len()).any(|part| part == text.as_bytes());
        // A socket cannot be read.
        fs::read(&path).is_ok_and(|content| texts.iter().any(|text| has(&content, text)))
    })
}

#[test]
fn a_text_is_found_in_base64_wherever_it_begins() {
    for before in ["", "x", "xy", "xyz"] {
        let encoded = BASE64.encode(format!("{before}hunter2, and more"));
        assert!(forms("hunter2").iter().any(|form| encoded.contains(form)), "{encoded}");
    }
    assert!(forms("hunter2").iter().any(|form| "aHVudGVyMg==".contains(form)));
}

#[tokio::test]
async fn without_a_link_who_was_allowed_still_is_until_the_token_expires() {
    let (mut site, issuer) = Issuer::with_hub().await;
    let [long, never] = ["long", "never"].map(|name| issuer.token(&site, name, 3600));
    let of = |token: &str| site.secure(None).with_token(token);
    assert_eq!(statuses(&of(&long)).await, [200; 4]);
    // Allowances and keys are stored; a restart forgets all else.
    sleep(Duration::from_millis(2500)).await;
    let short = issuer.token(&site, "short", 12);
    let until = now() + 12;
    assert_eq!(statuses(&of(&short)).await, [200; 4]);
    site.server.cut();
    site.offline().await;
    let forged = Issuer::new().token(&site, "long", 3600);
    assert_eq!(statuses(&of(&forged)).await, [401; 4], "signed by another");
    assert_eq!(statuses(&of(&never)).await[..2], [503; 2], "never asked");
    let early = statuses(&of(&short)).await;
    assert!(early == [200; 4] || now() >= until, "{early:?}");
    sleep(Duration::from_secs((until + 1).saturating_sub(now()))).await;
    assert_eq!(statuses(&of(&short)).await, [401; 4], "expired");
    assert_eq!(statuses(&of(&long)).await, [200; 4]);
    site.restart().await;
    let of = |token: &str| site.secure(None).with_token(token);
    assert_eq!(statuses(&of(&long)).await, [200; 4], "after a restart");
    assert_eq!(statuses(&of(&forged)).await, [401; 4]);
    let never = statuses(&of(&never)).await;
    assert!(never.iter().all(|status| [503, 429].contains(status)), "{never:?}");
}

/// After a reboot without a link the clock of a board that has no battery is where it was when it was last saved.
#[tokio::test]
async fn a_clock_that_is_behind_refuses_no_token_and_then_none_outlives_its_end() {
    let (mut site, issuer) = Issuer::with_hub().await;
    let hour = 3600;
    let [old, new] = [[now() - 1, now() + hour], [now() + 2 * hour, now() + 3 * hour]]
        .map(|times| issuer.token_of(&site, "a", times));
    let of = |token: &str| site.secure(None).with_token(token);
    assert_eq!(statuses(&of(&old)).await, [200; 4]);
    sleep(Duration::from_millis(2500)).await;
    site.server.cut();
    site.offline().await;
    site.restart().await;
    let of = |token: &str| site.secure(None).with_token(token);
    assert_eq!(statuses(&of(&old)).await, [200; 4], "by the clock it is good");
    assert_eq!(statuses(&of(&new)).await, [200; 4], "nobody issues tokens ahead of time");
    assert_eq!(statuses(&of(&old)).await, [401; 4], "it ended before the other was issued");
}

#[tokio::test]
async fn tokens_are_never_written_down() {
    let (mut site, issuer) = Issuer::with_site().await;
    site.set("--log-level", "trace");
    site.start();
    site.linked().await;
    with_service(&site).await;
    let good = issuer.token(&site, "a", 3600);
    let tokens = [good.as_str(), "opaque-unknown-token"];
    for token in tokens {
        for endpoint in [site.plain(), site.secure(None)] {
            statuses(&endpoint.clone().with_token(token)).await;
            let write = http::Request::post("/api/v1/namespaces/a/services").header("content-type", JSON);
            let _ = endpoint.clone().with_token(token).ask(write, service("a", "x", 1).to_string()).await;
            let _ = get(&endpoint.with_token(token), "/api/v1/namespaces/a/secrets?resourceVersion=0").await;
        }
    }
    site.server.cut();
    site.offline().await;
    for token in tokens {
        statuses(&site.secure(None).with_token(token)).await;
    }
    let log = fs::read_to_string(site.log_file()).unwrap();
    assert!(log.contains("TRACE"), "the log is as talkative as it can be");
    for token in tokens {
        // A token's signature is what makes it one.
        let part = token.rsplit('.').next().unwrap();
        assert!(!log.contains(part), "a token is in the log");
        assert!(!on_disk(&site.log_file().with_file_name("root"), part), "a token is on the disk");
    }
}

/// Whoever was handed on then would see all, without the filters of a component that cannot be told, and know more than what is held.
#[tokio::test]
async fn who_cannot_be_reviewed_just_now_is_told_to_ask_again() {
    let site = Site::started().await;
    with_service(&site).await;
    let access = site.server.cluster().access();
    access.add_token("t", User::service_account("a", "t"));
    let (hub, before) = (site.plain().with_token("t"), site.server.log().requests().len());
    site.server.fail_next(503);
    let mut answer = hub.get(LIST, JSON).await.unwrap();
    let body = String::from_utf8_lossy(&answer.bytes().await.unwrap()).into_owned();
    assert_eq!(answer.status, 429, "{body}");
    assert!(body.contains("the token cannot be checked now"), "{body}");
    assert!(answer.headers.contains_key("retry-after"));
    let requests = site.server.log().requests();
    assert!(requests.iter().skip(before).all(|request| request.path != SERVICES), "it was handed on");
    assert_eq!(hub.get(LIST, JSON).await.unwrap().status, 200);
}

/// The API server's own answer shows what the component's filter hides, and a watch would go on showing it. So who was refused a moment ago
/// and has the right now is told so a little later; who has no filter is handed on meanwhile, and told at once.
#[tokio::test]
async fn who_has_a_filter_is_not_handed_on() {
    let site = Site::started().await;
    with_service(&site).await;
    let access = site.server.cluster().access();
    access.add_token("t", User::service_account("kube-system", "kube-proxy"));
    access.add_token("u", User::service_account("a", "u"));
    for (token, status) in [("t", 403), ("u", 200)] {
        let hub = site.plain().with_token(token);
        let reads = [LIST, READS[2], READS[3]];
        access.set_authorizer(|asked| asked.resource != "services");
        for path in reads {
            assert_eq!(hub.get(path, JSON).await.unwrap().status, 403, "{token}, {path}");
        }
        access.set_authorizer(|_| true);
        for path in reads {
            let mut answer = hub.get(path, JSON).await.unwrap();
            let body = String::from_utf8_lossy(&answer.bytes().await.unwrap()).into_owned();
            assert_eq!(answer.status, status, "{token}, {path}: {body}");
            let of_hub = answer.headers.get("audit-id").is_none();
            assert!(of_hub, "{token}, {path}: it was handed on");
        }
    }
}

/// Who issues it writes it anew before it ends; pods would be cut off by an old one.
#[tokio::test]
async fn the_serving_certificate_is_read_again_and_connections_stay() {
    let site = Site::started().await;
    with_service(&site).await;
    let hub = site.secure(Some(site.authority.client(&super::site::node()).unwrap()));
    let version = super::site::version(&get(&hub, LIST).await.unwrap().1);
    let mut watch = Lines::open(&hub, &format!("{SERVICES}?watch=1&resourceVersion={version}")).await;
    // Half written: the one before stays.
    let serving = site.authority.server(&["127.0.0.1", "again.example"]).unwrap();
    fs::write(site.file("hub.crt"), &serving.certificate_pem).unwrap();
    let log = || fs::read_to_string(site.log_file()).unwrap_or_default();
    site.until("it is complained of", async || log().contains("what the HTTPS proxy has stays")).await;
    assert_eq!(get(&hub, LIST).await.unwrap().0, 200);
    fs::write(site.file("hub.key"), &serving.key_pem).unwrap();
    site.until("it is served", async || site.serves().await.contains("again.example")).await;
    assert_eq!(get(&hub, LIST).await.unwrap().0, 200);
    site.server.cluster().create("services", service("a", "later", 1)).unwrap();
    assert!(watch.brief().await.starts_with("ADDED later@"), "the watch of before goes on");
}
