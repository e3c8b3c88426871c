//! What a read asks for, its options read: how it is reviewed, what it may be answered from, and where the API server would look.

use kube_wire::{
    list_options::{ListRequest, WatchRequest},
    request::{ResourcePath, Verb},
    selectable_field::SelectableFields,
    status::Status,
};

use super::place;
use crate::{
    authorize::Attributes,
    subscriptions::{Key, Owner},
};

/// What the request asks for, its options read.
pub(super) enum Wanted {
    List(ListRequest),
    Watch(WatchRequest),
    Get,
}

impl Wanted {
    /// Reads the options of a get, list or watch; the API server's own refusal, if they are not right.
    pub(super) fn parse(verb: Verb, path: &ResourcePath, query: &str) -> Result<Self, Status> {
        let selectable = SelectableFields::of(&path.resource);
        match verb {
            Verb::List => ListRequest::parse(query, &selectable).map(Self::List),
            Verb::Watch => WatchRequest::parse(query, &selectable).map(Self::Watch),
            _ => Ok(Self::Get),
        }
    }

    pub(super) fn is_sharded(&self) -> bool {
        match self {
            Self::List(request) => request.shards.is_some(),
            Self::Watch(request) => request.shards.is_some(),
            Self::Get => false,
        }
    }

    /// The only namespace whose objects its field selector lets through. The API server looks nowhere else then, and its tokens count from
    /// there.
    pub(super) fn selected_namespace(&self) -> Option<Box<str>> {
        let fields = match self {
            Self::List(request) => &request.fields,
            Self::Watch(request) => &request.fields,
            Self::Get => return None,
        };
        fields
            .requires_exactly("metadata.namespace")
            .filter(|namespace| !namespace.is_empty())
            .map(Into::into)
    }

    pub(super) fn selectors(&self, path: &ResourcePath) -> (String, String) {
        match self {
            Self::List(request) => (request.labels.to_string(), request.fields.to_string()),
            Self::Watch(request) => (request.labels.to_string(), request.fields.to_string()),
            Self::Get => {
                (String::new(), format!("metadata.name={}", path.name.as_deref().unwrap_or_default()))
            }
        }
    }

    pub(super) fn attributes(&self, path: &ResourcePath) -> Attributes {
        let (labels, fields) = self.selectors(path);
        let ResourcePath { resource, namespace, name, subresource: _, verb_in_path: _ } = path;
        let (verb, fields) = match self {
            Self::List(_) => ("list", fields),
            Self::Watch(_) => ("watch", fields),
            Self::Get => ("get", String::new()),
        };
        Attributes {
            verb: verb.into(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            resource: resource.resource.clone(),
            namespace: namespace.clone().unwrap_or_default(),
            name: name.clone().unwrap_or_default(),
            labels: labels.into(),
            fields: fields.into(),
        }
    }

    pub(super) fn key(&self, path: &ResourcePath, pooled: bool, owner: &Owner) -> Key {
        if pooled {
            return Key::pooled(&path.resource);
        }
        let (labels, fields) = self.selectors(path);
        let namespace = place(path);
        Key {
            owner: owner.clone(),
            resource: path.resource.clone(),
            namespace: namespace.unwrap_or_default(),
            labels: labels.into(),
            fields: fields.into(),
        }
    }
}
