//! Tables (`kubectl get`) while there is no link. Their columns and cells are the API server's to make, by code of its own for each
//! kind: what it made of an object is kept with the object's UID and version, and told again of that very object. A table in which a
//! row would have to be made up is not answered; the objects are, as they are.
//!
//! An age that the API server reckoned from the creation of the object goes on; all other cells are as they were.

mod index;

use std::{collections::BTreeMap, sync::Arc};

use axum::body::Body;
use http::{HeaderMap, Response, StatusCode, header};
use jiff::Timestamp;
use kube_wire::{age, object::Object, request::ResourcePath, resource::GroupVersionResource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tls::digest::Sha256Digest;
use tracing::{debug, warn};
use watch_cache::{Page, Scope};

use self::index::{Entry, Index};
use super::{coding::Coding, collected::Collected, documents::unix_seconds, tee};
use crate::{
    queue::{Queue, Turn},
    storage::{Storage, StorageError},
    subscriptions::Owner,
};

/// The index of what is kept.
const INDEX: &str = "tables";

/// How the names of tables begin.
const PREFIX: &str = "table-";

/// How many wait while one is kept: each goes on from what the one before has kept, and they take memory.
const WAITING: usize = 3;

/// The most rows that are kept of a resource for one reader.
const ROWS: usize = 5000;

/// The most bytes that are kept of a resource for one reader, and that an answer may have: kubectl asks for 500 rows at once, which have half
/// a megabyte or one.
const LARGEST: usize = 4 << 20;

/// How far the clocks of this node and the API server may be apart, in seconds, for an age to be known as one.
const SKEW: i64 = 5;

/// What was answered last about one resource to one reader.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    columns: Value,
    /// By namespace and name.
    rows: BTreeMap<String, Row>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    /// When it was answered, in Unix seconds.
    at: u64,
    row: Value,
}

impl Kept {
    /// The keys of all rows, those first that were answered longest ago.
    fn oldest(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.rows.iter().map(|(key, row)| (row.at, key)).collect();
        rows.sort();
        rows.into_iter().map(|(_, key)| key.clone()).collect()
    }
}

/// Whether the answer may be a table that is worth keeping: of objects with their metadata.
pub fn is_wanted(headers: &HeaderMap, query: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("as=Table") && !query.contains("watch=") && !query.contains("includeObject")
}

/// The scope of which an answer to that tells of all objects, if it is not continued; none, if it may tell of some only.
pub fn scope_of(path: &ResourcePath, query: &str) -> Option<Scope> {
    let harmless = ["", "limit", "timeout", "timeoutSeconds", "pretty", "resourceVersion"];
    let is_harmless = |parameter: &str| harmless.contains(&parameter.split('=').next().unwrap_or_default());
    let of_all = path.name.is_none() && query.split('&').all(is_harmless);
    of_all.then(|| path.namespace.clone().map_or(Scope::Cluster, Scope::Namespace))
}

/// Keeps what the API server made of objects.
#[derive(Clone)]
pub struct Tables {
    storage: Storage,
    index: Arc<Mutex<Index>>,
    queue: Queue,
}

impl Tables {
    /// Tables in `storage`. What no index tells of is removed.
    pub fn new(storage: Storage) -> Self {
        let index = storage.blob(INDEX).and_then(|blob| serde_json::from_slice(&blob).ok());
        let mut index: Index = index.unwrap_or_default();
        if !index.is_all
            && let Err(error) = remove_lost(&storage, &mut index)
        {
            warn!(%error, "tables of an earlier version cannot be removed");
        }
        Self { storage, index: Arc::new(Mutex::new(index)), queue: Queue::new(1, WAITING) }
    }

