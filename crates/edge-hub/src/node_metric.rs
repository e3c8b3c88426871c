//! Reports what the node and its pods use to the leader of the managers (ADR 0016), if `--node-metric` is given.
//!
//! ```text
//!  subscriptions: own Node, own pods ─► facts ───┐
//!  /proc, cgroups ─► node_sampler, each second ──┼─► report (a task): full, then deltas ─► connect: HTTP/2, TLS 1.3 ─► leader
//!  ConfigMap isthmus-node-metric ─► place ───────┘        ▲ route, schedule (pure): who, when
//! ```
//! Nothing here goes through the API server but the subscriptions, and without `--node-metric` nothing here runs. The last half hour is
//! kept in one blob of the store, every two minutes and at the end.

mod args;
mod connect;
mod follow;
mod meters;
mod place;
mod pod;
mod report;
mod route;
mod schedule;
mod server;
mod view;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use node_sampler::{Facts, Moment, Sampler, checkpoint::Checkpoint};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use self::args::{NodeMetricArgs, NodeMetricConfig};
pub use self::meters::NodeMetricMeters;
pub use self::server::{Server, ServerError};
pub use self::view::{NodeMetricView, Said};
use self::{follow::Known, place::Told};
use crate::{hub::Hub, storage::Storage, upstream::Connector};

/// Where the half hour is kept.
const BLOB: &str = "node-metric";

/// How often it is kept: `kill -9` loses no more than this.
const KEEP: Duration = Duration::from_mins(2);

/// Everything that the tasks of this module share.
struct Shared {
    config: NodeMetricConfig,
    node: String,
    boot_id: String,
    sampler: Mutex<Sampler>,
    facts: ArcSwap<Facts>,
    /// What the cluster says of whom to report to, and under which UID.
    known: watch::Sender<Known>,
    /// The reporter's incarnation, for the checkpoint.
    incarnation: Mutex<u64>,
    said: Said,
    meters: NodeMetricMeters,
}

/// Samples and reports until `shutdown`.
pub async fn keep(
    hub: Arc<Hub>,
    config: NodeMetricConfig,
    node: String,
    connector: Arc<Connector>,
    meters: NodeMetricMeters,
    shutdown: CancellationToken,
) {
    let boot_id =
        std::fs::read_to_string(config.roots.proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
    let boot_id = boot_id.trim().chars().take(64).collect::<String>();
    let mut sampler = Sampler::new(&config.roots);
    let now = now();
    let mut incarnation = u64::try_from(now.wall_ms).unwrap_or(0).saturating_mul(1_000);
    if let Some(kept) = hub.storage.blob(BLOB).and_then(|blob| Checkpoint::read(&blob)) {
        sampler.restore(&kept, now, &boot_id);
        incarnation = incarnation.max(kept.incarnation.saturating_add(1));
    }
    let shared = Arc::new(Shared {
        config,
        node,
        boot_id,
        sampler: Mutex::new(sampler),
        facts: ArcSwap::default(),
        known: watch::Sender::default(),
        incarnation: Mutex::new(incarnation),
        said: hub.node_metric.clone(),
        meters,
    });
    shared.said.begins();
    let storage = hub.storage.clone();
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = follow::follow(hub, shared.clone()) => {}
        () = sample(shared.clone()) => {}
        () = report::report(shared.clone(), connector) => {}
        () = checkpoints(shared.clone(), storage.clone()) => {}
    }
    store(shared, storage).await;
}

/// Reads once a second.
async fn sample(shared: Arc<Shared>) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let begun = tokio::time::Instant::now();
        let of = shared.clone();
        let ticked =
            tokio::task::spawn_blocking(move || of.sampler.lock().tick(now(), &of.facts.load())).await;
        if let Err(error) = ticked {
            warn!(%error, "the node could not be measured");
        }
        shared.meters.sampled(begun.elapsed());
    }
}

async fn checkpoints(shared: Arc<Shared>, storage: Storage) {
    let mut ticks = interval(KEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, when there is nothing to keep yet.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        store(shared.clone(), storage.clone()).await;
    }
}

async fn store(shared: Arc<Shared>, storage: Storage) {
    let stored = tokio::task::spawn_blocking(move || {
        let incarnation = *shared.incarnation.lock();
        let bytes = shared.sampler.lock().checkpoint(now(), &shared.boot_id, incarnation);
        storage.put_blob(BLOB, &bytes)
    });
    match stored.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "the last half hour of the node's metrics cannot be stored"),
        Err(error) => debug!(%error, "the store was cut short"),
    }
}

fn now() -> Moment {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let boot_ms = boot.tv_sec.saturating_mul(1_000).saturating_add(boot.tv_nsec / 1_000_000);
    Moment { boot_ms: u64::try_from(boot_ms).unwrap_or(0), wall_ms: Timestamp::now().as_millisecond() }
}
