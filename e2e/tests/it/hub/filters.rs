//! The filters on a real node that is in a pool: its pods come to the hub as they are, by their environment and by the Service `kubernetes`, and go on without
//! a link; and what the cluster's own kube-proxy, which is led to the hub like any pod, makes of Services is what is for the node and its pool.

mod iptables;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::cleanup::Cleanup;
use e2e::hub::{HubNode, SECURE, runs, token};
use e2e::pools::{fresh_pool, remove_pool};
use e2e::{client, eventually, fresh_namespace, internal_ip, kubectl, set_pool};
use iptables::Rules;
use objects::{PORTED, WEB, web};
use serde_json::{Value, json};

const NAMESPACE: &str = "e2e-hub-filters";
const NODE: &str = "e2e-filters-1";
const POOL: &str = "e2e-filters";

/// A node without a hub that comes into the pool, and leaves it.
const ELSEWHERE: &str = "edge-1";

/// How soon kube-proxy is to have made of a change what it should, and of the eighth in a row as soon: a client-go that lists anew each time waits half a minute by then.
const SOON: Duration = Duration::from_secs(20);

const KUBERNETES: &str = "default/kubernetes:https";
const OF_THE_CLOUD: &str = "x-tunnel-server-internal-svc";

/// What kube-proxy is to have made: where what is for the Service of the pool is sent, and which Services have their ports opened.
struct Made<'a> {
    pool: &'a [&'a str],
    ports: &'a [&'a str],
}

struct Ground {
    node: HubNode,
    /// Where pods find the hub.
    hub: String,
    /// The nodes of the pods of the Services, by the pods' addresses.
    web: BTreeMap<String, &'static str>,
}

#[tokio::test]
async fn pods_come_to_the_hub_and_kube_proxy_sends_to_the_pool() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let mut cleanup = Cleanup::kubectl(&["delete", "nodepool", POOL, "--ignore-not-found"]);
    cleanup.add("kubectl", &["label", "node", ELSEWHERE, &format!("{}-", api::labels::NODE_POOL)]);
    cleanup.add("kubectl", &["-n", "kube-system", "delete", "service", OF_THE_CLOUD, "--ignore-not-found"]);
    fresh_pool(&client, POOL, json!({ "type": "Edge" })).await?;
    let node = HubNode::fresh(NODE, &[]).await?;
    let reader = token(NAMESPACE, "reader", "view").await?;
    objects::caller("before", false).await?;
    runs(NAMESPACE, "before").await?;
    let idle = node.status().await?["idleFilters"].clone();
    ensure!(idle["names"].as_array().is_some_and(|names| names.len() == 4), "{idle}");

    let _request = node.certified_for_pods().await?;
    objects::apply().await?;
    let ground = Ground::of(node).await?;
    pods_are_led(&ground).await?;

    // In no pool a node is a pool of its own, and opens all ports.
    let all: Vec<&str> = PORTED.iter().map(|(name, _)| *name).collect();
    ground.makes("in no pool", Made { pool: &WEB[..1], ports: &all }).await?;
    set_pool(&client, NODE, Some(POOL)).await?;
    ground.makes("in the pool", Made { pool: &WEB[..1], ports: &["ported-ours"] }).await?;
    let mut times = Vec::new();
    for round in 0..4 {
        set_pool(&client, ELSEWHERE, Some(POOL)).await?;
        let when = "when another has come";
        times.push(ground.makes(when, Made { pool: &WEB[..2], ports: &["ported-ours"] }).await?);
        if round == 0 {
            components_see(&ground.node, &reader).await?;
        }
        set_pool(&client, ELSEWHERE, None).await?;
        times
            .push(ground.makes("when it has left", Made { pool: &WEB[..1], ports: &["ported-ours"] }).await?);
    }
    println!(
        "kube-proxy has made what it should so long after a node came into the pool or left it: {times:.1?}"
    );
    goes_on_without_a_link(&ground).await?;
    let annotate = async |service: &str, annotation: &str| {
        kubectl(&["-n", NAMESPACE, "annotate", "--overwrite", "service", service, annotation]).await?.ok()
    };
    annotate("pool", "openyurt.io/topologyKeys-").await?;
    annotate("ported-others", "nodeport.openyurt.io/listen=other,e2e-filters").await?;
    let ports = ["ported-ours", "ported-others"];
    ground.makes("by other annotations", Made { pool: &WEB, ports: &ports }).await?;
    annotate("pool", "openyurt.io/topologyKeys=openyurt.io/nodepool").await?;
    ground.makes("by those of before", Made { pool: &WEB[..1], ports: &ports }).await?;
    remove_pool(&client, POOL).await?;
    let node = ground.node;
    drop(cleanup);
    node.leave().await
}

