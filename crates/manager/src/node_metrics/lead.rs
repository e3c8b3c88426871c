//! Stands for election, again and again; while this replica leads, its store is the truth.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use node_metrics::store::Phase;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Host;
use super::announcement::{self, Reservation};
use super::hearing::{self, Hearing};
use crate::leader::{Clock, Election, LeadershipGuard, Settings};

/// How often the announcement is looked at: a reservation is renewed long before its end, and replicas come and go.
const ANNOUNCE: Duration = Duration::from_secs(5);

/// For so long whoever gave the Lease away lets others go first.
const DEFERENCE: Duration = Duration::from_secs(10);

/// How long to wait after a write that failed.
const RETRY: Duration = Duration::from_millis(100);

/// Stands for election until `stop`, and then gives the Lease away; before that, if no node reaches this replica any more.
pub(super) async fn stand(host: Arc<Host>, stop: CancellationToken) {
    let begun = Instant::now();
    let hearing: Arc<tokio::sync::Mutex<Hearing>> = Arc::default();
    // The same in all elections of this process: of a leadership that it lost it knows that it is over, and need not wait for its end.
    let identity = crate::config::unique(&host.config.identity);
    let mut gave_away = false;
    while !stop.is_cancelled() {
        let settings = Settings {
            namespace: host.config.namespace.clone(),
            name: host.config.lease.clone(),
            identity: identity.clone(),
            timing: host.config.timing,
            owner: None,
            at: host.config.listens_at(),
        };
        let (election, leadership) =
            Election::new(host.lease_client.clone(), settings, Clock::boot(), host.leader_metrics.clone());
        let mut tasks = JoinSet::new();
        let prepared = if gave_away { later(&mut tasks) } else { host.prepared.subscribe() };
        let election = election.deferring_until(prepared).doubting(host.broken_off.subscribe());
        let guard = LeadershipGuard::from(leadership);
        *host.guard.write() = Some(guard.clone());
        let end = stop.child_token();
        let (of, heard, lost) = (Arc::clone(&host), Arc::clone(&hearing), end.clone());
        tasks.spawn(async move {
            let mut heard = heard.lock().await;
            lead(&of, guard, hearing::lost(&of, &mut heard, begun)).await;
            lost.cancel();
        });
        // It ends when the leadership is lost, or by the token once the Lease is released.
        let ended = election.run(end.clone()).await;
        gave_away = end.is_cancelled() && ended.is_ok();
        *host.guard.write() = None;
        tasks.shutdown().await;
        // Nobody is sent here as to the leader; whom the cluster named meanwhile stays.
        host.reports_at.write().take_if(|at| *at == host.config.reports_at());
        let was_leading = host.source.change(|store, _| {
            let was_leading = store.phase() != Phase::Following;
            store.demote();
            was_leading
        });
        host.source.wake();
        if was_leading || ended.is_err() {
            // Last of all: whoever leads next is followed anew, be it the one that was followed before.
            host.led.send_modify(|count| *count += 1);
        }
        if let Err(error) = ended {
            warn!(%error, "takes reports no more");
        }
    }
}

/// Turns true when everybody else has had time to take a Lease that was given away; until then it is left to them for a moment.
fn later(tasks: &mut JoinSet<()>) -> watch::Receiver<bool> {
    let (now, later) = watch::channel(false);
    tasks.spawn(async move {
        tokio::time::sleep(DEFERENCE).await;
        now.send_replace(true);
    });
    later
}

/// Waits until this replica leads, and keeps its announcement. Returns when it should lead no more, as nodes are `lost`.
async fn lead(host: &Host, mut guard: LeadershipGuard, lost: impl Future<Output = ()>) {
    let reserve = || async {
        let (told, now) = told(host);
        match announcement::reserve(&host.client, told, now).await {
            Ok(reservation) => Some(reservation),
            Err(error) => {
                debug!(%error, "cannot reserve versions; trying again");
                tokio::time::sleep(RETRY).await;
                None
            }
        }
    };
    let Ok(reservation) = guard.prepared(reserve).await else {
        // The election is over: there is nothing to give away.
        return;
    };
    let Reservation { floor, ceiling, .. } = reservation;
    let (epoch, warm) = host.known.lead(&host.source, |store, now| {
        let epoch = store.promote(now, floor);
        store.set_ceiling(ceiling);
        (epoch, store.is_warm())
    });
    *host.reports_at.write() = Some(host.config.reports_at());
    host.proxy.set_leader(None);
    host.metrics.took_over(warm);
    let coverage = host.source.read(node_metrics::store::Store::coverage);
    info!(epoch, warm, live = coverage.live, covered = coverage.covered, "takes reports");
    tokio::select! {
        () = keep_announced(host, reservation, epoch) => {}
        () = lost => {}
    }
}

/// Never ends.
async fn keep_announced(host: &Host, mut reservation: Reservation, epoch: u64) {
    let mut turn = interval(ANNOUNCE);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        if failed {
            tokio::time::sleep(RETRY).await;
        } else {
            turn.tick().await;
        }
        let ca = host.identity.authorities();
        let (told, now) = told(host);
        let announced =
            announcement::announce(&host.client, &reservation, &host.config, &ca, (epoch, told), now).await;
        match announced {
            Ok(next) => {
                failed = false;
                host.source.change(|store, _| store.set_ceiling(next.ceiling));
                host.replicas_announced.store(next.replicas(), Ordering::Relaxed);
                reservation = next;
            }
            Err(error) => {
                warn!(%error, "cannot announce the leader of node metrics");
                // Somebody else may have written: what is there now is the base of the next attempt.
                if let Ok(again) = announcement::reserve(&host.client, told, now).await {
                    reservation = again;
                }
                failed = true;
                if reservation.is_of_a_later(&host.config.api_at(), epoch) {
                    // The election ends as soon as it learns of that. Until then nodes and replicas stay with whoever follows.
                    tokio::time::sleep(ANNOUNCE).await;
                }
            }
        }
    }
}

/// The last version, and the time of day in microseconds.
fn told(host: &Host) -> (u64, u64) {
    (host.source.read(|store| store.ledger().last()), host.source.now().micros())
}
