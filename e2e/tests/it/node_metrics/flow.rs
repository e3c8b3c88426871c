//! How long reads and reports are gone when the leader goes. Reads are asked of a standby, as the API server's own timeouts with a replica that
//! stands still are not ours; of reports the node's hub says to which leader the last one went.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{eventually, replicas, run};
use kube::ResourceExt;
use tokio::time::{sleep, timeout};

use super::callers::{METRICS, port};
use super::ground::{Ground, Replica};
use super::rehomed::Rehomed;
use super::{NODE, SOON, WARM, of_last_report};

/// Between two attempts.
const TURN: Duration = Duration::from_millis(50);

/// Nothing takes so long.
const LONGEST: Duration = Duration::from_mins(2);

/// Nodes that lost their leader come to the next one within half a second, each at a moment of its own.
const SPREAD: Duration = Duration::from_millis(500);

/// Until both flow again; a busy machine is slower than the figures of docs/node-metrics.md, by a second and then some.
pub(super) const TERM: Duration = Duration::from_secs(3);
pub(super) const KILL: Duration = Duration::from_secs(4);
pub(super) const FROZEN: Duration = Duration::from_secs(8);

/// The longest that is borne of any take-over, however busy the machine.
const MOST_READS: Duration = Duration::from_secs(15);
const MOST_REPORTS: Duration = Duration::from_secs(20);

/// For how long there was no answer to a read, no report was taken, and a watch was told nothing by another leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    reads: Duration,
    reports: Duration,
    watch: Duration,
}

/// A standby, and the leader as it is.
pub(super) struct Flow {
    url: String,
    header: String,
    epoch: u64,
    watch: Rehomed,
}

impl Flow {
    /// To be made while there is a leader to whom the node reports; `reader` is the token of one who may read.
    pub(super) async fn new(ground: &Ground, leader: &Replica, reader: &str) -> Result<Self> {
        let replicas = replicas::replicas(&ground.client).await?;
        let standby = replicas.iter().find(|pod| pod.name_any() != leader.pod).context("no standby")?;
        let address = standby.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let collection = format!("https://{}:{}{METRICS}", address.context("no address")?, port(standby)?);
        let url = format!("{collection}/{NODE}");
        let header = format!("Authorization: Bearer {reader}");
        let epoch = eventually("the node reports", WARM, || of_last_report("epoch")).await?;
        eventually("a standby answers", SOON, || async {
            ensure!(read(&url, &header).await, "{url}");
            Ok(())
        })
        .await?;
        let watch = Rehomed::begin(&ground.client, &collection, &header).await?;
        Ok(Self { url, header, epoch, watch })
    }

    /// Looks on while `end` ends the leader, until both flow again.
    pub(super) async fn over(self, end: impl Future<Output = Result<()>>) -> Result<Gap> {
        let Self { url, header, epoch, watch } = self;
        let began = Instant::now();
        let reports = async {
            while !of_last_report("epoch").await.is_ok_and(|now| now > epoch) {
                sleep(TURN).await;
            }
            began.elapsed()
        };
        let mut reports = std::pin::pin!(reports);
        let both = async {
            let (mut reads, mut last, mut taken) = (Duration::ZERO, began, None);
            loop {
                let mut answer = std::pin::pin!(read(&url, &header));
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
                        return (reads, reports);
                    }
                }
                sleep(TURN).await;
            }
        };
        let watch = timeout(LONGEST, watch.over(began));
        let (flows, watch, ended) = tokio::join!(timeout(LONGEST, both), watch, end);
        ended?;
        let (reads, reports) =
            flows.with_context(|| format!("reads or reports do not flow again within {LONGEST:?}"))?;
        let watch = watch.with_context(|| format!("a watch is told nothing within {LONGEST:?}"))?;
        Ok(Gap { reads, reports, watch: watch.context("a watch at a standby")? })
    }
}

async fn read(url: &str, header: &str) -> bool {
    let words = ["-sk", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}", "-H", header, url];
    run("curl", &words, "").await.is_ok_and(|answer| answer.stdout == "200")
}

impl Gap {
    /// Whether all flowed again within `limit`; of reports each hub has a moment of its own.
    pub(super) fn is_within(&self, limit: Duration) -> Result<()> {
        let Self { reads, reports, watch } = self;
        ensure!(*reads <= limit, "reads were gone for {reads:?}, more than {limit:?}");
        ensure!(*watch <= limit, "a watch was told nothing for {watch:?}, more than {limit:?}");
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
    let watches = ordered(|gap| gap.watch);
    // Of two the worse.
    let median = |ordered: &[Duration]| ordered.get(ordered.len() / 2).copied();
    let medians = (median(&reads), median(&reports), median(&watches));
    let (Some(median_reads), Some(median_reports), Some(median_watch)) = medians else { return Ok(()) };
    let medians = Gap { reads: median_reads, reports: median_reports, watch: median_watch };
    medians.is_within(limit).context("the median")?;
    for (what, ordered, most) in
        [("reads", reads, MOST_READS), ("reports", reports, MOST_REPORTS), ("watches", watches, MOST_READS)]
    {
        let worst = ordered.last().copied().unwrap_or_default();
        ensure!(worst <= most, "{what} were gone for {worst:?} once, more than {most:?}: {gaps:?}");
    }
    Ok(())
}
