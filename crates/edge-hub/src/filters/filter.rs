//! One set of filters with one view: what it makes of an object is pure, and is made once for all clients that share it.

use std::{collections::VecDeque, sync::Arc};

use kube_wire::{edit::Message, object::Object};
use parking_lot::Mutex;
use tls::digest::Sha256Digest;

use super::{FilterName, Filtered, Topology, View, service_topology};

/// For how many objects the answer is kept: as many as watchers lag behind each other.
const MADE: usize = 64;

/// What a client is shown of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The object as it is.
    Keep,
    /// This in its place: the same object, at a version of the view's own if it is told as a state (see [`Telling`]).
    Replace(Arc<Object>),
    /// Nothing.
    Drop,
}

/// As what a client is told of an object.
///
/// Informers take an object that comes at the version they have for unchanged, and tell no handler. What a view shows of an object
/// may differ from what another view showed of it at the same version: in a state it stands at a version of its own then
/// ([`View::version_of`]). An event has the API server's version always, for clients go on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// One of a list, of the initial state of a watch, or by itself; or told because another filter shows it otherwise.
    State,
    /// The subject of an event.
    Event,
}

/// What `names`, in their order, make of an object. An object that cannot be read stays as it is: the API server sends none.
pub fn filter(
    names: &[FilterName],
    resource: Filtered,
    object: &Object,
    view: &View,
    told: Telling,
) -> Outcome {
    make(names, resource, object, view, told).outcome
}

#[derive(Clone)]
struct Made {
    outcome: Outcome,
    /// Whether it says of pods of this node what the API server does not know.
    corrected: bool,
}

fn make(names: &[FilterName], resource: Filtered, object: &Object, view: &View, told: Telling) -> Made {
    let uncorrected = |outcome| Made { outcome, corrected: false };
    if !names.iter().all(|name| name.keeps(object, view)) {
        return uncorrected(Outcome::Drop);
    }
    if !names.iter().any(|name| name.concerns(object, view)) {
        return uncorrected(Outcome::Keep);
    }
    let Some(mut message) = Message::of(object) else { return uncorrected(Outcome::Keep) };
    let before = message.clone();
    let (mut changed, mut corrected) = (false, false);
    for name in names {
        let edited = name.edit(resource, object, &mut message, view);
        changed |= edited;
        corrected |= edited && *name == FilterName::LocalPods;
    }
    // What one takes out another may put back.
    changed &= message != before;
    corrected &= changed;
    let of_the_view = corrected || names.iter().any(|name| name.shows_by_view(object, view));
    let restated = told == Telling::State && of_the_view;
    if !changed && !restated {
        return uncorrected(Outcome::Keep);
    }
    let shown = if changed { message.into_object() } else { Ok(object.clone()) };
    let Ok(shown) = shown else { return uncorrected(Outcome::Keep) };
    let version = view.version_of(object.resource_version());
    let shown = if restated { shown.with_resource_version(version) } else { shown };
    Made { outcome: Outcome::Replace(Arc::new(shown)), corrected }
}

/// One set of filters with one view, shared by all clients that have both.
pub struct Filter {
    fingerprint: Box<str>,
    resource: Filtered,
    names: Box<[FilterName]>,
    view: Arc<View>,
    made: Mutex<VecDeque<(Telling, Arc<Object>, Made)>>,
}

impl Filter {
    /// The filters of `names`, which look at `view`.
    pub(super) fn new(resource: Filtered, names: Box<[FilterName]>, view: Arc<View>) -> Self {
        let fingerprint = fingerprint(resource, &names, &view);
        Self { fingerprint, resource, names, view, made: Mutex::default() }
    }

    /// Filters with the same one show the same, also if one of them was in an earlier run of the hub: what a client saw through the one
    /// it may follow through the other.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether the object is shown at all. Depends on the object alone: the view of a filter does not change.
    pub fn keeps(&self, object: &Object) -> bool {
        self.names.iter().all(|name| name.keeps(object, &self.view))
    }

    /// What is shown of `object`, made by the first that asks.
    pub fn outcome(&self, object: &Arc<Object>, told: Telling) -> Outcome {
        self.made(object, told).outcome
    }