    /// The turn to keep a table; none if too many wait for the disk already.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        self.queue.turn().await
    }

    /// Gives the body of an answer, once it has passed, to `done`, if it may be a table.
    pub fn watch(
        response: Response<Body>,
        done: impl FnOnce(Collected) + Send + Unpin + 'static,
    ) -> Response<Body> {
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
        let Some(coding) =
            Coding::of(response.headers()).filter(|_| response.status() == StatusCode::OK && is_json)
        else {
            return response;
        };
        tee::collect(response, LARGEST, move |collected: Collected| {
            if let Some(plain) = collected.plain(coding) {
                done(plain);
            }
        })
    }

    /// Keeps the rows of an answer for its reader; `scope`: of which it tells all, as [`scope_of`] has it. Waits for the disk.
    pub(crate) fn keep(
        &self,
        _turn: Turn,
        owner: &Owner,
        resource: &GroupVersionResource,
        scope: Option<&Scope>,
        body: &[u8],
    ) {
        let Ok(table) = serde_json::from_slice::<Value>(body) else { return };
        let name = name(owner, resource);
        let at = unix_seconds();
        let Some(kept) = merged(self.kept(&name), &table, scope, at) else { return };
        let Some(content) = written(kept, LARGEST) else { return };
        let owner = Sha256Digest::of(title(owner).as_bytes()).to_string();
        let entry = Entry { name, owner, bytes: content.len(), at };
        if let Err(error) = self.put(entry, &content) {
            warn!(%resource, %error, "a table cannot be kept");
        }
    }

    /// The index first, as with documents.
    fn put(&self, entry: Entry, content: &[u8]) -> Result<(), StorageError> {
        let name = entry.name.clone();
        let (gone, index) = {
            let mut index = self.index.lock();
            (index.put(entry), serde_json::to_vec(&*index).unwrap_or_default())
        };
        for gone in gone {
            debug!(name = gone, "a table makes room");
            self.storage.remove_blob(&gone)?;
        }
        self.storage.put_blob(INDEX, &index)?;
        // Cells may tell of what is nobody else's business.
        self.storage.put_sealed_blob(&name, content)
    }

    /// The table of these objects, if it is known of each.
    pub fn answer(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        version: &str,
        page: &Page,
    ) -> Option<Value> {
        let name = name(owner, resource);
        self.index.lock().touch(&name, unix_seconds());
        let kept = self.kept(&name);
        let rows: Option<Vec<Value>> =
            page.objects.iter().map(|object| row(&kept, object, unix_seconds())).collect();
        let mut metadata = json!({ "resourceVersion": page.resource_version.to_string() });
        if let Some(token) = &page.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let columns = kept.columns.is_array().then_some(&kept.columns)?;
        Some(json!({
            "kind": "Table", "apiVersion": version, "metadata": metadata, "columnDefinitions": columns, "rows": rows?,
        }))
    }

    fn kept(&self, name: &str) -> Kept {
        let blob = self.storage.blob(name);
        blob.and_then(|blob| serde_json::from_slice(&blob).ok()).unwrap_or_default()
    }
}

/// Removes what the index does not tell of, and says in it that there is no such: to find that out takes a look at all documents.
fn remove_lost(storage: &Storage, index: &mut Index) -> Result<(), StorageError> {
    storage.remove_blobs(|name| name.starts_with(PREFIX) && !index.has(name))?;
    index.is_all = true;
    storage.put_blob(INDEX, &serde_json::to_vec(index).unwrap_or_default())
}

fn name(owner: &Owner, resource: &GroupVersionResource) -> String {
    let of = format!("{}\n{}\n{}", title(owner), resource.api_version(), resource.resource);
    format!("{PREFIX}{}", Sha256Digest::of(of.as_bytes()))
}

fn title(owner: &Owner) -> String {
    match owner {
        Owner::Node => "node".to_owned(),
        Owner::Users => "users".to_owned(),
        // Or one who is called `node` would be the node.
        Owner::User(name) => format!("user {name}"),
    }
}

