//! What a leader that stood still does when it goes on, while another leads: its watches end, and it tells nothing that is older than what was
//! told meanwhile.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{eventually, replicas, run};
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::callers::{METRICS, port};
use super::ground::{Ground, Replica};
use super::{NODE, SOON};

/// How many requests wait in its sockets when it goes on: they are the first that it sees.
const WAITING: usize = 5;

/// Until they are there.
const SENT: Duration = Duration::from_secs(1);

/// How long its watches may go on, on a busy machine.
const ENDS: Duration = Duration::from_secs(10);

/// A leader of now, a watch of it that nobody is between, and another replica.
pub(super) struct Former {
    url: String,
    other: String,
    header: String,
    watch: JoinSet<Result<()>>,
    _curl: Child,
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
        Ok(Self { url, other, header, watch, _curl: curl })
    }

    /// What the leader that it has now tells of the node, by another replica.
    pub(super) async fn told(&self) -> Result<u64> {
        eventually("another replica answers", SOON, || async {
            self.version(&self.other).await?.context("no answer yet")
        })
        .await
    }

    /// Has it go on, with requests that were sent while it stood still. Returns whether it still was there, and what it answered to them.
    pub(super) async fn goes_on(&self, old: &Replica) -> Result<(bool, Vec<u64>)> {
        let asked = join_all((0..WAITING).map(|_| self.version(&self.url)));
        let awake = async {
            sleep(SENT).await;
            old.signal("-CONT").await.is_ok()
        };
        let (answered, awake) = tokio::join!(asked, awake);
        let answered: Vec<Option<u64>> = answered.into_iter().collect::<Result<_>>()?;
        Ok((awake, answered.into_iter().flatten().collect()))
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
        let url = format!("{url}/{NODE}");
        let answer = run("curl", &["-skm", "10", "-H", &self.header, &url], "").await?.stdout;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        if answer["kind"] != "NodeMetric" {
            return Ok(None);
        }
        let version = answer["metadata"]["resourceVersion"].as_str().context("no version")?;
        Ok(Some(version.parse()?))
    }
}
