//! Simulated nodes: each with a client certificate and a connection of its own, and the sending side of the protocol as the hub has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use e2e::eventually;
use http_body_util::{BodyExt, Limited};
use node_report::http::{CONTENT_TYPE, LEADER_HEADER, PATH};
use node_report::{Answer, Encoder, Message, Source, Threshold};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testkit::api_server::access::User;
use testkit::api_server::pki::Authority;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::link::{self, Kind, Link};
use super::place::Place;
use super::sample::sample;

/// How the names of simulated nodes begin.
pub(super) const PREFIX: &str = "load-";

/// The longest answer.
const ANSWER_MAX: usize = 64 << 10;

/// What the nodes did.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) taken: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Reports that were refused, shed, or got no answer.
    pub(super) failed: AtomicU64,
    /// Nodes of which a report was taken since they connected.
    pub(super) reporting: AtomicUsize,
}

/// What all nodes share.
pub(super) struct Shared {
    pub(super) authority: Authority,
    pub(super) place: watch::Receiver<Place>,
    pub(super) counts: Counts,
    pub(super) pods: u64,
    /// The term of the leader that took the last report of each node.
    pub(super) epochs: Mutex<Vec<u64>>,
}

impl Shared {
    /// The latest term of which a node knows.
    pub(super) fn epoch(&self) -> u64 {
        self.epochs.lock().iter().copied().max().unwrap_or_default()
    }

    /// How many of the first `nodes` a leader of a later term has heard.
    pub(super) fn heard_after(&self, epoch: u64, nodes: usize) -> usize {
        self.epochs.lock().iter().take(nodes).filter(|heard| **heard > epoch).count()
    }

    /// The term of the leader that took the last report of that node.
    pub(super) fn term(&self, number: usize) -> u64 {
        self.epochs.lock().get(number).copied().unwrap_or_default()
    }

    fn heard(&self, number: u64, epoch: u64) {
        let Ok(number) = usize::try_from(number) else { return };
        let mut epochs = self.epochs.lock();
        if epochs.len() <= number {
            epochs.resize(number + 1, 0);
        }
        if let Some(heard) = epochs.get_mut(number) {
            *heard = epoch;
        }
    }
}

/// Nodes that report until they are dropped.
pub(super) struct Fleet {
    pub(super) shared: Arc<Shared>,
    interval: Duration,
    size: usize,
    tasks: JoinSet<()>,
}

impl Fleet {
    /// None yet.
    pub(super) fn new(
        authority: Authority,
        place: watch::Receiver<Place>,
        pods: u64,
        interval: Duration,
    ) -> Self {
        let shared = Shared { authority, place, counts: Counts::default(), pods, epochs: Mutex::default() };
        Self { shared: Arc::new(shared), interval, size: 0, tasks: JoinSet::new() }
    }

    /// Adds nodes until there are `size`, and waits until each was heard.
    pub(super) async fn grow(&mut self, size: usize) -> Result<()> {
        for number in self.size..size {
            let (shared, interval) = (self.shared.clone(), self.interval);
            self.tasks.spawn(async move { node(&shared, number, interval).await });
            // As many as come in the beginning of a cluster, not in a storm.
            if number % 20 == 0 {
                sleep(Duration::from_millis(25)).await;
            }
        }
        self.size = size;
        eventually("all nodes report", Duration::from_mins(3), || async {
            let reporting = self.shared.counts.reporting.load(Relaxed);
            if reporting < size {
                bail!("{reporting} of {size}, {} failed", self.shared.counts.failed.load(Relaxed))
            }
            Ok(())
        })
        .await
    }

    /// Reports taken, their bytes, and failures so far.
    pub(super) fn counts(&self) -> [u64; 3] {
        let Counts { taken, bytes, failed, reporting: _ } = &self.shared.counts;
        [taken, bytes, failed].map(|count| count.load(Relaxed))
    }
}

/// Name of a simulated node.
pub(super) fn name(number: usize) -> String {
    format!("{PREFIX}{number:05}")
}

async fn node(shared: &Shared, number: usize, interval: Duration) {
    let Ok(mut reporter) = Reporter::new(shared, number, interval) else { return };
    let mut place = shared.place.clone();
    loop {
        let server = place.borrow_and_update().servers.first().cloned().unwrap_or_default();
        // As the hub: nodes that lost a leader do not come to the next all at once.
        sleep(Duration::from_millis(reporter.number * 7_919 % 1_000)).await;
        // Its end is followed by another connection.
        let _ = reporter.serve(shared, &mut place, server).await;
    }
}

type Credentials = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// The sending side of one node.
pub(super) struct Reporter {
    number: u64,
    pods: u64,
    interval: Duration,
    turn: u64,
    encoder: Encoder,
    certificate: Credentials,
    counted: bool,
}

