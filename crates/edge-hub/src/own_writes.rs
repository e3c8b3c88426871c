//! Whoever writes through the hub and then reads sees what was written (read your writes): until a stream has been told of it, reads of the most
//! recent state that it would answer wait a moment, and are the API server's after that.
//!
//! The API server's answer to a write says what is there now. Of what has no such answer, as an eviction, it is only known that something was written.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use kube_wire::{
    edit::{Field, Message},
    field_selector::FieldSelector,
    label_selector::LabelSelector,
    object::Object,
    request::Verb,
    resource::{GroupVersionResource, ObjectKey},
    resource_version::ResourceVersion,
    selectable_field::SelectableFields,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use watch_cache::Snapshot;

use crate::subscriptions::Key;

const METADATA: Field = Field::new("metadata", 1);
const DELETION_TIMESTAMP: Field = Field::new("deletionTimestamp", 9);

/// How long a write is remembered: no stream that works is told of it later.
const LASTS: Duration = Duration::from_secs(10);

/// How long a write is of which nothing is known but that it was.
const UNKNOWN: Duration = Duration::from_secs(1);

/// How many writes of a resource are remembered.
const REMEMBERED: usize = 128;

/// What is larger, in bytes, is remembered without what selectors look at.
const SELECTED: usize = 16 << 10;

/// What is there after a write.
#[derive(Debug, Clone)]
pub enum After {
    /// Something, at this version or a later one.
    Is {
        /// The version.
        version: ResourceVersion,
        /// What selectors look at, if it is not too large to be kept.
        object: Option<Arc<Object>>,
    },
    /// Nothing; when it was deleted it was at this version, or at one that is not known.
    Gone(Option<ResourceVersion>),
    /// Something else than before.
    Unknown,
}

/// Whether a stream has what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It has.
    All,
    /// It will be told soon.
    NotYet,
    /// Nobody can tell.
    Unknown,
}

/// What a write is of: the object, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it, or a part whose answer has the version of all of it.
    Object,
    /// Something whose answer does not tell, as `eviction`.
    Other,
}

struct Write {
    /// Its namespace; empty for none, or all of them.
    namespace: Box<str>,
    /// Empty if it was about many.
    name: Box<str>,
    after: After,
    at: Instant,
}

/// What was written a moment ago, by group and resource: all versions of a group show the same objects.
#[derive(Default)]
pub struct OwnWrites {
    of: Mutex<HashMap<GroupResource, VecDeque<Write>>>,
}

type GroupResource = (Box<str>, Box<str>);

fn of(resource: &GroupVersionResource) -> GroupResource {
    (resource.group.clone(), resource.resource.clone())
}

impl Part {
    /// What a write to this subresource is of; `None` if it changes nothing of the object.
    pub fn of(subresource: Option<&str>) -> Option<Self> {
        match subresource {
            None | Some("status" | "scale" | "ephemeralcontainers" | "resize" | "approval" | "finalize") => {
                Some(Self::Object)
            }
            Some("token" | "proxy" | "exec" | "attach" | "portforward" | "log") => None,
            Some(_) => Some(Self::Other),
        }
    }
}

impl After {
    /// What a successful answer to a write with that verb says; `answer`: the object in it, if it is one.
    pub fn of(verb: Verb, part: Part, answer: Option<Object>) -> Self {
        match (verb, answer, part) {
            // A deletion that waits for somebody is a change first.
            (Verb::Delete, Some(object), Part::Object) if !is_ending(&object) => {
                Self::Gone(Some(object.resource_version()))
            }
            (Verb::Delete, None, Part::Object) => Self::Gone(None),
            (Verb::Create | Verb::Update | Verb::Patch | Verb::Delete, Some(object), Part::Object) => {
                let version = object.resource_version();
                Self::Is { version, object: (object.size() <= SELECTED).then(|| object.into()) }
            }
            _ => Self::Unknown,
        }
    }

    fn version(&self) -> Option<ResourceVersion> {
        match self {
            Self::Is { version, .. } => Some(*version),
            Self::Gone(version) => *version,
            Self::Unknown => None,
        }
    }

    /// Whether this was written after `other` of the same object, as far as that is known. Answers come in any order.
    fn follows(&self, other: &Self) -> bool {
        match (self.version(), other.version()) {
            (Some(own), Some(before)) if own == before => matches!(self, Self::Gone(_)),
            (Some(own), Some(before)) => own > before,
            _ => true,
        }
    }
}

