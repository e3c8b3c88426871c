//! How long reads and reports are gone when the leader goes. Both are tried again and again, as clients of one standby and of the
//! leader that the cluster names would; each counts from the signal until the first that succeeds after one that did not. Beside them somebody
//! reads through the API server, which may have a connection to the leader that went and waits for its own timeouts; an informer must not be told that anything is
//! gone; and the whole fleet is waited for.

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
use tokio_util::sync::CancellationToken;

use super::fleet::{Reporter, Shared};
use super::informer::{Informer, Told};
use super::link::{self, Kind, Link};
use super::place::Place;
use super::replica::pair;
use super::watchers::Way;

/// Between two attempts.
const TURN: Duration = Duration::from_millis(20);

/// A read that takes longer has waited for a leader.
const SLOW: Duration = Duration::from_millis(150);

/// Nothing takes so long.
const LONGEST: Duration = Duration::from_secs(30);

/// So long a client of the API server waits before it asks again.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Term,
    Kill,
    Frozen,
    CutOff,
}

/// Seconds until reads and until reports flowed again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) reads: f64,
    pub(super) reports: f64,
    /// The longest time without an answer through the API server.
    pub(super) aggregated: f64,
    /// Seconds until the next leader had heard every node; none, if it had not by then.
    pub(super) whole: Option<f64>,
    /// How many nodes it had heard.
    pub(super) back: usize,
    /// What an informer was told.
    pub(super) told: Told,
}

/// One change of the leader.
pub(super) async fn change(
    client: &Client,
    end: End,
    probe: (&Arc<Shared>, usize),
    place: &watch::Receiver<Place>,
    (admin, api_server): (&Way, &Way),
) -> Result<Gap> {
    let (leader, standby) =
        eventually("both replicas run", Duration::from_mins(3), || async { pair(client).await }).await?;
    let (_, port) = place
        .borrow()
        .api
        .clone()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .context("port")?;
    let name = place.borrow().name.clone();
    let way = Way { server: format!("{}:{port}", standby.address), name, ..admin.clone() };
    let read = || {
        let way = way.clone();
        async move { read(&way).await }
    };
    eventually("the standby hands on", Duration::from_mins(2), &read).await?;
    // It follows, and has seen the leader renew.
    sleep(Duration::from_secs(5)).await;
    let before = place.borrow().servers.first().cloned();
    let informer = Informer::start(way.clone()).await?;
    let epoch = probe.0.epoch();
    let mut reporter = Reporter::new(probe.0, probe.1, Duration::from_secs(1))?;
    let mut seen = place.clone();
    let mut link = open(&mut reporter, &seen).await?;
    ensure!(reporter.post(probe.0, &mut link).await?.is_none(), "the leader does not lead");
    let began = Instant::now();
    match end {
        End::Term => leader.signal(Signal::TERM)?,
        End::Kill => leader.signal(Signal::KILL)?,
        End::Frozen => leader.signal(Signal::STOP)?,
        End::CutOff => leader.cut_off(true).await?,
    }
    let flowing = CancellationToken::new();
    let reports = async {
        loop {
            let known = seen.borrow_and_update().servers.first().cloned();
            let posted = tokio::select! {
                posted = reporter.post(probe.0, &mut link) => posted.is_ok_and(|elsewhere| elsewhere.is_none()),
                () = moved(&mut seen, known.as_ref()) => false,
            };
            // What the old leader took says nothing of the new one.
            let leads = seen.borrow().servers.first().cloned();
            if posted && leads != before {
                flowing.cancel();
                return began.elapsed().as_secs_f64();
            }
            if !posted {
                let known = seen.borrow_and_update().servers.first().cloned();
                let mut also = seen.clone();
                tokio::select! {
                    opened = open(&mut reporter, &seen) => if let Ok(other) = opened { link = other },
                    () = moved(&mut also, known.as_ref()) => {}
                }
            }
            sleep(TURN).await;
        }
    };
    let reads = async {
        let (mut failed, mut since) = (false, None);
        loop {
            let asked = Instant::now();
            let answered = timeout(Duration::from_secs(1), read()).await.is_ok_and(|read| read.is_ok());
            let now = began.elapsed().as_secs_f64();
            // One that had to wait was without an answer meanwhile.
            failed |= asked.elapsed() > SLOW;
            if answered {
                since = since.or(Some(now));
                // With a warm standby there may be none that fails: then from when on it is the new leader that answers.
                if let Some(at) = since
                    && (failed || now > 3.0)
                    && now - at > 0.2
                {
                    return if failed { at } else { 0.0 };
                }
            } else {
                (failed, since) = (true, None);
            }
            sleep(TURN).await;
        }
    };
    let both = timeout(LONGEST, Box::pin(async { tokio::join!(reads, reports) }));
    let whole = whole(probe, epoch, began);
    let (both, aggregated, whole) = tokio::join!(both, through(api_server, began, &flowing), whole);
    let (back, told) = (probe.0.heard_after(epoch, probe.1), informer.told());
    match end {
        End::Frozen => leader.signal(Signal::CONT)?,
        End::CutOff => leader.cut_off(false).await?,
        End::Term | End::Kill => {}
    }
    let (reads, reports) = both.with_context(|| format!("{end:?}: nothing flows after {LONGEST:?}"))?;
    Ok(Gap { reads, reports, aggregated, whole, back, told })
}

/// What became of the fleet, and what an informer was told, in each round.
pub(super) fn after(end: End, nodes: usize, gaps: &[Gap]) -> String {
    let each = gaps.iter().map(|Gap { whole, back, told, .. }| {
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
        sleep(TURN).await;
    }
    None
}

/// The longest time between two answers by the API server, until reports flow and it answers; [`LONGEST`], if it does not by then.
async fn through(api_server: &Way, began: Instant, flowing: &CancellationToken) -> f64 {
    let (mut longest, mut last) = (Duration::ZERO, began);
    while began.elapsed() < LONGEST {
        if timeout(PATIENCE, read(api_server)).await.is_ok_and(|read| read.is_ok()) {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if flowing.is_cancelled() {
                return longest.as_secs_f64();
            }
        }
        sleep(TURN).await;
    }
    longest.max(last.elapsed()).as_secs_f64()
}

async fn moved(place: &mut watch::Receiver<Place>, from: Option<&String>) {
    // The sender lives as long as the benchmark.
    let _ = place.wait_for(|place| place.servers.first() != from).await;
}

async fn open(reporter: &mut Reporter, place: &watch::Receiver<Place>) -> Result<Link> {
    let place = place.borrow().clone();
    let server = place.servers.first().context("no server")?;
    let (certificate, key) = reporter.begin();
    let tls = link::config(&place.authorities, certificate, key, Kind::Reporter)?;
    Link::open(server, &place.name, &tls, Kind::Reporter).await
}

/// Reads one object, over a connection of its own: the one before may hang.
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
