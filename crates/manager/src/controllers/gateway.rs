//! The Gateway controller: elects the endpoints through which sites are reached, and keeps what leads to them.
//!
//! ```text
//! watch Gateways, Nodes, NodePools, Services, EndpointSlices, ConfigMaps ─► indexes
//!   ─► observe ─► plan (pure) ─► apply: Services, EndpointSlices, names of nodes, Gateways of pools
//!                              └► status: PATCH status, events on change
//! ```
//! Everything hangs together: whether a site is connected is in the reports of all exposed gateways, and the one internal Service is made of
//! all of them. So one reconciliation looks at all Gateways; there are few. It is level-triggered, and begins [`SETTLE`] after a
//! change, for what dies must be out of the slices within five seconds. A report that says nothing new wakes nobody.
//!
//! The gateway that dies may take the replica along that runs this. So who does is elected by a Lease of its own that lasts no longer than a
//! hub is given to report, and the others follow all that it goes by: whoever is next knows when each report was seen to change last.

mod accepting;
mod apply;
mod dialers;
mod dialling;
mod domains;
mod elect;
mod elections;
mod exposure;
mod external_addr;
mod findings;
mod follow;
mod hub_reports;
mod kept;
mod liveness;
pub(crate) mod metrics;
mod node_names;
mod observe;
mod pace;
mod plan;
mod pool_gateways;
mod ports;
mod selectors;
mod services;
mod status;
mod unlinked;
mod verdict;
mod ways_in;
mod wording;
mod writes;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::names::MANAGER;
use api::{Gateway, GatewayStatus, conditions};
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DeserializeGuard;
use kube::runtime::events::Reporter;
use kube::{Client, ResourceExt as _};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::apply::Applied;
use self::hub_reports::ConfigMaps;
use self::metrics::{Change, GatewayMetrics};
use self::pace::{Paces, retry};
use self::plan::{Memory, Observed, Plan};
use self::writes::Backlog;
use super::node_pool::metrics::{Controller, Metrics, Outcome};
use super::told_events::ToldEvents;
use super::unreadable::Teller;
use crate::leader::{Candidacy, LeadershipGuard};
use crate::nodes::Nodes;
use crate::pools::Pools;
use crate::watches::ByName;

/// How long after a change a reconciliation begins: a burst of changes is one.
const SETTLE: Duration = Duration::from_millis(50);

/// How long to wait before a report that could not be read is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How often all is looked at though nothing changed.
const RESYNC: Duration = Duration::from_mins(5);

/// What the controller is made of.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) candidacy: Candidacy,
    /// By which events tell who published them.
    pub(crate) identity: String,
    pub(crate) pools: Pools,
    pub(crate) nodes: Arc<Nodes>,
    /// Becomes true when `nodes` is whole.
    pub(crate) nodes_listed: watch::Receiver<bool>,
    pub(crate) metrics: Metrics,
    pub(crate) gateway_metrics: GatewayMetrics,
    /// Whether pools of type Edge get a Gateway without asking.
    pub(crate) for_edge_pools: bool,
}

/// What every reconciliation needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) leadership: LeadershipGuard,
    pub(crate) events: ToldEvents,
    pub(crate) pools: Pools,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) gateways: Arc<ByName<DeserializeGuard<Gateway>>>,
    pub(crate) configs: Arc<ConfigMaps>,
    pub(crate) services: Arc<ByName<Service>>,
    pub(crate) slices: Arc<ByName<EndpointSlice>>,
    pub(crate) metrics: Metrics,
    gateway_metrics: GatewayMetrics,
    pub(crate) for_edge_pools: bool,
}

/// What was told, so that it is told once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Pools whose Gateway somebody made by hand.
    pub(crate) hand_made: BTreeSet<String>,
    /// Nodes whose names lead nowhere, because they would stand for something else.
    pub(crate) misnamed: BTreeSet<String>,
    /// Gateways that cannot be read, and why.
    unreadable: HashMap<String, String>,
}

/// What is remembered between reconciliations; nothing is lost with it but time.
struct Remembered {
    memory: Memory,
    paces: Paces,
    /// Gateways, and statuses, that wait for their turn.
    backlogs: [Backlog; 2],
    told: Told,
    written: HashMap<String, Written>,
    failures: u32,
}

/// A status that was written, and the version that it was written on: until the watch has told of a newer one, this is the status.
#[derive(Clone, Debug)]
struct Written {
    version: Option<String>,
    status: GatewayStatus,
    at: Instant,
}