/// What is known after an answer; nothing, if it is no table whose rows tell of which objects they are. Of the scope of which it tells all, objects
/// that it does not tell of are no more.
fn merged(before: Kept, table: &Value, scope: Option<&Scope>, at: u64) -> Option<Kept> {
    let columns = table["columnDefinitions"].as_array().filter(|_| table["kind"] == "Table")?;
    let rows = table["rows"].as_array()?;
    let mut kept = Kept { columns: columns.clone().into(), rows: BTreeMap::new() };
    if before.columns == kept.columns {
        kept.rows = before.rows;
    }
    let is_whole = table["metadata"]["continue"].as_str().unwrap_or_default().is_empty();
    match scope.filter(|_| is_whole) {
        Some(Scope::Cluster) => kept.rows.clear(),
        Some(Scope::Namespace(namespace)) => {
            kept.rows.retain(|key, _| key.split('/').next() != Some(&**namespace));
        }
        None => {}
    }
    for row in rows.iter().take(ROWS) {
        let metadata = &row["object"]["metadata"];
        let name = metadata["name"].as_str()?;
        let key = format!("{}/{name}", metadata["namespace"].as_str().unwrap_or_default());
        kept.rows.insert(key, Row { at, row: row.clone() });
    }
    let surplus = kept.rows.len().saturating_sub(ROWS);
    let gone: Vec<String> = kept.oldest().into_iter().take(surplus).collect();
    for key in &gone {
        kept.rows.remove(key);
    }
    Some(kept)
}

/// A table as it is stored, without its oldest rows where it would have more bytes.
fn written(mut kept: Kept, most: usize) -> Option<Vec<u8>> {
    let whole = serde_json::to_vec(&kept).ok()?;
    let mut over = whole.len().saturating_sub(most);
    if over == 0 {
        return Some(whole);
    }
    for key in kept.oldest() {
        let row = kept.rows.remove(&key)?;
        // With its key, a colon and a comma.
        let bytes = serde_json::to_vec(&(key, row)).ok()?.len();
        over = over.saturating_sub(bytes - 1);
        if over == 0 {
            break;
        }
    }
    serde_json::to_vec(&kept).ok().filter(|content| content.len() <= most)
}

/// What the API server made of this very object.
fn row(kept: &Kept, object: &Object, now: u64) -> Option<Value> {
    let key = format!("{}/{}", object.key().namespace(), object.key().name());
    let Row { at, row } = kept.rows.get(&key)?;
    let metadata = &row["object"]["metadata"];
    let same = metadata["uid"] == object.uid()
        && metadata["resourceVersion"].as_str() == Some(object.resource_version().to_string().as_str());
    if !same {
        return None;
    }
    let mut row = row.clone();
    let age = kept.columns.as_array()?.iter().position(|column| column["name"] == "Age");
    let created = seconds(&metadata["creationTimestamp"]);
    if let (Some(cell), Some(created)) = (age.and_then(|age| row["cells"].get_mut(age)), created) {
        let since = |time: u64| i64::try_from(time).unwrap_or(i64::MAX).saturating_sub(created);
        let then = since(*at);
        let reckoned =
            (-SKEW..=SKEW).any(|skew| cell.as_str() == Some(age::human(then.saturating_add(skew)).as_str()));
        if reckoned {
            *cell = age::human(since(now)).into();
        }
    }
    Some(row)
}

