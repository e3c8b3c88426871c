//! What the node reads for itself and answers users as well.

use super::{before, wanted::Wanted};
use crate::{
    hub::{Hub, Named},
    subscriptions::{Key, Owner},
};

/// The key of it, if there is any: of what looks alike to all. `own` is that of the request. Whoever is answered from it has been reviewed.
pub(super) fn of_the_node(hub: &Hub, wanted: &Wanted, own: &Key, named: &Named) -> Option<Key> {
    if own.owner != Owner::Users {
        return None;
    }
    let remembers = |wider: &Key| before::remembers(hub, named, wider);
    hub.subscriptions.of_node(own, wanted.since(), &named.owner, remembers)
}
