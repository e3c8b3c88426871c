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

/// How long a write is remembered: no stream that works is told of it later.
const LASTS: Duration = Duration::from_secs(10);

/// How long a write is of which nothing is known but that it was.
const UNKNOWN: Duration = Duration::from_secs(1);

/// How many writes of a resource are remembered.
const REMEMBERED: usize = 128;

/// What is there after a write.
#[derive(Debug, Clone)]
pub enum After {
    /// This.
    Is(Arc<Object>),
    /// Nothing, or soon; when it was deleted it was at this version, or at one that is not known.
    Gone(Option<ResourceVersion>),
    /// Something else than before.
    Unknown,
}

struct Write {
    /// Its namespace; empty for none, or all of them.
    namespace: Box<str>,
    /// Empty if it was about many.
    name: Box<str>,
    after: After,
    at: Instant,
}

/// What a write is of: the object, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it, or a part whose answer has the version of all of it.
    Object,
    /// Something whose answer does not tell, as `eviction`.
    Other,
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

type GroupResource = (Box<str>, Box<str>);

fn of(resource: &GroupVersionResource) -> GroupResource {
    (resource.group.clone(), resource.resource.clone())
}

/// What was written a moment ago, by group and resource: all versions of a group show the same objects.
#[derive(Default)]
pub struct OwnWrites {
    of: Mutex<HashMap<GroupResource, VecDeque<Write>>>,
}

impl After {
    /// What a successful answer to a write with that verb says; `answer`: the object in it, if it is one.
    pub fn of(verb: Verb, part: Part, answer: Option<Object>) -> Self {
        match (verb, answer, part) {
            (Verb::Delete, answer, Part::Object) => {
                Self::Gone(answer.map(|object| object.resource_version()))
            }
            (Verb::Create | Verb::Update | Verb::Patch, Some(object), Part::Object) => {
                Self::Is(object.into())
            }
            _ => Self::Unknown,
        }
    }
}

impl OwnWrites {
    /// Something was written.
    pub fn note(&self, resource: &GroupVersionResource, namespace: &str, name: &str, after: After) {
        let (namespace, name) = match &after {
            After::Is(object) => (object.key().namespace(), object.key().name()),
            After::Gone(_) | After::Unknown => (namespace, name),
        };
        let (namespace, name) = (Box::<str>::from(namespace), Box::<str>::from(name));
        let mut of = self.of.lock();
        let writes = of.entry(self::of(resource)).or_default();
        writes.retain(|write| write.is_recent() && (write.namespace != namespace || write.name != name));
        if writes.len() >= REMEMBERED {
            writes.pop_front();
        }
        writes.push_back(Write { namespace, name, after, at: Instant::now() });
    }

    /// Whether anything of that resource was written a moment ago.
    pub fn are_any(&self, resource: &GroupVersionResource) -> bool {
        let of = self.of.lock();
        !of.is_empty()
            && of.get(&self::of(resource)).is_some_and(|writes| writes.iter().any(Write::is_recent))
    }