/// What wakes the controller.
struct Wakes {
    wake: Arc<Notify>,
    nodes: watch::Receiver<u64>,
    pools: watch::Receiver<u64>,
}

impl Wakes {
    /// Returns when something has changed.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.wake.notified() => {}
            // Their senders are in the context.
            _ = self.nodes.changed() => {}
            _ = self.pools.changed() => {}
        }
    }
}

/// Follows all that concerns gateways, stands for election once it knows that and there is anything to do, and keeps them while it leads;
/// until `end`.
pub(crate) async fn run(setup: Setup, end: CancellationToken) {
    let Setup {
        client,
        candidacy,
        identity,
        pools,
        nodes,
        mut nodes_listed,
        metrics,
        gateway_metrics,
        for_edge_pools,
    } = setup;
    let reporter = Reporter { controller: MANAGER.into(), instance: Some(identity) };
    let context = Context {
        events: ToldEvents::new(client.clone(), reporter),
        client,
        leadership: LeadershipGuard::of_nobody(),
        pools,
        nodes,
        gateways: Arc::default(),
        configs: Arc::default(),
        services: Arc::default(),
        slices: Arc::default(),
        metrics,
        gateway_metrics,
        for_edge_pools,
    };
    let wake = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    let listed = follow::all(&context, &wake, &mut tasks);
    let mut wakes = Wakes { wake, nodes: context.nodes.changes(), pools: context.pools.changes() };
    let ready = async {
        // The senders live as long as the tasks.
        let _ = nodes_listed.wait_for(|done| *done).await;
        let _ = context.pools.ready().wait_for(|done| *done).await;
        for mut listed in listed {
            let _ = listed.wait_for(|done| *done).await;
        }
        // A Lease that is kept costs writes, and most clusters have no Gateway.
        while is_idle(&context) {
            wakes.changed().await;
        }
    };
    tokio::select! {
        () = end.cancelled() => return,
        () = ready => {}
    }
    while !end.is_cancelled() {
        candidacy
            .term(|leadership| keep(Context { leadership, ..context.clone() }, &mut wakes, &end), &end)
            .await;
        // The next leader tells.
        context.gateway_metrics.observe(std::iter::empty());
    }
}

/// Whether there is nothing to do, and nobody for whom there could be.
fn is_idle(context: &Context) -> bool {
    let nothing = |now| plan::plan(&observe::observe(context), &Memory::new(now)).0.is_empty();
    context.gateways.all().is_empty() && nothing(Instant::now())
}

/// Keeps the gateways until `end`.
async fn keep(context: Context, wakes: &mut Wakes, end: &CancellationToken) {
    let mut remembered = Remembered {
        memory: Memory::new(Instant::now()),
        paces: Paces::default(),
        backlogs: Default::default(),
        told: Told::default(),
        written: HashMap::new(),
        failures: 0,
    };
    while !end.is_cancelled() {
        let due = reconcile(&context, &mut remembered).await;
        loop {
            let now = Instant::now();
            let ask = if context.configs.hubs.suspects(now).is_empty() {
                context.configs.hubs.next_end(now)
            } else {
                Some(now + ASK_AGAIN)
            };
            let next = ask.map_or(due, |ask| ask.min(due));
            tokio::select! {
                () = end.cancelled() => return,
                () = wakes.changed() => break,
                () = tokio::time::sleep_until(next.into()) => {}
            }
            let now = Instant::now();
            if due <= now || !context.configs.hubs.suspects(now).is_empty() {
                break;
            }
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(SETTLE) => {}
        }
    }
}

/// Brings everything about gateways into force, and says when to look again.
async fn reconcile(context: &Context, remembered: &mut Remembered) -> Instant {
    let started = Instant::now();
    observe::confirm(context).await;
    let mut observed = observe::observe(context);
    overlay(&mut observed, &remembered.written);
    let (plan, memory) = plan::plan(&observed, &remembered.memory);
    remembered.memory = memory;
    let Remembered { memory: _, paces, backlogs: [gateways, statuses], told, written, failures } = remembered;
    let mut applied = apply::apply(context, &plan, paces, gateways, told).await;
    write_statuses(context, &plan, paces, statuses, written, &mut applied).await;
    tell_of_unreadable(context, told).await;
    paces.tidy(started);
    for error in &applied.errors {
        warn!(error, "gateways could not be brought into force; it is tried again");
    }
    let retry = if applied.errors.is_empty() {
        *failures = 0;
        None
    } else {
        let delay = retry(*failures);
        *failures += 1;
        Some(started + delay)
    };
    let outcome = if applied.errors.is_empty() { Outcome::Success } else { Outcome::Failed };
    context.metrics.observe_reconcile(Controller::Gateway, outcome, started.elapsed());
    debug!(gateways = observed.gateways.len(), ?outcome, "reconciled gateways");
    [retry, applied.look_at, plan.look_at].into_iter().flatten().fold(started + RESYNC, Instant::min)
}

