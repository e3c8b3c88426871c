//! A node that reaches the API server through `edge-hub` only, and what callers on it see.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::cleanup::Cleanup;
use crate::{Finished, eventually, hack_cluster, kubectl, kubectl_apply, repository, run};

/// The hub as pods with host network see it.
pub const SECURE: &str = "https://127.0.0.1:10268";

/// The hub as the kubelet sees it.
pub const LOOPBACK: &str = "http://127.0.0.1:10261";

/// What the chart gives to the hubs of nodes (`templates/edge-hub.yaml`), for clusters without the chart.
const ACCESS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-edge-hub}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [apps.openyurt.io], resources: [nodepools], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-edge-hub}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-edge-hub}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-edge-hub-token-keys}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:service-account-issuer-discovery'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'}]
";

/// A node of the running cluster whose kubelet has no other way than the hub.
#[derive(Debug)]
pub struct HubNode {
    /// Its name.
    pub name: &'static str,
    /// The file of its network namespace.
    pub network: PathBuf,
    /// The file of the cluster's authority.
    pub authority: PathBuf,
    /// The API server.
    pub api_server: String,
    /// What kubectl keeps of whom it asked; another test's hub is at the same address.
    cache: tempfile::TempDir,
    /// Takes the node away, if the test does not.
    left: Cleanup,
}

/// What the hub, or the API server, answered to a plain request.
#[derive(Debug)]
pub struct Reply {
    /// The status; 0 if there is no answer.
    pub status: u16,
    /// The header `Warning`.
    pub warning: Option<String>,
    /// The body.
    pub body: String,
}

impl Reply {
    /// Whether it says that there was no link.
    pub fn is_stale(&self) -> bool {
        self.warning.as_deref().unwrap_or_default().contains("no link")
    }
}

impl HubNode {
    /// A node of that name, made anew, with `labels`; it is ready.
    pub async fn fresh(name: &'static str, labels: &[&str]) -> Result<Self> {
        kubectl_apply(ACCESS).await?.ok()?;
        Self::joined(name, &["--hub"], labels).await
    }

    /// The same, whose hub has further options.
    pub async fn with_options(name: &'static str, options: &[&str]) -> Result<Self> {
        kubectl_apply(ACCESS).await?.ok()?;
        let options = options.iter().flat_map(|option| ["--hub-option", option]);
        Self::joined(name, &["--hub"].into_iter().chain(options).collect::<Vec<_>>(), &[]).await
    }

    /// The same, whose hub has nothing to begin with but a bootstrap token in a file and the authority's digest.
    pub async fn with_token(name: &'static str, token: &str) -> Result<Self> {
        Self::joined(name, &["--hub-token", token], &[]).await
    }

    /// The same without a hub, for who brings it one.
    pub async fn without_hub(name: &'static str) -> Result<Self> {
        kubectl_apply(ACCESS).await?.ok()?;
        Self::joined(name, &[], &[]).await
    }

    async fn joined(name: &'static str, hub: &[&str], labels: &[&str]) -> Result<Self> {
        hack_cluster(&["leave", name]).await?.ok()?;
        let left = Cleanup::hack_cluster(&["leave", name]);
        let mut words = vec!["join", name, "--edge", "--site", "9"];
        words.extend(hub);
        words.extend(labels.iter().flat_map(|label| ["--label", label]));
        hack_cluster(&words).await?.ok().context("join with a hub")?;
        let path = async |what| hack_cluster(&["path", name, what]).await?.ok();
        let server = "jsonpath={.clusters[0].cluster.server}";
        Ok(Self {
            name,
            network: path("netns").await?.trim().into(),
            authority: path("hub-ca").await?.trim().into(),
            api_server: kubectl(&["config", "view", "--minify", "-o", server]).await?.ok()?,
            cache: tempfile::tempdir()?,
            left,
        })
    }

    /// Takes the node away.
    pub async fn leave(self) -> Result<()> {
        let Self { name, left, network: _, authority: _, api_server: _, cache: _ } = self;
        hack_cluster(&["leave", name]).await?.ok()?;
        left.forget();
        Ok(())
    }

