//! Why a node holds no link at rest, for who looks for one. Pure.

use std::collections::BTreeSet;

use api::labels;
use tunnel::view::{Domain, View};

use super::{Known, Role, pool_of};

/// Why this node, which has this role, holds no link at rest. Nothing, if it is to have some: that it has none is a problem then.
pub(super) fn idle(me: &str, known: &Known, view: &View, role: Role) -> Option<String> {
    let mine = view.domain_of(me);
    let why = match (role, &mine) {
        (Role::Agent, _) => return None,
        (Role::Gateway, Some(domain)) if view.is_endpoint(me, domain) => return None,
        (_, None) => "this node's own Node is not known yet".to_owned(),
        (Role::None, Some(Domain::Cloud)) => counts_as_cloud(known),
        (Role::None, Some(domain @ Domain::Pool(gateway))) if view.is_exposed(domain) => {
            format!("this node is behind Gateway {gateway}, which is exposed and does not list it")
        }
        (Role::None | Role::Gateway, Some(domain)) => spare(domain, &view.endpoints(domain)),
    };
    let nobody_is_exposed = view.exposed().next().is_none();
    Some(if nobody_is_exposed { format!("{why}; no Gateway is exposed") } else { why })
}

/// What makes a cloud node of this one.
fn counts_as_cloud(known: &Known) -> String {
    let own = known.own.as_ref().filter(|own| !own.edge);
    let Some(own) = own else {
        return "this node is behind the cloud's Gateway, which does not list it".to_owned();
    };
    let pool = match (&own.pool, pool_of(own, known)) {
        (None, _) => "is in no pool".to_owned(),
        (Some(pool), None) => format!("is labelled for NodePool {pool}, which is not there,"),
        (Some(pool), Some(_)) if known.edge_pools.contains_key(pool) => {
            format!("is in NodePool {pool}, which is not of type Edge,")
        }
        (Some(pool), Some(_)) => format!("is in NodePool {pool}, which is not read yet,"),
    };
    let (label, value) = (labels::IS_EDGE_WORKER, labels::TRUE);
    format!(
        "this node {pool} and is not labelled {label}={value}, so it counts as a cloud node, whose gateways hold the links"
    )
}

/// Others are elected, or nobody is.
fn spare(domain: &Domain, endpoints: &BTreeSet<String>) -> String {
    let whose = if *domain == Domain::Cloud { "the cloud's" } else { "its pool's" };
    let names: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    match names[..] {
        [] => format!("{whose} Gateway has no active endpoint"),
        [one] => format!("spare: {one} is {whose} endpoint"),
        _ => format!("spare: {} are {whose} endpoints", names.join(", ")),
    }
}
