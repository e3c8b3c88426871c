//! Which objects of a subscription a reader asked for: a part of the key space, and selectors.

use std::ops::Range;

use kube_wire::{
    field_selector::FieldSelector, label_selector::LabelSelector, object::Object, resource::ObjectKey,
};

use crate::snapshot::{Place, Snapshot};

/// Decides which objects a reader sees. It must depend on the object alone: the cache asks about past versions, too.
pub trait Selects {
    /// The part of the key space that holds all objects that can be selected.
    fn scope(&self) -> &Scope;

    /// Whether the reader sees this version of the object.
    fn selects(&self, object: &Object) -> bool;

    /// Whether every object of the scope is selected.
    fn is_everything(&self) -> bool;
}

/// What a request says: its path, and both selectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Of the path.
    pub scope: Scope,
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
}

impl Selects for Selection {
    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn selects(&self, object: &Object) -> bool {
        self.scope.contains(object.key()) && self.labels.matches(object) && self.fields.matches(object)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

/// What a request's path says: `/api/v1/pods`, or `/api/v1/namespaces/default/pods`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All objects: of all namespaces, or cluster-scoped ones.
    Cluster,
    /// The objects of one namespace.
    Namespace(Box<str>),
}

impl Scope {
    /// Whether objects under `key` are in the scope.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespace(namespace) => key.namespace() == &**namespace,
        }
    }

    /// The key of a snapshot for a key as it stands in a continue token of this scope.
    pub(crate) fn key(&self, relative: &str) -> String {
        match self {
            Self::Cluster => relative.to_owned(),
            Self::Namespace(namespace) => format!("{namespace}/{relative}"),
        }
    }

    /// The key as it stands in a continue token of this scope: without the namespace that the path has.
    pub(crate) fn relative<'a>(&self, key: &'a ObjectKey) -> &'a str {
        match self {
            Self::Cluster => key.as_str(),
            Self::Namespace(_) => key.name(),
        }
    }

    /// Where the objects of the scope stand.
    pub(crate) fn range(&self, snapshot: &Snapshot) -> Range<Place> {
        match self {
            Self::Cluster => snapshot.seek("")..snapshot.end(),
            // `0` is the byte after `/`.
            Self::Namespace(namespace) => {
                snapshot.seek(&format!("{namespace}/"))..snapshot.seek(&format!("{namespace}0"))
            }
        }
    }
}