impl Ground {
    /// With the pods of the Services running.
    async fn of(node: HubNode) -> Result<Self> {
        let mut addresses = BTreeMap::new();
        for name in WEB {
            runs(NAMESPACE, &web(name)).await?;
            let pod = web(name);
            let address = ["-n", NAMESPACE, "get", "pod", &pod, "-o", "jsonpath={.status.podIP}"];
            addresses.insert(kubectl(&address).await?.ok()?, name);
        }
        let hub = format!("{}:10268", internal_ip(NODE).await?);
        Ok(Self { node, hub, web: addresses })
    }

    /// Waits until kube-proxy has made exactly that, and says how long.
    async fn makes(&self, when: &str, made: Made<'_>) -> Result<Duration> {
        let began = Instant::now();
        eventually(&format!("what kube-proxy makes of Services {when}"), SOON, || async {
            let rules = Rules::of(&self.node).await?;
            let of = |service: &str| format!("{NAMESPACE}/{service}");
            for (service, expected) in [("everywhere", &WEB[..]), ("host", &WEB[..1]), ("pool", made.pool)] {
                let endpoints = of(service);
                let endpoints = rules.endpoints(&endpoints);
                let nodes: BTreeSet<&str> =
                    endpoints.iter().map(|endpoint| self.node_of(endpoint)).collect::<Result<_>>()?;
                ensure!(nodes == expected.iter().copied().collect(), "{service}: {nodes:?}");
            }
            for (service, _) in PORTED {
                let wanted = made.ports.contains(&service);
                ensure!(rules.opens_port(&of(service)) == wanted, "port of {service}: not {wanted}");
                ensure!(rules.routes(&of(service)) == wanted, "address of {service}: not {wanted}");
            }
            ensure!(!rules.routes(&of("discarded")), "the cloud's own Service is there");
            let hub = rules.endpoints(KUBERNETES);
            ensure!(hub == BTreeSet::from([&*self.hub]), "Service kubernetes: {hub:?}");
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    fn node_of(&self, endpoint: &str) -> Result<&'static str> {
        let address = endpoint.split(':').next().unwrap_or_default();
        self.web.get(address).copied().with_context(|| format!("nobody's address: {endpoint}"))
    }

    /// A pod reads by what it was told of the API server, with the hub's warning or without.
    async fn reads(&self, pod: &str, is_cut: bool) -> Result<()> {
        let script = format!("/opt/tools/kubectl -n {NAMESPACE} get services -o name");
        let said = self.node.within_seconds(10, pod, &script).await?;
        ensure!(said.success && said.stdout.contains("service/pool\n"), "{pod}: {said:?}");
        ensure!(said.stderr.contains("no link to the API server") == is_cut, "{pod}: {said:?}");
        Ok(())
    }

    /// What the environment of a pod's container says of the API server.
    async fn told(&self, pod: &str) -> Result<String> {
        let script = "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT";
        Ok(self.node.within(pod, script).await?.ok()?.trim().to_owned())
    }

    /// The cluster's kube-proxy on the node.
    async fn kube_proxy(&self) -> Result<String> {
        let on_node = format!("spec.nodeName={NODE}");
        let name = "jsonpath={.items[*].metadata.name}";
        let words = ["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "--field-selector"];
        let found = kubectl(&[&words[..], &[&on_node, "-o", name]].concat()).await?.ok()?;
        let [pod] = found.split(' ').collect::<Vec<_>>()[..] else { bail!("kube-proxy's pods: {found:?}") };
        Ok(pod.to_owned())
    }
}

/// Pods made from now on are told of the hub, those that name the API server themselves too, and the cluster's kube-proxy goes by that.
async fn pods_are_led(ground: &Ground) -> Result<()> {
    objects::caller("caller", false).await?;
    objects::caller("named", true).await?;
    let old = ground.kube_proxy().await?;
    kubectl(&["-n", "kube-system", "delete", "pod", &old]).await?.ok()?;
    let pod = eventually("another kube-proxy", Duration::from_mins(1), || async {
        let pod = ground.kube_proxy().await?;
        ensure!(pod != old && ground.node.running(&pod).await?.len() == 1, "{pod}");
        Ok(pod)
    })
    .await?;
    let config = ground.node.within(&pod, "cat /var/lib/kube-proxy/config.conf").await?.ok()?;
    ensure!(config.contains("\n  #kubeconfig: "), "kube-proxy has a kubeconfig: {config}");
    for pod in ["caller", "named"] {
        runs(NAMESPACE, pod).await?;
    }
    for (pod, expected) in [
        ("before", "10.96.0.1:443"),
        ("caller", &*ground.hub),
        ("named", &*ground.hub),
        (&*pod, &*ground.hub),
    ] {
        let told = ground.told(pod).await?;
        ensure!(told == expected, "{pod} is told of {told}");
    }
    for pod in ["before", "caller", "named"] {
        ground.reads(pod, false).await?;
    }
    // It is itself there, and not the node.
    let whoami = "/opt/tools/kubectl auth whoami -o 'jsonpath={.status.userInfo.username}'";
    let me = ground.node.within_seconds(10, "caller", whoami).await?;
    ensure!(me.stdout == format!("system:serviceaccount:{NAMESPACE}:reader"), "{me:?}");
    Ok(())
}

/// Who has the name of a component is shown what is for it, and others are shown everything.
async fn components_see(node: &HubNode, reader: &str) -> Result<()> {
    kubectl(&["-n", "kube-system", "create", "service", "clusterip", OF_THE_CLOUD, "--tcp=80"])
        .await?
        .ok()?;
    let (kube_proxy, core_dns) =
        (token(NAMESPACE, "kube-proxy", "view").await?, token(NAMESPACE, "coredns", "view").await?);
    let slices = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dpool&resourceVersion=0"
    );
    let (services, everywhere) = (
        format!("/api/v1/namespaces/{NAMESPACE}/services?resourceVersion=0"),
        "/api/v1/namespaces/kube-system/services?resourceVersion=0".to_owned(),
    );
    let hidden = ["discarded", "ported-others", "ported-all-but-ours", OF_THE_CLOUD];
    eventually("components see what is for them", SOON, || async {
        for (who, token) in [("kube-proxy", &*kube_proxy), ("coredns", &core_dns), ("reader", reader)] {
            let mut seen = names(&list(node, token, &services).await?);
            seen.extend(names(&list(node, token, &everywhere).await?));
            for name in hidden {
                ensure!(seen.contains(name) == (who != "kube-proxy"), "{who} sees {seen:?}");
            }
            ensure!(seen.contains("pool") && seen.contains("ported-ours"), "{who} sees {seen:?}");
            let nodes = nodes(&list(node, token, &slices).await?);
            let near = if who == "reader" { &WEB[..] } else { &WEB[..2] };
            ensure!(nodes == near.iter().map(|&name| name.to_owned()).collect(), "{who} sees {nodes:?}");
        }
        Ok(())
    })
    .await
}

async fn list(node: &HubNode, token: &str, path: &str) -> Result<Value> {
    let reply = node.get(SECURE, Some(token), path).await?;
    ensure!(reply.status == 200, "{path}: {reply:?}");
    Ok(serde_json::from_str(&reply.body)?)
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// The nodes of the endpoints in a list of slices.
fn nodes(list: &Value) -> BTreeSet<String> {
    let slices = list["items"].as_array().into_iter().flatten();
    let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints.filter_map(|endpoint| endpoint["nodeName"].as_str().map(str::to_owned)).collect()
}

/// All pods read on, whatever they were told, and a kube-proxy that begins without a link makes the same anew.
async fn goes_on_without_a_link(ground: &Ground) -> Result<()> {
    let node = &ground.node;
    // Rights and tokens are stored within seconds.
    tokio::time::sleep(Duration::from_secs(4)).await;
    node.black_hole(true).await?;
    eventually("a pod reads without a link", SOON, || ground.reads("caller", true)).await?;
    for pod in ["before", "named"] {
        ground.reads(pod, true).await?;
    }
    let pod = ground.kube_proxy().await?;
    let running = node.running(&pod).await?;
    let [killed] = running.as_slice() else { bail!("containers of {pod}: {running:?}") };
    node.inside(&["iptables", "-w", "-t", "nat", "-F", "KUBE-SERVICES"]).await?.ok()?;
    node.kill(killed).await?;
    let routed = format!("{NAMESPACE}/pool");
    ensure!(!Rules::of(node).await?.routes(&routed), "the rules were not taken away: the test shows nothing");
    let made = || Made { pool: &WEB[..1], ports: &["ported-ours"] };
    ground.makes("anew without a link", made()).await?;
    // By them traffic stays on the node.
    let address = ["-n", NAMESPACE, "get", "service", "host", "-o", "jsonpath={.spec.clusterIP}"];
    let address = kubectl(&address).await?.ok()?;
    let call = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 80 | tail -1");
    let said = node.within_seconds(10, "caller", &format!("for i in 1 2 3 4 5 6; do {call}; done")).await?;
    ensure!(said.stdout == format!("{NODE}\n").repeat(6), "who answered: {said:?}");
    node.black_hole(false).await?;
    eventually("a pod reads with a link again", SOON, || ground.reads("caller", false)).await?;
    ground.makes("after the cut", made()).await?;
    Ok(())
}
