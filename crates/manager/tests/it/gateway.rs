//! The Gateway controller within a whole manager that leads, against a fake API server: what it makes of Gateways, nodes and what the
//! gateways' hubs report, and how it follows them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::api_server::{Cluster, FakeApiServer};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::process;

const LEASE: &str = "isthmus-system/isthmus-manager-gateways";
const REPORT: &str = "kube-system/isthmus-gateway-c1";
const SERVICE: &str = "kube-system/x-raven-proxy-internal-svc";
const SLICE: &str = "kube-system/x-raven-proxy-internal-svc-ipv4";

/// A cluster with a manager. Both end with it.
struct Site {
    server: FakeApiServer,
    tasks: JoinSet<()>,
    /// Where the hub of `c1` says that it listens for what the internal Service leads to it; an older one does not.
    ways_in: Option<&'static [&'static str]>,
}

impl Site {
    async fn new() -> Self {
        let server = process::server().await;
        let site = Self { server, tasks: JoinSet::new(), ways_in: None };
        for (name, ip, labels) in [
            ("a", "192.168.1.10", json!({ (api::labels::NODE_POOL): "shop" })),
            ("b", "192.168.1.11", json!({ (api::labels::NODE_POOL): "shop" })),
            ("c1", "10.0.0.1", json!({})),
        ] {
            site.cluster()
                .create(
                    "nodes",
                    json!({
                        "metadata": { "name": name, "labels": labels },
                        "spec": { "podCIDRs": ["10.1.0.0/24", "fd00::/64"] },
                        "status": {
                            "conditions": [{ "type": "Ready", "status": "True" }],
                            "addresses": [{ "type": "InternalIP", "address": ip }],
                        },
                    }),
                )
                .unwrap();
        }
        site.cluster().create("nodepools.apps.openyurt.io", json!({
            "metadata": { "name": "shop", "annotations": { (api::annotations::POOL_GATEWAY): "true" } },
            "spec": { "type": "Edge" },
        })).unwrap();
        site.cluster()
            .create(
                "gateways.raven.openyurt.io",
                json!({
                    "metadata": { "name": "cloud", "generation": 1 },
                    "spec": {
                        "exposeType": "PublicIP", "proxyConfig": { "Replicas": 1, "proxyHTTPSPort": "10250" },
                        "endpoints": [{ "nodeName": "c1", "type": "proxy", "publicIP": "192.0.2.1" }],
                    },
                }),
            )
            .unwrap();
        site
    }

    fn cluster(&self) -> &Cluster {
        self.server.cluster()
    }

    async fn manage(&mut self) {
        self.manage_as("manager").await;
    }

    /// A replica, which dies without a word when it is aborted.
    async fn manage_as(&mut self, identity: &str) -> AbortHandle {
        let app = process::replica(&self.server, identity).await;
        self.tasks.spawn(async move {
            app.run(CancellationToken::new()).await.unwrap();
        })
    }

