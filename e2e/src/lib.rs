//! What the end-to-end tests need: a running cluster (`hack/cluster`), patience, and the commands that users type.
//!
//! Nothing here is a stand-in: the API server, kubelets, containerd and helm are the real ones.

pub mod cleanup;
pub mod ground;
pub mod hub;
pub mod keyboard;
pub mod pools;
pub mod replicas;
pub mod seed;
pub mod weather;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::Instant;

/// The namespace that the chart is installed in.
pub const SYSTEM: &str = "isthmus-system";

/// The helm release under test.
pub const RELEASE: &str = "isthmus";

/// A client of the cluster that `hack/test` started and installed the chart in.
pub async fn client() -> Result<Client> {
    // Each test asks; the second installation of the same provider is refused, which is as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ensure!(
        std::env::var_os("KUBECONFIG").is_some(),
        "no cluster: run hack/test e2e, or eval \"$(hack/cluster env)\" for one that is up"
    );
    Client::try_default().await.context("cannot reach the cluster")
}

/// The top folder of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// How long a command may take: one that stands still is to fail its test, and not to hold up all that come after it.
const LONGEST: Duration = Duration::from_mins(15);

/// What a command left behind.
#[derive(Debug)]
pub struct Finished {
    /// Whether it exited with 0.
    pub success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Finished {
    /// The output, if the command succeeded.
    pub fn ok(self) -> Result<String> {
        ensure!(self.success, "failed: {}{}", self.stdout, self.stderr);
        Ok(self.stdout)
    }
}

/// Runs a command of this repository or of the cluster's tools to its end, within a quarter of an hour.
pub async fn run<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: &[S],
    stdin: &str,
) -> Result<Finished> {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).current_dir(repository()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", program.as_ref().to_string_lossy()))?;
    let mut input = child.stdin.take().context("no standard input")?;
    let done = async {
        input.write_all(stdin.as_bytes()).await?;
        drop(input);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(LONGEST, done).await.with_context(|| {
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        format!("{} {}: no end within {LONGEST:?}", program.as_ref().to_string_lossy(), words.join(" "))
    })??;
    Ok(Finished {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs kubectl as a user would.
pub async fn kubectl(arguments: &[&str]) -> Result<Finished> {
    run("kubectl", arguments, "").await
}

/// The address of a node within its site.
pub async fn internal_ip(node: &str) -> Result<String> {
    let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    kubectl(&["get", "node", node, "-o", path]).await?.ok()
}

/// Applies a manifest as a user would.
pub async fn kubectl_apply(manifest: &str) -> Result<Finished> {
    run("kubectl", &["apply", "-f", "-"], manifest).await
}

/// Runs `hack/cluster`.
pub async fn hack_cluster(arguments: &[&str]) -> Result<Finished> {
    run(repository().join("hack/cluster"), arguments, "").await
}

/// Tries `attempt` until it gives a value, and says what it saw last if it never does.
pub async fn eventually<T, E, F>(what: &str, within: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, E>>,
    E: Debug,
{
    let deadline = Instant::now() + within;
    let mut last = None;
    loop {
        match (tokio::time::timeout_at(deadline, attempt()).await, last) {
            (Ok(Ok(value)), _) => return Ok(value),
            (Ok(Err(error)), _) if Instant::now() >= deadline => {
                bail!("{what}: not within {within:?}: {error:?}")
            }
            (Ok(Err(error)), _) => last = Some(error),
            (Err(_), Some(error)) => bail!("{what}: not within {within:?}; before the last look: {error:?}"),
            (Err(_), None) => bail!("{what}: no answer within {within:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks that something stays true for a while: `attempt` is an error when it is not.
pub async fn throughout<E, F>(what: &str, period: Duration, mut attempt: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<(), E>>,
    E: Debug,
{
    let end = Instant::now() + period;
    while Instant::now() < end {
        if let Err(error) = attempt().await {
            bail!("{what}: {error:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Makes an empty namespace of that name, with a service account to run pods.
pub async fn fresh_namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.delete(name, &DeleteParams::default()).await.ok();
    eventually("old namespace is gone", Duration::from_mins(1), || async {
        match namespaces.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    namespaces.patch(name, &PatchParams::apply("e2e"), &Patch::Apply(&namespace)).await?;
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(client.clone(), name);
    eventually("service account", Duration::from_secs(20), || async {
        accounts.get("default").await.map(drop)
    })
    .await
}

/// Merges `patch` into a Node.
pub async fn patch_node(client: &Client, name: &str, patch: Value) -> Result<Node> {
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("node {name}"))
}

/// Puts a Node in a pool, or in none.
pub async fn set_pool(client: &Client, node: &str, pool: Option<&str>) -> Result<Node> {
    patch_node(client, node, json!({ "metadata": { "labels": { (api::labels::NODE_POOL): pool } } })).await
}

/// The Node as plain JSON.
pub async fn node(client: &Client, name: &str) -> Result<Value> {
    let node = Api::<Node>::all(client.clone()).get(name).await?;
    Ok(serde_json::to_value(node)?)
}
