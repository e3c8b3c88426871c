//! Pure: what was observed in, everything that is to be written out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use api::{EndpointType, ExposeType, Gateway, NodePool};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

use super::domains::{Domain, Member};
use super::elect::{Outcome, Record, elect};
use super::hub_reports::Hub;
use super::liveness::Liveness;
use super::node_names;
use super::pool_gateways::{self, PoolGateways};
use super::ports::{self, Listeners};
use super::services::{self, Backend};
use super::verdict::{Case, Switches, Verdict};

/// Everything that concerns the gateways, at one moment.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) now: Instant,
    pub(crate) switches: Switches,
    pub(crate) listeners: Listeners,
    /// The Gateways that can be read and are not going away, sorted by name.
    pub(crate) gateways: Vec<Arc<Gateway>>,
    pub(crate) unreadable: BTreeSet<String>,
    /// Selectors that cannot be understood, and why, by Gateway.
    pub(crate) malformed_selectors: BTreeMap<String, String>,
    /// Gateways whose selector takes only nodes that they list.
    pub(crate) untrusted_selectors: BTreeSet<String>,
    /// All nodes, sorted by name.
    pub(crate) members: Vec<Member>,
    /// Gateways that would stand for the cloud, and the one that does.
    pub(crate) cloud_is_of: BTreeMap<String, String>,
    pub(crate) pools: Vec<Arc<NodePool>>,
    pub(crate) for_edge_pools: bool,
    pub(crate) hubs: BTreeMap<String, Hub>,
    /// The Services and slices that are marked as ours, by name.
    pub(crate) services: BTreeMap<String, Arc<Service>>,
    pub(crate) slices: BTreeMap<String, Arc<EndpointSlice>>,
    /// The ConfigMap with the names of nodes.
    pub(crate) node_names: Option<Arc<ConfigMap>>,
}

/// What is remembered between plans.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    started: Instant,
    records: BTreeMap<(String, EndpointType), Record>,
    living_since: Option<Instant>,
}

impl Memory {
    /// A new leader remembers nothing.
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, records: BTreeMap::new(), living_since: None }
    }
}

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) services: Vec<Service>,
    pub(crate) slices: Vec<EndpointSlice>,
    pub(crate) stale_services: Vec<Arc<Service>>,
    pub(crate) stale_slices: Vec<Arc<EndpointSlice>>,
    /// The new hosts file.
    pub(crate) node_names: Option<String>,
    pub(crate) pool_gateways: PoolGateways,
    /// When to plan again though nothing changes.
    pub(crate) look_at: Option<Instant>,
}

impl Plan {
    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            verdicts,
            services,
            slices,
            stale_services,
            stale_slices,
            node_names,
            pool_gateways,
            look_at: _,
        } = self;
        let PoolGateways { create, delete, hand_made } = pool_gateways;
        let objects = services.is_empty() && slices.is_empty() && node_names.is_none();
        let stale = stale_services.is_empty() && stale_slices.is_empty();
        let gateways = create.is_empty() && delete.is_empty() && hand_made.is_empty();
        verdicts.is_empty() && objects && stale && gateways
    }
}

