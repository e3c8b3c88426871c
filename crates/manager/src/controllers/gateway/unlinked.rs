//! Pure: active endpoints without a link beside others that have one. The site is reached, and by fewer ways than were asked for, which nobody
//! would notice before the last one goes, too.

use std::collections::BTreeMap;
use std::time::Instant;

use api::{GatewayAddress, conditions};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::elect::IDLE;
use super::exposure::all;
use super::verdict::Case;
use super::wording::list;
use crate::controllers::conditions::whole_second;

/// Reason of a Gateway that is connected by some of its active endpoints alone.
pub(super) const PARTLY: &str = "PartlyConnected";

/// What stands behind the name of each endpoint in the message.
const SINCE: &str = " since ";

/// Whether a message says of that node that it has no link.
fn names(message: &str, node: &str) -> bool {
    message.contains(&format!(" {node}{SINCE}"))
}

/// The Gateway, and the node, of an endpoint or another.
pub(crate) type Key = (String, String);

/// Since when endpoints have been without a link beside one that has one, or nodes with links to some endpoints alone, as far as this manager has
/// seen.
#[derive(Clone, Debug)]
pub(crate) struct Unlinked {
    /// When this manager began to see.
    started: Instant,
    gaps: BTreeMap<Key, Gap>,
}

/// What is known of an endpoint without a link.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Instant,
    /// The same by the clock, for people.
    time: Timestamp,
    /// Whether a gateway gave its link up because nothing was answered over it, which gateways report for ten seconds, and which is told of later than that.
    unanswering: bool,
}

impl Unlinked {
    /// A new leader has seen nothing.
    pub(crate) fn new(started: Instant) -> Self {
        Self { started, gaps: BTreeMap::new() }
    }

    /// What is so at `now`, which clocks show as `time`, by what was so before; of each that is without a link, whether gateways say that it
    /// answered no more.
    pub(crate) fn next(
        &self,
        without: impl Iterator<Item = (Key, bool)>,
        now: Instant,
        time: Timestamp,
    ) -> Self {
        let gap = |(key, unanswering): (Key, bool)| {
            let new = Gap { since: now, time: whole_second(time), unanswering };
            let gap = self
                .gaps
                .get(&key)
                .map_or(new, |gap| Gap { unanswering: gap.unanswering || unanswering, ..*gap });
            (key, gap)
        };
        Self { started: self.started, gaps: without.map(gap).collect() }
    }

    /// Those of a Gateway.
    fn of<'a>(&'a self, gateway: &'a str) -> impl Iterator<Item = (&'a str, Gap)> {
        let its = self.gaps.iter().filter(move |((of, _), _)| of == gateway);
        its.map(|((_, node), gap)| (node.as_str(), *gap))
    }

    /// Those of a Gateway that have been so for long, or may have been before this manager began to see, if the last one told of any.
    pub(super) fn for_long<'a>(
        &'a self,
        gateway: &'a str,
        was_told: bool,
        now: Instant,
    ) -> impl Iterator<Item = &'a str> {
        let long = move |since: Instant| since + IDLE <= now || (was_told && self.may_be_older(since));
        self.of(gateway).filter(move |(_, gap)| long(gap.since)).map(|(node, _)| node)
    }

    /// When the next is to be told of: who was just elected, or begins anew, is given the time to dial, or to be dialled.
    pub(crate) fn look_at(&self, now: Instant) -> Option<Instant> {
        self.gaps.values().map(|gap| gap.since + IDLE).filter(|due| *due > now).min()
    }

    /// Whether what has been so since then may have been so before this manager began to see.
    fn may_be_older(&self, since: Instant) -> bool {
        since < self.started + IDLE
    }
}