    fn made(&self, object: &Arc<Object>, told: Telling) -> Made {
        let uncorrected = |outcome| Made { outcome, corrected: false };
        if !self.keeps(object) {
            return uncorrected(Outcome::Drop);
        }
        if !self.names.iter().any(|name| name.concerns(object, &self.view)) {
            return uncorrected(Outcome::Keep);
        }
        let known = |all: &VecDeque<(Telling, Arc<Object>, Made)>| {
            let same = |(other_told, other, _): &&(Telling, Arc<Object>, Made)| {
                *other_told == told && Arc::ptr_eq(other, object)
            };
            all.iter().rev().find(same).map(|(_, _, made)| made.clone())
        };
        if let Some(made) = known(&self.made.lock()) {
            return made;
        }
        let made = make(&self.names, self.resource, object, &self.view, told);
        let mut all = self.made.lock();
        // Another may have made it meanwhile: all must be given the same, or it would be encoded again.
        if let Some(made) = known(&all) {
            return made;
        }
        if all.len() >= MADE {
            all.pop_front();
        }
        all.push_back((told, object.clone(), made.clone()));
        made
    }

    /// What is shown of an object that is kept, or of the last state of one that was.
    pub fn shown(&self, object: &Arc<Object>, told: Telling) -> Arc<Object> {
        match self.outcome(object, told) {
            Outcome::Replace(object) => object,
            Outcome::Keep | Outcome::Drop => object.clone(),
        }
    }

    /// Whether a hub that has just begun would list the object at the version that it has, by this filter: it does not know that a Service asked for a topology before.
    pub fn lists_at_its_own(&self, object: &Arc<Object>) -> bool {
        let topology = || service_topology::topology(object, &self.view);
        let is_former = self.has(FilterName::ServiceTopology) && topology() == Some(Topology::Former);
        is_former || self.shown(object, Telling::State).resource_version() == object.resource_version()
    }

    /// Whether what is shown of `object` is a correction, of which no event may tell.
    pub fn corrects(&self, object: &Arc<Object>) -> bool {
        self.corrections() > 0 && self.made(object, Telling::Event).corrected
    }

    /// Of how many pods the addresses are corrected.
    pub fn corrections(&self) -> usize {
        if self.has(FilterName::LocalPods) { self.view.local_pods.pods.len() } else { 0 }
    }

    /// Whether what it shows depends on what is read of the cluster: Services, or the node's pool.
    pub fn looks_at_the_cluster(&self) -> bool {
        [FilterName::ServiceTopology, FilterName::NodePortIsolation].into_iter().any(|name| self.has(name))
    }

    /// Whether that is one of its names.
    pub(super) fn has(&self, name: FilterName) -> bool {
        self.names.contains(&name)
    }

    /// What it looks at beside the object.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Whether it would answer the same with another view.
    pub(super) fn is_indifferent(&self, view: &View) -> bool {
        self.names.iter().all(|name| name.indifferent(&self.view, view))
    }
}

/// A digest of all that decides what is shown. Another release of the hub may show something else by the same names. Of corrections, which no event tells, it is a
/// second word.
fn fingerprint(resource: Filtered, names: &[FilterName], view: &View) -> Box<str> {
    let digest = |of_corrections: bool| {
        let mut names =
            names.iter().filter(|name| (**name == FilterName::LocalPods) == of_corrections).peekable();
        names.peek()?;
        let mut text = format!("{} {resource:?}", env!("CARGO_PKG_VERSION"));
        for name in names {
            text += &["\n", name.as_str(), " ", &name.looks_at(view)].concat();
        }
        Some(Sha256Digest::of(text.as_bytes()).to_string())
    };
    let of_events = digest(false).unwrap_or_default();
    match digest(true) {
        Some(corrections) => [&*of_events, " ", &*corrections].concat().into(),
        None => of_events.into(),
    }
}

/// The part of a fingerprint that decides what events show, and so what clients may know at the versions that objects have; empty if they show all as it is.
pub(super) fn of_events(fingerprint: &str) -> &str {
    fingerprint.split(' ').next().unwrap_or_default()
}
