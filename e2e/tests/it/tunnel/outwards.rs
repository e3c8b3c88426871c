//! From the edge: to Services of the cloud and to nodes of other pools, by the proxy that each hub has on its loopback address, and
//! nowhere that is not listed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE_GATEWAY, GATEWAYS, NAMESPACE, ORDINARY, Reach, SOLO, TWIN, background, connected, ground,
    in_namespace, logs, pod, said,
};
use e2e::{eventually, hack_cluster, internal_ip, kubectl, kubectl_apply, run};

use super::controllers::a_gateway_of_its_own_leads_to;
use super::local_view::opened;
use super::reach::links_of;
use super::streams::listens;

const PATIENCE: Duration = Duration::from_secs(15);

/// The port of pods on their node's network, which `hack/cluster hub` allows.
const PORT: u16 = 18090;

/// The port of who forwards for ordinary pods to the proxy on the node's loopback address.
const FORWARDED: u16 = 18091;

/// The port of who counts what it is sent, in a pod of the cloud.
const COUNTED: &str = "9003";

/// A pod on the network of its node, as system pods and those of host-network pools are: it serves, and it asks.
pub(super) async fn on_host(node: &str) -> Result<Cleanup> {
    // The port may be that of the pod before for a moment: with no grace it is gone from the API before its process is.
    let script = format!(
        "mkdir /www; echo host {node} >/www/index.html; until httpd -f -p {PORT} -h /www; do sleep 0.2; done"
    );
    on_network_of(node, &format!("host-{node}"), &script).await
}

async fn on_network_of(node: &str, name: &str, script: &str) -> Result<Cleanup> {
    let gone =
        Cleanup::kubectl(&in_namespace(&["delete", "pod", name, "--wait=false", "--ignore-not-found"]));
    said(&["delete", "pod", name, "--ignore-not-found"], PATIENCE).await?;
    let pod = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  nodeName: {node}
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: isthmus.dev/busybox:1
    command: [sh, -c, '{script}']
"
    );
    kubectl_apply(&pod).await?.ok()?;
    e2e::hub::runs(NAMESPACE, name).await?;
    Ok(gone)
}

/// What a pod on a node gets from a URL, through the hub of its node.
async fn get(node: &str, host: &str) -> Result<String> {
    get_by(&format!("host-{node}"), "127.0.0.1 10265", host).await
}

/// What a pod gets from a URL by a proxy. busybox's wget dies of names.
async fn get_by(pod: &str, proxy: &str, host: &str) -> Result<String> {
    let script = format!(
        "printf 'GET http://{host}/ HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n' | nc -w 5 {proxy} | tail -1"
    );
    said(&["exec", pod, "--", "sh", "-c", &script], PATIENCE).await
}

/// The first line of the answer to a CONNECT.
async fn connect(node: &str, target: &str) -> Result<String> {
    let script = format!(
        "printf 'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n' | nc -w 3 127.0.0.1 10265 | head -1"
    );
    said(&["exec", &format!("host-{node}"), "--", "sh", "-c", &script], PATIENCE).await
}

#[tokio::test]
async fn f13_from_the_edge_to_a_service_of_the_cloud() -> Result<()> {
    ground(Reach::Names).await?;
    let callers = (on_host(EDGE_GATEWAY).await?, on_host(ORDINARY).await?);
    let gone = Cleanup::kubectl(&in_namespace(&["delete", "service", "web", "--ignore-not-found"]));
    let service = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {NAMESPACE}}}
spec:
  selector: {{app: {}}}
  ports: [{{name: web, port: 80, targetPort: 8080}}, {{name: count, port: 443, targetPort: {COUNTED}}}]
",
        pod("cloud-2")
    );
    kubectl_apply(&service).await?.ok()?;
    let counter = background(&["exec", &pod("cloud-2"), "--", "nc", "-ll", "-p", COUNTED, "-e", "wc", "-c"])?;
    let url = format!("web.{NAMESPACE}.svc.cluster.local");
    // After a restart of the API server, as another way to kubelets needs it, the cluster's DNS comes back when its client-go likes.
    eventually("the cluster's DNS knows the Service", Duration::from_mins(3), || async {
        let known = ["exec", GATEWAYS[0], "--", "busybox", "nslookup", &url, "10.96.0.10"];
        hack_cluster(&known).await?.ok()
    })
    .await?;
    // An ordinary node has no link of its own: its pool's endpoint forwards for it.
    for node in [EDGE_GATEWAY, ORDINARY] {
        eventually("the Service answers by its name", Duration::from_secs(40), || async {
            let answer = get(node, &url).await?;
            ensure!(answer.trim() == "cloud-2", "from {node}: {answer:?}");
            Ok(())
        })
        .await?;
        // The stream of bytes as well, which anything but HTTP takes.
        for name in [&url, &format!("web.{NAMESPACE}")] {
            let status = connect(node, &format!("{name}:80")).await?;
            ensure!(status.contains(" 200 "), "{name} from {node}: {status:?}");
        }
        listens("cloud-2", COUNTED).await?;
        half_is_closed(node, &format!("{url}:443")).await.context("the end of one half, which is of F5")?;
    }
    drop((callers, gone, counter));
    said(&["exec", &pod("cloud-2"), "--", "sh", "-c", "killall nc; true"], PATIENCE).await.map(drop)
}

