//! A stock kubectl shows the same through the hub as straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::hub::{HubNode, SECURE, runs, token};
use e2e::{client, eventually, fresh_namespace, kubectl, kubectl_apply, run};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

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
    &["get", "things", "-A"],
    &["get", "things", "-A", "-o", "wide"],
    &["get", "thing", "-n", NAMESPACE, "one", "-o", "yaml"],
    &["get", "thing", "-n", NAMESPACE, "one", "-o", "jsonpath={.spec.size}"],
    &["describe", "thing", "-n", NAMESPACE, "one"],
    &["explain", "thing.spec.size"],
    &["auth", "whoami"],
    &["auth", "can-i", "delete", "nodes"],
    &["version"],
];

/// What is watched, and must be told in the same lines.
const WATCHES: &[&[&str]] = &[
    &["things"],
    &["things", "-o", "wide", "--output-watch-events"],
    &["thing", "one", "-o", "yaml"],
    &["services", "--output-watch-events"],
    &["services", "-o", "jsonpath={.metadata.name} {.spec.ports[0].port}{\"\\n\"}"],
];

/// A size, and a port, that nothing has before the last change.
const LAST: u16 = 12345;

/// How long a busy machine may take to tell of something.
const TOLD: Duration = Duration::from_secs(30);

/// A kind with columns and words of its own.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.e2e.isthmus.dev}
spec:
  group: e2e.isthmus.dev
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large it is.}
              colour: {type: string}
";

/// A Thing of that size.
fn thing(size: u16) -> String {
    format!(
        "{{apiVersion: e2e.isthmus.dev/v1, kind: Thing, metadata: {{name: one, namespace: {NAMESPACE}}}, spec: {{size: {size}, colour: red}}}}"
    )
}

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

    kubectl_apply(DEFINITION).await?.ok()?;
    kubectl(&["wait", "crd/things.e2e.isthmus.dev", "--for=condition=Established", "--timeout=30s"])
        .await?
        .ok()?;
    kubectl_apply(&thing(1)).await?.ok()?;

    for words in COMMANDS {
        eventually(&format!("kubectl {}", words.join(" ")), Duration::from_secs(20), || async {
            let (through, direct) = tokio::join!(node.kubectl(&admin, words), straight(&node, &admin, words));
            let (through, direct) = (through?, direct?);
            ensure!(
                (through.success, plain(words, &through.stdout), plain(words, &through.stderr))
                    == (direct.success, plain(words, &direct.stdout), plain(words, &direct.stderr)),
                "\nthrough the hub: {through:?}\ndirect: {direct:?}"
            );
            Ok(())
        })
        .await?;
    }
    println!("{} commands show the same", COMMANDS.len());

    would_write_the_same(&node, &admin).await?;
    copies(&node, &admin).await?;
    forwards(&node, &admin).await?;
    watches_tell_the_same(&node, &admin).await?;

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
    kubectl(&["delete", "crd", "things.e2e.isthmus.dev"]).await?.ok()?;
    node.leave().await
}

async fn straight(node: &HubNode, token: &str, words: &[&str]) -> Result<e2e::Finished> {
    straight_with(node, token, words, "").await
}

async fn straight_with(node: &HubNode, token: &str, words: &[&str], stdin: &str) -> Result<e2e::Finished> {
    let kubectl = node.kubectl_words(&node.api_server, token);
    run("kubectl", &[&kubectl[1..], words].concat(), stdin).await
}

/// What a write would do is told the same, and nothing is written.
async fn would_write_the_same(node: &HubNode, token: &str) -> Result<()> {
    for (words, size) in [
        (&["apply", "--dry-run=server", "-o", "yaml", "-f", "-"][..], 2),
        (&["apply", "--dry-run=server", "--server-side", "-f", "-"], 1),
        (&["diff", "-f", "-"], 2),
        (&["diff", "-f", "-"], 1),
        (&["diff", "--server-side", "-f", "-"], 3),
    ] {
        let thing = thing(size);
        let (through, direct) =
            tokio::join!(node.kubectl_with(token, words, &thing), straight_with(node, token, words, &thing));
        let (through, direct) = (through?, direct?);
        let said =
            |finished: &e2e::Finished| (finished.success, unnamed(&finished.stdout), finished.stderr.clone());
        ensure!(
            said(&through) == said(&direct),
            "kubectl {words:?}\nthrough the hub: {through:?}\ndirect: {direct:?}"
        );
        ensure!(through.success != (words[0] == "diff" && size != 1), "kubectl {words:?}: {through:?}");
    }
    let size = ["get", "thing", "-n", NAMESPACE, "one", "-o", "jsonpath={.spec.size}"];
    let size = kubectl(&size).await?;
    ensure!(size.stdout == "1", "a dry run wrote: {size:?}");
    Ok(())
}

/// Without the names of the files that kubectl compares, and when they were written.
fn unnamed(text: &str) -> String {
    let named = |line: &&str| ["diff ", "--- ", "+++ "].iter().any(|head| line.starts_with(head));
    let lines: Vec<&str> = text.lines().filter(|line| !named(line) && !line.contains("time: ")).collect();
    lines.join("\n")
}

