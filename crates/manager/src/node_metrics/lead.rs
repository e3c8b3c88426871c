//! Stands for election, again and again; while this replica leads, its store is the truth.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Host;
use super::announcement::{self, Reservation};
use crate::leader::{Clock, Election, LeadershipGuard, Settings};

/// How often the announcement is looked at: a reservation is renewed long before its end, and replicas come and go.
const ANNOUNCE: Duration = Duration::from_secs(5);

/// How long to wait after a write that failed.
const RETRY: Duration = Duration::from_millis(100);

/// Stands for election until `stop`, and then gives the Lease away.
pub(super) async fn stand(host: Arc<Host>, stop: CancellationToken) {
    // The same in all elections of this process: of a leadership that it lost it knows that it is over, and need not wait for its end.
    let identity = crate::config::unique(&host.config.identity);
    while !stop.is_cancelled() {
        let settings = Settings {
            namespace: host.config.namespace.clone(),
            name: host.config.lease.clone(),
            identity: identity.clone(),
            timing: host.config.timing,
            owner: None,
        };
        let (election, leadership) =
            Election::new(host.lease_client.clone(), settings, Clock::boot(), host.leader_metrics.clone());
        let election = election.deferring_until(host.prepared.subscribe());
        let guard = LeadershipGuard::from(leadership);
        *host.guard.write() = Some(guard.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(lead(Arc::clone(&host), guard));
        // It ends when the leadership is lost, or by `stop` once the Lease is released.
        let ended = election.run(stop.clone()).await;
        *host.guard.write() = None;
        tasks.shutdown().await;
        // Nobody is sent here as to the leader; whom the cluster named meanwhile stays.
        host.reports_at.write().take_if(|at| *at == host.config.reports_at());
        host.source.change(|store, _| store.demote());
        host.source.wake();
        if let Err(error) = ended {
            warn!(%error, "takes reports no more");
        }
    }
}

/// Waits until this replica leads, and keeps its announcement.
async fn lead(host: Arc<Host>, mut guard: LeadershipGuard) {
    if guard.elected().await.is_err() {
        return;
    }
    let reservation = loop {
        let (told, now) = told(&host);
        match announcement::reserve(&host.client, told, now).await {
            Ok(reservation) => break reservation,
            Err(error) => {
                debug!(%error, "cannot reserve versions; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    let Reservation { floor, ceiling, .. } = reservation;
    let (epoch, warm) = host.source.change(|store, now| {
        let epoch = store.promote(now, floor);
        store.set_ceiling(ceiling);
        (epoch, store.is_warm())
    });
    *host.reports_at.write() = Some(host.config.reports_at());
    host.proxy.set_leader(None);
    host.metrics.took_over(warm);
    let coverage = host.source.read(node_metrics::store::Store::coverage);
    info!(epoch, warm, live = coverage.live, covered = coverage.covered, "takes reports");
    keep_announced(&host, reservation, epoch).await;
}

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
                reservation = next;
            }
            Err(error) => {
                warn!(%error, "cannot announce the leader of node metrics");
                // Somebody else may have written: what is there now is the base of the next attempt.
                if let Ok(again) = announcement::reserve(&host.client, told, now).await {
                    reservation = again;
                }
                failed = true;
            }
        }
    }
}

/// The last version, and the time of day in microseconds.
fn told(host: &Host) -> (u64, u64) {
    (host.source.read(|store| store.ledger().last()), host.source.now().micros())
}
