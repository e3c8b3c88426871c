//! What etcd is to an API server: one revision over all resources, and the history that led to it.
//!
//! Deterministic: no clock, no sockets. Nothing is ever forgotten, so that a checker can see the whole history; what is
//! compacted is only refused.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::kind::Kind;
use super::protobuf;

/// One version of an object, with its encodings, each made once.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) rv: u64,
    /// With `apiVersion` and `kind`.
    pub(crate) value: Value,
    whole: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

impl Stored {
    fn new(kind: &Kind, rv: u64, mut value: Value) -> Arc<Self> {
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = kind.kind.as_str().into();
        value["metadata"]["resourceVersion"] = rv.to_string().into();
        Arc::new(Self { rv, value, whole: OnceLock::new(), item: OnceLock::new(), protobuf: OnceLock::new() })
    }

    /// Its JSON as an object of its own.
    pub(crate) fn whole(&self) -> &Bytes {
        self.whole.get_or_init(|| self.value.to_string().into())
    }

    /// Its JSON as an item of a list.
    pub(crate) fn item(&self, kind: &Kind) -> &Bytes {
        if !kind.typed {
            return self.whole();
        }
        self.item.get_or_init(|| {
            let mut value = self.value.clone();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            value.to_string().into()
        })
    }

    /// Its protobuf message, without envelope.
    pub(crate) fn protobuf(&self) -> &Bytes {
        self.protobuf.get_or_init(|| protobuf::message(&self.value).into())
    }
}

/// A change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) rv: u64,
    pub(crate) key: String,
    /// What it is now; nothing if it was deleted.
    pub(crate) object: Option<Arc<Stored>>,
    /// What it was before.
    pub(crate) previous: Option<Arc<Stored>>,
    leaving: OnceLock<Option<Arc<Stored>>>,
}

impl Event {
    /// The previous object with the version of this event: what is sent to those for whom it goes.
    pub(crate) fn leaving(&self, kind: &Kind) -> Option<&Arc<Stored>> {
        let make =
            || self.previous.as_ref().map(|previous| Stored::new(kind, self.rv, previous.value.clone()));
        self.leaving.get_or_init(make).as_ref()
    }
}

/// Objects by storage key: `namespace/name`, or `name` of those without a namespace. Its order is that of lists.
pub(crate) type Objects = BTreeMap<String, Arc<Stored>>;

/// All of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) kind: Arc<Kind>,
    /// Differs between a resource and one of the same name that was defined later.
    pub(crate) incarnation: u64,
    /// The revision at which it was defined: there is nothing to watch before.
    pub(crate) since: u64,
    pub(crate) current: Objects,
}

/// Events of each resource, ascending, by its name.
pub(crate) type History = BTreeMap<String, Vec<Arc<Event>>>;

/// All resources.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) revision: u64,
    /// Below it nothing can be read.
    pub(crate) compacted: u64,
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) history: History,
    /// The histories that a restore ended.
    pub(crate) past: Vec<History>,
    incarnations: u64,
}

impl Store {
    /// Number of restores so far.
    pub(crate) fn epoch(&self) -> usize {
        self.past.len()
    }

