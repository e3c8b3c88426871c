//! The loop that reports: whom to, when and what comes from elsewhere; here it is done, and what came of it is told back.

use std::{sync::Arc, time::Duration};

use node_report::{Answer, Encoder, Message, Policy, Source, Threshold, encoder::Heard};
use rustls::client::ResolvesClientCert;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, info, warn};

use super::{
    Server, Shared,
    connect::{ConnectError, Connection, Reply},
    follow::Known,
    meters::Outcome,
    now,
    place::{Elsewhere, Place, PlaceError},
    route::Route,
    schedule,
};
use crate::upstream::Connector;

/// How long to wait where nothing tells when it is worth another attempt: for a certificate, after a refusal.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest wait that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// Reports for as long as it is polled.
pub(super) async fn report(shared: Arc<Shared>, connector: Arc<Connector>) {
    let known = shared.known.subscribe();
    let incarnation = *shared.incarnation.lock();
    let restored = shared.sampler.lock().policy().clone();
    let source =
        Source { node: shared.node.clone(), node_uid: String::new(), boot_id: shared.boot_id.clone() };
    let mut reporter = Reporter {
        interval_ms: u32::try_from(shared.config.interval.as_millis()).unwrap_or(10_000),
        encoder: Encoder::new(source, incarnation, Threshold::default()),
        policy_hash: (restored != Policy::default()).then(|| restored.hash()),
        moved: true,
        route: Route::default(),
        complaint: String::new(),
        shared,
        known,
        connector,
    };
    loop {
        reporter.serve().await;
    }
}

struct Reporter {
    shared: Arc<Shared>,
    known: watch::Receiver<Known>,
    connector: Arc<Connector>,
    encoder: Encoder,
    policy_hash: Option<u64>,
    route: Route,
    interval_ms: u32,
    /// Whether all nodes lost their leader with this one.
    moved: bool,
    /// What was complained of last, so that the log says it once.
    complaint: String,
}

/// What follows a report.
enum Next {
    /// Another in its time.
    InTime,
    /// Another at once: a full one is wanted.
    AtOnce,
    /// Another after so long.
    After(Duration),
    /// This connection is of no use any more.
    Leave,
}

impl Reporter {
    /// One connection, from the choice of its server to its end.
    async fn serve(&mut self) {
        let place = match self.place() {
            Ok(place) => place,
            Err(error) => {
                self.complain(error.to_string());
                // The sender lives as long as this task.
                let _ = self.known.changed().await;
                return;
            }
        };
        // Whoever waits before another attempt is told with all the others.
        self.moved |= self.route.set(&place.servers, place.epoch);
        let Some(certificate) = self.connector.client_certificate() else {
            self.complain("the hub has no certificate to report with".to_owned());
            return sleep(PATIENCE).await;
        };
        let Some(server) = self.route.next().cloned() else { return sleep(PATIENCE).await };
        // Nodes that lost one leader do not come to the next all at once: connecting is what costs it most.
        let mut pause = self.route.pause(chance());
        if self.moved {
            pause = pause.max(schedule::spread(&self.known.borrow().node_uid));
        }
        tokio::select! {
            () = sleep(pause) => self.moved = false,
            _ = self.known.changed() => return,
        }
        let (given, name) = (self.shared.config.servers.clone(), server.to_string());
        let heard = self.encoder.epoch();
        let mut told = place.clone();
        let opened = tokio::select! {
            opened = Connection::open(&server, &place, certificate.clone()) => opened,
            // A server that is gone without a word is not waited for when another leads.
            why = elsewhere(&mut self.known, &given, &mut told, &server, heard) => return self.moves(why),
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => return self.failed(&name, &error),
        };
        debug!(%server, "connected, to report the node's metrics");
        self.encoder.send_full();
        let mut due = Instant::now();
        loop {
            let heard = self.encoder.epoch();
            tokio::select! {
                () = sleep_until(due) => {}
                () = connection.ended() => {
                    self.shared.said.stuck(format!("{server} ended the connection"));
                    self.moved = true;
                    return self.route.failed();
                }
                why = elsewhere(&mut self.known, &given, &mut told, &server, heard) => return self.moves(why),
            }
            if !self.shows(&certificate) {
                return debug!("the hub has another certificate: connecting anew");
            }
            let mut known = self.known.clone();
            let exchanged = tokio::select! {
                exchanged = self.exchange(&mut connection, &name) => exchanged,
                // A leader that stands still is not waited for when there is another.
                why = elsewhere(&mut known, &given, &mut told, &server, heard) => return self.moves(why),
            };
            due = match exchanged {
                Next::InTime => {
                    let node_uid = self.known.borrow().node_uid.clone();
                    Instant::now() + schedule::until_next(now().wall_ms, self.interval_ms, &node_uid)
                }
                Next::AtOnce => Instant::now(),
                Next::After(wait) => Instant::now() + wait,
                Next::Leave => return,
            };
        }
    }

    fn moves(&mut self, why: Elsewhere) {
        info!(?why, "another leader, or another authority, to report to");
        // Of a list that is always the same it is another's turn; a list that begins with the leader begins anew.
        if why == Elsewhere::Leader {
            self.route.passed_over();
        }
        self.moved = true;
    }

    fn place(&mut self) -> Result<Place, PlaceError> {
        let known = self.known.borrow_and_update();
        known.told.as_ref().ok_or(PlaceError::Missing)?.place(&self.shared.config.servers)
    }

