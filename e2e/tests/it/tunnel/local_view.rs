//! Gateways and agents go by what they were told: no stream asks the API server, and those who are known are reached while it is away.

// How much was asked is told beside what is asserted.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::cleanup::Cleanup;
use e2e::ground::{
    EDGE, EDGE_GATEWAY, GATEWAYS, ORDINARY, Reach, TWIN, exec, ground, ground_with, hub_metrics, logs,
};
use e2e::{eventually, hack_cluster};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::Value;

use super::gateways::gateways_report;
use super::identity::words_to_kubelet;
use super::outwards::on_host;

const PATIENCE: Duration = Duration::from_secs(20);

/// How the names of the objects begin in which gateways report.
const REPORT: &str = "isthmus-gateway-";

/// What nodes ask the API server for is written down.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:nodes']}
- {level: None}
";

/// What the hubs themselves ask for meanwhile is nothing of nodes and pods, and less than there are streams: what they report, once in a while.
#[tokio::test]
async fn no_stream_asks_the_api_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY)?;
    let arguments =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    ground_with(Reach::Dns, &arguments.each_ref().map(String::as_str)).await?;
    let result = streams_ask_nothing(&log).await;
    // The API server has its log in that folder.
    ground(Reach::Dns).await?;
    result
}

async fn streams_ask_nothing(log: &Path) -> Result<()> {
    gateways_report().await?;
    eventually("the edge is reached", PATIENCE, || logs(EDGE_GATEWAY, PATIENCE)).await?;
    let mut asked = Vec::new();
    // Hubs list again what they watch, after the API server of before has ended, each when it is its turn. What streams ask for would be
    // there each time.
    for _ in 0..5 {
        asked = asked_meanwhile(log).await?;
        if asked.is_empty() {
            return Ok(());
        }
    }
    bail!("with streams the hubs ask for {asked:?}")
}

/// Asks a kubelet for ten seconds, again and again over a connection of its own, and prints how often. Nobody shows credentials, so what counts as
/// an answer is the kubelet's own refusal.
const ASK_AGAIN: &str = r#"asked=0
while ((SECONDS < 10)); do
  said=$("$@" -m 10 -o /dev/null -w '%{http_code}')
  [[ $said == 401 ]] || { echo "$said after $asked"; exit 1; }
  asked=$((asked + 1))
done
echo $asked"#;

/// Opens streams, by the API server and by the Service's own address, where there is time for more. How many requests that were.
async fn open_streams() -> Result<usize> {
    const BY_API_SERVER: usize = 20;
    for node in EDGE.iter().cycle().take(BY_API_SERVER) {
        exec(node, PATIENCE).await?;
    }
    let by_service = EDGE.map(|node| async move {
        let words = words_to_kubelet(node).await?;
        let ask = ["exec", GATEWAYS[1], "--", "bash", "-c", ASK_AGAIN, "ask"];
        let words: Vec<&str> = ask.into_iter().chain(words.iter().map(String::as_str)).collect();
        let said = hack_cluster(&words).await?.ok().with_context(|| format!("the kubelet of {node}"))?;
        said.trim().parse::<usize>().with_context(|| format!("{said:?} of {node}"))
    });
    Ok(BY_API_SERVER + try_join_all(by_service).await?.into_iter().sum::<usize>())
}

/// What hubs ask for of what they route by, while streams are opened; and all that they ask for but for reports and watches, if that is a request
/// for each of them or more.
async fn asked_meanwhile(log: &Path) -> Result<Vec<String>> {
    let (before, began) = (opened().await?, Timestamp::now());
    let streams = open_streams().await?;
    let more = opened().await? - before;
    ensure!(more >= streams, "{more} streams were opened for {streams} requests, each with a connection");
    let (mut asked, mut reports, mut others) = (Vec::new(), 0, BTreeMap::<String, usize>::new());
    for line in std::fs::read_to_string(log)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let at: Timestamp = text(&event["requestReceivedTimestamp"]).parse()?;
        if at < began || !text(&event["userAgent"]).starts_with("edge-hub") {
            continue;
        }
        let (verb, resource) = (text(&event["verb"]), text(&event["objectRef"]["resource"]));
        if resource == "configmaps" && text(&event["objectRef"]["name"]).starts_with(REPORT) {
            reports += 1;
        } else if verb != "watch" {
            *others.entry(format!("{verb} {resource}")).or_default() += 1;
        }
        if ["nodes", "pods", "gateways", "nodepools"].contains(&resource.as_str()) {
            asked.push(format!("{} {verb} {resource}", text(&event["user"]["username"])));
        }
    }
    println!(
        "{more} streams; meanwhile hubs reported {reports} times and asked for {others:?}, of which {asked:?}"
    );
    // That they report shows that the log has what they ask for.
    ensure!(reports > 0, "nothing that hubs report is in the log");
    let asked_in_all: usize = others.values().sum();
    if asked_in_all >= streams {
        asked.push(format!("{others:?} beside {streams} streams"));
    }
    Ok(asked)
}

/// Streams that the gateways have opened since they run.
pub(super) async fn opened() -> Result<usize> {
    let mut all = 0.0;
    for gateway in GATEWAYS {
        let metrics = hub_metrics(gateway).await?;
        let opened = metrics
            .lines()
            .find_map(|line| line.strip_prefix("isthmus_hub_tunnel_streams_total{outcome=\"opened\"} "));
        all += opened.with_context(|| format!("no streams of {gateway}"))?.parse::<f64>()?;
    }
    // A whole number.
    Ok(format!("{all:.0}").parse()?)
}

/// Longer than any Lease or report lasts. From the cloud by the Service's address, and from pool to pool.
#[tokio::test]
async fn known_nodes_are_reached_while_the_api_server_is_away() -> Result<()> {
    const AWAY: Duration = Duration::from_secs(20);
    ground(Reach::there()).await?;
    gateways_report().await?;
    let _served = on_host(TWIN).await?;
    let mut ways = Vec::new();
    for node in EDGE {
        ways.push((node, words_to_kubelet(node).await?));
    }
    let start = Cleanup::hack_cluster(&["start", "kube-apiserver"]);
    hack_cluster(&["stop", "kube-apiserver"]).await?.ok()?;
    tokio::time::sleep(AWAY).await;
    for (node, words) in &ways {
        let ask = ["exec", GATEWAYS[1], "--"].into_iter().chain(words.iter().map(String::as_str));
        let ask: Vec<_> = ask.chain(["-m10", "-o", "/dev/null", "-w", "%{http_code}"]).collect();
        let said = hack_cluster(&ask).await?;
        // The kubelet's own word.
        ensure!(said.stdout == "401", "{node}: {said:?}");
    }
    for node in [EDGE_GATEWAY, ORDINARY] {
        let url = format!("http://{TWIN}:18090/");
        let ask = ["exec", node, "--", "curl", "-sSfm10", "-x", "http://127.0.0.1:10265", &url];
        let said = hack_cluster(&ask).await?.ok().with_context(|| format!("from {node}"))?;
        ensure!(said.trim() == format!("host {TWIN}"), "from {node}: {said:?}");
    }
    drop(start);
    eventually("kubectl works again", Duration::from_mins(1), || logs(EDGE_GATEWAY, PATIENCE)).await
}
