//! A watch that nobody but a standby is between: it ends with the leader that it was handed to, is begun again where it stands, and tells what
//! the next leader says.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use super::ground::announced;
use super::{NODE, SOON};

/// Between two attempts.
const TURN: Duration = Duration::from_millis(50);

/// A watch of the node's metrics, and where it stands.
pub(super) struct Rehomed {
    collection: String,
    header: String,
    /// The leader of now tells nothing above this, and the next nothing below.
    ceiling: u64,
    /// Of the last event.
    told: u64,
    /// Where the next watch begins; 0 for the state as it is.
    after: u64,
    watch: Option<Watch>,
}

struct Watch {
    events: Lines<BufReader<ChildStdout>>,
    _curl: Child,
}

impl Rehomed {
    /// A watch at the replica that serves `collection`, under way.
    pub(super) async fn begin(client: &Client, collection: &str, header: &str) -> Result<Self> {
        let ceiling = announced(client, "version-ceiling").await?.parse()?;
        let (collection, header) = (collection.to_owned(), header.to_owned());
        let mut begun = Self { collection, header, ceiling, told: 0, after: 0, watch: None };
        timeout(SOON, begun.event()).await.context("a watch at a standby tells nothing")??;
        Ok(begun)
    }

    /// Waits for what another leader says; returns how long after `began` that came.
    pub(super) async fn over(mut self, began: Instant) -> Result<Duration> {
        while self.told <= self.ceiling {
            self.event().await?;
        }
        Ok(began.elapsed())
    }

    /// Waits for an event, over as many watches as it takes.
    async fn event(&mut self) -> Result<()> {
        loop {
            let mut watch = match self.watch.take() {
                Some(watch) => watch,
                None => self.again()?,
            };
            let Some(line) = watch.events.next_line().await? else {
                sleep(TURN).await;
                continue;
            };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => {
                    let version = event["object"]["metadata"]["resourceVersion"].as_str();
                    let version: u64 = version.context("no version")?.parse()?;
                    ensure!(version > self.told, "told {version} after {}", self.told);
                    (self.told, self.after, self.watch) = (version, version, Some(watch));
                    return Ok(());
                }
                // The leader of before had told of what the next does not know: all of it is told anew, under versions of its own.
                Some("ERROR") if event["object"]["code"] == 410 => self.after = 0,
                // The end of a leadership, or a refusal, which is no event.
                Some("ERROR") | None => sleep(TURN).await,
                Some(_) => anyhow::bail!("told {line:.200}"),
            }
        }
    }

    fn again(&self) -> Result<Watch> {
        let query = format!("watch=1&fieldSelector=metadata.name%3D{NODE}&resourceVersion={}", self.after);
        let mut curl = Command::new("curl");
        curl.args(["-skN", "-H", &self.header, &format!("{}?{query}", self.collection)]);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut curl = curl.spawn().context("curl")?;
        let events = BufReader::new(curl.stdout.take().context("stdout")?).lines();
        Ok(Watch { events, _curl: curl })
    }
}
