//! A stock kubectl shows the same through the hub as straight from the API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, SECURE, runs, token};
use e2e::{client, eventually, fresh_namespace, kubectl, run};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::waiting_pod;

const NAMESPACE: &str = "e2e-hub-same";

/// Commands whose output must be the same, word for word.
const COMMANDS: &[&[&str]] = &[
    &["get", "pods", "-A", "-o", "wide"],
    &["get", "pods", "-A", "-o", "yaml"],
    &["get", "pods", "-A", "-o", "json"],
    &["get", "services", "-A"],
    &["get", "services", "-A", "-o", "wide"],
    &["get", "services", "-A", "-o", "yaml"],
    &["get", "services", "-A", "-o", "json"],
    &["get", "services", "-A", "-l", "app=mine", "-o", "name"],
    &["get", "services", "-A", "--chunk-size=1", "-o", "name"],
    &["get", "endpointslices", "-A", "-o", "wide"],
    &["get", "endpointslices", "-A", "-o", "yaml"],
    &["get", "endpointslices", "-A", "-o", "json"],
    &["get", "service", "-n", NAMESPACE, "mine", "-o", "yaml"],
    &["get", "service", "-n", NAMESPACE, "mine", "-o", "yaml", "--show-managed-fields"],
    &["get", "service", "-n", NAMESPACE, "missing"],
    &["get", "events", "-n", NAMESPACE, "-o", "name"],
    &["get", "all", "-n", NAMESPACE],
    &["get", "nothing.example.com"],
    &["get", "--raw", "/api/v1/services"],
    &["get", "--raw", "/version"],
    &["describe", "services", "-A"],
    &["describe", "pod", "-n", NAMESPACE, "talker"],
    &["describe", "endpointslices", "-n", NAMESPACE],
    &["logs", "-n", NAMESPACE, "talker"],
    &["exec", "-n", NAMESPACE, "talker", "--", "sh", "-c", "echo out; echo err >&2; exit 3"],
    &["api-resources", "--sort-by=name"],
    &["explain", "service.spec.ports"],
    &["auth", "whoami"],
    &["auth", "can-i", "delete", "nodes"],
    &["version"],
];

#[tokio::test]
async fn kubectl_shows_the_same_through_the_hub() -> Result<()> {
    let client = client().await?;
    fresh_namespace(&client, NAMESPACE).await?;
    let node = HubNode::fresh("e2e-same-1", &[]).await?;
    let admin = token(NAMESPACE, "admin", "cluster-admin").await?;
    // Nothing reaches the kubelets of edge nodes, with or without a hub.
    waiting_pod(NAMESPACE, "talker", "cloud-1").await?;
    runs(NAMESPACE, "talker").await?;
    kubectl(&["-n", NAMESPACE, "create", "service", "clusterip", "mine", "--tcp=80:80"]).await?.ok()?;

    for words in COMMANDS {
        eventually(&format!("kubectl {}", words.join(" ")), Duration::from_secs(20), || async {
            let (through, direct) = tokio::join!(node.kubectl(&admin, words), straight(&node, &admin, words));
            let (through, direct) = (through?, direct?);
            ensure!(
                (through.success, plain(&through.stdout), plain(&through.stderr))
                    == (direct.success, plain(&direct.stdout), plain(&direct.stderr)),
                "\nthrough the hub: {through:?}\ndirect: {direct:?}"
            );
            Ok(())
        })
        .await?;
    }
    println!("{} commands show the same", COMMANDS.len());

    // Writes pass, and are seen by whoever watches through the hub.
    let words = ["-n", NAMESPACE, "get", "services", "-w", "--no-headers"];
    let mut watch = node.start(&[&node.kubectl_words(SECURE, &admin), &words[..]].concat())?;
    let mut lines = BufReader::new(watch.stdout.take().context("stdout")?).lines();
    let manifest = |port| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: seen-{port}, namespace: {NAMESPACE}}}, spec: {{ports: [{{port: {port}}}]}}}}"
        )
    };
    for (server_side, port) in [("", 81), ("", 82), ("--server-side", 83)] {
        let words = ["apply", server_side, "--force-conflicts", "-f", "-"];
        let words = if server_side == "--server-side" { &words[..] } else { &["apply", "-f", "-"] };
        node.kubectl_with(&admin, words, &manifest(port)).await?.ok()?;
        let shown = format!(" {port}/TCP");
        while !lines.next_line().await?.context("the watch ended")?.contains(&shown) {}
    }
    let made = node.kubectl(&admin, &["-n", NAMESPACE, "create", "token", "default"]).await?.ok()?;
    ensure!(made.trim().split('.').count() == 3, "no token: {made}");
    node.kubectl(&admin, &["-n", NAMESPACE, "delete", "service", "seen-81"]).await?.ok()?;
    node.leave().await
}

async fn straight(node: &HubNode, token: &str, words: &[&str]) -> Result<e2e::Finished> {
    let kubectl = node.kubectl_words(&node.api_server, token);
    run("kubectl", &[&kubectl[1..], words].concat(), "").await
}

/// Without what is another at each call: ages, and versions of lists.
fn plain(text: &str) -> String {
    let line = |line: &str| {
        let words = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).filter(|line| !line.contains("resourceVersion")).collect::<Vec<_>>().join("\n")
}

/// `5s`, `3m27s`, `2d`.
fn is_age(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}