/// Decides.
pub(crate) fn plan(observed: &Observed, memory: Memory) -> (Plan, Memory) {
    let Memory { started, records, living_since } = memory;
    let living = living(observed);
    let is_alive = |node: &String| observed.hubs.get(node).is_some_and(|hub| hub.liveness == Liveness::Alive);
    let living_since = living.iter().any(is_alive).then(|| living_since.unwrap_or(observed.now));
    let mut behind: BTreeMap<&str, BTreeMap<&str, &Member>> = BTreeMap::new();
    for member in &observed.members {
        if let Domain::Gateway(gateway) = &member.domain {
            behind.entry(gateway).or_default().insert(&member.name, member);
        }
    }
    let mut plan = Plan::default();
    let mut kept = BTreeMap::new();
    for gateway in &observed.gateways {
        let name = gateway.name_any();
        let case = Case {
            gateway,
            switches: observed.switches,
            members: behind.get(name.as_str()).cloned().unwrap_or_default(),
            hubs: &observed.hubs,
            living: &living,
            living_since,
            cloud_is_of: observed.cloud_is_of.get(&name).map(String::as_str),
            selector_error: observed.malformed_selectors.get(&name).map(String::as_str),
            is_untrusted: observed.untrusted_selectors.contains(&name),
            link_port: observed.listeners.external,
        };
        let mut hold = |type_: EndpointType| {
            let key = (name.clone(), type_);
            let before = records.get(&key).cloned().unwrap_or_else(|| recorded(gateway, type_, observed.now));
            let (candidates, judgement) = (case.candidates(type_), case.judgement(type_, started));
            let Outcome { elected, record, look_at } =
                elect(&candidates, case.places(type_), judgement, &before, observed.now);
            kept.insert(key, record);
            plan.look_at = plan.look_at.into_iter().chain(look_at).min();
            elected
        };
        let (proxies, tunnels) = (hold(EndpointType::Proxy), hold(EndpointType::Tunnel));
        let service = observed.services.get(&services::public_name(&name));
        plan.verdicts.push(case.verdict(gateway, &proxies, &tunnels, service.map(Arc::as_ref)));
    }
    let cluster_ips = services_and_slices(observed, &living, &mut plan);
    plan.node_names = node_names(observed, &cluster_ips);
    plan.pool_gateways = pool_gateways::plan(
        &observed.pools,
        &observed.gateways,
        &observed.unreadable,
        observed.for_edge_pools,
    );
    (plan, Memory { started, records: kept, living_since })
}

/// Who is elected as far as the status says: what a new leader goes on from.
fn recorded(gateway: &Gateway, type_: EndpointType, now: Instant) -> Record {
    let active = gateway.status.iter().flat_map(|status| &status.active_endpoints);
    Record::of(active.filter(|e| e.type_ == type_).map(|e| e.node_name.clone()), now)
}

fn is_exposed(gateway: &Gateway) -> bool {
    !gateway.spec.expose_type.is_none()
}

/// The nodes of exposed gateways whose hubs accept links, as far as is known. Reports of other nodes count for nothing.
fn living(observed: &Observed) -> BTreeSet<String> {
    let exposed: BTreeMap<String, &Gateway> = observed
        .gateways
        .iter()
        .filter(|gateway| is_exposed(gateway))
        .map(|gateway| (gateway.name_any(), gateway.as_ref()))
        .collect();
    let accepts = |member: &&Member| {
        let Domain::Gateway(name) = &member.domain else { return false };
        let Some(gateway) = exposed.get(name) else { return false };
        let endpoints = &gateway.spec.endpoints;
        let listed = (endpoints.is_empty() && member.by.is_enough(true))
            || endpoints.iter().any(|e| e.type_ == EndpointType::Proxy && e.node_name == member.name);
        let gone = |liveness| matches!(liveness, Liveness::Silent | Liveness::Dead);
        listed && observed.hubs.get(&member.name).is_some_and(|hub| !gone(hub.liveness))
    };
    observed.members.iter().filter(accepts).map(|member| member.name.clone()).collect()
}

