//! Objects for the unit tests.

use std::sync::Arc;

use kube_wire::{
    field_selector::FieldSelector, label_selector::LabelSelector, object::Object,
    resource::GroupVersionResource, resource_version::ResourceVersion, selectable_field::SelectableFields,
};

use crate::{
    cursor::Delivery,
    selection::{Scope, Selection},
};

/// A version.
pub(crate) fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::new(number).unwrap()
}

/// A pod `namespace/name` with the label `app`, of a version.
pub(crate) fn pod(key: &str, app: &str, version: u64) -> Arc<Object> {
    pod_of("uid", key, app, version)
}

/// A pod with an identity of its own.
pub(crate) fn pod_of(uid: &str, key: &str, app: &str, version: u64) -> Arc<Object> {
    let (namespace, name) = key.split_once('/').unwrap();
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
    );
    Arc::new(Object::from_json(body.into()).unwrap())
}

/// What may be named in a field selector.
pub(crate) fn pods() -> SelectableFields {
    SelectableFields::of(&GroupVersionResource::new("", "v1", "pods"))
}

/// A reader of all namespaces with a label selector.
pub(crate) fn selection(labels: &str) -> Selection {
    Selection {
        scope: Scope::Cluster,
        labels: LabelSelector::parse(labels).unwrap(),
        fields: FieldSelector::parse("", &pods()).unwrap(),
    }
}

/// Deliveries in short: `+a/x@5`, `~`, `-`, `end@5`, `mark@5`.
pub(crate) fn short(deliveries: &[Delivery]) -> Vec<String> {
    let object = |sign, object: &Object| format!("{sign}{}@{}", object.key(), object.resource_version());
    deliveries
        .iter()
        .map(|delivery| match delivery {
            Delivery::Added(added) => object("+", added),
            Delivery::Modified(modified) => object("~", modified),
            Delivery::Deleted(deleted) => object("-", deleted),
            Delivery::InitialEnd(version) => format!("end@{version}"),
            Delivery::Bookmark(version) => format!("mark@{version}"),
        })
        .collect()
}