/// A program of the edge sends to the cloud, says that this is all, and is told how much it was: by one who counts until the end. kubectl's
/// port-forward cannot show it, whose other end in containerd closes both halves a second after one.
async fn half_is_closed(node: &str, target: &str) -> Result<()> {
    const SENT: usize = 1 << 20;
    let head = format!("CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n");
    let script = format!("(printf '{head}'; head -c {SENT} /dev/zero) | nc -w 10 127.0.0.1 10265 | tail -1");
    let counted = said(&["exec", &format!("host-{node}"), "--", "sh", "-c", &script], PATIENCE).await?;
    ensure!(counted.trim() == SENT.to_string(), "from {node}: {counted:?} of {SENT} bytes");
    Ok(())
}

#[tokio::test]
async fn f14_from_one_pool_to_another() -> Result<()> {
    ground(Reach::Names).await?;
    let ends = (
        (on_host(EDGE_GATEWAY).await?, on_host(ORDINARY).await?),
        (on_host(TWIN).await?, on_host(SOLO).await?),
    );
    let pools = [(EDGE_GATEWAY, TWIN), (TWIN, EDGE_GATEWAY), (ORDINARY, TWIN), (TWIN, ORDINARY)];
    // A node of no Gateway, which other edge nodes do not know.
    let alone = [(EDGE_GATEWAY, SOLO), (ORDINARY, SOLO)];
    for (from, to) in pools.into_iter().chain(alone) {
        other_pool_answers(from, to).await?;
    }
    drop(ends);
    from_pod_to_pod().await
}

/// In a pool without a Gateway each node stands for itself: its programs dial the pool's others at once. The one that is asked has the address of nodes
/// elsewhere. Then one is made for the pool because it asks, and goes again.
#[tokio::test]
async fn f14_within_a_pool_without_a_gateway() -> Result<()> {
    const POOL: &str = "e2e-no-gateway";
    const ROUNDS: usize = 5;
    ground(Reach::Names).await?;
    let mut back = Cleanup::kubectl(&["delete", "nodepool", POOL, "--ignore-not-found"]);
    let labelled = |pool: &str| format!("{}={pool}", api::labels::NODE_POOL);
    for node in [EDGE_GATEWAY, ORDINARY] {
        back.add("kubectl", &["label", "--overwrite", "node", node, &labelled("tunnel-a")]);
    }
    let pool = format!(
        "{{apiVersion: apps.openyurt.io/v1beta2, kind: NodePool, metadata: {{name: {POOL}}}, spec: {{type: Edge}}}}"
    );
    kubectl_apply(&pool).await?.ok()?;
    for node in [EDGE_GATEWAY, ORDINARY] {
        kubectl(&["label", "--overwrite", "node", node, &labelled(POOL)]).await?.ok()?;
    }
    // The kubelet itself says that nobody has shown it credentials.
    let asked = async |from: &str, to: &str| {
        let url = format!("https://{to}:10250/metrics");
        let ask =
            ["exec", from, "--", "curl", "-skm10", "-o", "/dev/null", "-w", "%{http_connect} %{http_code}"];
        Ok::<_, anyhow::Error>(
            hack_cluster(&[&ask[..], &["-x", "http://127.0.0.1:10265", &url]].concat()).await?.stdout,
        )
    };
    eventually("each dials for itself, and the other one directly", Duration::from_mins(1), || async {
        for (from, to) in [(ORDINARY, EDGE_GATEWAY), (EDGE_GATEWAY, ORDINARY)] {
            let status = asked(from, to).await?;
            ensure!(status == "200 401", "{to} from {from}: {status:?}");
            ensure!(links_of(from).await? > 0, "{from} has no links");
        }
        anyhow::Ok(())
    })
    .await?;
    // The API server may have a stream of its own opened now and then.
    eventually("a round of which the gateways see nothing", Duration::from_mins(1), || async {
        let before = opened().await?;
        for _ in 0..ROUNDS {
            let status = asked(ORDINARY, EDGE_GATEWAY).await?;
            ensure!(status == "200 401", "{EDGE_GATEWAY} from {ORDINARY}: {status:?}");
        }
        let more = opened().await? - before;
        ensure!(more < ROUNDS, "the gateways opened {more} streams for {ROUNDS} requests");
        Ok(())
    })
    .await?;
    // Another pool's is refused as ever.
    let status = asked(ORDINARY, TWIN).await?;
    ensure!(status == "403 000", "{TWIN} from {ORDINARY}: {status:?}");
    a_gateway_of_its_own_leads_to(POOL, [EDGE_GATEWAY, ORDINARY]).await?;
    // The first that is back stands for the pool, and stays.
    kubectl(&["label", "--overwrite", "node", EDGE_GATEWAY, &labelled("tunnel-a")]).await?.ok()?;
    connected("tunnel-a", Duration::from_mins(1)).await?;
    drop(back);
    eventually("the pool is as before", Duration::from_mins(2), || async {
        let links = links_of(ORDINARY).await?;
        ensure!(links == 0, "{ORDINARY} has {links} links");
        logs(ORDINARY, PATIENCE).await
    })
    .await
}

