//! Pure: what was observed in, everything that is to be written out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use api::{EndpointType, ExposeType, Gateway, NodePool};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

use super::accepting::{self, InPart};
use super::dialers::Dialers;
use super::domains::{Domain, Member};
use super::elect::Record;
use super::elections::{self, Elections};
use super::exposure;
use super::hub_reports::Hub;
use super::kept;
use super::liveness::Liveness;
use super::node_names;
use super::pool_gateways::{self, PoolGateways};
use super::ports::{self, Listeners, Merged, ProxyPort};
use super::services::{self, Backend};
use super::unlinked::Unlinked;
use super::verdict::{Case, Overall, Switches, Verdict, proxies_of};
use super::ways_in::{self, Closed};

/// Everything that concerns the gateways, at one moment.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) now: Instant,
    /// The same moment as clocks show it.
    pub(crate) time: Timestamp,
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
    /// Since when no exposed Gateway that stands for something lacks an address, or not all of them do.
    reachable_since: Option<Instant>,
    /// Since when there have been nodes that would dial.
    dialled_since: Option<Instant>,
    closed: Closed,
    unlinked: Unlinked,
    in_part: Unlinked,
}

impl Memory {
    /// A new leader remembers nothing.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            records: BTreeMap::new(),
            living_since: None,
            reachable_since: None,
            dialled_since: None,
            closed: Closed::default(),
            unlinked: Unlinked::new(started),
            in_part: Unlinked::new(started),
        }
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
    /// Nodes that are not in it, for their names are not theirs to have.
    pub(crate) misnamed: BTreeSet<String>,
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
            misnamed: _,
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
pub(crate) fn plan(observed: &Observed, memory: &Memory) -> (Plan, Memory) {
    let living = living(observed);
    let is_alive = |node: &String| observed.hubs.get(node).is_some_and(|hub| hub.liveness == Liveness::Alive);
    let living_since = living.iter().any(is_alive).then(|| memory.living_since.unwrap_or(observed.now));
    let mut behind: BTreeMap<&str, BTreeMap<&str, &Member>> = BTreeMap::new();
    for member in &observed.members {
        if let Domain::Gateway(gateway) = &member.domain {
            behind.entry(gateway).or_default().insert(&member.name, member);
        }
    }
    let cases: Vec<Case<'_>> = observed
        .gateways
        .iter()
        .map(|gateway| {
            let name = gateway.name_any();
            Case {
                gateway,
                switches: observed.switches,
                members: behind.get(name.as_str()).cloned().unwrap_or_default(),
                hubs: &observed.hubs,
                living: &living,
                living_since,
                cloud_is_of: observed.cloud_is_of.get(&name).map(String::as_str),
                selector_error: observed.malformed_selectors.get(&name).map(String::as_str),
                is_untrusted: observed.untrusted_selectors.contains(&name),
                external: observed.listeners.external,
                service: observed.services.get(&services::public_name(&name)).map(Arc::as_ref),
                now: observed.now,
            }
        })
        .collect();
    let mut dialers = Dialers::alone(&observed.members);
    let mut elections = Elections::new(&memory.records, memory.started, observed.now);
    // Those behind NAT first: who of them is elected dials the others.
    let mut elected: Vec<[Vec<String>; 2]> = cases.iter().map(|_| Default::default()).collect();
    for (case, elected) in cases.iter().zip(&mut elected).filter(|(case, _)| !case.is_exposed()) {
        *elected = elections.hold(case, None);
        elections::dial(case, &elected[0], &mut dialers);
    }
    let dialled_since = (!dialers.ready.is_empty()).then(|| memory.dialled_since.unwrap_or(observed.now));
    for (case, elected) in cases.iter().zip(&mut elected).filter(|(case, _)| case.is_exposed()) {
        *elected = elections.hold(case, dialled_since);
    }
    let unreachable = exposure::unreachable(&cases, &elected);
    let reachable_since = unreachable.is_empty().then(|| memory.reachable_since.unwrap_or(observed.now));
    let dialling: BTreeMap<String, Instant> = cases
        .iter()
        .zip(&elected)
        .filter_map(|(case, [proxies, _])| {
            Some((case.gateway.name_any(), elections.dials_until(case, proxies, reachable_since?)?))
        })
        .collect();
    let Elections { kept: records, look_at, .. } = elections;
    let active = cases.iter().zip(&elected).filter(|(_, [proxies, _])| !proxies.is_empty());
    let ports = internal_ports(observed, &active.map(|(case, _)| case.gateway.name_any()).collect());
    let closed = memory.closed.next(closed_ways_in(observed, &living, &ports.ports), observed.now);
    let without = cases.iter().zip(&elected).flat_map(|(case, [proxies, _])| case.without_a_link(proxies));
    let unlinked = memory.unlinked.next(without, observed.now, observed.time);
    let in_part: BTreeMap<String, InPart<'_>> = cases
        .iter()
        .zip(&elected)
        .map(|(case, [proxies, _])| (case.gateway.name_any(), case.in_part(proxies, &dialers)))
        .collect();
    let in_part_since = memory.in_part.next(accepting::gaps(&in_part), observed.now, observed.time);
    let taken: BTreeSet<String> = cases.iter().flat_map(Case::taken_by_kube_proxy).collect();
    let overall = Overall {
        dialers: &dialers,
        unlinked: &unlinked,
        in_part: &in_part,
        in_part_since: &in_part_since,
        dialling: &dialling,
        unreachable: &unreachable,
        closed: &closed,
        ports: &ports,
        taken: &taken,
    };
    let looks =
        [closed.look_at(observed.now), unlinked.look_at(observed.now), in_part_since.look_at(observed.now)];
    let verdict =
        |(case, [proxies, tunnels]): (&Case<'_>, &[Vec<String>; 2])| case.verdict(proxies, tunnels, &overall);
    let mut plan = Plan {
        verdicts: cases.iter().zip(&elected).map(verdict).collect(),
        look_at: looks.into_iter().chain([look_at, dialling.values().min().copied()]).flatten().min(),
        ..Plan::default()
    };
    let cluster_ips = services_and_slices(observed, &living, &ports.ports, &closed, &mut plan);
    let tunnelled = tunnelled(observed);
    plan.node_names = node_names(observed, &tunnelled, &cluster_ips);
    plan.misnamed =
        tunnelled.into_iter().filter(|node| node_names::is_reserved(node)).map(str::to_owned).collect();
    plan.pool_gateways = pool_gateways::plan(
        &observed.pools,
        &observed.gateways,
        &observed.unreadable,
        observed.for_edge_pools,
    );
    let started = memory.started;
    let in_part = in_part_since;
    (
        plan,
        Memory { started, records, living_since, reachable_since, dialled_since, closed, unlinked, in_part },
    )
}

/// The ports of the internal Service, and by whose word each is what it is; `active` are the Gateways that have an active proxy endpoint.
fn internal_ports(observed: &Observed, active: &BTreeSet<String>) -> Merged {
    if !observed.switches.l7 {
        return Merged::default();
    }
    let exposed = observed.gateways.iter().map(Arc::as_ref).filter(|gateway| is_exposed(gateway));
    let (active, idle): (Vec<&Gateway>, Vec<&Gateway>) =
        exposed.partition(|gateway| active.contains(&gateway.name_any()));
    let present = observed.services.get(api::names::PROXY_INTERNAL_SERVICE);
    let present = ports::present(present.map(Arc::as_ref));
    // One that cannot be read lists what it listed.
    let kept = present.keys().filter(|_| !observed.unreadable.is_empty());
    ports::ports(&active, &idle, kept.map(String::as_str), observed.listeners, &present)
}

/// Where the hubs that accept links do not listen though the internal Service leads there, by node.
fn closed_ways_in(
    observed: &Observed,
    living: &BTreeSet<String>,
    ports: &[ProxyPort],
) -> BTreeMap<String, BTreeSet<ProxyPort>> {
    let of = |node: &String| {
        let closed = ways_in::closed(observed.hubs.get(node)?, internal_ip(observed, node)?, ports);
        (!closed.is_empty()).then(|| (node.clone(), closed))
    };
    living.iter().filter_map(of).collect()
}

fn internal_ip(observed: &Observed, node: &str) -> Option<IpAddr> {
    let at = observed.members.binary_search_by(|member| member.name.as_str().cmp(node)).ok()?;
    observed.members.get(at)?.internal_ip.as_deref()?.parse().ok()
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
    let lists = |gateway: &Gateway, member: &Member| {
        let endpoints = &gateway.spec.endpoints;
        (endpoints.is_empty() && member.by.is_enough(true))
            || endpoints.iter().any(|e| e.type_ == EndpointType::Proxy && e.node_name == member.name)
    };
    let accepts = |member: &&Member| {
        let gateway = if let Domain::Gateway(name) = &member.domain { exposed.get(name) } else { None };
        let listed = gateway
            .map_or_else(|| kept::is_behind(&observed.unreadable, member), |gateway| lists(gateway, member));
        let gone = |liveness| matches!(liveness, Liveness::Silent | Liveness::Dead);
        listed && observed.hubs.get(&member.name).is_some_and(|hub| !gone(hub.liveness))
    };
    observed.members.iter().filter(accepts).map(|member| member.name.clone()).collect()
}

/// Adds what becomes of Services and slices to `plan`, and returns the addresses of the internal Service as it is.
fn services_and_slices(
    observed: &Observed,
    living: &BTreeSet<String>,
    ports: &[ProxyPort],
    closed: &Closed,
    plan: &mut Plan,
) -> Vec<String> {
    let mut wanted: Vec<(Service, Vec<Backend>)> = Vec::new();
    let mut cluster_ips = Vec::new();
    if observed.switches.l7 {
        let exposed = || plan.verdicts.iter().filter(|verdict| is_exposed(&verdict.gateway));
        if !ports.is_empty() {
            let listening = |backend: Backend| Backend {
                without: closed.of(&backend.node).map(|port| port.target).collect(),
                ..backend
            };
            let elected = exposed().flat_map(|v| backends(observed, v, living));
            let kept = observed.members.iter().filter(|m| kept::is_behind(&observed.unreadable, m));
            let kept = kept.filter_map(|member| backend(observed, &member.name, living));
            let all: BTreeSet<Backend> = elected.chain(kept).map(listening).collect();
            wanted.push((services::internal(ports), all.into_iter().collect()));
            let present = observed.services.get(api::names::PROXY_INTERNAL_SERVICE);
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
    let is_kept = |name: &str| observed.switches.l7 && kept::exposes(&observed.unreadable, name);
    let stale = |name: &String| {
        name.starts_with(api::names::PROXY_SERVICES_PREFIX) && !names.contains(name) && !is_kept(name)
    };
    plan.stale_services = observed.services.values().filter(|s| stale(&s.name_any())).cloned().collect();
    plan.stale_slices = observed.slices.values().filter(|s| stale(&s.name_any())).cloned().collect();
    cluster_ips
}

/// The nodes of the Gateway's active proxy endpoints whose hubs accept what is sent to them.
fn backends(observed: &Observed, verdict: &Verdict, living: &BTreeSet<String>) -> Vec<Backend> {
    proxies_of(&verdict.active)
        .filter_map(|endpoint| backend(observed, &endpoint.node_name, living))
        .collect()
}

fn backend(observed: &Observed, node: &str, living: &BTreeSet<String>) -> Option<Backend> {
    let ip = internal_ip(observed, node).filter(|_| living.contains(node))?;
    Some(Backend { node: node.to_owned(), ip, without: BTreeSet::new() })
}

fn addresses(service: Option<&Service>) -> Vec<String> {
    let Some(spec) = service.and_then(|service| service.spec.as_ref()) else { return Vec::new() };
    let first = spec.cluster_ip.iter();
    let all = spec.cluster_ips.as_ref().filter(|all| !all.is_empty());
    let ips: Vec<String> = all.map_or_else(|| first.cloned().collect(), Clone::clone);
    ips.into_iter().filter(|ip| ip.parse::<IpAddr>().is_ok()).collect()
}

/// The nodes that are reached through gateways.
fn tunnelled(observed: &Observed) -> BTreeSet<&str> {
    let exposed = observed.gateways.iter().filter(|gateway| is_exposed(gateway));
    let exposed: BTreeSet<String> = exposed.map(|gateway| gateway.name_any()).collect();
    node_names::tunnelled(&observed.members, &exposed, &observed.unreadable)
}

/// The hosts file, if it must be written.
fn node_names(observed: &Observed, nodes: &BTreeSet<&str>, cluster_ips: &[String]) -> Option<String> {
    let wanted = node_names::hosts(nodes, cluster_ips);
    let Some(present) = &observed.node_names else {
        // Where there are no gateways, nobody asks for it.
        return (!observed.gateways.is_empty()).then_some(wanted);
    };
    let present = present.data.as_ref().and_then(|data| data.get(api::names::TUNNEL_NODES));
    (present != Some(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests;