    fn shows(&self, certificate: &Arc<dyn ResolvesClientCert>) -> bool {
        self.connector.client_certificate().is_some_and(|current| Arc::ptr_eq(&current, certificate))
    }

    /// One report, and what the server says to it.
    async fn exchange(&mut self, connection: &mut Connection, server: &str) -> Next {
        self.encoder.set_node_uid(&self.known.borrow().node_uid.clone());
        let (of, interval_ms, policy_hash) = (self.shared.clone(), self.interval_ms, self.policy_hash);
        let sampled = tokio::task::spawn_blocking(move || {
            of.sampler.lock().sample(now(), &of.facts.load(), interval_ms, policy_hash)
        });
        let Ok(Some(sample)) = sampled.await else { return Next::After(Duration::from_secs(1)) };
        let report = self.encoder.next(sample).encode_to_vec();
        self.shared.meters.sent(report.len());
        let reply = match connection.post(report).await {
            Ok(reply) => reply,
            Err(error) => {
                self.failed(server, &error);
                return Next::Leave;
            }
        };
        match reply {
            Reply::Answer(answer) => self.answered(&answer),
            Reply::NeedFull => {
                self.shared.meters.report(Outcome::NeedFull);
                // A server that wants a full report after a full report would have one at once, and again.
                let is_asked_twice = self.encoder.is_full_next();
                self.encoder.send_full();
                if is_asked_twice { Next::After(PATIENCE) } else { Next::AtOnce }
            }
            Reply::NotLeader(leader) => {
                self.shared.meters.report(Outcome::NotLeader);
                debug!(server, ?leader, "it does not lead");
                self.shared.said.stuck(format!("{server} does not lead"));
                self.route.redirected(leader);
                Next::Leave
            }
            Reply::Shed(wait) => {
                self.shared.meters.report(Outcome::Shed);
                self.shared.said.refused(format!("{server} has too much to do"));
                let wait = wait.unwrap_or(PATIENCE).min(LONGEST_RETRY);
                // Those that were told the same do not come back together.
                Next::After(wait + wait.mul_f64(chance() / 4.0))
            }
            Reply::Refused(status, said) => {
                self.shared.meters.report(Outcome::Refused);
                self.shared.said.refused(format!("{server} refuses: {status} {said}"));
                self.complain(format!("{server} refuses the node's metrics: {status} {said}"));
                Next::After(PATIENCE.max(Duration::from_millis(u64::from(self.interval_ms))))
            }
        }
    }

    fn answered(&mut self, answer: &Answer) -> Next {
        let heard = self.encoder.answered(answer);
        let Answer {
            epoch,
            leader,
            incarnation: _,
            acked_seq,
            dropped,
            interval_ms,
            policy_hash,
            policy,
            server_time_ms: _,
        } = answer;
        match heard {
            Heard::OldLeader => {
                self.shared.meters.report(Outcome::NotLeader);
                self.shared.said.stuck(format!("the leader of epoch {epoch} has been followed by another"));
                self.route.failed();
                return Next::Leave;
            }
            Heard::Outlived => {
                info!(
                    incarnation = self.encoder.incarnation(),
                    "the leader held a later life of this reporter"
                );
                *self.shared.incarnation.lock() = self.encoder.incarnation();
            }
            Heard::Acknowledged | Heard::Late => {}
        }
        self.shared.meters.report(if *dropped { Outcome::Dropped } else { Outcome::Taken });
        self.route.succeeded();
        self.interval_ms = schedule::interval_ms(*interval_ms, self.interval_ms);
        if policy_hash.is_none() && self.policy_hash.take().is_some() {
            self.shared.sampler.lock().set_policy(Policy::default());
        } else if let Some(policy) = policy {
            info!(?policy, "the node's metrics have another policy");
            self.shared.sampler.lock().set_policy(policy.clone());
            self.policy_hash = *policy_hash;
        }
        if *dropped {
            self.shared.said.refused("the leader held as new a report".to_owned());
            // Not at once: two reporters of one node would outbid one another.
            return if heard == Heard::Outlived { Next::After(Duration::from_secs(1)) } else { Next::InTime };
        }
        self.complaint.clear();
        self.shared.said.taken(leader, *epoch, *acked_seq, self.interval_ms);
        Next::InTime
    }

    fn failed(&mut self, server: &str, error: &ConnectError) {
        self.shared.meters.report(Outcome::Failed);
        self.shared.said.refused(format!("{server}: {error}"));
        self.complain(format!("{server}: {error}"));
        self.route.failed();
    }

    /// Says it in the log, once.
    fn complain(&mut self, complaint: String) {
        if self.complaint != complaint {
            warn!(complaint, "the node's metrics cannot be reported");
            self.shared.said.stuck(complaint.clone());
            self.complaint = complaint;
        }
    }
}

/// Returns when the cluster sends a connection to `server` elsewhere, on which the term `heard` was told. `told` is what it said last, of
/// which the connection was right.
async fn elsewhere(
    known: &mut watch::Receiver<Known>,
    given: &[Server],
    told: &mut Place,
    server: &Server,
    heard: Option<u64>,
) -> Elsewhere {
    loop {
        // The sender lives as long as this task.
        let _ = known.changed().await;
        let news = known.borrow_and_update().told.clone();
        let Some(news) = news.and_then(|news| news.place(given).ok()) else { continue };
        match told.elsewhere(&news, server, heard) {
            Some(why) => return why,
            None => *told = news,
        }
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without chance nodes wait the whole pause, which is safe.
    match ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    }
}
