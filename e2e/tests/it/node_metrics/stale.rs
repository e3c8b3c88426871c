//! What a leader that stood still does when it goes on, while another leads: its watches end, it tells nothing that is older than what was
//! told meanwhile, takes no report, and no write that the leader does not have.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::hub::token;
use e2e::{SYSTEM, eventually, hack_cluster, kubectl_apply, replicas, run};
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::callers::{METRICS, port};
use super::ground::{Ground, Replica};
use super::writes::{WRITER, WRITER_NAME};
use super::{NODE, SOON};

/// How many requests wait in its sockets when it goes on: they are the first that it sees.
const WAITING: usize = 5;

/// What is written meanwhile.
const WAITED: &str = "e2e-waited";

/// Status of a report to one that does not lead.
const NOT_LEADING: &str = "421";

/// Until they are there.
const SENT: Duration = Duration::from_secs(1);

/// Where every replica takes reports, or says that it does not.
const REPORTS: u16 = 10275;

/// How long its watches may go on, on a busy machine.
const ENDS: Duration = Duration::from_secs(10);

/// A leader of now, a watch of it that nobody is between, and another replica.
pub(super) struct Former {
    url: String,
    other: String,
    header: String,
    /// Of who may write, and the folder of the node's certificate.
    writer: String,
    keys: String,
    watch: JoinSet<Result<()>>,
    _curl: Child,
}

/// What a leader that goes on makes of what waited in its sockets.
#[derive(Debug)]
pub(super) struct Afterwards {
    /// Whether it was still there.
    pub(super) awake: bool,
    /// Which versions it told.
    pub(super) told: Vec<u64>,
    /// The statuses of a write and of a report; empty without an answer.
    write: String,
    report: String,
}

impl Former {
    /// To be made while it leads; `reader` is the token of one who may read.
    pub(super) async fn watched(ground: &Ground, leader: &Replica, reader: &str) -> Result<Self> {
        let replicas = replicas::replicas(&ground.client).await?;
        let other = replicas.iter().find(|pod| pod.name_any() != leader.pod).context("no other replica")?;
        let address = other.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let port = port(other)?;
        let header = format!("Authorization: Bearer {reader}");
        let at = |address: &str| format!("https://{address}:{port}{METRICS}");
        let (url, other) = (at(&leader.address), at(address.context("no address")?));
        let mut curl = Command::new("curl");
        curl.args(["-skN", "-H", &header, &format!("{url}?watch=1&timeoutSeconds=600")]);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut curl = curl.spawn().context("curl")?;
        let mut events = BufReader::new(curl.stdout.take().context("stdout")?).lines();
        let first =
            timeout(SOON, events.next_line()).await.context("no event of a watch at the leader")??;
        let first = first.context("a watch at the leader has ended")?;
        ensure!(first.starts_with(r#"{"type":"ADDED""#), "{first:.200}");
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            while events.next_line().await?.is_some() {}
            Ok(())
        });
        kubectl_apply(WRITER).await?.ok()?;
        let writer = token(SYSTEM, "e2e-writer", WRITER_NAME).await?;
        let writer = format!("Authorization: Bearer {writer}");
        let authority = hack_cluster(&["path", NODE, "hub-ca"]).await?.ok()?;
        let state = Path::new(authority.trim()).ancestors().nth(2).context("the cluster's folder")?;
        let keys = state.join(format!("nodes/{NODE}/pki")).to_string_lossy().into_owned();
        Ok(Self { url, other, header, writer, keys, watch, _curl: curl })
    }

    /// What the leader that it has now tells of the node, by another replica.
    pub(super) async fn told(&self) -> Result<u64> {
        eventually("another replica answers", SOON, || async {
            self.version(&self.other).await?.context("no answer yet")
        })
        .await
    }

