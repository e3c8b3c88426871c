//! How long reads and reports are gone when the leader goes. Reads are asked of a standby, as the API server's own timeouts with a replica that
//! stands still are not ours; of reports the node's hub says to which leader the last one went.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{eventually, replicas, run};
use kube::ResourceExt;
use tokio::time::{sleep, timeout};

use super::callers::{METRICS, port};
use super::ground::{Ground, Replica};
use super::{NODE, SOON, WARM, of_last_report};

/// Between two attempts.
const TURN: Duration = Duration::from_millis(50);

/// Nothing takes so long.
const LONGEST: Duration = Duration::from_mins(2);

/// Nodes that lost their leader come to the next one within a second, each at a moment of its own.
const SPREAD: Duration = Duration::from_secs(1);

/// Until both flow again; a busy machine is slower than the figures of docs/node-metrics.md, by a second and then some.
pub(super) const TERM: Duration = Duration::from_secs(3);
pub(super) const KILL: Duration = Duration::from_secs(4);
pub(super) const FROZEN: Duration = Duration::from_secs(8);

/// The longest that is borne of any take-over, however busy the machine.
const MOST_READS: Duration = Duration::from_secs(15);
const MOST_REPORTS: Duration = Duration::from_secs(20);

/// For how long there was no answer to a read, and no report was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    reads: Duration,
    reports: Duration,
}

/// A standby, and the leader as it is.
pub(super) struct Flow {
    url: String,
    header: String,
    epoch: u64,
}

impl Flow {
    /// To be made while there is a leader to whom the node reports; `reader` is the token of one who may read.
    pub(super) async fn new(ground: &Ground, leader: &Replica, reader: &str) -> Result<Self> {
        let replicas = replicas::replicas(&ground.client).await?;
        let standby = replicas.iter().find(|pod| pod.name_any() != leader.pod).context("no standby")?;
        let address = standby.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let url = format!("https://{}:{}{METRICS}/{NODE}", address.context("no address")?, port(standby)?);
        let header = format!("Authorization: Bearer {reader}");
        let epoch = eventually("the node reports", WARM, || of_last_report("epoch")).await?;
        let flow = Self { url, header, epoch };
        eventually("a standby answers", SOON, || async {
            ensure!(flow.read().await, "{}", flow.url);
            Ok(())
        })
        .await?;
        Ok(flow)
    }

    /// Looks on while `end` ends the leader, until both flow again.
    pub(super) async fn over(self, end: impl Future<Output = Result<()>>) -> Result<Gap> {
        let began = Instant::now();
        let reports = async {
            while !of_last_report("epoch").await.is_ok_and(|epoch| epoch > self.epoch) {
                sleep(TURN).await;
            }
            began.elapsed()
        };
        let mut reports = std::pin::pin!(reports);
        let both = async {
            let (mut reads, mut last, mut taken) = (Duration::ZERO, began, None);
            loop {
                let mut answer = std::pin::pin!(self.read());
                let answered = loop {
                    tokio::select! {
                        answered = &mut answer => break answered,
                        after = &mut reports, if taken.is_none() => taken = Some(after),
                    }
                };
                if answered {
                    reads = reads.max(last.elapsed());
                    last = Instant::now();
                    if let Some(reports) = taken {
                        return Gap { reads, reports };
                    }
                }
                sleep(TURN).await;
            }
        };
        let (gap, ended) = tokio::join!(timeout(LONGEST, both), end);
        ended?;
        gap.with_context(|| format!("reads or reports do not flow again within {LONGEST:?}"))
    }

    async fn read(&self) -> bool {
        let words = [
            "-sk",
            "--max-time",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &self.header,
            &self.url,
        ];
        run("curl", &words, "").await.is_ok_and(|answer| answer.stdout == "200")
    }
}

impl Gap {
    /// Whether both flowed again within `limit`; of reports each hub has a moment of its own.
    pub(super) fn is_within(&self, limit: Duration) -> Result<()> {
        let Self { reads, reports } = self;
        ensure!(*reads <= limit, "reads were gone for {reads:?}, more than {limit:?}");
        ensure!(
            *reports <= limit + SPREAD,
            "reports were gone for {reports:?}, more than {limit:?} and {SPREAD:?}"
        );
        Ok(())
    }
}

/// Whether half of these were within `limit`, and all within what a busy machine may add.
pub(super) fn are_within(gaps: &[Gap], limit: Duration) -> Result<()> {
    let ordered = |of: fn(&Gap) -> Duration| {
        let mut ordered: Vec<Duration> = gaps.iter().map(of).collect();
        ordered.sort_unstable();
        ordered
    };
    let (reads, reports) = (ordered(|gap| gap.reads), ordered(|gap| gap.reports));
    // Of two the worse.
    let median = |ordered: &[Duration]| ordered.get(ordered.len() / 2).copied();
    let (Some(median_reads), Some(median_reports)) = (median(&reads), median(&reports)) else {
        return Ok(());
    };
    Gap { reads: median_reads, reports: median_reports }.is_within(limit).context("the median")?;
    for (what, ordered, most) in [("reads", reads, MOST_READS), ("reports", reports, MOST_REPORTS)] {
        let worst = ordered.last().copied().unwrap_or_default();
        ensure!(worst <= most, "{what} were gone for {worst:?} once, more than {most:?}: {gaps:?}");
    }
    Ok(())
}