    /// A number that was never given before.
    pub(crate) fn unique(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// Defines a resource, or redefines it: then its objects stay and its watches end.
    pub(crate) fn define(&mut self, kind: Kind) {
        let incarnation = self.unique();
        let id = kind.id();
        let current = self.tables.remove(&id).map(|table| table.current).unwrap_or_default();
        self.tables.insert(id, Table { kind: Arc::new(kind), incarnation, since: self.revision, current });
    }

    /// Shows the objects of a resource as `shape` makes them, at the versions that they have, as a changed schema does: what is stored is
    /// pruned and given defaults when it is read.
    pub(crate) fn reshape(&mut self, id: &str, shape: impl Fn(&mut Value)) {
        let Some(table) = self.tables.get_mut(id) else { return };
        let shaped = |stored: &Arc<Stored>| {
            let mut value = stored.value.clone();
            shape(&mut value);
            Stored::new(&table.kind, stored.rv, value)
        };
        let current = table.current.iter().map(|(key, stored)| (key.clone(), shaped(stored))).collect();
        for event in self.history.get_mut(id).into_iter().flatten() {
            *event = Arc::new(Event {
                rv: event.rv,
                key: event.key.clone(),
                object: event.object.as_ref().map(shaped),
                previous: event.previous.as_ref().map(shaped),
                leaving: OnceLock::new(),
            });
        }
        table.current = current;
    }

    /// Removes a resource; each of its objects is deleted first, as an API server's finalizer does.
    pub(crate) fn undefine(&mut self, id: &str) {
        let keys: Vec<_> =
            self.tables.get(id).into_iter().flat_map(|table| table.current.keys().cloned()).collect();
        for key in keys {
            self.write(id, &key, None);
        }
        self.tables.remove(id);
    }

    /// Writes or deletes an object; returns what it is now, or what was deleted with the version of the deletion.
    /// `None` if there is no such resource, or nothing to delete.
    pub(crate) fn write(&mut self, id: &str, key: &str, value: Option<Value>) -> Option<Arc<Stored>> {
        let table = self.tables.get_mut(id)?;
        let previous = table.current.get(key).cloned();
        if value.is_none() && previous.is_none() {
            return None;
        }
        self.revision += 1;
        let object = value.map(|value| Stored::new(&table.kind, self.revision, value));
        match &object {
            Some(object) => table.current.insert(key.to_owned(), object.clone()),
            None => table.current.remove(key),
        };
        let event =
            Event { rv: self.revision, key: key.to_owned(), object, previous, leaving: OnceLock::new() };
        let result = event.object.clone().or_else(|| event.leaving(&table.kind).cloned());
        self.history.entry(id.to_owned()).or_default().push(Arc::new(event));
        result
    }

    /// All objects of a resource as they were at `rv`.
    pub(crate) fn at(&self, id: &str, rv: u64) -> Objects {
        let events = self.history.get(id).map_or(&[][..], Vec::as_slice);
        if events.last().is_none_or(|last| last.rv <= rv) {
            return self.tables.get(id).map(|table| table.current.clone()).unwrap_or_default();
        }
        fold(events, rv)
    }

    /// Events of a resource after `after` and not after `until`.
    pub(crate) fn events(&self, id: &str, after: u64, until: u64) -> &[Arc<Event>] {
        let events = self.history.get(id).map_or(&[][..], Vec::as_slice);
        let from = events.partition_point(|event| event.rv <= after);
        let to = events.partition_point(|event| event.rv <= until);
        events.get(from..to).unwrap_or(&[])
    }

    /// Refuses reads below `rv` from now on.
    pub(crate) fn compact(&mut self, rv: u64) {
        self.compacted = self.compacted.max(rv.min(self.revision));
    }

    /// Goes back to what was at `rv`, as restoring a backup of etcd does: what comes next gets revisions that were given
    /// before.
    pub(crate) fn restore(&mut self, rv: u64) {
        self.past.push(self.history.clone());
        self.revision = rv.min(self.revision);
        self.compacted = self.compacted.min(self.revision);
        for events in self.history.values_mut() {
            events.retain(|event| event.rv <= rv);
        }
        for (id, table) in &mut self.tables {
            table.since = table.since.min(self.revision);
            table.current = self.history.get(id).map(|events| fold(events, rv)).unwrap_or_default();
        }
    }
}

fn fold(events: &[Arc<Event>], rv: u64) -> Objects {
    let mut objects = Objects::new();
    for event in events.iter().take_while(|event| event.rv <= rv) {
        match &event.object {
            Some(object) => objects.insert(event.key.clone(), object.clone()),
            None => objects.remove(&event.key),
        };
    }
    objects
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store() -> Store {
        let mut store = Store::default();
        store.define(Kind::built_in("", "v1", "configmaps", "ConfigMap", true));
        for (key, n) in [("a/x", 1), ("a-b/x", 2), ("a/x", 3)] {
            store.write("configmaps", key, Some(json!({"n": n})));
        }
        store.write("configmaps", "a-b/x", None);
        store
    }

    #[test]
    fn every_write_is_a_revision_and_none_is_lost() {
        let store = store();
        assert_eq!(store.revision, 4);
        let keys = |rv| store.at("configmaps", rv).keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(4), ["a/x"]);
        assert_eq!(keys(3), ["a-b/x", "a/x"], "the order of the key's bytes");
        assert_eq!(keys(1), ["a/x"]);
        assert_eq!(store.at("configmaps", 2)["a/x"].value["n"], 1);
        let events: Vec<_> = store.events("configmaps", 1, 3).iter().map(|event| event.rv).collect();
        assert_eq!(events, [2, 3]);
    }

    #[test]
    fn what_is_deleted_leaves_with_the_version_of_the_deletion() {
        let store = store();
        let event = store.events("configmaps", 3, 4)[0].clone();
        let leaving = event.leaving(&store.tables["configmaps"].kind).unwrap();
        assert_eq!((leaving.rv, &leaving.value["n"]), (4, &json!(2)));
        assert_eq!(leaving.value["metadata"]["resourceVersion"], "4");
    }

    #[test]
    fn a_restore_gives_revisions_again() {
        let mut store = store();
        store.restore(2);
        assert_eq!((store.revision, store.epoch()), (2, 1));
        assert_eq!(store.at("configmaps", 9)["a/x"].value["n"], 1);
        let written = store.write("configmaps", "b/y", Some(json!({}))).unwrap();
        assert_eq!(written.rv, 3);
        assert_eq!(store.past[0]["configmaps"].len(), 4);
    }
}