    /// Has it go on, with requests that were sent while it stood still.
    pub(super) async fn goes_on(&self, old: &Replica) -> Result<Afterwards> {
        let asked = join_all((0..WAITING).map(|_| self.version(&self.url)));
        let awake = async {
            sleep(SENT).await;
            old.signal("-CONT").await.is_ok()
        };
        let (write, report) = (self.write(), self.report(&old.address));
        let (told, write, report, awake) = tokio::join!(asked, write, report, awake);
        let told: Vec<Option<u64>> = told.into_iter().collect::<Result<_>>()?;
        Ok(Afterwards { awake, told: told.into_iter().flatten().collect(), write: write?, report: report? })
    }

    /// A label of the node's metrics; the status that is answered.
    async fn write(&self) -> Result<String> {
        let label = format!(r#"{{"metadata":{{"labels":{{"{WAITED}":"yes"}}}}}}"#);
        let url = format!("{}/{NODE}", self.url);
        let kind = "Content-Type: application/merge-patch+json";
        status(&["-X", "PATCH", "-H", &self.writer, "-H", kind, "-d", &label, &url]).await
    }

    /// A report of the node that says nothing: a leader looks at it and refuses it, all others say first that they do not lead.
    async fn report(&self, address: &str) -> Result<String> {
        let file = |extension: &str| format!("{}/kubelet-client.{extension}", self.keys);
        let (certificate, key) = (file("crt"), file("key"));
        let url = format!("https://{address}:{REPORTS}{}", node_report::http::PATH);
        let kind = format!("Content-Type: {}", node_report::http::CONTENT_TYPE);
        status(&["--cert", &certificate, "--key", &key, "-X", "POST", "-H", &kind, "-d", "", &url]).await
    }

    /// Whether the report was refused as by one that does not lead, and the write is where it was said to be: in what the leader of now has, or nowhere.
    /// One that its kubelet had asked to end meanwhile may answer nothing.
    pub(super) async fn took_nothing(&self, after: &Afterwards) -> Result<()> {
        let Afterwards { write, report, .. } = after;
        ensure!(report.is_empty() || report == NOT_LEADING, "a report that waited is answered {report:?}");
        eventually("another replica shows what was written", SOON, || async {
            let object = self.object(&self.other).await?.context("no answer yet")?;
            let is_there = object["metadata"]["labels"][WAITED] == "yes";
            ensure!(is_there == (write == "200"), "a write is answered {write:?}, and {is_there} afterwards");
            Ok(())
        })
        .await
    }

    /// Whether it tells nothing that is older than what another replica told just before.
    pub(super) async fn tells_nothing_old(&self) -> Result<()> {
        let told = self.told().await?;
        let version = self.version(&self.url).await?;
        ensure!(version.is_none_or(|version| version >= told), "told {version:?} after {told}");
        Ok(())
    }

    /// Waits for the end of its watch, and of nothing else.
    pub(super) async fn watch_ends(mut self) -> Result<()> {
        let ended = timeout(ENDS, self.watch.join_next()).await;
        let ended = ended.with_context(|| format!("a watch of it goes on {ENDS:?} after it does"))?;
        ended.context("no watch")??
    }

    /// The version of the node's metrics as that replica tells it, if it tells any.
    async fn version(&self, url: &str) -> Result<Option<u64>> {
        let Some(object) = self.object(url).await? else { return Ok(None) };
        let version = object["metadata"]["resourceVersion"].as_str().context("no version")?;
        Ok(Some(version.parse()?))
    }

    async fn object(&self, url: &str) -> Result<Option<Value>> {
        let url = format!("{url}/{NODE}");
        let answer = run("curl", &["-skm", "10", "-H", &self.header, &url], "").await?.stdout;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        Ok((answer["kind"] == "NodeMetric").then_some(answer))
    }
}

/// The status of an answer; empty if there is none.
async fn status(words: &[&str]) -> Result<String> {
    let words = [&["-skm", "20", "-o", "/dev/null", "-w", "%{http_code}"], words].concat();
    let answer = run("curl", &words, "").await?.stdout;
    Ok(if answer == "000" { String::new() } else { answer })
}
