//! A cluster's state, shared by its API servers, and the operations tests do on it without HTTP.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::access::Access;
use super::kind::{Kind, well_known};
use super::status::{Answer, Status};
use super::store::{Store, Stored};
use crate::history::{Epoch, Model, Revision};

/// The resource whose objects define others.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

#[derive(Debug)]
struct Inner {
    store: Mutex<Store>,
    changed: watch::Sender<u64>,
    access: Access,
    documents: Mutex<BTreeMap<String, String>>,
}

/// What the API servers of one cluster share. Cheap to clone.
///
/// Resources are named `resource.group`, or `resource` in the core group. Objects are named by their key:
/// `namespace/name`, or `name` if their kind has no namespaces.
#[derive(Debug, Clone)]
pub struct Cluster(Arc<Inner>);

impl Default for Cluster {
    fn default() -> Self {
        let mut store = Store::default();
        store.revision = 1;
        for kind in well_known() {
            store.define(kind);
        }
        Self(Arc::new(Inner {
            store: Mutex::new(store),
            changed: watch::channel(0).0,
            access: Access::default(),
            documents: Mutex::default(),
        }))
    }
}

impl Cluster {
    /// Users, tokens and what they may.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Serves a JSON document at a path that is about no object, such as `/openid/v1/jwks`. Returns its hash, which in quotes is its `ETag`.
    pub fn set_document(&self, path: &str, document: &Value) -> String {
        let document = document.to_string();
        let hash = hash(&document);
        self.0.documents.lock().insert(path.to_owned(), document);
        hash
    }

    pub(crate) fn document(&self, path: &str) -> Option<String> {
        self.0.documents.lock().get(path).cloned()
    }

