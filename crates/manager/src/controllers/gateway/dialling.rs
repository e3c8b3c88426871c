//! Pure: active endpoints behind NAT without a link, and what is to be told of that. Who was just elected dials for the first time: that it has no
//! link yet is so each time, and no news.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use api::conditions;
use api::names::PROXY_PORT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::elect::Record;
use super::exposure::past_the_balancer;
use super::findings::Finding;
use super::verdict::{Case, Overall, proxies_of};
use super::wording::join;

/// Reason of a Gateway whose endpoints have no link.
const NO_TUNNEL: &str = "NoTunnel";

/// How a message ends that is no news.
const TIME: &str = "is given the time to dial";

/// Whether a condition says what is so each time for a moment.
pub(super) fn is_dialling(condition: &Condition) -> bool {
    is_unlinked(condition) && condition.message.ends_with(TIME)
}

fn is_unlinked(condition: &Condition) -> bool {
    condition.type_ == conditions::CONNECTED && condition.reason == NO_TUNNEL
}

impl Case<'_> {
    /// Until when it is no news that these have no link, by the `record` of their election: each of them was just elected, or has just had a gateway to
    /// dial again, whose address is known `since` then. What was told of them is not taken back: a new leader knows of none since when it has been elected.
    pub(super) fn dials_until(&self, proxies: &[String], record: &Record, since: Instant) -> Option<Instant> {
        let judged = self.living_since.filter(|_| !self.is_exposed() && !self.was_told(proxies))?.max(since);
        let until: Option<Vec<Instant>> =
            proxies.iter().map(|node| record.dials_until(node, judged)).collect();
        until?.into_iter().min().filter(|until| *until > self.now)
    }

    /// Whether the status says already that these are active, and have no link.
    fn was_told(&self, proxies: &[String]) -> bool {
        let Some(status) = &self.gateway.status else { return false };
        let active = proxies_of(&status.active_endpoints).map(|endpoint| endpoint.node_name.as_str());
        let active: BTreeSet<&str> = active.collect();
        let mut told = status.conditions.iter().filter(|condition| is_unlinked(condition));
        told.any(|condition| !is_dialling(condition))
            && proxies.iter().all(|node| active.contains(node.as_str()))
    }

    /// Condition `Connected` of a Gateway none of whose active endpoints has a link.
    pub(super) fn no_tunnel(&self, proxies: &[String], overall: &Overall<'_>) -> Finding {
        let all = || proxies.iter().map(String::as_str);
        let mut message = format!("none of {} has a link to an exposed gateway", join(all()));
        // They have had no time for it yet.
        if overall.dialling.contains_key(&self.gateway.name_any()) {
            let _ = write!(message, " yet: who was just elected, or has just had one to dial again, {TIME}");
            return Finding::no(NO_TUNNEL, message);
        }
        let is_ready = |node: &&str| self.members.get(*node).is_none_or(|member| member.ready);
        let (ready, unready): (Vec<&str>, Vec<&str>) = all().partition(is_ready);
        if !unready.is_empty() {
            let _ = write!(message, "; not ready are {} (kubectl get nodes)", join(unready));
        }
        if !ready.is_empty() {
            let _ = write!(
                message,
                "; does TCP {PROXY_PORT}, or what status.addresses of an exposed Gateway says, answer from there, and what does `edge-hub status` \
                 say on {} (is --tunnel on?)",
                join(ready)
            );
            message.push_str(&past_the_balancer(overall.taken).unwrap_or_default());
        }
        Finding::no(NO_TUNNEL, message)
    }
}
