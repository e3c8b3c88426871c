//! A watch of one node's metrics straight at a replica, and when it was told what.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::SOON;

/// When which version was told.
type Told = Vec<(Instant, u64)>;

/// A watch under way, until this is dropped.
pub(super) struct Watch {
    told: Arc<Mutex<Told>>,
    reading: JoinSet<Result<()>>,
    _curl: Child,
}

impl Watch {
    /// Begins, and has been told of the state.
    pub(super) async fn begin(header: &str, url: &str) -> Result<Self> {
        let mut curl = Command::new("curl");
        curl.args(["-skN", "-H", header, url]);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut curl = curl.spawn().context("curl")?;
        let mut lines = BufReader::new(curl.stdout.take().context("stdout")?).lines();
        let (told, mut reading) = (Arc::<Mutex<Told>>::default(), JoinSet::new());
        let written = Arc::clone(&told);
        reading.spawn(async move {
            while let Some(line) = lines.next_line().await? {
                // One that was cut short in a line has ended.
                let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
                ensure!(matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED")), "told {line:.300}");
                let (now, before) = (version(&event["object"])?, written.lock().last().copied());
                ensure!(before.is_none_or(|(_, before)| now > before), "told {now} after {before:?}");
                written.lock().push((Instant::now(), now));
            }
            Ok(())
        });
        let watch = Self { told, reading, _curl: curl };
        eventually("a watch is told of the state", SOON, || async {
            ensure!(!watch.told().is_empty(), "not yet");
            Ok(())
        })
        .await?;
        Ok(watch)
    }

    /// What it was told so far.
    pub(super) fn told(&self) -> Told {
        self.told.lock().clone()
    }

    /// Waits for its end. It was told nothing but changes, none of them older than the one before.
    pub(super) async fn ends(mut self, within: Duration) -> Result<()> {
        let ended = timeout(within, self.reading.join_next()).await;
        let ended = ended.with_context(|| format!("a watch goes on for more than {within:?}"))?;
        ended.context("no watch")??
    }
}

/// The version of an object or a list.
pub(in super::super) fn version(object: &Value) -> Result<u64> {
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.with_context(|| format!("no version: {object:.200}"))?.parse()?)
}
