//! Pure: whose links an exposed Gateway accepts, whom it misses, and who has lost some of its gateways. Who is linked to one of two is reached, and not
//! any more when that one goes, which nobody would notice before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use api::{EndpointType, GatewayAddress, conditions};
use kube::ResourceExt as _;

use super::dialers::Dialers;
use super::exposure::{all, past_the_balancer};
use super::findings::{ACCEPTING, Finding, told};
use super::hub_reports::Hub;
use super::unlinked::Key;
use super::verdict::{Case, Overall};
use super::wording::{about, is_few, join};

/// What stands behind the names of the gateways, of several, to which nodes are linked.
const ALONE: &str = " alone";

/// Nodes that are linked to some of a Gateway's active endpoints alone, and to which.
pub(crate) type InPart<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// These, by Gateway, as what is remembered of them.
pub(crate) fn gaps(in_part: &BTreeMap<String, InPart<'_>>) -> impl Iterator<Item = (Key, bool)> {
    let of = |(gateway, nodes): (&String, &InPart<'_>)| {
        let key = |node: &&str| ((gateway.clone(), (*node).to_owned()), false);
        nodes.keys().map(key).collect::<Vec<_>>()
    };
    in_part.iter().flat_map(of)
}

/// How many nodes an exposed Gateway lacks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Lacking {
    /// Those that are ready, would dial and have no link.
    pub(crate) missed: usize,
    /// Those that are linked to some of its active endpoints alone.
    pub(crate) in_part: usize,
}

impl Case<'_> {
    /// Those of the active endpoints whose hubs accept links.
    fn accepting<'b>(&'b self, proxies: &'b [String]) -> impl Iterator<Item = &'b str> {
        proxies.iter().map(String::as_str).filter(move |node| self.living.contains(*node))
    }

    /// The nodes that are linked to any of them.
    fn linked<'b>(&'b self, proxies: &'b [String]) -> BTreeSet<&'b str> {
        let hubs = self.accepting(proxies).filter_map(|node| self.hubs.get(node));
        hubs.flat_map(|hub| hub.links.keys()).map(String::as_str).collect()
    }

    /// Those that dial and are linked to some of the active endpoints alone. One to which nobody at all is linked is told of by
    /// itself ([`Case::partly`]).
    pub(crate) fn in_part<'b>(&'b self, proxies: &'b [String], dialers: &'b Dialers<'_>) -> InPart<'b> {
        if !self.is_exposed() {
            return BTreeMap::new();
        }
        let hubs = self.accepting(proxies).filter_map(|node| Some((node, self.hubs.get(node)?)));
        let hubs: Vec<(&'b str, &'b Hub)> = hubs.filter(|(_, hub)| !hub.links.is_empty()).collect();
        let mut in_part = BTreeMap::new();
        for node in dialers.ready.iter().chain(&dialers.away) {
            let to: Vec<&'b str> =
                hubs.iter().filter(|(_, hub)| hub.links.contains_key(*node)).map(|(at, _)| *at).collect();
            if !to.is_empty() && to.len() < hubs.len() {
                in_part.insert(*node, to);
            }
        }
        in_part
    }

    /// How many nodes it lacks now.
    pub(super) fn lacking(&self, proxies: &[String], overall: &Overall<'_>) -> Lacking {
        if !self.is_exposed() || self.places(EndpointType::Proxy) == 0 {
            return Lacking::default();
        }
        let missed = overall.dialers.ready.difference(&self.linked(proxies)).count();
        let in_part = overall.in_part.get(&self.gateway.name_any()).map_or(0, BTreeMap::len);
        Lacking { missed, in_part }
    }

    /// What there is to say of nodes that have been linked to some of them alone for long: who begins anew, or whose gateway did, is given the
    /// time to dial.
    fn told_in_part(&self, overall: &Overall<'_>) -> Option<String> {
        let name = self.gateway.name_any();
        let said = self.gateway.status.iter().flat_map(|status| &status.conditions);
        let mut said = said.filter(|condition| condition.type_ == conditions::CONNECTED);
        let was_told = said.any(|condition| condition.message.contains(ALONE));
        let long: BTreeSet<&str> = overall.in_part_since.for_long(&name, was_told, self.now).collect();
        let mut groups: BTreeMap<&[&str], BTreeSet<&str>> = BTreeMap::new();
        for (node, to) in overall.in_part.get(&name).into_iter().flatten() {
            if long.contains(node) {
                groups.entry(to).or_default().insert(node);
            }
        }
        let nodes: BTreeSet<&str> = groups.values().flatten().copied().collect();
        if nodes.is_empty() {
            return None;
        }
        if !is_few(nodes.len()) {
            return Some(format!("{} by some of them{ALONE}", about(&nodes)));
        }
        let said = groups
            .into_iter()
            .map(|(to, nodes)| format!("{} by {}{ALONE}", join(nodes), join(to.iter().copied())));
        Some(said.collect::<Vec<_>>().join("; "))
    }

    /// Condition `Connected` of an exposed Gateway; `partly` is what there is to say of endpoints to which nobody is linked.
    pub(super) fn accepts(
        &self,
        proxies: &[String],
        addresses: &[GatewayAddress],
        overall: &Overall<'_>,
        partly: Option<String>,
    ) -> Finding {
        let dialers = overall.dialers;
        let accepting: Vec<&str> = self.accepting(proxies).collect();
        if accepting.is_empty() {
            return Finding::no("NoTunnel", "no hub of an active endpoint accepts links");
        }
        let accepting = join(accepting);
        let linked = self.linked(proxies);
        if linked.is_empty() {
            return if dialers.is_empty() {
                Finding::yes(ACCEPTING, format!("no node dials yet; links are accepted by {accepting}"))
            } else {
                Finding::no(
                    "NoLinks",
                    missing_links(&accepting, addresses, dialers, &self.taken_by_kube_proxy()),
                )
            };
        }
        let mut message = format!("links of {} are accepted by {accepting}", about(&linked));
        if let Some(in_part) = self.told_in_part(overall) {
            let _ = write!(message, "; {in_part}");
        }
        let missed: BTreeSet<&str> = dialers.ready.difference(&linked).copied().collect();
        if !missed.is_empty() {
            let _ = write!(message, "; missed are {}", about(&missed));
        }
        told(ACCEPTING, message, partly)
    }
}

/// Whom an exposed Gateway misses, and what to look at.
fn missing_links(
    accepting: &str,
    addresses: &[GatewayAddress],
    dialers: &Dialers<'_>,
    taken: &BTreeSet<String>,
) -> String {
    let Dialers { ready, away } = dialers;
    if ready.is_empty() {
        return format!(
            "no node has a link to {accepting}: missed are {}, and none of them is ready (kubectl get nodes)",
            about(away)
        );
    }
    let missed = format!("no node has a link to {accepting}: missed are {}", about(ready));
    if addresses.is_empty() {
        return format!("{missed}, and there is no address that they could dial, see condition Exposed");
    }
    format!(
        "{missed}: does TCP {} answer from there, and what does `edge-hub status` say on one of them (is --tunnel on)?{}",
        all(addresses),
        past_the_balancer(taken).unwrap_or_default()
    )
}