    pub(crate) fn document_tag(&self, path: &str) -> Option<String> {
        self.document(path).map(|document| format!("\"{}\"", hash(&document)))
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    pub(crate) fn signal(&self) {
        self.0.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.store().revision
    }

    /// Goes on by so many revisions, as if that much else had been written.
    pub fn pass(&self, revisions: u64) {
        self.store().revision += revisions;
        self.signal();
    }

    /// Adds a kind without a `CustomResourceDefinition`.
    pub fn define(&self, kind: Kind) {
        self.store().define(kind);
        self.signal();
    }

    /// Writes a new object; its name is taken from its metadata.
    pub fn create(&self, id: &str, object: Value) -> Answer<Value> {
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        self.create_in(id, namespace.as_deref(), object).map(|stored| stored.value.clone())
    }

    pub(crate) fn create_in(
        &self,
        id: &str,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Answer<Arc<Stored>> {
        let mut store = self.store();
        let kind = store.tables.get(id).ok_or_else(Status::no_such_resource)?.kind.clone();
        if !object["metadata"].is_object() {
            object["metadata"] = Map::new().into();
        }
        let number = store.unique();
        let metadata = &mut object["metadata"];
        if metadata["name"].as_str().is_none_or(str::is_empty) {
            let Some(prefix) = metadata["generateName"].as_str() else {
                return Err(Status::invalid_object(&format!(
                    "{} \"\" is invalid: metadata.name: Required value: name or generateName is required",
                    kind.kind
                )));
            };
            metadata["name"] = format!("{prefix}{number:05}").into();
        }
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        if kind.namespaced {
            let Some(namespace) = namespace else { return Err(Status::method_not_allowed()) };
            metadata["namespace"] = namespace.into();
        }
        metadata["uid"] = format!("00000000-0000-4000-8000-{number:012}").into();
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        let key = key(&kind, namespace, &name);
        if store.tables.get(id).is_some_and(|table| table.current.contains_key(&key)) {
            return Err(Status::already_exists(&kind.group, &kind.resource, &name));
        }
        let mut defines = None;
        if id == CRDS
            && let Some(defined) = Kind::of_crd(&object)
        {
            object["status"] = serde_json::json!({
                "acceptedNames": object["spec"]["names"], "storedVersions": [defined.version],
                "conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}],
            });
            defines = Some(defined);
        }
        let stored = store.write(id, &key, Some(object)).ok_or_else(Status::no_such_resource)?;
        // Its cache begins with a list that is made later: no version before that can be watched from.
        if let Some(defined) = defines {
            store.define(defined);
        }
        drop(store);
        self.signal();
        Ok(stored)
    }

    /// Changes an object by `change`, which sees the object and may refuse. What a client must not change stays: uid,
    /// name, creation. Nothing is written if nothing changes, as an API server does it.
    pub(crate) fn modify(
        &self,
        id: &str,
        key: &str,
        change: impl FnOnce(&Value) -> Answer<Value>,
    ) -> Answer<Arc<Stored>> {
        let mut store = self.store();
        let table = store.tables.get(id).ok_or_else(Status::no_such_resource)?;
        let kind = table.kind.clone();
        let name = key.rsplit('/').next().unwrap_or(key);
        let missing = || Status::not_found(&kind.group, &kind.resource, name);
        let old = table.current.get(key).cloned().ok_or_else(missing)?;
        let mut new = change(&old.value)?;
        let asked = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !asked.is_empty() && *asked != old.rv.to_string() {
            return Err(Status::conflict(&kind.group, &kind.resource, name));
        }
        for field in ["name", "namespace", "uid", "creationTimestamp", "resourceVersion"] {
            match old.value["metadata"].get(field) {
                Some(value) => new["metadata"][field] = value.clone(),
                None => _ = new["metadata"].as_object_mut().and_then(|fields| fields.remove(field)),
            }
        }
        new["apiVersion"] = old.value["apiVersion"].clone();
        new["kind"] = old.value["kind"].clone();
        if new == old.value {
            return Ok(old);
        }
        let defines = (id == CRDS).then(|| Kind::of_crd(&new)).flatten();
        let stored = store.write(id, key, Some(new)).ok_or_else(missing)?;
        if let Some(defined) = defines {
            store.define(defined);
        }
        drop(store);
        self.signal();
        Ok(stored)
    }

    /// Changes the definition of a custom resource by a merge patch, so that its objects are read as `shape` makes them: their versions
    /// stay, and watches end.
    pub fn redefine(&self, crd: &str, patch: &Value, shape: impl Fn(&mut Value)) -> Answer<Value> {
        let defined =
            self.get(CRDS, crd).as_ref().and_then(Kind::of_crd).ok_or_else(Status::no_such_resource)?;
        self.store().reshape(&defined.id(), shape);
        self.merge_patch(CRDS, crd, patch)
    }

    /// Shows the objects of a resource as `shape` makes them, at the versions that they have, as API servers of a later release do that has other
    /// defaults: nothing happens to what is stored, and watches go on.
    pub fn reshape(&self, id: &str, shape: impl Fn(&mut Value)) {
        self.store().reshape(id, shape);
    }

    /// Replaces an object. If its metadata has a `resourceVersion`, that must be the current one.
    pub fn update(&self, id: &str, object: &Value) -> Answer<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key =
            object["metadata"]["namespace"].as_str().map_or(name.to_owned(), |ns| format!("{ns}/{name}"));
        self.modify(id, &key, |_| Ok(object.clone())).map(|stored| stored.value.clone())
    }

    /// Changes an object by a merge patch (RFC 7386).
    pub fn merge_patch(&self, id: &str, key: &str, patch: &Value) -> Answer<Value> {
        let change = |old: &Value| Ok(merged(old, patch));
        self.modify(id, key, change).map(|stored| stored.value.clone())
    }

    /// Deletes an object; returns its last state, with the version of the deletion.
    pub fn delete(&self, id: &str, key: &str) -> Answer<Value> {
        let mut store = self.store();
        let table = store.tables.get(id).ok_or_else(Status::no_such_resource)?;
        let kind = table.kind.clone();
        let name = key.rsplit('/').next().unwrap_or(key);
        let missing = || Status::not_found(&kind.group, &kind.resource, name);
        let old = table.current.get(key).cloned().ok_or_else(missing)?;
        if id == CRDS
            && let Some(defined) = Kind::of_crd(&old.value)
        {
            store.undefine(&defined.id());
        }
        let deleted = store.write(id, key, None).ok_or_else(missing)?;
        drop(store);
        self.signal();
        Ok(deleted.value.clone())
    }

    /// An object, if it is there.
    pub fn get(&self, id: &str, key: &str) -> Option<Value> {
        self.store().tables.get(id)?.current.get(key).map(|stored| stored.value.clone())
    }

    /// All objects of a resource by key.
    pub fn list(&self, id: &str) -> BTreeMap<String, Value> {
        let store = self.store();
        let current = store.tables.get(id).map(|table| &table.current);
        current.into_iter().flatten().map(|(key, stored)| (key.clone(), stored.value.clone())).collect()
    }

    /// Refuses reads below `rv` from now on, as a compaction of etcd and of the watch cache at once.
    pub fn compact(&self, rv: u64) {
        self.store().compact(rv);
        self.signal();
    }

    /// Goes back to the state at `rv`, as restoring a backup of etcd does, and ends every watch, as the restart of the
    /// API servers does. Revisions after `rv` are given again.
    pub fn restore(&self, rv: u64) {
        self.store().restore(rv);
        self.signal();
    }

    /// The whole history of a resource, for the checker; one epoch more than there were restores.
    pub fn history(&self, id: &str) -> Model {
        let store = self.store();
        let histories = store.past.iter().chain(std::iter::once(&store.history));
        let epoch = |history: &super::store::History| {
            let events = history.get(id).into_iter().flatten();
            let revision = |event: &Arc<super::store::Event>| Revision {
                rv: event.rv,
                key: event.key.clone(),
                object: event.object.as_ref().map(|stored| stored.value.clone()),
            };
            Epoch { revisions: events.map(revision).collect() }
        };
        Model { epochs: histories.map(epoch).collect() }
    }
}

fn hash(document: &str) -> String {
    let mut hasher = DefaultHasher::new();
    document.hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

/// The storage key of an object.
pub(crate) fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if kind.namespaced => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

/// `old` with a merge patch (RFC 7386) applied.
pub(crate) fn merged(old: &Value, patch: &Value) -> Value {
    let mut new = old.clone();
    json_patch::merge(&mut new, patch);
    new
}
