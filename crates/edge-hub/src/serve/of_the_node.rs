//! What is fetched in the node's name and answers others.

use super::{before, wanted::Wanted};
use crate::{
    hub::{Hub, Named},
    run::Sharing,
    subscriptions::{Key, Owner},
};

/// The key of it, if there is any: of what is pooled, and of what looks alike to all the streams that the node has for itself. `own` is that of the
/// request. Whoever is answered from it has been reviewed.
pub(super) fn of_the_node(
    hub: &Hub,
    sharing: &Sharing,
    wanted: &Wanted,
    own: &Key,
    named: &Named,
) -> Option<Key> {
    if sharing.pools(&own.resource) {
        return Some(Key::pooled(&own.resource));
    }
    if own.owner != Owner::Users {
        return None;
    }
    let remembers = |wider: &Key| before::remembers(hub, named, wider);
    hub.subscriptions.of_node(own, wanted.since(), &named.owner, remembers)
}
