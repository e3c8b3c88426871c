//! One set of filters with one view: what it makes of an object is pure, and is made once for all clients that share it.

use std::{collections::VecDeque, sync::Arc};

use kube_wire::{edit::Message, object::Object};
use parking_lot::Mutex;

use super::{FilterName, Filtered, View};

/// For how many objects the answer is kept: as many as watchers lag behind each other.
const MADE: usize = 64;

/// What a client is shown of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The object as it is.
    Keep,
    /// This in its place: the same object, at the same version unless it was corrected.
    Replace(Arc<Object>),
    /// Nothing.
    Drop,
}

/// What `names`, in their order, make of an object. An object that cannot be read stays as it is: the API server sends none.
pub fn filter(names: &[FilterName], resource: Filtered, object: &Object, view: &View) -> Outcome {
    if !names.iter().all(|name| name.keeps(object, view)) {
        return Outcome::Drop;
    }
    if !names.iter().any(|name| name.concerns(object, view)) {
        return Outcome::Keep;
    }
    let Some(mut message) = Message::of(object) else { return Outcome::Keep };
    let before = message.clone();
    let (mut changed, mut corrected) = (false, false);
    for name in names {
        let edited = name.edit(resource, object, &mut message, view);
        changed |= edited;
        corrected |= edited && *name == FilterName::LocalPods;
    }
    // What one takes out another may put back.
    if !changed || message == before {
        return Outcome::Keep;
    }
    let Ok(shown) = message.into_object() else { return Outcome::Keep };
    let version = view.local_pods.version_of(object.resource_version());
    Outcome::Replace(Arc::new(if corrected { shown.with_resource_version(version) } else { shown }))
}

/// One set of filters with one view, shared by all clients that have both.
pub struct Filter {
    id: u64,
    resource: Filtered,
    names: Box<[FilterName]>,
    view: Arc<View>,
    made: Mutex<VecDeque<(Arc<Object>, Outcome)>>,
}

impl Filter {
    /// `id` tells it from all others of the process.
    pub(super) fn new(id: u64, resource: Filtered, names: Box<[FilterName]>, view: Arc<View>) -> Self {
        Self { id, resource, names, view, made: Mutex::default() }
    }

    /// Tells it from all others of the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the object is shown at all. Depends on the object alone: the view of a filter does not change.
    pub fn keeps(&self, object: &Object) -> bool {
        self.names.iter().all(|name| name.keeps(object, &self.view))
    }

    /// What is shown of `object`, made by the first that asks.
    pub fn outcome(&self, object: &Arc<Object>) -> Outcome {
        if !self.keeps(object) {
            return Outcome::Drop;
        }
        if !self.names.iter().any(|name| name.concerns(object, &self.view)) {
            return Outcome::Keep;
        }
        let known = |made: &VecDeque<(Arc<Object>, Outcome)>| {
            made.iter().rev().find(|(other, _)| Arc::ptr_eq(other, object)).map(|(_, made)| made.clone())
        };
        if let Some(outcome) = known(&self.made.lock()) {
            return outcome;
        }
        let outcome = filter(&self.names, self.resource, object, &self.view);
        let mut made = self.made.lock();
        // Another may have made it meanwhile: all must be given the same, or it would be encoded again.
        if let Some(outcome) = known(&made) {
            return outcome;
        }
        if made.len() >= MADE {
            made.pop_front();
        }
        made.push_back((object.clone(), outcome.clone()));
        outcome
    }

    /// What is shown of an object that is kept, or of the last state of one that was.
    pub fn shown(&self, object: &Arc<Object>) -> Arc<Object> {
        match self.outcome(object) {
            Outcome::Replace(object) => object,
            Outcome::Keep | Outcome::Drop => object.clone(),
        }
    }

    /// Whether what is shown of `object` is a correction, which stands at a version that is no event's.
    pub fn corrects(&self, object: &Arc<Object>) -> bool {
        self.corrections() > 0
            && matches!(self.outcome(object), Outcome::Replace(shown) if shown.resource_version() != object.resource_version())
    }

    /// Of how many pods the addresses are corrected.
    pub fn corrections(&self) -> usize {
        if self.names.contains(&FilterName::LocalPods) { self.view.local_pods.pods.len() } else { 0 }
    }

    /// Whether it would answer the same with another view.
    pub(super) fn is_indifferent(&self, view: &View) -> bool {
        self.names.iter().all(|name| name.indifferent(&self.view, view))
    }
}