/// Adds what becomes of Services and slices to `plan`, and returns the addresses of the internal Service as it is.
fn services_and_slices(observed: &Observed, living: &BTreeSet<String>, plan: &mut Plan) -> Vec<String> {
    let mut wanted: Vec<(Service, Vec<Backend>)> = Vec::new();
    let mut cluster_ips = Vec::new();
    if observed.switches.l7 {
        let exposed = || plan.verdicts.iter().filter(|verdict| is_exposed(&verdict.gateway));
        let present = observed.services.get(api::names::PROXY_INTERNAL_SERVICE);
        let targets = ports::present(present.map(Arc::as_ref));
        let ports =
            ports::ports(exposed().map(|verdict| verdict.gateway.as_ref()), observed.listeners, &targets);
        if !ports.is_empty() {
            let all: BTreeSet<Backend> = exposed().flat_map(|v| backends(observed, v, living)).collect();
            wanted.push((services::internal(&ports), all.into_iter().collect()));
            cluster_ips = addresses(present.map(Arc::as_ref));
        }
        for verdict in exposed().filter(|v| v.gateway.spec.expose_type == ExposeType::LoadBalancer) {
            let mut backends = backends(observed, verdict, living);
            let port_of = |node: &str| observed.hubs.get(node).and_then(|hub| hub.port);
            backends.retain(|backend| port_of(&backend.node).is_none_or(|port| port == verdict.link_port));
            let proxy = |e: &&api::Endpoint| e.type_ == EndpointType::Proxy;
            let first =
                verdict.active.iter().find(proxy).or(verdict.gateway.spec.endpoints.iter().find(proxy));
            let first = first.map(|endpoint| endpoint.node_name.as_str());
            wanted.push((services::public(&verdict.gateway, verdict.link_port, first), backends));
        }
    }
    let mut names = BTreeSet::new();
    for (service, backends) in wanted {
        for slice in services::slices(&service, &backends) {
            let name = slice.name_any();
            if observed.slices.get(&name).is_none_or(|present| !services::slice_is_right(present, &slice)) {
                plan.slices.push(slice);
            }
            names.insert(name);
        }
        let name = service.name_any();
        if observed.services.get(&name).is_none_or(|present| !services::service_is_right(present, &service)) {
            plan.services.push(service);
        }
        names.insert(name);
    }
    // The mark alone is no proof: anybody may write it.
    let stale = |name: &String| name.starts_with(api::names::PROXY_SERVICES_PREFIX) && !names.contains(name);
    plan.stale_services = observed.services.values().filter(|s| stale(&s.name_any())).cloned().collect();
    plan.stale_slices = observed.slices.values().filter(|s| stale(&s.name_any())).cloned().collect();
    cluster_ips
}

/// The nodes of the Gateway's active proxy endpoints whose hubs accept what is sent to them.
fn backends(observed: &Observed, verdict: &Verdict, living: &BTreeSet<String>) -> Vec<Backend> {
    let active = verdict.active.iter().filter(|endpoint| endpoint.type_ == EndpointType::Proxy);
    active
        .filter(|endpoint| living.contains(&endpoint.node_name))
        .filter_map(|endpoint| {
            let at = observed.members.binary_search_by(|m| m.name.cmp(&endpoint.node_name)).ok()?;
            let ip = observed.members.get(at)?.internal_ip.as_deref()?.parse().ok()?;
            Some(Backend { node: endpoint.node_name.clone(), ip })
        })
        .collect()
}

fn addresses(service: Option<&Service>) -> Vec<String> {
    let Some(spec) = service.and_then(|service| service.spec.as_ref()) else { return Vec::new() };
    let first = spec.cluster_ip.iter();
    let all = spec.cluster_ips.as_ref().filter(|all| !all.is_empty());
    let ips: Vec<String> = all.map_or_else(|| first.cloned().collect(), Clone::clone);
    ips.into_iter().filter(|ip| ip.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// The hosts file, if it must be written.
fn node_names(observed: &Observed, cluster_ips: &[String]) -> Option<String> {
    let exposed: BTreeSet<String> = observed
        .gateways
        .iter()
        .filter(|gateway| is_exposed(gateway))
        .map(|gateway| gateway.name_any())
        .collect();
    let wanted = node_names::hosts(&node_names::tunnelled(&observed.members, &exposed), cluster_ips);
    let Some(present) = &observed.node_names else {
        // Where there are no gateways, nobody asks for it.
        return (!observed.gateways.is_empty()).then_some(wanted);
    };
    let present = present.data.as_ref().and_then(|data| data.get(api::names::TUNNEL_NODES));
    (present != Some(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests;
