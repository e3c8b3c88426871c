//! The NodePool controller: what a pool says is what its nodes carry.
//!
//! A reconciliation of a pool runs through four steps: [`observe`] reads indexes, [`plan`] decides, [`apply`] writes
//! nodes and the hubs' `ConfigMap`, [`status`] reports. It is level-triggered: whatever was missed, cut off or undone by
//! hand is found by looking at the present state alone.

pub(crate) mod apply;
pub(crate) mod contest;
pub(crate) mod elect;
pub(crate) mod leader_config;
mod left;
pub(crate) mod metrics;
mod missing;
mod node_events;
pub(crate) mod observe;
pub(crate) mod ownership;
pub(crate) mod plan;
pub(crate) mod status;
pub(crate) mod taint;
mod unreadable;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::runtime::events::Reporter;
use parking_lot::Mutex;
use tls::digest::Sha256Digest;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::apply::Applied;
use self::contest::Contests;
use self::metrics::{Controller, Metrics, Outcome};
use super::told_events::ToldEvents;
use crate::leader::LeadershipGuard;
use crate::nodes::Nodes;
use crate::pods::ContainerNetworkPods;
use crate::pools::{PoolView, Pools};
use crate::watches::ByName;
use crate::work_queue;

/// Who we are to server-side apply.
pub(crate) const FIELD_MANAGER: &str = "isthmus-manager";

/// How many pools are reconciled at a time.
const CONCURRENT_POOLS: usize = 16;

/// How many writes of nodes are under way at a time, over all pools: what keeps an API server busy without a queue.
const CONCURRENT_WRITES: usize = 32;

/// How long a pool must be left alone before it is looked at: a burst of node events is one reconciliation.
const SETTLE: Duration = Duration::from_millis(50);

/// The first delay after a failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The longest delay after failures.
const LAST_RETRY: Duration = Duration::from_mins(1);

/// What every reconciliation needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) pools: Pools,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) pods: Arc<ContainerNetworkPods>,
    pub(crate) leader_configs: Arc<ByName<ConfigMap>>,
    /// For events on pools.
    pub(crate) events: ToldEvents,
    /// Who writes events.
    pub(crate) reporter: Reporter,
    pub(crate) metrics: Metrics,
    /// The namespace in which the hubs look for their `ConfigMap`s.
    pub(crate) hub_namespace: String,
    /// Asked before each write: another replica may lead by now.
    pub(crate) leadership: LeadershipGuard,
    /// What the controller remembers between reconciliations; nothing is lost with it but time.
    pub(crate) progress: Progress,
}

/// What an event on a node said, and about which pool.
struct Told {
    pool: String,
    /// Of the message: thousands of nodes may have one.
    message: Sha256Digest,
    /// Whether it holds still.
    holds: bool,
    /// How often it was told by this process.
    times: i32,
}

/// What the controller remembers between reconciliations.
pub(crate) struct Progress {
    /// How many writes of nodes may begin. Never closed.
    write_permits: Semaphore,
    /// Nodes that were patched, with the version that was patched: until the watch has told of a newer one, their view
    /// is known to be stale.
    written: Mutex<HashMap<String, String>>,
    /// Failures in a row, by pool.
    failures: Mutex<HashMap<String, u32>>,
    /// What was written of late, and who keeps undoing it.
    contests: Mutex<Contests>,
    /// What was told last in an event on a node, by the node, and of which pool. It grows with the nodes that were ever in trouble.
    told: Mutex<HashMap<String, Told>>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            write_permits: Semaphore::new(CONCURRENT_WRITES),
            written: Mutex::default(),
            failures: Mutex::default(),
            contests: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

impl Progress {
    /// Remembers that `node` was patched at `resource_version`.
    fn note_written(&self, node: &str, resource_version: &str) {
        self.written.lock().insert(node.to_owned(), resource_version.to_owned());
    }

    /// Whether the view of `node` at `resource_version` is older than our own last patch.
    fn is_overwritten(&self, node: &str, resource_version: &str) -> bool {
        let mut written = self.written.lock();
        match written.get(node) {
            Some(patched) if patched == resource_version => true,
            Some(_) => {
                written.remove(node);
                false
            }
            None => false,
        }
    }