    /// Who runs the Gateway controller, by its Lease.
    fn leader(&self) -> String {
        let lease = self.cluster().get("leases.coordination.k8s.io", LEASE).unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// What the hub of `c1` writes: again and again while it lives.
    fn report(&self, holder: &str, links: &[&str]) {
        let links: Vec<Value> =
            links.iter().map(|node| json!({ "node": node, "roundTripMillis": 12 })).collect();
        let mut report = json!({ "instance": holder, "links": links });
        if let Some(ways_in) = self.ways_in {
            report["waysIn"] = json!(ways_in);
        }
        let object = json!({
            "metadata": {
                "name": "isthmus-gateway-c1", "namespace": "kube-system",
                "annotations": { (api::annotations::TUNNEL_REPORT): report.to_string() },
            },
            "data": { "holderIdentity": holder, "renewTime": format!("{:?}", Instant::now()) },
        });
        if self.cluster().get("configmaps", REPORT).is_none() {
            self.cluster().create("configmaps", object).unwrap();
        } else {
            self.cluster().update("configmaps", &object).unwrap();
        }
    }

    fn gateway(&self, name: &str) -> Value {
        self.cluster().get("gateways.raven.openyurt.io", name).unwrap_or_default()
    }

    fn backends(&self) -> Value {
        self.cluster().get("endpointslices.discovery.k8s.io", SLICE).unwrap_or_default()["endpoints"].clone()
    }

    /// Keeps the hub of `c1` alive until `done`.
    async fn until(&self, what: &str, links: Option<&[&str]>, done: impl Fn(&Self) -> bool) {
        for _ in 0..300 {
            if done(self) {
                return;
            }
            if let Some(links) = links {
                self.report("run-1", links);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let state: Vec<String> =
            ["cloud", "shop"].map(|name| self.gateway(name)["status"].to_string()).into();
        panic!("{what}: {state:#?} {}", self.backends());
    }
}

fn reason(gateway: &Value, type_: &str) -> String {
    let conditions = gateway["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    found.map(|condition| condition["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_follow_their_hubs() {
    let mut site = Site::new().await;
    site.manage().await;
    site.until("a Gateway for the pool, and no hub", None, |site| {
        reason(&site.gateway("cloud"), "Elected") == "NoTunnel"
            && site.gateway("shop")["status"]["activeNodes"] == "a"
    })
    .await;
    let made = site.gateway("shop");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "NodePool");
    assert_eq!(reason(&made, "Connected"), "NoExposedGateway");
    assert_eq!(
        made["status"]["nodes"][1],
        json!({ "nodeName": "b", "privateIP": "192.168.1.11", "subnets": ["10.1.0.0/24", "fd00::/64"] })
    );
    let spec = site.gateway("cloud")["spec"].clone();

    site.until("a hub that accepts links", Some(&["a"]), |site| {
        reason(&site.gateway("cloud"), "Connected") == "Accepting"
            && reason(&site.gateway("shop"), "Connected") == "Connected"
    })
    .await;
    let shop = site.gateway("shop")["status"].clone();
    assert_eq!((&shop["connectedTo"], &shop["roundTrip"]), (&json!("c1"), &json!("12ms")));
    assert_eq!(
        site.gateway("cloud")["status"]["addresses"],
        json!([{ "host": "192.0.2.1", "port": 10262, "nodeName": "c1" }])
    );
    site.until("the slice", Some(&["a"]), |site| site.backends()[0]["addresses"][0] == "10.0.0.1").await;
    let port = json!({ "name": "https-10250", "port": 10250, "protocol": "TCP", "targetPort": 10263 });
    assert_eq!(site.cluster().get("services", SERVICE).unwrap()["spec"]["ports"], json!([port]));

    // What the API server gives the Service leads names of edge nodes to it, and stays where it is.
    site.cluster().merge_patch("services", SERVICE, &json!({ "spec": { "clusterIP": "10.9.9.9" } })).unwrap();
    let names =
        |site: &Site| site.cluster().get("configmaps", "kube-system/edge-tunnel-nodes").unwrap_or_default();
    site.until("names", Some(&["a"]), |site| {
        names(site)["data"]["tunnel-nodes"] == "10.9.9.9\ta\n10.9.9.9\tb"
    })
    .await;
    site.cluster()
        .update(
            "configmaps",
            &json!({ "metadata": { "name": "edge-tunnel-nodes", "namespace": "kube-system" } }),
        )
        .unwrap();
    site.until("names again", Some(&["a"]), |site| {
        names(site)["data"]["tunnel-nodes"] == "10.9.9.9\ta\n10.9.9.9\tb"
    })
    .await;

    // Somebody deletes what leads to the gateway.
    site.cluster().delete("endpointslices.discovery.k8s.io", SLICE).unwrap();
    site.until("the slice again", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;

    // Nothing is written while nothing changes. (Roles of hubs are another controller's, which may come to them late.)
    let requests = site.server.log();
    requests.clear();
    for _ in 0..20 {
        site.report("run-1", &["a"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let written: Vec<String> = requests
        .requests()
        .iter()
        .filter(|request| {
            request.method == "PATCH"
                && request.path.contains("kube-system") | request.path.contains("gateways")
                && !request.path.contains("rbac.authorization.k8s.io")
        })
        .map(|request| request.path.clone())
        .collect();
    assert_eq!(written, Vec::<String>::new());

    // The hub dies without a word; the bound is tested with a clock of its own (liveness, plan).
    site.until("no hub", None, |site| site.backends() == json!([])).await;
    site.until("the reason", None, |site| {
        reason(&site.gateway("cloud"), "Elected") == "NoTunnel"
            && reason(&site.gateway("shop"), "Connected") == "NoExposedGateway"
    })
    .await;
    assert_eq!(site.gateway("cloud")["spec"], spec, "its users' own");

    // It ends in order: at once.
    site.until("a hub again", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;
    site.report("", &[]);
    site.until("no hub again", None, |site| site.backends() == json!([])).await;

    // The pool asks no more, and nothing is exposed.
    let annotation = json!({ "metadata": { "annotations": { (api::annotations::POOL_GATEWAY): null } } });
    site.cluster().merge_patch("nodepools.apps.openyurt.io", "shop", &annotation).unwrap();
    site.cluster()
        .merge_patch("gateways.raven.openyurt.io", "cloud", &json!({ "spec": { "exposeType": "" } }))
        .unwrap();
    site.until("nothing left", None, |site| {
        site.gateway("shop") == Value::Null
            && site.cluster().get("services", SERVICE).is_none()
            && site.backends() == Value::Null
    })
    .await;
}

/// Its hub lives, nobody is linked to it, and something else has one of its ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_says_whom_it_misses_and_where_it_does_not_listen() {
    let mut site = Site::new().await;
    let ports = json!({ "spec": { "proxyConfig": { "proxyHTTPPort": "9100" } } });
    site.cluster().merge_patch("gateways.raven.openyurt.io", "cloud", &ports).unwrap();
    site.ways_in = Some(&["10.0.0.1:10264"]);
    site.manage().await;
    let connected = |site: &Site| {
        let conditions =
            site.gateway("cloud")["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == "Connected");
        found.map(|found| {
            ["status", "reason", "message"].map(|key| found[key].as_str().unwrap_or_default().to_owned())
        })
    };
    // Before the pool has a Gateway both of its nodes dial.
    site.until("nobody is linked", Some(&[]), |site| {
        connected(site).is_some_and(|[status, reason, message]| {
            let missed = "no node has a link to c1: missed are a: does TCP 192.0.2.1:10262 answer";
            status == "False" && reason == "NoLinks" && message.starts_with(missed)
        })
    })
    .await;
    site.until("it is told of", Some(&["a"]), |site| {
        reason(&site.gateway("cloud"), "Exposed") == "WaysInClosed"
            && reason(&site.gateway("cloud"), "Connected") == "Accepting"
    })
    .await;
    let led = |site: &Site| -> Vec<u64> {
        let slices = site.cluster().list("endpointslices.discovery.k8s.io");
        let with_it = slices.values().filter(|slice| slice["endpoints"][0]["nodeName"] == "c1");
        let ports = with_it.flat_map(|slice| slice["ports"].as_array().cloned().unwrap_or_default());
        ports.map(|port| port["port"].as_u64().unwrap()).collect()
    };
    assert_eq!(led(&site), [10264]);
    assert_eq!(site.backends(), json!([]));
    site.ways_in = Some(&["10.0.0.1:10263", "10.0.0.1:10264"]);
    site.until("it listens", Some(&["a"]), |site| {
        reason(&site.gateway("cloud"), "Exposed") == "AddressKnown" && led(site) == [10264, 10263]
    })
    .await;
    assert_eq!(site.backends()[0]["nodeName"], "c1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_cannot_be_read_harms_no_other() {
    let mut site = Site::new().await;
    let broken = json!({ "metadata": { "name": "broken" }, "spec": { "endpoints": "none", "exposeType": "LoadBalancer" } });
    site.cluster().create("gateways.raven.openyurt.io", broken).unwrap();
    site.manage().await;
    site.until("a condition", Some(&[]), |site| reason(&site.gateway("broken"), "Elected") == "Unreadable")
        .await;
    site.until("the other", Some(&[]), |site| reason(&site.gateway("cloud"), "Elected") == "Elected").await;
}

/// A node dies on which were a gateway and the replica that leads. The next leader has followed the reports, and does not begin to learn who
/// lives when it is elected; 18.5 s would be the sooner of the two if it did as the other controllers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_dies_with_the_leader_is_out_of_the_slices_as_soon_as_any() {
    let mut site = Site::new().await;
    let first = site.manage_as("first").await;
    site.until("the slice", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;
    assert!(site.leader().starts_with("first_"), "{}", site.leader());
    site.manage_as("second").await;
    for _ in 0..30 {
        site.report("run-1", &["a"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(site.leader().starts_with("first_"), "{}", site.leader());
    first.abort();
    let died = Instant::now();
    site.until("no hub", None, |site| site.backends() == json!([])).await;
    // It is five on a real cluster; here other tests have the processors.
    assert!(died.elapsed() < Duration::from_secs(10), "{:?}", died.elapsed());
    assert!(site.leader().starts_with("second_"), "{}", site.leader());
    site.until("a hub again", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;
}

/// Reports have lower versions then, and a watch that goes on from a version of before tells nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hubs_report_after_a_restore_of_etcd_is_taken() {
    let mut site = Site::new().await;
    site.manage().await;
    site.until("the slice", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;
    site.until("a link", Some(&["a"]), |site| reason(&site.gateway("cloud"), "Connected") == "Accepting")
        .await;
    let backup = site.cluster().revision();
    // More than what is written until the end of the test.
    for _ in 0..5_000 {
        site.report("run-1", &["a"]);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.server.restore(backup);
    site.until("it has no links any more", Some(&[]), |site| {
        reason(&site.gateway("cloud"), "Connected") == "NoLinks"
    })
    .await;
    // What is not asked for any more is told by the watch.
    site.until("no hub", None, |site| site.backends() == json!([])).await;
    site.until("a hub again", Some(&["a"]), |site| site.backends()[0]["nodeName"] == "c1").await;
}

/// A Lease that is kept costs the cluster writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_stands_for_election_where_there_is_nothing_to_do() {
    let mut site = Site { server: process::server().await, tasks: JoinSet::new(), ways_in: None };
    site.manage().await;
    let leads =
        |site: &Site| site.cluster().get("leases.coordination.k8s.io", "isthmus-system/isthmus-manager");
    site.until("a leader of the others", None, |site| leads(site).is_some()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(site.leader(), "");
    let gateway =
        json!({ "metadata": { "name": "cloud", "generation": 1 }, "spec": { "exposeType": "PublicIP" } });
    site.cluster().create("gateways.raven.openyurt.io", gateway).unwrap();
    site.until("a leader", None, |site| site.leader().starts_with("manager_")).await;
    site.until("a verdict", None, |site| !reason(&site.gateway("cloud"), "Elected").is_empty()).await;
}