/// Neither pod is on its node's network: what docs/gateways.md prescribes for these forwards on either node, from the node's address to
/// its proxy, and from the port that is listed to the pod.
async fn from_pod_to_pod() -> Result<()> {
    let of_pod = async |node: &str, field: &str| {
        let path = format!("jsonpath={{.status.{field}}}");
        said(&["get", "pod", &pod(node), "-o", &path], PATIENCE).await
    };
    let there = of_pod(TWIN, "podIP").await?;
    let _serves = forwarder(TWIN, PORT, &format!("{there} 8080")).await?;
    let url = format!("{TWIN}:{PORT}");
    for node in [EDGE_GATEWAY, ORDINARY] {
        let _asks = forwarder(node, FORWARDED, "127.0.0.1 10265").await?;
        let here = of_pod(node, "hostIP").await?;
        eventually("an ordinary pod of the other pool answers", Duration::from_secs(30), || async {
            let answer = get_by(&pod(node), &format!("{here} {FORWARDED}"), &url).await?;
            ensure!(answer.trim() == TWIN, "from {node}: {answer:?}");
            Ok(())
        })
        .await?;
        // Without it an ordinary pod does not come to the proxy.
        let itself = get_by(&pod(node), &format!("{here} 10265"), &url).await;
        ensure!(!itself.is_ok_and(|answer| answer.trim() == TWIN), "the proxy of {node} answers its pods");
    }
    Ok(())
}

/// A pod on the network of its node that forwards what comes to a port there.
async fn forwarder(node: &str, port: u16, to: &str) -> Result<Cleanup> {
    on_network_of(node, &format!("forward-{port}-{node}"), &format!("exec nc -ll -p {port} -e nc {to}")).await
}

/// Asks the pod on one node's network for that on another's, through the hub.
pub(super) async fn other_pool_answers(from: &str, to: &str) -> Result<()> {
    let url = format!("{to}:{PORT}");
    eventually("the other pool answers", Duration::from_secs(30), || async {
        let answer = get(from, &url).await?;
        ensure!(answer.trim() == format!("host {to}"), "from {from}: {answer:?}");
        Ok(())
    })
    .await
}

/// How often hubs have told of a refusal of a target since they run: one of before proves nothing of one that is asked for now.
async fn audited(nodes: &[&str], target: &str) -> Result<usize> {
    let mut lines = 0;
    for node in nodes {
        let log = hack_cluster(&["logs", "edge-hub", node]).await?.ok()?;
        let tells = |line: &&str| ["audit", "refused", target].iter().all(|word| line.contains(word));
        lines += log.lines().filter(tells).count();
    }
    Ok(lines)
}

#[tokio::test]
async fn f15_what_is_not_listed_is_refused() -> Result<()> {
    let ground = ground(Reach::there()).await?;
    let caller = on_host(ORDINARY).await?;
    // The API server itself is on the list, by a network that names nobody: that is for the API server's egress, and for no node of the edge.
    for target in ["169.254.169.254:80", "10.96.0.1:2379", "10.96.0.1:443", "b-1:22"] {
        let before = audited(&[ORDINARY], target).await?;
        let status = connect(ORDINARY, target).await?;
        ensure!(status.contains(" 403 "), "CONNECT {target}: {status:?}");
        ensure!(audited(&[ORDINARY], target).await? > before, "no audit line of {target}");
    }
    drop(caller);
    refused_at_gateways(&ground.balancer).await?;
    refused_at_the_way_in_of_anybody().await
}

