//! The ground that the tunnel is shown on: two cloud nodes as gateways behind a load balancer, pools of edge nodes whose addresses
//! are the same, and an edge node of no pool. `hack/cluster` makes it; it stays until the cluster goes.

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use crate::{eventually, hack_cluster, kubectl, kubectl_apply};

/// The namespace of what runs on the nodes.
pub const NAMESPACE: &str = "e2e-tunnel";

/// The gateways of the cloud.
pub const GATEWAYS: [&str; 2] = ["cloud-1", "cloud-2"];

/// The active edge gateway of pool a.
pub const EDGE_GATEWAY: &str = "a-1";

/// An ordinary node of the same pool.
pub const ORDINARY: &str = "a-2";

/// In another pool, with the address of [`EDGE_GATEWAY`].
pub const TWIN: &str = "b-1";

/// In no pool, with the same address again.
pub const SOLO: &str = "solo-1";

/// All edge nodes of the ground.
pub const EDGE: [&str; 4] = [EDGE_GATEWAY, ORDINARY, TWIN, SOLO];

const GROUND: [&str; 11] =
    ["up", "--cloud", "2", "--site", "a:2", "--site", "b:1", "--site", "solo:1", "--balancer", "--coredns"];

/// The pools' gateways: of pool a by a selector, of pool b by its name alone. Who is an endpoint of pool a decides the order of its list.
const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: raven-cfg, namespace: kube-system}
data: {enable-l7-proxy: "true", enable-l3-tunnel: "false"}
---
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: tunnel-a}
spec: {type: Edge}
---
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: tunnel-b}
spec: {type: Edge}
---
apiVersion: raven.openyurt.io/v1beta1
kind: Gateway
metadata: {name: cloud}
spec:
  exposeType: LoadBalancer
  proxyConfig: {Replicas: 2, proxyHTTPPort: "9100", proxyHTTPSPort: "10250"}
  tunnelConfig: {Replicas: 0}
  endpoints: [{nodeName: cloud-1, type: proxy}, {nodeName: cloud-2, type: proxy}]
---
apiVersion: raven.openyurt.io/v1beta1
kind: Gateway
metadata: {name: tunnel-a}
spec:
  nodeSelector: {matchLabels: {apps.openyurt.io/nodepool: tunnel-a}}
  proxyConfig: {Replicas: 1}
  tunnelConfig: {Replicas: 0}
  endpoints: [{nodeName: a-1, type: proxy, underNAT: true}, {nodeName: a-2, type: proxy, underNAT: true}]
---
apiVersion: raven.openyurt.io/v1beta1
kind: Gateway
metadata: {name: tunnel-b}
spec:
  proxyConfig: {Replicas: 1}
  tunnelConfig: {Replicas: 0}
  endpoints: [{nodeName: b-1, type: proxy, underNAT: true}]
"#;

/// How the API server comes to kubelets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// By name, which a file of hosts leads to the balancer for edge nodes: it gives each gateway connections in turn, and is there without a kube-proxy.
    Names,
    /// By name as the cluster's own DNS says it, and the address of the gateways' Service: as users have it.
    Dns,
    /// By its `EgressSelector`.
    Egress,
}

/// The way that is there.
static THERE: Mutex<Reach> = Mutex::new(Reach::Names);

impl Reach {
    /// Both that users have with `--long`, the one that is there first: for the other one the API server starts anew. Else by its `EgressSelector`, as most other tests
    /// go by name.
    pub fn both() -> Vec<Self> {
        if long() { Self::in_turn(Self::Dns) } else { vec![Self::Egress] }
    }

    /// Both by the balancer, which by turns has sessions go over each gateway, with `--long`; else by name.
    pub fn both_by_balancer() -> Vec<Self> {
        if long() { Self::in_turn(Self::Names) } else { vec![Self::Names] }
    }

    fn in_turn(by_name: Self) -> Vec<Self> {
        let mut ways = vec![by_name, Self::Egress];
        if Self::there() == Self::Egress {
            ways.reverse();
        }
        ways
    }

    /// The one that is there, for what goes any way.
    pub fn there() -> Self {
        *THERE.lock()
    }

    fn word(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Dns => "dns",
            Self::Egress => "egress",
        }
    }
}

/// The ground, complete.
#[derive(Debug)]
pub struct Ground {
    /// The load balancer's address.
    pub balancer: String,
}