impl Reporter {
    pub(super) fn new(shared: &Shared, number: usize, interval: Duration) -> Result<Self> {
        let name = name(number);
        let user = User { name: format!("system:node:{name}"), groups: vec!["system:nodes".to_owned()] };
        let identity = shared.authority.client(&user)?;
        let source = Source { node: name, node_uid: String::new(), boot_id: String::new() };
        let incarnation = u64::try_from(super::now_ms())? * 1_000;
        Ok(Self {
            number: number as u64,
            pods: shared.pods,
            interval,
            turn: 0,
            encoder: Encoder::new(source, incarnation, Threshold::default()),
            certificate: (identity.certificate, identity.key),
            counted: false,
        })
    }

    /// The same with so many pods.
    pub(super) fn of_pods(self, pods: u64) -> Self {
        Self { pods, ..self }
    }

    /// For a new connection: what to show there. The next report is a full one.
    pub(super) fn begin(&mut self) -> Credentials {
        self.encoder.send_full();
        (self.certificate.0.clone(), self.certificate.1.clone_key())
    }

    /// One connection, to its end.
    async fn serve(
        &mut self,
        shared: &Shared,
        place: &mut watch::Receiver<Place>,
        mut server: String,
    ) -> Result<()> {
        let (authorities, name) = {
            let place = place.borrow();
            (place.authorities.clone(), place.name.clone())
        };
        let (certificate, key) = self.begin();
        let tls = link::config(&authorities, certificate, key, Kind::Reporter)?;
        loop {
            let mut link = Link::open(&server, &name, &tls, Kind::Reporter).await?;
            self.encoder.send_full();
            let mut due = Instant::now();
            server = loop {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = link.ended() => bail!("ended"),
                    _ = place.changed() => {
                        if place.borrow_and_update().servers.first() != Some(&server) { return Ok(()) }
                        continue;
                    }
                }
                let posted = tokio::select! {
                    posted = self.post(shared, &mut link) => posted,
                    // A leader that stands still is not waited for when there is another.
                    () = other(place, &server) => return Ok(()),
                };
                match posted {
                    Ok(None) => {}
                    Ok(Some(leader)) => break leader,
                    Err(error) => {
                        shared.counts.failed.fetch_add(1, Relaxed);
                        return Err(error);
                    }
                }
                due = self.next_due();
            };
        }
    }

    /// All nodes at the same interval, each at a moment of its own.
    fn next_due(&self) -> Instant {
        let interval = u64::try_from(self.interval.as_millis()).unwrap_or(10_000);
        let place = self.number * 7_919 % interval;
        let now = u64::try_from(super::now_ms()).unwrap_or(0) % interval;
        let wait = (place + interval - now) % interval;
        Instant::now() + Duration::from_millis(if wait < interval / 2 { wait + interval } else { wait })
    }

    /// One report; another server's address if that one leads.
    pub(super) async fn post(&mut self, shared: &Shared, link: &mut Link) -> Result<Option<String>> {
        let interval_ms = u32::try_from(self.interval.as_millis())?;
        for _ in 0..2 {
            self.turn += 1;
            let sample = sample(self.number, self.pods, self.turn, super::now_ms(), interval_ms);
            let report = Bytes::from(self.encoder.next(sample).encode_to_vec());
            let length = report.len() as u64;
            let request = http::Request::post("/").header(http::header::CONTENT_TYPE, CONTENT_TYPE);
            let response = link.send(request, PATH, report).await?;
            let status = response.status().as_u16();
            let leader = response.headers().get(LEADER_HEADER).and_then(|leader| leader.to_str().ok());
            let leader = leader.map(str::to_owned);
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
            match status {
                200 => {
                    let answer = Answer::decode(body)?;
                    self.encoder.answered(&answer);
                    shared.heard(self.number, answer.epoch);
                    shared.counts.taken.fetch_add(1, Relaxed);
                    shared.counts.bytes.fetch_add(length, Relaxed);
                    if !std::mem::replace(&mut self.counted, true) {
                        shared.counts.reporting.fetch_add(1, Relaxed);
                    }
                    return Ok(None);
                }
                409 => self.encoder.send_full(),
                421 => return Ok(Some(leader.context("no leader is known")?)),
                status => {
                    bail!("{status}: {}", String::from_utf8_lossy(&body))
                }
            }
        }
        bail!("a full report was asked for twice")
    }
}

/// Returns when another server than that one leads.
pub(super) async fn other(place: &mut watch::Receiver<Place>, server: &str) {
    // The sender lives as long as the benchmark.
    let _ = place.wait_for(|place| place.servers.first().is_some_and(|first| first != server)).await;
}
