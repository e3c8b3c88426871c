//! What a reader may see whom nobody can review now, from what it was allowed before.

use std::sync::Arc;

use kube_wire::{
    field_selector::FieldSelector, request::ResourcePath, resource::ObjectKey,
    selectable_field::SelectableFields,
};

use super::{Wanted, place};
use crate::{
    authorize::{Attributes, Decision},
    hub::{Hub, Named},
    subscriptions::{Key, Owner, Subscription},
};

/// What is known of a reader from a time when it could be reviewed.
pub(super) enum Before {
    /// It was allowed what it asks for.
    Allowed,
    /// It was allowed all of this stream, which has what it asks for.
    From(Arc<Subscription>),
    /// Nothing that says that it may.
    Never,
}

/// That a stream was fetched with the reader's own credential says that it was allowed once; it may have been refused since, which the
/// authorizer remembers by no longer remembering the allowance. `shared`: what is fetched in the node's name and would answer it. Whom the API server is
/// there to review, and cannot just now, nothing else is known of.
pub(super) fn known(
    hub: &Hub,
    decision: &Decision,
    wanted: &Wanted,
    path: &ResourcePath,
    named: &Named,
    owner: &Owner,
    shared: Option<&Key>,
) -> Before {
    if matches!(decision, Decision::Passing(_)) && *owner != Owner::Node && hub.upstream.is_up() {
        return Before::Never;
    }
    let remembers = |key: &Key| remembers(hub, named, key);
    let remembered = |key: &Key| *owner == Owner::Node || remembers(key);
    let key = wanted.key(path, owner);
    let of_node = || shared.is_some_and(|shared| hub.subscriptions.holds(shared)) && remembers(&key);
    if hub.subscriptions.holds(&key) && remembered(&key) || of_node() {
        return Before::Allowed;
    }
    if !matches!(wanted, Wanted::Get) {
        return Before::Never;
    }
    let namespace = place(path).unwrap_or_default();
    let object = ObjectKey::new(&namespace, path.name.as_deref().unwrap_or_default());
    let holding = hub.subscriptions.holding(owner, &path.resource, &object, remembered);
    holding.map_or(Before::Never, Before::From)
}

/// Whether the reader was allowed all of a subscription, and was not refused since.
pub(super) fn remembers(hub: &Hub, named: &Named, key: &Key) -> bool {
    hub.authorizer.remembers(&named.subject, &scope_of(key))
}

/// What a review asks about who wants all of a subscription, but for the verb. A selector of one name is reviewed as that name.
fn scope_of(key: &Key) -> Attributes {
    let Key { owner: _, resource, namespace, labels, fields } = key;
    let selector = FieldSelector::parse(fields, &SelectableFields::named_by(resource, fields)).ok();
    let name = selector.and_then(|selector| selector.requires_exactly("metadata.name").map(Box::from));
    Attributes {
        verb: Box::default(),
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        namespace: namespace.clone(),
        name: name.unwrap_or_default(),
        labels: labels.clone(),
        fields: fields.clone(),
    }
}