/// The port for plain HTTP of nodes, where nobody is asked who it is. There one address has a line a minute for each reason: the first of this
/// minute is of this question or of one before.
async fn refused_at_the_way_in_of_anybody() -> Result<()> {
    let (target, gateway) = ("b-1:22", GATEWAYS[0]);
    let before = audited(&[gateway], target).await?;
    let header = format!("Host: {target}");
    let address = internal_ip(gateway).await?;
    let address = address.split_whitespace().next().context("the gateway has no address")?.to_owned();
    let url = format!("http://{address}:10264/");
    eventually("an audit line of a client that nobody knows", Duration::from_secs(90), || async {
        let words = ["exec", gateway, "--", "curl", "-sm10", "-o", "/dev/null", "-w", "%{http_code}"];
        let status = hack_cluster(&[&words[..], &["-H", &header, &url]].concat()).await?.ok()?;
        ensure!(status.trim() == "403", "GET of {target} at {url}: {status:?}");
        ensure!(audited(&[gateway], target).await? > before, "no audit line of {target} at {url}");
        anyhow::Ok(())
    })
    .await
}

/// Whoever has the key of a node writes the rules of its hub, and not those of the gateways, which say who may ask.
#[tokio::test]
async fn f15_gateways_go_by_their_own_rules() -> Result<()> {
    const TARGET: &str = "10.96.0.1:443";
    ground(Reach::there()).await?;
    let back = Cleanup::hack_cluster(&["hub", SOLO, "--tunnel"]);
    hack_cluster(&["hub", SOLO, "--tunnel", "--destinations", "10.96.0.0/12=443:all"]).await?.ok()?;
    let caller = on_host(SOLO).await?;
    eventually("the hub is linked again", Duration::from_secs(40), || async {
        let status = connect(SOLO, &format!("{TWIN}:{PORT}")).await?;
        // There is nobody at that port, or somebody: it was not refused, and not for want of a way.
        ensure!(!status.contains(" 403 ") && !status.contains(" 503 "), "CONNECT {TWIN}:{PORT}: {status:?}");
        Ok(())
    })
    .await?;
    // Its own hub tells of it as well, when it hears.
    let before = audited(&GATEWAYS, TARGET).await?;
    let status = connect(SOLO, TARGET).await?;
    ensure!(status.contains(" 403 "), "CONNECT {TARGET}: {status:?}");
    ensure!(audited(&GATEWAYS, TARGET).await? > before, "no audit line of {TARGET} at the gateways");
    drop((caller, back));
    eventually("its hub is as it was", Duration::from_secs(40), || async {
        let links = links_of(SOLO).await?;
        ensure!(links > 0, "{SOLO} has {links} links");
        anyhow::Ok(())
    })
    .await
}

/// The same at the ways in of gateways, even for the API server.
async fn refused_at_gateways(balancer: &str) -> Result<()> {
    let authority = hack_cluster(&["path", "cloud-1", "hub-ca"]).await?.ok()?;
    let pki = authority.trim().trim_end_matches("/ca.crt");
    let (resolve, proxy) = (
        format!("gateway.isthmus.internal:10265:{balancer}"),
        "https://gateway.isthmus.internal:10265".to_owned(),
    );
    let (certificate, key) = (format!("{pki}/egress.crt"), format!("{pki}/egress.key"));
    if !Path::new(&key).exists() {
        // The API server's, which is made when it first goes by the EgressSelector.
        ground(Reach::Egress).await?;
    }
    let etcd =
        kubectl(&["get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].addresses[0].ip}"]).await?;
    let etcd = format!("{}:2379", etcd.ok()?.trim());
    let ask = async |target: &str, shown: bool| {
        let url = format!("https://{target}/metrics");
        let mut words =
            vec!["-skm10", "-o", "/dev/null", "-w", "%{http_connect} %{http_code}", "--resolve", &resolve];
        words.extend(["--proxy", &proxy, "--proxy-cacert", authority.trim()]);
        if shown {
            words.extend(["--proxy-cert", &certificate, "--proxy-key", &key]);
        }
        words.push(&url);
        anyhow::Ok(run("curl", &words, "").await?.stdout)
    };
    for target in ["169.254.169.254:80", &etcd, "b-1:22", "127.0.0.1:10250"] {
        let before = audited(&GATEWAYS, target).await?;
        let status = ask(target, true).await?;
        ensure!(status == "403 000", "CONNECT {target} at a gateway: {status:?}");
        ensure!(audited(&GATEWAYS, target).await? > before, "no audit line of {target}");
    }
    // What is listed is connected, so the above is no broken proxy: the kubelet itself says that nobody has shown it credentials, whom the
    // gateway knows or not. Without a certificate nothing is.
    let listed = format!("{TWIN}:10250");
    let status = ask(&listed, true).await?;
    ensure!(status == "200 401", "CONNECT {listed} at a gateway: {status:?}");
    let status = ask(&listed, false).await?;
    ensure!(status == "000 000", "CONNECT {listed} without a certificate: {status:?}");
    Ok(())
}