static GROUND_MADE: OnceCell<Ground> = OnceCell::const_new();

/// The ground, with the API server's way to kubelets as it is wanted.
pub async fn ground(reach: Reach) -> Result<&'static Ground> {
    ground_with(reach, &[]).await
}

/// The same, and the API server with further arguments until the next one wants the ground.
pub async fn ground_with(reach: Reach, arguments: &[&str]) -> Result<&'static Ground> {
    let ground = GROUND_MADE.get_or_try_init(make).await?;
    hack_cluster(&[&["reach", reach.word()], arguments].concat()).await?.ok()?;
    *THERE.lock() = reach;
    Ok(ground)
}

async fn make() -> Result<Ground> {
    hack_cluster(&GROUND).await?.ok().context("the tunnel's ground")?;
    let balancer = hack_cluster(&["balancer"]).await?.ok()?.trim().to_owned();
    kubectl_apply(OBJECTS).await?.ok()?;
    for (node, pool) in [("a-1", "tunnel-a"), ("a-2", "tunnel-a"), ("b-1", "tunnel-b")] {
        let label = format!("{}={pool}", api::labels::NODE_POOL);
        kubectl(&["label", "--overwrite", "node", node, &label]).await?.ok()?;
    }
    balance(&json!({ "ip": balancer })).await?;
    let status = hack_cluster(&["status"]).await?.ok()?;
    for node in GATEWAYS.iter().chain(&EDGE) {
        if !has_hub(&status, node) {
            let role = if GATEWAYS.contains(node) { "--gateway" } else { "--tunnel" };
            hack_cluster(&["hub", node, role]).await?.ok().with_context(|| format!("the hub of {node}"))?;
        }
    }
    for gateway in ["tunnel-a", "tunnel-b"] {
        connected(gateway, Duration::from_mins(1)).await?;
    }
    pods().await?;
    Ok(Ground { balancer })
}

/// Whether `hack/cluster status` lists a hub among what runs on a node.
fn has_hub(status: &str, node: &str) -> bool {
    let of_node = status.lines().skip_while(|line| !line.starts_with(&format!("{node} (")));
    of_node.skip(1).take_while(|line| line.starts_with("  ")).any(|line| line.contains("edge-hub"))
}

/// What a cloud's controller does for a Service of type `LoadBalancer`: it says where that is reached, as `{"ip": …}` or `{"hostname": …}`.
pub async fn balance(ingress: &Value) -> Result<()> {
    let label = format!("{}=cloud", api::labels::GATEWAY);
    let find = ["-n", "kube-system", "get", "services", "-l", &label, "-o", "name"];
    eventually("the Service of the cloud's gateway", Duration::from_secs(20), || async {
        let found = kubectl(&find).await?.ok()?;
        let service = found.split_whitespace().next().context("no Service")?.to_owned();
        let status = json!({ "status": { "loadBalancer": { "ingress": [ingress] } } }).to_string();
        let patch =
            ["-n", "kube-system", "patch", &service, "--subresource=status", "--type=merge", "-p", &status];
        kubectl(&patch).await?.ok()
    })
    .await
    .map(drop)
}

/// Waits until the status of a gateway says that it is connected.
pub async fn connected(gateway: &str, within: Duration) -> Result<()> {
    let path = "jsonpath={.status.conditions[?(@.type==\"Connected\")].status}";
    eventually(&format!("Gateway {gateway} connected"), within, || async {
        let said = kubectl(&["get", "gateway", gateway, "-o", path]).await?;
        ensure!(said.stdout == "True", "{said:?}");
        Ok(())
    })
    .await
}

/// The pod of the tests on a node.
pub fn pod(node: &str) -> String {
    format!("on-{node}")
}

/// One on each node: it answers with the node's name, by HTTP and in its log.
async fn pods() -> Result<()> {
    kubectl(&["create", "namespace", NAMESPACE]).await?;
    for node in EDGE.iter().chain(&GATEWAYS) {
        let pod = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {}, namespace: {NAMESPACE}, labels: {{app: on-{node}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
  - name: c
    image: isthmus.dev/busybox:1
    stdin: true
    command: [sh, -c, 'mkdir /www; echo {node} | tee /www/index.html; httpd -p 8080 -h /www; while read line; do echo \"said $line\"; done; exec sleep 2147483647']
",
            pod(node)
        );
        kubectl_apply(&pod).await?.ok()?;
    }
    for node in EDGE.iter().chain(&GATEWAYS) {
        crate::hub::runs(NAMESPACE, &pod(node)).await?;
    }
    Ok(())
}

/// The words of a kubectl in the namespace of the tests.
pub fn in_namespace<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["-n", NAMESPACE], words].concat()
}

