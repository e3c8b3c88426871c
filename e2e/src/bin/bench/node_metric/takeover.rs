//! What a change of the leader costs, by how the leader goes: how long a reader of the API server and a watcher are shown nothing new ([`prober`](super::prober)),
//! whether an informer is told that anything is gone, and when the next leader has heard the whole fleet.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use e2e::eventually;
use http_body_util::BodyExt;
use kube::Client;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::fleet::Shared;
use super::informer::{Informer, Told};
use super::link::{Kind, Link};
use super::place::Place;
use super::prober::{Gaps, PATIENCE, Prober, TURN};
use super::replica::pair;
use super::watchers::Way;
use crate::report::percentile;

/// How often is looked whether the fleet is back.
const LOOK: Duration = Duration::from_millis(20);

/// Nothing takes so long.
const LONGEST: Duration = Duration::from_secs(30);

/// Until a replica that ended runs again: its kubelet waits longer each time.
const AGAIN: Duration = Duration::from_mins(6);

/// For how long all is well before the leader goes: it shows what the prober itself cannot tell from a gap. A standby has seen the leader renew by then.
const STEADY: Duration = Duration::from_secs(5);

/// How the leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Term,
    Kill,
    Frozen,
    CutOff,
}

/// What one change of the leader cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) gaps: Gaps,
    /// The same of the time before it, in which nothing happened.
    pub(super) before: Gaps,
    /// Seconds until the next leader had heard every node; none, if it had not by then.
    whole: Option<f64>,
    /// How many nodes it had heard.
    back: usize,
    /// What an informer was told.
    told: Told,
}

impl Cost {
    /// The worse of reads and reports, in seconds, to the millisecond.
    pub(super) fn seconds(&self) -> f64 {
        seconds(self.gaps.reads.max(self.gaps.reports))
    }
}

/// Of a duration, to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// One change of the leader.
pub(super) async fn change(
    client: &Client,
    end: End,
    probe: (&Arc<Shared>, usize),
    place: &watch::Receiver<Place>,
    (admin, api_server): (&Way, &Way),
) -> Result<Cost> {
    let (leader, standby) = eventually("both replicas run", AGAIN, || async { pair(client).await }).await?;
    let (_, port) = place
        .borrow()
        .api
        .clone()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .context("port")?;
    let name = place.borrow().name.clone();
    // A watch through the API server may be at the leader that goes, and waits for the API server's own timeouts.
    let way = Way { server: format!("{}:{port}", standby.address), name, ..admin.clone() };
    eventually("the standby hands on", Duration::from_mins(2), || async { read(&way).await }).await?;
    let informer = Informer::start(way.clone()).await?;
    let prober = Prober::start(probe, place, (&way, api_server)).await?;
    prober.begin();
    sleep(STEADY).await;
    let epoch = probe.0.epoch();
    let (before, began) = (prober.begin(), Instant::now());
    match end {
        End::Term => leader.signal(Signal::TERM)?,
        End::Kill => leader.signal(Signal::KILL)?,
        End::Frozen => leader.signal(Signal::STOP)?,
        End::CutOff => leader.cut_off(true).await?,
    }
    let over = timeout(LONGEST, prober.over((&**probe.0, probe.1), epoch));
    let (gaps, whole) = tokio::join!(over, whole(probe, epoch, began));
    let (back, told) = (probe.0.heard_after(epoch, probe.1), informer.told());
    match end {
        End::Frozen => leader.signal(Signal::CONT)?,
        End::CutOff => leader.cut_off(false).await?,
        End::Term | End::Kill => {}
    }
    let gaps = gaps.with_context(|| format!("{end:?}: nothing flows after {LONGEST:?}"))?;
    Ok(Cost { gaps, before, whole, back, told })
}

/// A table of what the changes cost, and how exactly that is known.
pub(super) fn table(costs: &[(End, Vec<Cost>)]) -> String {
    let rows = costs.iter().map(|(end, costs)| {
        let both = |of: fn(&Gaps) -> Duration| {
            let mut each: Vec<f64> = costs.iter().map(|cost| seconds(of(&cost.gaps))).collect();
            format!("{:.3} | {:.3}", percentile(&mut each, 0.5), percentile(&mut each, 1.0))
        };
        let (reads, reports, answers) =
            (both(|gaps| gaps.reads), both(|gaps| gaps.reports), both(|gaps| gaps.answers));
        let sum = |of: fn(&Gaps) -> usize| costs.iter().map(|cost| of(&cost.gaps)).sum::<usize>();
        let (asked, unanswered) = (sum(|gaps| gaps.asked), sum(|gaps| gaps.unanswered));
        format!("| {end:?} | {} | {reads} | {reports} | {answers} | {unanswered} of {asked} |", costs.len())
    });
    let rows: Vec<String> = rows.collect();
    let before = costs.iter().flat_map(|(_, costs)| costs).map(|cost| cost.before);
    let finest = before.map(|gaps| gaps.reads.max(gaps.reports)).max().unwrap_or_default();
    format!(
        "What a change of the leader cost, in seconds: the longest time from the last read through the API server, or event of a watch, that \
         showed a later report than all before to the next that did. A node reported, and was read, each {} ms; with no fault the longest \
         such time was {:.3} s, and no gap is known better than that.\n\n\
         | the leader | times | reads, median | worst | reports, median | worst | any answer, median | worst | reads without an object in {} s |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n{}",
        TURN.as_millis(),
        seconds(finest),
        PATIENCE.as_secs(),
        rows.join("\n"),
    )
}

/// What became of the fleet, and what an informer was told, in each round.
pub(super) fn after(end: End, nodes: usize, costs: &[Cost]) -> String {
    let each = costs.iter().map(|Cost { whole, back, told, .. }| {
        let whole = whole.map_or_else(|| "not at all".to_owned(), |seconds| format!("{seconds:.1} s"));
        let Told { deleted, errors, ended, objects } = told;
        format!(
            "{whole} ({back} of {nodes} nodes; {deleted} DELETED, {errors} ERROR, {ended} watches ended, {objects} objects known)"
        )
    });
    format!("{end:?}: the next leader had heard all nodes after {}.", each.collect::<Vec<_>>().join(", "))
}

/// Seconds until a leader of a later term has heard all nodes but the probe, which is the last.
async fn whole((shared, nodes): (&Arc<Shared>, usize), epoch: u64, began: Instant) -> Option<f64> {
    while began.elapsed() < LONGEST {
        if shared.heard_after(epoch, nodes) == nodes {
            return Some(began.elapsed().as_secs_f64());
        }
        sleep(LOOK).await;
    }
    None
}

/// Reads one object, over a connection of its own.
async fn read(way: &Way) -> Result<()> {
    let mut link = Link::open(&way.server, &way.name, &way.tls, Kind::Reader).await?;
    let request = http::Request::get("/").header(http::header::ACCEPT, "application/json");
    let response =
        link.send(request, &format!("{}/{}", way.path, super::fleet::name(0)), Bytes::new()).await?;
    let status = response.status();
    response.into_body().collect().await?;
    ensure!(status == 200, "{status}");
    Ok(())
}
