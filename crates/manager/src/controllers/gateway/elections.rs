//! Pure: the elections of one plan, of all Gateways.

use std::collections::BTreeMap;
use std::time::Instant;

use api::{EndpointType, Gateway};
use kube::ResourceExt as _;

use super::dialers::Dialers;
use super::elect::{Outcome, Record, elect};
use super::verdict::Case;

/// What is remembered of elections, by Gateway and type.
pub(super) type Records = BTreeMap<(String, EndpointType), Record>;

/// The elections of one plan.
pub(super) struct Elections<'a> {
    before: &'a Records,
    /// When this manager began to see.
    started: Instant,
    now: Instant,
    pub(super) kept: Records,
    /// When the first must be held again.
    pub(super) look_at: Option<Instant>,
}

impl<'a> Elections<'a> {
    pub(super) fn new(before: &'a Records, started: Instant, now: Instant) -> Self {
        Self { before, started, now, kept: BTreeMap::new(), look_at: None }
    }

    /// Who is elected of proxies, and of tunnels.
    pub(super) fn hold(&mut self, case: &Case<'_>, dialled: Option<Instant>) -> [Vec<String>; 2] {
        [EndpointType::Proxy, EndpointType::Tunnel].map(|type_| {
            let key = (case.gateway.name_any(), type_);
            let before = self.before.get(&key).cloned();
            let before = before.unwrap_or_else(|| recorded(case.gateway, type_, self.now));
            let candidates = case.candidates(type_);
            let judgement = case.judgement(type_, self.started, dialled);
            let Outcome { elected, record, look_at } =
                elect(&candidates, case.places(type_), judgement, &before, self.now);
            self.kept.insert(key, record);
            self.look_at = self.look_at.into_iter().chain(look_at).min();
            elected
        })
    }

    /// Until when it is no news that the Gateway's elected proxies have no link, where there has been an address to dial `since` then.
    pub(super) fn dials_until(&self, case: &Case<'_>, proxies: &[String], since: Instant) -> Option<Instant> {
        let record = self.kept.get(&(case.gateway.name_any(), EndpointType::Proxy))?;
        case.dials_until(proxies, record, since)
    }
}

/// Those that dial for a Gateway behind NAT; if nobody is elected, those that would if they were ready.
pub(super) fn dial<'a>(case: &Case<'a>, elected: &[String], dialers: &mut Dialers<'a>) {
    let listed = case.endpoints(EndpointType::Proxy);
    let listed = listed.iter().filter(|_| case.places(EndpointType::Proxy) > 0);
    let would = listed.filter(|endpoint| elected.is_empty() || elected.contains(&endpoint.node_name));
    for member in would.filter_map(|endpoint| case.members.get(endpoint.node_name.as_str())) {
        dialers.add(member);
    }
}

/// Who is elected as far as the status says: what a new leader goes on from.
fn recorded(gateway: &Gateway, type_: EndpointType, now: Instant) -> Record {
    let active = gateway.status.iter().flat_map(|status| &status.active_endpoints);
    Record::of(active.filter(|e| e.type_ == type_).map(|e| e.node_name.clone()), now)
}