/// A command whose output is bytes, and whose exit code counts.
pub async fn output(program: &str, words: &[&str], stdin: &[u8]) -> Result<Output> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let bytes = stdin.to_vec();
    // The other end may stop to read; then there is nothing more to say.
    let write = async move { drop(input.write_all(&bytes).await) };
    let (finished, ()) = tokio::join!(child.wait_with_output(), write);
    Ok(finished?)
}

/// Runs kubectl in the namespace of the tests and gives what it printed, if it succeeded within that time.
pub async fn said(words: &[&str], within: Duration) -> Result<String> {
    let words = in_namespace(words);
    let finished = tokio::time::timeout(within, output("kubectl", &words, b"")).await;
    let finished = finished.with_context(|| format!("kubectl {words:?} took more than {within:?}"))??;
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    if !finished.status.success() {
        bail!("kubectl {words:?}: {text}{}", String::from_utf8_lossy(&finished.stderr));
    }
    Ok(text)
}

/// The same in the background, killed when it is dropped.
pub fn background(words: &[&str]) -> Result<Child> {
    let mut command = Command::new("kubectl");
    command.args(in_namespace(words)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command.kill_on_drop(true).spawn()?)
}

/// The metrics of a node's hub.
pub async fn hub_metrics(node: &str) -> Result<String> {
    hack_cluster(&["exec", node, "--", "curl", "-sfm5", "http://127.0.0.1:10267/metrics"]).await?.ok()
}

/// A port of this machine that leads to a port of a pod.
#[derive(Debug)]
pub struct Forward {
    _kubectl: Child,
    /// The port here.
    pub port: u16,
}

/// How long that may take: fifty forwards that fill what is between them and readers who stand still take all processors meanwhile.
const FORWARDED: Duration = Duration::from_mins(3);

/// `kubectl port-forward`, listening.
pub async fn forward(pod: &str, port: u16) -> Result<Forward> {
    let mut kubectl = background(&["port-forward", pod, &format!(":{port}")])?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("its output")?).lines();
    let line = tokio::time::timeout(FORWARDED, lines.next_line()).await.context("no port")??;
    let line = line.context("kubectl port-forward ended")?;
    let port = line.split_whitespace().nth(2).and_then(|address| address.rsplit(':').next());
    let port = port.with_context(|| line.clone())?.parse()?;
    // It says more for each connection, and must be able to.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(Forward { _kubectl: kubectl, port })
}

/// Asks the kubelet of a node for the log of its pod, and checks that it is that node's.
pub async fn logs(node: &str, within: Duration) -> Result<()> {
    let log = said(&["logs", &pod(node)], within).await?;
    ensure!(log.lines().next() == Some(node), "the log of the pod on {node} begins with {log:?}");
    Ok(())
}

/// Runs a command in the pod of a node, and checks that it is that node's. The API server opens a connection for it; logs come by those
/// that it has kept. Asked by WebSocket, kubectl would try once more by SPDY where it fails.
pub async fn exec(node: &str, within: Duration) -> Result<()> {
    let pod = pod(node);
    let words = in_namespace(&["exec", &pod, "--", "cat", "/www/index.html"]);
    let words = [&["KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "kubectl"], &words[..]].concat();
    let finished = tokio::time::timeout(within, output("env", &words, b"")).await;
    let finished = finished.with_context(|| format!("no answer from {node} within {within:?}"))??;
    let (name, error) =
        (String::from_utf8_lossy(&finished.stdout), String::from_utf8_lossy(&finished.stderr));
    ensure!(finished.status.success() && name.trim() == node, "asked {node}, {name:?} answered: {error}");
    Ok(())
}

/// A limit of time that is a requirement: as it is with `--long`, which has the machine for itself, and twice that beside another cluster on two processors.
pub fn required(limit: Duration) -> Duration {
    if long() { limit } else { limit * 2 }
}

/// Sizes are smaller than those of the tunnel's requirements unless `hack/test --long` runs.
pub fn long() -> bool {
    std::env::var_os("ISTHMUS_LONG").is_some()
}