    fn words<'a>(&self, words: &[&'a str]) -> Vec<String> {
        let mut all = vec![format!("--net={}", self.network.display())];
        all.extend(words.iter().map(|word: &&'a str| (*word).to_owned()));
        all
    }

    /// Runs a command in the node's network, with this machine's files.
    pub async fn inside(&self, words: &[&str]) -> Result<Finished> {
        run("nsenter", &self.words(words), "").await
    }

    /// The same, in the background.
    pub fn start(&self, words: &[&str]) -> Result<Child> {
        let mut command = Command::new("nsenter");
        command.args(self.words(words)).kill_on_drop(true);
        Ok(command.stdout(std::process::Stdio::piped()).spawn()?)
    }

    /// The words of a kubectl that is the owner of `token` and has no other credential.
    pub fn kubectl_words<'a>(&'a self, server: &'a str, token: &'a str) -> Vec<&'a str> {
        let authority = self.authority.to_str().unwrap_or_default();
        vec![
            "kubectl",
            "--kubeconfig=/dev/null",
            "--cache-dir",
            self.cache.path().to_str().unwrap_or_default(),
            "--server",
            server,
            "--certificate-authority",
            authority,
            "--token",
            token,
        ]
    }

    /// Runs kubectl on the node, through the hub.
    pub async fn kubectl(&self, token: &str, words: &[&str]) -> Result<Finished> {
        self.kubectl_with(token, words, "").await
    }

    /// The same with something to read.
    pub async fn kubectl_with(&self, token: &str, words: &[&str], stdin: &str) -> Result<Finished> {
        run("nsenter", &self.words(&[&self.kubectl_words(SECURE, token), words].concat()), stdin).await
    }

    /// Takes the power of the node's machine away and gives it back; when its first process started.
    pub async fn reboot(&self) -> Result<Instant> {
        let told = hack_cluster(&["reboot", self.name]).await?.ok()?;
        let start =
            told.lines().find_map(|line| line.split_once(" starts at ")).context("when it started")?.1;
        let start = UNIX_EPOCH + Duration::from_secs_f64(start.parse()?);
        Instant::now()
            .checked_sub(SystemTime::now().duration_since(start)?)
            .context("before the machine's start")
    }

    /// Asks the hub, with a token or without any credential, and waits no longer than three seconds.
    pub async fn get(&self, server: &str, token: Option<&str>, path: &str) -> Result<Reply> {
        let words = curl(&["-m3", "-w", "\n%{http_code} %header{warning}"], server, token, path);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let out = self.inside(&words).await?.stdout;
        let (body, tail) = out.rsplit_once('\n').with_context(|| format!("curl printed {out:?}"))?;
        let (status, warning) = tail.split_once(' ').context("the last line of curl")?;
        let warning = (!warning.is_empty()).then(|| warning.to_owned());
        Ok(Reply { status: status.parse()?, warning, body: body.to_owned() })
    }

    /// Opens a watch through the hub in the same way: what runs it, and its lines.
    pub fn watch(
        &self,
        server: &str,
        token: Option<&str>,
        path: &str,
    ) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
        let words = curl(&["-N"], server, token, path);
        let mut running = self.start(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let lines = BufReader::new(running.stdout.take().context("stdout")?).lines();
        Ok((running, lines))
    }

    /// What the hub says of itself.
    pub async fn status(&self) -> Result<Value> {
        let text = self.inside(&["curl", "-sm5", "http://127.0.0.1:10267/v1/status"]).await?.ok()?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Gives the hub the serving certificate that pods need, with the very commands of the documentation, and waits until it sends pods to itself.
    pub async fn certified_for_pods(&self) -> Result<Cleanup> {
        let text = std::fs::read_to_string(repository().join("docs/edge-hub.md"))?;
        let commands = text.split("\n```\n").find(|block| block.starts_with("NODE=shop-1\n"));
        let commands = commands.context("the commands that issue a serving certificate")?;
        let (request, fetch) = commands.rsplit_once("kubectl get csr ").context("the one that fetches it")?;
        let head = format!("set -euo pipefail\nNODE={}\n", self.name);
        let request = format!("{head}{}", request.trim_start_matches("NODE=shop-1\n"));
        let fetch = format!("{head}kubectl get csr {fetch}");
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let within = path("");
        let cd = format!("cd {}\n", within.display());
        let cleanup =
            Cleanup::kubectl(&["delete", "csr", &format!("{}-hub-serving", self.name), "--ignore-not-found"]);
        run("bash", &["-c", &format!("{cd}{request}")], "").await?.ok().context("the documented request")?;
        eventually("a signed certificate", Duration::from_secs(20), || async {
            run("bash", &["-c", &format!("{cd}{fetch}")], "").await?.ok()?;
            ensure!(std::fs::metadata(path("serving.crt"))?.len() > 0, "it is not signed yet");
            Ok(())
        })
        .await?;
        for (from, to) in [("serving.key", "edge-hub.key"), ("serving.crt", "edge-hub.crt")] {
            std::fs::copy(path(from), self.keys()?.join(to))?;
        }
        // The hub looks at the files each ten seconds.
        eventually("the filters send pods to the hub", Duration::from_secs(20), || async {
            let idle = self.status().await?["idleFilters"].clone();
            ensure!(idle.is_null(), "{idle}");
            Ok(())
        })
        .await?;
        Ok(cleanup)
    }

    /// Makes the link to the API server a black hole, or heals it.
    pub async fn black_hole(&self, on: bool) -> Result<()> {
        let address = self.api_server.trim_start_matches("https://");
        let address = address.split(':').next().unwrap_or(address);
        let change = if on { "-I" } else { "-D" };
        // Before address translation decides where packets to 10.96.0.1 go, nothing is cut: after it, all is.
        for chain in ["OUTPUT", "FORWARD"] {
            self.inside(&["iptables", "-w", change, chain, "-d", address, "-j", "DROP"]).await?.ok()?;
        }
        Ok(())
    }

    /// `hack/cluster VERB COMPONENT` of this node.
    pub async fn daemon(&self, verb: &str, component: &str) -> Result<()> {
        hack_cluster(&[verb, component, self.name]).await?.ok().map(drop)
    }

    /// When the hub's process was started.
    pub fn hub_started(&self) -> Result<SystemTime> {
        let state = self.authority.ancestors().nth(2).context("the cluster's folder")?;
        Ok(std::fs::metadata(state.join(format!("run/{}.edge-hub.pid", self.name)))?.modified()?)
    }

    /// The containers of a pod that run, by their ids, as containerd knows them.
    pub async fn running(&self, pod: &str) -> Result<Vec<String>> {
        let containerd = ["exec", self.name, "--", "ctr", "-n", "k8s.io"];
        let ours =
            format!("labels.\"io.kubernetes.pod.name\"=={pod},labels.\"io.cri-containerd.kind\"==container");
        let ids =
            hack_cluster(&[&containerd[..], &["containers", "ls", "-q", &ours]].concat()).await?.ok()?;
        let tasks = hack_cluster(&[&containerd[..], &["tasks", "ls"]].concat()).await?.ok()?;
        let runs = |id: &&str| {
            tasks.lines().any(|line| line.starts_with(*id) && line.trim_end().ends_with("RUNNING"))
        };
        Ok(ids.split_whitespace().filter(runs).map(str::to_owned).collect())
    }

    /// Runs a script in the container of a pod, for three seconds at most.
    pub async fn within(&self, pod: &str, script: &str) -> Result<Finished> {
        self.within_seconds(3, pod, script).await
    }

    /// The same, for so many.
    pub async fn within_seconds(&self, seconds: u8, pod: &str, script: &str) -> Result<Finished> {
        // One that was ended after its time keeps its name in the container.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let running = self.running(pod).await?;
        let container = running.first().with_context(|| format!("{pod} does not run"))?;
        let id = format!("e2e-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let seconds = seconds.to_string();
        let containerd = ["exec", self.name, "--", "timeout", &seconds, "ctr", "-n", "k8s.io"];
        let exec = ["tasks", "exec", "--exec-id", &id, container, "sh", "-c", script];
        hack_cluster(&[&containerd[..], &exec].concat()).await
    }

    /// Runs a command in the network of a pod, with this machine's files.
    pub async fn in_network_of(&self, pod: &str, words: &[&str]) -> Result<Finished> {
        let running = self.running(pod).await?;
        let container = running.first().with_context(|| format!("{pod} does not run"))?;
        let tasks =
            hack_cluster(&["exec", self.name, "--", "ctr", "-n", "k8s.io", "tasks", "ls"]).await?.ok()?;
        let task = tasks.lines().find(|line| line.starts_with(container)).context("its task")?;
        let process = task.split_whitespace().nth(1).context("its process")?;
        run("nsenter", &[&["--target", process, "--net"], words].concat(), "").await
    }

    /// Where the files of its keys and certificates are.
    pub fn keys(&self) -> Result<PathBuf> {
        let state = self.authority.ancestors().nth(2).context("the cluster's folder")?;
        Ok(state.join(format!("nodes/{}/pki", self.name)))
    }

    /// Kills the process of a container.
    pub async fn kill(&self, container: &str) -> Result<()> {
        let words =
            ["exec", self.name, "--", "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "KILL", container];
        hack_cluster(&words).await?.ok().map(drop)
    }
}

/// The words of a request with these options. The API server and the hub write JSON for people to a user agent that they take for one.
fn curl(options: &[&str], server: &str, token: Option<&str>, path: &str) -> Vec<String> {
    let bearer = token.map(|token| ["-H".to_owned(), format!("Authorization: Bearer {token}")]);
    let words = ["curl", "-sk", "-A", "e2e"].iter().chain(options).map(|&word| word.to_owned());
    words.chain(bearer.into_iter().flatten()).chain([format!("{server}{path}")]).collect()
}

/// A token of a service account that may do what `role` allows everywhere.
pub async fn token(namespace: &str, account: &str, role: &str) -> Result<String> {
    let subject = format!("--serviceaccount={namespace}:{account}");
    let binding = format!("{namespace}-{account}");
    kubectl(&["-n", namespace, "create", "serviceaccount", account]).await.ok();
    kubectl(&["delete", "clusterrolebinding", &binding, "--ignore-not-found"]).await?.ok()?;
    let role = format!("--clusterrole={role}");
    kubectl(&["create", "clusterrolebinding", &binding, &role, &subject]).await?.ok()?;
    let token = kubectl(&["-n", namespace, "create", "token", account, "--duration=2h"]).await?.ok()?;
    Ok(token.trim().to_owned())
}

/// Waits until a pod runs.
pub async fn runs(namespace: &str, pod: &str) -> Result<()> {
    eventually(&format!("pod {pod} runs"), Duration::from_mins(1), || async {
        let phase = kubectl(&["-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.phase}"]).await?;
        ensure!(phase.stdout == "Running", "{phase:?}");
        Ok(())
    })
    .await
}