    /// Whether what a stream holds has all of it.
    pub fn are_held(&self, key: &Key, held: &Snapshot) -> bool {
        let of = self.of.lock();
        let Some(writes) = of.get(&self::of(&key.resource)) else {
            return true;
        };
        let within = |write: &&Write| {
            write.is_recent()
                && (key.namespace.is_empty()
                    || write.namespace.is_empty()
                    || write.namespace == key.namespace)
        };
        writes.iter().filter(within).all(|write| write.is_held(key, held))
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

    fn is_held(&self, key: &Key, held: &Snapshot) -> bool {
        let there = held.get(&ObjectKey::new(&self.namespace, &self.name));
        match (&self.after, there) {
            (After::Unknown, _) | (After::Gone(None), Some(_)) => false,
            (After::Is(object), Some(there)) => there.resource_version() >= object.resource_version(),
            // Not there yet, or there no more, or never to be.
            (After::Is(object), None) => {
                held.resource_version() >= object.resource_version() || !selects(key, object)
            }
            // One that is there at a later version was made anew, or is being deleted still.
            (After::Gone(Some(version)), Some(there)) => there.resource_version() > *version,
            (After::Gone(_), None) => true,
        }
    }
}

/// Whether the stream has the object, if that can be told.
fn selects(key: &Key, object: &Object) -> bool {
    let labels = LabelSelector::parse(&key.labels).is_ok_and(|labels| labels.matches(object));
    let fields = FieldSelector::parse(&key.fields, &SelectableFields::of(&key.resource));
    labels && fields.is_ok_and(|fields| fields.matches(object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::advance;
    use watch_cache::{Cache, Limits};

    use super::*;

    fn resource() -> GroupVersionResource {
        GroupVersionResource::new("", "v1", "services")
    }

    fn object(name: &str, version: u64, label: &str) -> Object {
        let object = json!({ "metadata": { "namespace": "a", "name": name, "resourceVersion": version.to_string(), "labels": { "l": label } } });
        Object::from_json(object.to_string().into()).unwrap()
    }

    fn held(objects: &[Object], version: u64) -> Snapshot {
        let mut cache = Cache::new(Limits::default());
        let objects = objects.iter().cloned().map(Arc::new).collect();
        cache.replace(objects, ResourceVersion::new(version).unwrap()).unwrap();
        cache.snapshot().unwrap()
    }

    fn key(namespace: &str, labels: &str) -> Key {
        Key { namespace: namespace.into(), labels: labels.into(), ..Key::pooled(&resource()) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_has_a_write_once_it_was_told_of_it() {
        let at = |version| ResourceVersion::new(version);
        let is = |version| After::Is(object("x", version, "m").into());
        for (after, key, there, version, expected) in [
            (is(5), key("", ""), vec![], 4, false),
            (is(5), key("", ""), vec![object("x", 4, "m")], 9, false),
            (is(5), key("", ""), vec![object("x", 5, "m")], 5, true),
            (is(5), key("", ""), vec![object("x", 6, "m")], 6, true),
            // It was deleted since.
            (is(5), key("", ""), vec![], 7, true),
            (is(5), key("a", ""), vec![], 4, false),
            (is(5), key("b", ""), vec![], 4, true),
            (is(5), key("", "l=m"), vec![], 4, false),
            (is(5), key("", "l=n"), vec![], 4, true),
            // It has left what is selected, which the stream does not know yet.
            (is(5), key("", "l=n"), vec![object("x", 4, "n")], 4, false),
            (After::Gone(at(5)), key("", ""), vec![object("x", 5, "m")], 8, false),
            (After::Gone(at(5)), key("", ""), vec![object("x", 6, "m")], 8, true),
            (After::Gone(None), key("", ""), vec![object("x", 6, "m")], 8, false),
            (After::Gone(None), key("", ""), vec![], 1, true),
            (After::Unknown, key("", ""), vec![], 9, false),
            (After::Unknown, key("b", ""), vec![], 9, true),
        ] {
            let writes = OwnWrites::default();
            let held = held(&there, version);
            assert!(writes.are_held(&key, &held));
            writes.note(&resource(), "a", "x", after.clone());
            let text = format!("{after:?} {key} {version}");
            assert_eq!(writes.are_held(&key, &held), expected, "{text}");
            assert!(writes.are_any(&resource()), "{text}");
            advance(LASTS).await;
            assert!(writes.are_held(&key, &held) && !writes.are_any(&resource()), "{text}: it is long ago");
            writes.forget_old();
            assert!(writes.of.lock().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_an_object_the_last_write_counts() {
        let writes = OwnWrites::default();
        writes.note(&resource(), "a", "x", After::Is(object("x", 5, "").into()));
        writes.note(&resource(), "a", "x", After::Gone(ResourceVersion::new(5)));
        assert!(writes.are_held(&key("", ""), &held(&[], 4)));
        for n in 0..1000 {
            let name = format!("n{n}");
            writes.note(&resource(), "a", &name, After::Is(object(&name, 9, "").into()));
        }
        assert_eq!(writes.of.lock().values().map(VecDeque::len).sum::<usize>(), REMEMBERED);
    }

    #[test]
    fn an_answer_says_what_is_there() {
        let answer = || Some(object("x", 5, ""));
        let (object, other) = (Part::of(Some("status")).unwrap(), Part::of(Some("eviction")).unwrap());
        assert!(matches!(After::of(Verb::Patch, object, answer()), After::Is(_)));
        assert!(matches!(After::of(Verb::Delete, object, answer()), After::Gone(Some(_))));
        assert!(matches!(After::of(Verb::Delete, object, None), After::Gone(None)));
        for (verb, part, answer) in [
            (Verb::Create, other, answer()),
            (Verb::Create, object, None),
            (Verb::DeleteCollection, object, None),
        ] {
            assert!(matches!(After::of(verb, part, answer), After::Unknown));
        }
        assert_eq!((Part::of(None), Part::of(Some("token"))), (Some(Part::Object), None));
    }
}