    /// How often, with this time, `message` about `pool` is told of `node`; `None` if it was told last and holds still.
    fn is_news(&self, node: &str, pool: &str, message: &str) -> Option<i32> {
        let message = Sha256Digest::of(message.as_bytes());
        let mut told = self.told.lock();
        let before = told.get(node).filter(|told| told.pool == pool && told.message == message);
        if before.is_some_and(|before| before.holds) {
            return None;
        }
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        told.insert(node.to_owned(), Told { pool: pool.to_owned(), message, holds: true, times });
        Some(times)
    }

    /// About `pool` there is something to tell of nodes for which `is_told` says so, and of no other: should it begin again, it is news.
    fn forget_told(&self, pool: &str, is_told: impl Fn(&str) -> bool) {
        for (_, told) in
            self.told.lock().iter_mut().filter(|(node, told)| told.pool == pool && !is_told(node))
        {
            told.holds = false;
        }
    }

    /// The delay before the next try of `pool`, after it failed or not.
    fn retry_delay(&self, pool: &str, failed: bool) -> Option<Duration> {
        let mut failures = self.failures.lock();
        if !failed {
            failures.remove(pool);
            return None;
        }
        let row = failures.entry(pool.to_owned()).or_default();
        let delay = FIRST_RETRY.saturating_mul(1 << (*row).min(6)).min(LAST_RETRY);
        *row += 1;
        Some(delay)
    }
}

/// Reconciles the pools named in `keys` until `shutdown`.
pub(crate) async fn run(
    context: Arc<Context>,
    keys: mpsc::UnboundedReceiver<String>,
    shutdown: CancellationToken,
) {
    work_queue::run(keys, CONCURRENT_POOLS, SETTLE, shutdown, |name| {
        let context = Arc::clone(&context);
        async move { reconcile(&context, &name).await }
    })
    .await;
}

/// The pools that every reconciliation at start-up must visit: those there are, and those that nodes still speak of.
pub(crate) fn all_keys(context: &Context) -> BTreeSet<String> {
    context.pools.names().into_iter().chain(context.nodes.pools()).collect()
}

/// Brings the pool of that name into force, and says after how long to look again, if at all.
async fn reconcile(context: &Context, name: &str) -> Option<Duration> {
    let started = Instant::now();
    if let Some(PoolView::Unreadable(error)) = context.pools.get(name) {
        // Not to know what a pool says is no reason to take anything from its nodes.
        unreadable::tell(context, name, &error).await;
        return Some(LAST_RETRY);
    }
    unreadable::forget(context, name);
    let observed = observe::observe(context, name);
    let mut plan = plan::plan(&observed);
    let looked_at = observed.members.iter().chain(&observed.leavers).map(|node| node.name.as_str());
    let wanted = observed.pool.as_deref().map(plan::wanted_attributes).unwrap_or_default();
    let mut contested = context.progress.contests.lock().review(
        name,
        &wanted,
        &mut plan.nodes,
        looked_at,
        started.into_std(),
    );
    apply::explain(context, &mut contested).await;
    let mut applied = Applied { contested, ..apply::apply(context, name, &plan).await };
    left::tell(context, &plan, &applied).await;
    match (&observed.pool, &plan.election) {
        (Some(pool), Some(election)) => {
            let status = status::compute(pool, &observed, election, &applied, Timestamp::now());
            context.metrics.observe_pool(name, &status);
            if let Err(error) = status::write(context, pool, &status).await {
                applied.errors.push(format!("status: {error}"));
            }
        }
        _ => context.metrics.forget_pool(name),
    }
    if observed.pool.is_none() {
        missing::tell(context, &observed, &plan).await;
    } else {
        context.progress.forget_told(name, |_| false);
    }
    for error in &applied.errors {
        warn!(pool = name, error, "pool could not be brought into force; it is tried again");
    }
    let failed = !applied.errors.is_empty() || !applied.failures.is_empty();
    let outcome = match (failed, applied.stale) {
        (true, _) => Outcome::Failed,
        (false, true) => Outcome::Stale,
        (false, false) => Outcome::Success,
    };
    context.metrics.observe_reconcile(Controller::NodePool, outcome, started.elapsed());
    debug!(pool = name, ?outcome, nodes = observed.members.len(), "reconciled");
    let retry = context.progress.retry_delay(name, failed);
    // A node that changed under our hands is told by its watch; the second look is for a watch that lags.
    let retry = retry.or_else(|| applied.stale.then_some(FIRST_RETRY));
    let now = std::time::Instant::now();
    let contested =
        applied.contested.values().map(|contest| contest.look_at().saturating_duration_since(now));
    retry.into_iter().chain(contested).min()
}
