//! Pure: what is kept of Gateways that are there and cannot be read. Nobody can say what they list, so what leads to their hubs stays: a field
//! that is misspelt is no reason to take a cluster's tunnels down, nor an address from a balancer that may give another one after.

use std::collections::BTreeSet;

use super::domains::{Domain, Member};
use super::services;

/// Whether one of these Gateways may stand for the node: it is behind it, or of the cloud, for which none of the others stands.
pub(super) fn is_behind(unreadable: &BTreeSet<String>, member: &Member) -> bool {
    match &member.domain {
        Domain::Gateway(name) => unreadable.contains(name),
        Domain::Cloud => !unreadable.is_empty(),
        Domain::Pool | Domain::Solo => false,
    }
}

/// Whether a Service or a slice exposes one of these Gateways.
pub(super) fn exposes(unreadable: &BTreeSet<String>, object: &str) -> bool {
    let of = |gateway: &String| {
        let rest = object.strip_prefix(&services::public_name(gateway));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    unreadable.iter().any(of)
}
