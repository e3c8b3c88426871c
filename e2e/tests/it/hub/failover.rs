//! A hub that is given several API servers: one that is not there, and two addresses of the real one, of which that in use becomes a black hole.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::hub::{HubNode, SECURE, token};
use e2e::{client, eventually, fresh_namespace, hack_cluster, kubectl};
use serde_json::{Value, json};
use tokio::io::{BufReader, Lines};
use tokio::process::{Child, ChildStdout};

const NAMESPACE: &str = "e2e-hub-failover";
const NODE: &str = "e2e-failover-1";

/// The second address: the API server's certificate names it, and the node's network leads it there.
const SECOND: &str = "10.96.0.1";
const PORT: &str = "16443";

/// How soon another server is to be in use: a black hole is noticed within 5 s (docs/adr/0017-idle-link.md), and what a busy machine takes.
const MOVED: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_hub_goes_to_another_api_server_and_no_client_notices() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let server = kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let server = server.await?.ok()?;
    let real = server.trim_start_matches("https://");
    let network = real.rsplit_once('.').context("an address")?.0;
    // Nobody has this address.
    let dead = format!("https://{network}.253:6443");
    let second = format!("https://{SECOND}:{PORT}");
    let node = HubNode::fresh(NODE, &[]).await?;
    let to = ["-p", "tcp", "-d", SECOND, "--dport", PORT, "-j", "DNAT", "--to-destination", real];
    node.inside(&[&["iptables", "-w", "-t", "nat", "-I", "OUTPUT"][..], &to].concat()).await?.ok()?;
    let servers = format!("--server-addr={dead},{second}");
    hack_cluster(&["hub", NODE, "--hub-option", &servers]).await?.ok()?;

    // The first is not there, the next is in use, and nobody asks the last.
    eventually("the second API server is in use", Duration::from_secs(20), || async {
        let states = states(&node).await?;
        ensure!(states == ["failed", "connected", "untried"], "{states:?}");
        Ok(())
    })
    .await?;
    let shown = node.inside(&["edge-hub", "status"]).await?.ok()?;
    let line = |server: &str, state: &str| {
        let mut lines = shown.lines().filter(|line| line.trim_start().starts_with(server));
        ensure!(lines.any(|line| line.contains(state)), "{server} is not {state}: {shown}");
        Ok(())
    };
    line(&dead, "FAILED")?;
    line(&second, "connected")?;
    line(&server, "not tried")?;
    println!("{}", shown.lines().take(5).collect::<Vec<_>>().join("\n"));

    let reader = token(NAMESPACE, "reader", "view").await?;
    kubectl(&["-n", NAMESPACE, "create", "configmap", "counted"]).await?.ok()?;
    kubectl(&["-n", NAMESPACE, "create", "service", "clusterip", "counted", "--tcp=80"]).await?.ok()?;
    let watched = ["services/counted", "configmaps/counted", "serviceaccounts/default"];
    let mut clients = Vec::new();
    for object in watched {
        clients.push(Client::watch(&node, &reader, object).await?);
    }
    let mut number = 0;
    change(&watched, &mut number, 3).await?;

    // Only what goes by the second address is lost, in both directions and in silence.
    for chain in ["OUTPUT", "INPUT"] {
        let original = ["-p", "tcp", "-m", "conntrack", "--ctorigdst", SECOND, "--ctorigdstport", PORT];
        let drop = [&["iptables", "-w", "-I", chain][..], &original, &["-j", "DROP"]].concat();
        node.inside(&drop).await?.ok()?;
    }
    let cut = Instant::now();
    let moves = eventually("the hub moves", MOVED, || async {
        let states = states(&node).await?;
        ensure!(states[2] == "connected", "{states:?}");
        Ok(cut.elapsed())
    });
    let (after, changed) = tokio::join!(moves, change(&watched, &mut number, 3));
    changed?;
    println!("another API server is in use after {:.1} s", after?.as_secs_f64());
    change(&watched, &mut number, 3).await?;
    for client in &mut clients {
        client.hears_all(number).await?;
    }
    println!("nothing was missed {:.1} s after the first server went silent", cut.elapsed().as_secs_f64());
    let states = states(&node).await?;
    ensure!(states == ["failed", "failed", "connected"], "{states:?}");
    let services = node.kubectl(&reader, &["-n", NAMESPACE, "get", "services", "-o", "name"]).await?;
    ensure!(services.success && !services.stderr.contains("no link"), "{services:?}");
    node.leave().await
}

/// How each server is, in their order.
async fn states(node: &HubNode) -> Result<Vec<String>> {
    let status = node.status().await?;
    let servers = status["link"]["servers"].as_array().context("servers")?.iter();
    servers.map(|server| Ok(server["state"].as_str().context("state")?.to_owned())).collect()
}

/// Counts on, in all objects.
async fn change(objects: &[&str], number: &mut u64, times: u64) -> Result<()> {
    for _ in 0..times {
        *number += 1;
        let patch = json!({ "metadata": { "annotations": { "e2e": number.to_string() } } }).to_string();
        for object in objects {
            kubectl(&["-n", NAMESPACE, "patch", object, "--type=merge", "-p", &patch]).await?.ok()?;
        }
    }
    Ok(())
}

/// A watch of one object through the hub, and the numbers that it was told.
struct Client {
    object: String,
    lines: Lines<BufReader<ChildStdout>>,
    _curl: Child,
    heard: Vec<u64>,
}

impl Client {
    async fn watch(node: &HubNode, token: &str, object: &str) -> Result<Self> {
        let (resource, name) = object.split_once('/').context("an object")?;
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/{resource}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D{name}"
        );
        let (curl, lines) = node.watch(SECURE, Some(token), &path)?;
        let mut client = Self { object: object.to_owned(), lines, _curl: curl, heard: Vec::new() };
        let first = tokio::time::timeout(Duration::from_secs(20), client.event()).await;
        ensure!(first.context("the first event")?? == 0, "{object} was changed before");
        Ok(client)
    }

    /// The number of the next event; an end, and whatever is no event of the object, is an error.
    async fn event(&mut self) -> Result<u64> {
        let line = self.lines.next_line().await?;
        let line = line.with_context(|| format!("the watch of {} ended", self.object))?;
        let event: Value = serde_json::from_str(&line)?;
        if event["type"] != "ADDED" && event["type"] != "MODIFIED" {
            bail!("{}: {event}", self.object);
        }
        let number = &event["object"]["metadata"]["annotations"]["e2e"];
        Ok(number.as_str().map(str::parse).transpose()?.unwrap_or_default())
    }

    /// Every number up to that one is told, each once, in their order.
    async fn hears_all(&mut self, last: u64) -> Result<()> {
        while self.heard.last() != Some(&last) {
            let event = tokio::time::timeout(Duration::from_secs(30), self.event()).await;
            let event = event.with_context(|| format!("{} after {:?}", self.object, self.heard))??;
            self.heard.push(event);
        }
        ensure!(self.heard == (1..=last).collect::<Vec<_>>(), "{}: {:?}", self.object, self.heard);
        Ok(())
    }
}