fn seconds(timestamp: &Value) -> Option<i64> {
    Some(timestamp.as_str()?.parse::<Timestamp>().ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const CREATED: i64 = 1_700_000_000;

    fn table(version: &str, age: &str) -> Value {
        let created = Timestamp::from_second(CREATED).unwrap().to_string();
        let metadata = json!({
            "namespace": "a", "name": "p", "uid": "u", "resourceVersion": version, "creationTimestamp": created,
        });
        json!({
            "kind": "Table", "columnDefinitions": [{ "name": "Name" }, { "name": "Ready" }, { "name": "Age" }],
            "rows": [{ "cells": ["p", "1/1", age], "object": { "metadata": metadata } }],
        })
    }

    fn object(uid: &str, version: &str) -> Object {
        let object =
            json!({ "metadata": { "namespace": "a", "name": "p", "uid": uid, "resourceVersion": version } });
        Object::from_json(object.to_string().into()).unwrap()
    }

    fn cells(kept: &Kept, object: &Object, after: i64) -> Option<Value> {
        Some(row(kept, object, u64::try_from(CREATED + after).unwrap())?["cells"].clone())
    }

    #[test]
    fn a_row_is_told_of_the_very_object_that_it_was_made_of() {
        let at = u64::try_from(CREATED + 300).unwrap();
        let kept = merged(Kept::default(), &table("7", "5m"), None, at).unwrap();
        assert_eq!(cells(&kept, &object("u", "7"), 300), Some(json!(["p", "1/1", "5m"])));
        assert_eq!(
            cells(&kept, &object("u", "7"), 7200),
            Some(json!(["p", "1/1", "120m"])),
            "it grows older"
        );
        assert_eq!(cells(&kept, &object("u", "8"), 300), None, "it has changed since");
        assert_eq!(cells(&kept, &object("other", "7"), 300), None, "another of that name");
        let strange = merged(Kept::default(), &table("7", "yesterday"), None, at).unwrap();
        assert_eq!(
            cells(&strange, &object("u", "7"), 7200),
            Some(json!(["p", "1/1", "yesterday"])),
            "as it was told"
        );
    }

    #[test]
    fn what_is_known_grows_as_long_as_columns_stay() {
        let first = merged(Kept::default(), &table("7", "5m"), None, 1).unwrap();
        let mut other = table("9", "1s");
        other["rows"][0]["object"]["metadata"]["name"] = "q".into();
        assert_eq!(merged(first, &other, None, 2).unwrap().rows.len(), 2);
        let first = merged(Kept::default(), &table("7", "5m"), None, 1).unwrap();
        other["columnDefinitions"][1]["name"] = "Status".into();
        assert_eq!(merged(first, &other, None, 2).unwrap().rows.len(), 1);
        assert_eq!(merged(Kept::default(), &json!({ "kind": "PodList", "items": [] }), None, 1), None);
        other["rows"][0]["object"] = Value::Null;
        assert_eq!(merged(Kept::default(), &other, None, 1), None, "of which object is not said");
    }

    /// A table of as many rows, named from 0 on.
    fn many(namespace: &str, count: usize) -> Value {
        let rows = (0..count).map(|n| {
            json!({ "cells": [n], "object": { "metadata": { "namespace": namespace, "name": format!("{n:05}") } } })
        });
        json!({ "kind": "Table", "columnDefinitions": [{ "name": "Name" }], "rows": rows.collect::<Vec<_>>() })
    }

    fn keys(kept: &Kept) -> Vec<&str> {
        kept.rows.keys().map(String::as_str).collect()
    }

    #[test]
    fn rows_of_objects_that_are_no_more_go_with_an_answer_that_tells_all() {
        let known = |scope: Option<&Scope>, next: &Value| {
            let kept = merged(Kept::default(), &many("a", 3), None, 1).unwrap();
            let kept = merged(kept, &many("b", 1), None, 2).unwrap();
            keys(&merged(kept, next, scope, 3).unwrap()).join(" ")
        };
        let (all, of_a) = (Scope::Cluster, Scope::Namespace("a".into()));
        assert_eq!(known(None, &many("a", 1)), "a/00000 a/00001 a/00002 b/00000", "some were asked for");
        assert_eq!(known(Some(&of_a), &many("a", 1)), "a/00000 b/00000");
        assert_eq!(known(Some(&all), &many("a", 1)), "a/00000");
        let mut page = many("a", 1);
        page["metadata"]["continue"] = "token".into();
        assert_eq!(known(Some(&all), &page), "a/00000 a/00001 a/00002 b/00000", "there are more");
    }

    #[test]
    fn a_request_asks_for_all_unless_it_says_otherwise() {
        let path = |namespace: Option<&str>, name: Option<&str>| {
            let text = match (namespace, name) {
                (None, _) => "/api/v1/pods".to_owned(),
                (Some(namespace), None) => format!("/api/v1/namespaces/{namespace}/pods"),
                (Some(namespace), Some(name)) => format!("/api/v1/namespaces/{namespace}/pods/{name}"),
            };
            let info = kube_wire::request::RequestInfo::parse(&http::Method::GET, &text.parse().unwrap());
            info.resource().unwrap().clone()
        };
        let all = path(None, None);
        assert_eq!(scope_of(&all, ""), Some(Scope::Cluster));
        assert_eq!(scope_of(&all, "limit=500&timeout=3s"), Some(Scope::Cluster));
        assert_eq!(scope_of(&path(Some("a"), None), "limit=500"), Some(Scope::Namespace("a".into())));
        assert_eq!(scope_of(&path(Some("a"), Some("p")), ""), None);
        for query in ["labelSelector=x", "limit=5&fieldSelector=x%3Dy", "continue=token", "label%53elector=x"]
        {
            assert_eq!(scope_of(&all, query), None, "{query}");
        }
    }

    #[test]
    fn a_table_keeps_what_was_answered_last_within_its_bounds() {
        let kept = merged(Kept::default(), &many("a", ROWS), None, 1).unwrap();
        let kept = merged(kept, &many("b", 10), None, 2).unwrap();
        assert_eq!(kept.rows.len(), ROWS);
        assert_eq!(keys(&kept)[0], "a/00010", "the oldest go");
        let most = 10_000;
        let content = written(kept, most).unwrap();
        assert!(content.len() <= most && content.len() > most / 2, "{}", content.len());
        let kept: Kept = serde_json::from_slice(&content).unwrap();
        assert!(
            (0..10).all(|n| kept.rows.contains_key(&format!("b/{n:05}"))),
            "those of the last answer stay"
        );
        assert_eq!(written(kept, 10), None);
    }

    #[test]
    fn the_disk_has_no_more_tables_than_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let body = serde_json::to_vec(&many("a", 1)).unwrap();
        let blobs = || {
            let files = walk(folder.path());
            files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "blob")).count()
        };
        let resource = |n: usize| GroupVersionResource::new("", "v1", &format!("r{n}"));
        let tables = Tables::new(storage.clone());
        let turn = |tables: &Tables| tables.turn().now_or_never().flatten().unwrap();
        (0..200).for_each(|n| tables.keep(turn(&tables), &Owner::Node, &resource(n), None, &body));
        // A restart knows of those.
        let tables = Tables::new(storage);
        (200..300).for_each(|n| tables.keep(turn(&tables), &Owner::Node, &resource(n), None, &body));
        assert_eq!(blobs(), 256 + 1, "and the index");
    }

    /// Those of a version that had no index, and those whose index cannot be read.
    #[test]
    fn what_no_index_tells_of_is_removed_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let resource = |name: &str| GroupVersionResource::new("", "v1", name);
        let has = |name: &str| storage.blob(&super::name(&Owner::Node, &resource(name))).is_some();
        let keep = |tables: &Tables, name: &str| {
            let body = serde_json::to_vec(&many("a", 1)).unwrap();
            let turn = tables.turn().now_or_never().flatten().unwrap();
            tables.keep(turn, &Owner::Node, &resource(name), None, &body);
        };
        storage.put_blob("document", b"stays").unwrap();
        let first = Tables::new(storage.clone());
        assert!(storage.blob(INDEX).is_some(), "the next start need not look again");
        keep(&first, "old");
        storage.remove_blob(INDEX).unwrap();
        keep(&Tables::new(storage.clone()), "known");
        assert!(!has("old") && has("known"));
        storage.put_blob(INDEX, b"no index").unwrap();
        Tables::new(storage.clone());
        assert!(!has("known"));
        // One that is not whole, as it was written before.
        keep(&Tables::new(storage.clone()), "known");
        let mut index: Value = serde_json::from_slice(&storage.blob(INDEX).unwrap()).unwrap();
        index.as_object_mut().unwrap().remove("is_all");
        storage.put_blob(INDEX, index.to_string().as_bytes()).unwrap();
        storage.put_sealed_blob("table-old", b"{}").unwrap();
        Tables::new(storage.clone());
        assert!(has("known") && storage.blob("table-old").is_none());
        assert_eq!(storage.blob("document").unwrap(), "stays");
    }

    fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
    }
}