impl Case<'_> {
    /// The active proxy endpoints to which nobody is linked, or which are linked to nobody, if others are. Those of an exposed Gateway whose hubs
    /// do not accept links are told of in condition `Elected`.
    pub(crate) fn without_a_link(&self, proxies: &[String]) -> Vec<(Key, bool)> {
        let counts = |node: &&String| !self.is_exposed() || self.living.contains(*node);
        let is_linked = |node: &&String| {
            if self.is_exposed() { self.has_links(node) } else { !self.gateways_of(node).is_empty() }
        };
        let (linked, without): (Vec<&String>, Vec<&String>) =
            proxies.iter().filter(counts).partition(is_linked);
        let gap = |node: &String| ((self.gateway.name_any(), node.clone()), self.is_unanswering(node));
        if linked.is_empty() { Vec::new() } else { without.into_iter().map(gap).collect() }
    }

    /// What there is to say of these, if that has been so for long.
    pub(super) fn partly(&self, unlinked: &Unlinked, addresses: &[GatewayAddress]) -> Option<String> {
        let name = self.gateway.name_any();
        // A new manager has not seen for how long, and takes nothing back that the last one told. The message may be old, so later on it is no sign.
        let said = self.gateway.status.iter().flat_map(|status| &status.conditions);
        let mut said = said.filter(|c| c.type_ == conditions::CONNECTED && c.reason == PARTLY);
        let told = said.next().map_or("", |condition| condition.message.as_str());
        let is_told = |node: &str, since| unlinked.may_be_older(since) && names(told, node);
        let is_due = |node: &str, since: Instant| since + IDLE <= self.now || is_told(node, since);
        let those: Vec<String> = unlinked
            .of(&name)
            .filter(|(node, gap)| is_due(node, gap.since))
            .map(|(node, gap)| {
                let why = self.why_unlinked(node, gap.unanswering, addresses);
                format!("{node}{SINCE}{} at least: {why}", gap.time)
            })
            .collect();
        (!those.is_empty()).then(|| format!("without a link is {}", list(&those)))
    }

    /// As far as it can be seen from here.
    fn why_unlinked(&self, node: &str, unanswering: bool, addresses: &[GatewayAddress]) -> String {
        if self.is_exposed() {
            let its = addresses.iter().filter(|at| at.node_name.is_empty() || at.node_name == node);
            let its: Vec<GatewayAddress> = its.cloned().collect();
            return if its.is_empty() {
                "there is no address at which nodes could dial it, see condition Exposed".to_owned()
            } else {
                format!("does TCP {} answer from outside, and lead to it?", all(&its))
            };
        }
        if self.members.get(node).is_some_and(|member| !member.ready) {
            "the node is not ready (kubectl get nodes)".to_owned()
        } else if unanswering {
            "it answered no more over its last link; `edge-hub status` on the node says more".to_owned()
        } else {
            "`edge-hub status` on the node says where it dials in vain, and why (is --tunnel on?)".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_keeps_its_time_and_what_is_over_begins_anew() {
        let start = Instant::now();
        let time = |second| Timestamp::from_second(second).unwrap();
        let gap = |unanswering| [(("shop".to_owned(), "b".to_owned()), unanswering)].into_iter();
        let gaps = |unlinked: &Unlinked| -> Vec<(String, i64, bool)> {
            let shown = |(node, gap): (&str, Gap)| (node.to_owned(), gap.time.as_second(), gap.unanswering);
            unlinked.of("shop").map(shown).collect()
        };
        let b = |second, unanswering| vec![("b".to_owned(), second, unanswering)];
        let first = Unlinked::new(start).next(gap(true), start, time(1000));
        assert_eq!((gaps(&first), first.look_at(start)), (b(1000, true), Some(start + IDLE)));
        assert_eq!(first.of("other").count(), 0);
        let later = first.next(gap(false), start + IDLE, time(1030));
        assert_eq!((gaps(&later), later.look_at(start + IDLE)), (b(1000, true), None));
        let over = later.next(std::iter::empty(), start + IDLE, time(1030));
        let again = over.next(gap(false), start + IDLE, time(1030));
        assert_eq!((gaps(&over), gaps(&again)), (vec![], b(1030, false)));
        // The link was gone before the gateway had noticed that nothing was answered.
        assert_eq!(gaps(&again.next(gap(true), start + IDLE, time(1031))), b(1030, true));
    }
}