fn content() -> Vec<u8> {
    (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect()
}

/// A file there through the hub, and back either way.
async fn copies(node: &HubNode, token: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("sent"), content())?;
    let there = format!("{NAMESPACE}/talker:/tmp/copied");
    node.kubectl(token, &["cp", &file("sent"), &there]).await?.ok()?;
    node.kubectl(token, &["cp", &there, &file("through")]).await?.ok()?;
    straight(node, token, &["cp", &there, &file("direct")]).await?.ok()?;
    for name in ["through", "direct"] {
        ensure!(std::fs::read(file(name))? == content(), "{name}: another file came back");
    }
    Ok(())
}

/// The file that [`copies`] left in the pod comes by a port of the node that leads to one of the pod: over one connection, more than once.
async fn forwards(node: &HubNode, token: &str) -> Result<()> {
    let in_namespace = |words: &[&'static str]| [&["-n", NAMESPACE], words].concat();
    let serve = in_namespace(&["exec", "talker", "--", "httpd", "-p", "8080", "-h", "/tmp"]);
    node.kubectl(token, &serve).await?.ok()?;
    let words = in_namespace(&["port-forward", "pod/talker", ":8080"]);
    let mut forward = node.start(&[node.kubectl_words(SECURE, token), words].concat())?;
    let mut lines = BufReader::new(forward.stdout.take().context("stdout")?).lines();
    let line = tokio::time::timeout(TOLD, lines.next_line()).await.context("no port")??;
    let line = line.context("kubectl port-forward ended")?;
    let port = line.split_whitespace().nth(2).and_then(|address| address.rsplit(':').next());
    let url = format!("http://127.0.0.1:{}/copied", port.with_context(|| line.clone())?);
    let folder = tempfile::tempdir()?;
    for name in ["first", "second"] {
        let file = folder.path().join(name);
        node.inside(&["curl", "-sfm20", "-o", file.to_str().context("a path")?, &url]).await?.ok()?;
        ensure!(std::fs::read(file)? == content(), "{name}: another file came back");
    }
    Ok(())
}

/// `kubectl get -w` prints the same both ways while the same is changed: what is there, each change of it, and what comes and goes.
async fn watches_tell_the_same(node: &HubNode, token: &str) -> Result<()> {
    let mut watches = Vec::new();
    for words in WATCHES {
        let words = [&["-n", NAMESPACE, "get", "-w"], *words].concat();
        let open = |server| Printed::by(node, &[node.kubectl_words(server, token), words.clone()].concat());
        watches.push((words.join(" "), open(SECURE)?, open(&node.api_server)?));
    }
    // What they list comes first; they miss nothing after it.
    eventually("all print something", TOLD, || async {
        let silent = watches.iter().find(|(_, hub, direct)| hub.is_empty() || direct.is_empty());
        ensure!(silent.is_none(), "{silent:?}");
        Ok(())
    })
    .await?;
    for size in [2, 3, LAST] {
        kubectl_apply(&thing(size)).await?.ok()?;
        let (name, port) = (format!("seen-{size}"), format!("--tcp={size}"));
        let service = async |words: &[&str]| kubectl(&[&["-n", NAMESPACE], words].concat()).await?.ok();
        service(&["create", "service", "clusterip", &name, &port]).await?;
        service(&["label", "service", &name, "e2e=seen"]).await?;
        service(&["delete", "service", &name]).await?;
    }
    for (words, hub, direct) in &watches {
        eventually(&format!("kubectl {words} prints the same"), TOLD, || async {
            let (hub, direct) = (hub.lines(), direct.lines());
            let whole = hub.iter().any(|line| line.contains(&LAST.to_string()));
            ensure!(whole && hub == direct, "\nthrough the hub: {hub:#?}\ndirect: {direct:#?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// What a command prints as time goes by, without ages.
#[derive(Debug)]
struct Printed {
    lines: Arc<Mutex<Vec<String>>>,
    _command: Child,
}

impl Printed {
    fn by(node: &HubNode, words: &[&str]) -> Result<Self> {
        let mut command = node.start(words)?;
        let mut out = BufReader::new(command.stdout.take().context("stdout")?).lines();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let written = lines.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = out.next_line().await {
                let words = line.split_whitespace().map(|word| if is_age(word) { "#" } else { word });
                written.lock().push(words.collect::<Vec<_>>().join(" "));
            }
        });
        Ok(Self { lines, _command: command })
    }

    fn is_empty(&self) -> bool {
        self.lines.lock().is_empty()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// Without what is another at each call: the version of a list, and ages where kubectl writes for people. Widths of columns stay.
fn plain(words: &[&str], text: &str) -> String {
    if let Ok(mut list) = serde_json::from_str::<Value>(text)
        && list["items"].is_array()
    {
        list["metadata"]["resourceVersion"] = Value::Null;
        return list.to_string();
    }
    if words.iter().any(|word| ["yaml", "json", "--raw", "explain"].contains(word)) {
        return text.to_owned();
    }
    let hidden = |word: &str| if is_age(word) { "#".repeat(word.len()) } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(hidden).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// `5s`, `3m27s`, `2d`.
fn is_age(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}