/// Puts statuses in force that were written and of which the watch has not told yet.
fn overlay(observed: &mut Observed, written: &HashMap<String, Written>) {
    for gateway in &mut observed.gateways {
        let last = written.get(&gateway.name_any());
        if let Some(last) = last.filter(|last| last.version == gateway.resource_version()) {
            Arc::make_mut(gateway).status = Some(last.status.clone());
        }
    }
}

async fn write_statuses(
    context: &Context,
    plan: &Plan,
    paces: &mut Paces,
    backlog: &mut Backlog,
    written: &mut HashMap<String, Written>,
    applied: &mut Applied,
) {
    let (now, clock) = (Timestamp::now(), Instant::now());
    let statuses: Vec<(&Gateway, GatewayStatus)> = plan
        .verdicts
        .iter()
        .map(|verdict| (verdict.gateway.as_ref(), status::compute(verdict, now)))
        .collect();
    let observed = statuses.iter().zip(&plan.verdicts);
    let observed = observed.map(|((gateway, status), verdict)| (gateway.name_any(), status, verdict.lacking));
    context.gateway_metrics.observe(observed);
    written.retain(|name, _| statuses.iter().any(|(gateway, _)| gateway.name_any() == *name));
    let mut due = Vec::new();
    for (gateway, status) in &statuses {
        let (name, before) = (gateway.name_any(), gateway.status.as_ref());
        if before == Some(status) {
            continue;
        }
        let last = written.get(&name).map(|last| last.at);
        let times_only = before.is_some_and(|before| status::differ_in_times_only(before, status));
        let later = last.map(|at| at + status::ROUND_TRIPS).filter(|later| times_only && *later > clock);
        if let Some(later) = later {
            applied.look_by(later);
        } else if applied.admit(paces, &status_of(&name)) {
            let write = async move { (*gateway, status, status::write(context, gateway, status).await) };
            due.push((status_of(&name), write.boxed()));
        }
    }
    for (title, (gateway, status, result)) in applied.take_turn(paces, backlog, due).await {
        if result.is_ok() {
            let active = gateway.status.as_ref().map(|s| s.active_endpoints.as_slice()).unwrap_or_default();
            let (elected, lost) = status::election_changes(active, &status.active_endpoints);
            context.gateway_metrics.changed(Change::Elected, elected.len());
            context.gateway_metrics.changed(Change::Lost, lost.len());
            let version = gateway.resource_version();
            written.insert(gateway.name_any(), Written { version, status: status.clone(), at: clock });
        }
        applied.note_of_turn(paces, &title, result);
    }
}

fn status_of(gateway: &str) -> String {
    format!("status of Gateway {gateway}")
}

/// Tells of Gateways that cannot be read, once for each reason.
async fn tell_of_unreadable(context: &Context, told: &mut Told) {
    let all = context.gateways.all();
    let unreadable: HashMap<String, &str> = all
        .iter()
        .filter_map(|guarded| Some((guarded.name_any(), guarded.0.as_ref().err()?.error.as_str())))
        .collect();
    told.unreadable.retain(|name, _| unreadable.contains_key(name));
    for (name, error) in unreadable {
        if told.unreadable.get(&name).is_some_and(|last| last == error) {
            continue;
        }
        warn!(gateway = name, error, "gateway cannot be read and counts for nothing");
        let reason: String = error.chars().take(200).collect();
        let message = format!(
            "the gateway cannot be read: {reason}; put the field right (kubectl edit gateways.raven.openyurt.io)"
        );
        let Context { client, leadership, events, metrics, .. } = context;
        let teller = Teller { client, leadership, events, writes: &metrics.writes };
        match teller.tell::<Gateway>(&name, conditions::ELECTED, &message).await {
            Ok(()) => drop(told.unreadable.insert(name, error.to_owned())),
            Err(failure) => {
                warn!(gateway = name, error = %failure, "cannot tell that the gateway is unreadable");
            }
        }
    }
}