/// Whether it is there only until somebody, or a while, lets it go.
fn is_ending(object: &Object) -> bool {
    let metadata = Message::of(object).and_then(|object| object.message(METADATA));
    metadata.is_some_and(|metadata| {
        metadata.message(DELETION_TIMESTAMP).is_some() || metadata.text(DELETION_TIMESTAMP).is_some()
    })
}

impl OwnWrites {
    /// Something was written to the object of that name, as was asked for at `asked`; of no name: to many.
    pub fn note(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
        asked: Instant,
        after: After,
    ) {
        let is_unknown = |after: &After| matches!(after, After::Unknown);
        let mut of = self.of.lock();
        let writes = of.entry(self::of(resource)).or_default();
        let mut is_newest = true;
        writes.retain(|write| {
            let same = &*write.namespace == namespace
                && &*write.name == name
                && is_unknown(&write.after) == is_unknown(&after);
            // What is asked for after an answer comes after it, though its version be lower: upstream went back in time between the two.
            let is_before = same && (asked > write.at || after.follows(&write.after));
            is_newest &= !write.is_recent() || !same || is_before;
            write.is_recent() && !is_before
        });
        if !is_newest {
            return;
        }
        if writes.len() >= REMEMBERED {
            writes.pop_front();
        }
        writes.push_back(Write { namespace: namespace.into(), name: name.into(), after, at: Instant::now() });
    }

    /// Whether anything of that resource was written a moment ago.
    pub fn are_any(&self, resource: &GroupVersionResource) -> bool {
        let of = self.of.lock();
        !of.is_empty()
            && of.get(&self::of(resource)).is_some_and(|writes| writes.iter().any(Write::is_recent))
    }

    /// Whether what a stream holds has all of it; `one`: as far as this object is concerned.
    pub fn are_held(&self, key: &Key, held: &Snapshot, one: Option<&ObjectKey>) -> Held {
        let of = self.of.lock();
        let Some(writes) = of.get(&self::of(&key.resource)) else { return Held::All };
        let concerned = |write: &&Write| {
            let within =
                key.namespace.is_empty() || write.namespace.is_empty() || write.namespace == key.namespace;
            let named = |one: &ObjectKey| {
                write.name.is_empty() || &*write.name == one.name() && &*write.namespace == one.namespace()
            };
            write.is_recent() && within && one.is_none_or(named)
        };
        let mut all = Held::All;
        for write in writes.iter().filter(concerned) {
            match write.is_held(key, held) {
                Held::All => {}
                Held::NotYet => all = Held::NotYet,
                Held::Unknown => return Held::Unknown,
            }
        }
        all
    }

    /// Forgets what is not of a moment ago.
    pub fn forget_old(&self) {
        self.of.lock().retain(|_, writes| {
            writes.retain(Write::is_recent);
            !writes.is_empty()
        });
    }
}

impl Write {
    fn is_recent(&self) -> bool {
        self.at.elapsed() < if matches!(self.after, After::Unknown) { UNKNOWN } else { LASTS }
    }

    fn is_held(&self, key: &Key, held: &Snapshot) -> Held {
        let there = held.get(&ObjectKey::new(&self.namespace, &self.name));
        let is_held = match (&self.after, there) {
            (After::Unknown, _) => return Held::Unknown,
            (After::Is { version, .. }, Some(there)) => there.resource_version() >= *version,
            // Not there yet, or there no more, or never to be.
            (After::Is { version, object }, None) => {
                held.resource_version() >= *version
                    || object.as_ref().is_some_and(|object| !selects(key, object))
            }
            // One that is there at a later version was made anew.
            (After::Gone(Some(version)), Some(there)) => there.resource_version() > *version,
            (After::Gone(None), Some(_)) => false,
            (After::Gone(_), None) => true,
        };
        if is_held { Held::All } else { Held::NotYet }
    }
}

/// Whether the stream has the object, if that can be told.
fn selects(key: &Key, object: &Object) -> bool {
    let labels = LabelSelector::parse(&key.labels).is_ok_and(|labels| labels.matches(object));
    let fields = FieldSelector::parse(&key.fields, &SelectableFields::named_by(&key.resource, &key.fields));
    labels && fields.is_ok_and(|fields| fields.matches(object))
}

#[cfg(test)]
mod tests;
