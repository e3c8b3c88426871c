//! Tables (`kubectl get`) while there is no link. Their columns and cells are the API server's to make, by code of its own for each
//! kind: what it made of an object is kept with the object's UID and version, and told again of that very object. A table in which a
//! row would have to be made up is not answered; the objects are, as they are.
//!
//! An age that the API server reckoned from the creation of the object goes on; all other cells are as they were.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{HeaderMap, Response, StatusCode, header};
use jiff::Timestamp;
use kube_wire::{age, object::Object, resource::GroupVersionResource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tls::digest::Sha256Digest;
use tracing::warn;
use watch_cache::Page;

use super::{coding::Coding, documents::unix_seconds, tee::Tee};
use crate::{storage::Storage, subscriptions::Owner};

/// The most rows that are kept of a resource for one reader.
const ROWS: usize = 5000;

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

/// Whether the answer may be a table that is worth keeping: of objects with their metadata.
pub fn is_wanted(headers: &HeaderMap, query: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("as=Table") && !query.contains("watch=") && !query.contains("includeObject")
}

/// Keeps what the API server made of objects.
#[derive(Clone)]
pub struct Tables {
    storage: Storage,
}

impl Tables {
    /// Tables in `storage`.
    pub fn new(storage: Storage) -> Self {
        Self { storage }
    }

    /// Gives the body of an answer, once it has passed, to `done`, if it may be a table.
    pub fn watch(
        response: Response<Body>,
        done: impl FnOnce(Vec<u8>) + Send + Unpin + 'static,
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
        response.map(|body| {
            Body::new(Tee::new(body, move |bytes| {
                if let Some(plain) = coding.plain(bytes) {
                    done(plain);
                }
            }))
        })
    }

    /// Keeps the rows of an answer for its reader.
    pub fn keep(&self, owner: &Owner, resource: &GroupVersionResource, body: &[u8]) {
        let Ok(table) = serde_json::from_slice::<Value>(body) else { return };
        let name = name(owner, resource);
        let before = self.kept(&name);
        let Some(kept) = merged(before, &table, unix_seconds()) else { return };
        let Ok(content) = serde_json::to_vec(&kept) else { return };
        // Cells may tell of what is nobody else's business.
        if let Err(error) = self.storage.put_sealed_blob(&name, &content) {
            warn!(%resource, %error, "a table cannot be kept");
        }
    }

    /// The table of these objects, if it is known of each.
    pub fn answer(
        &self,
        owner: &Owner,
        resource: &GroupVersionResource,
        version: &str,
        page: &Page,
    ) -> Option<Value> {
        let kept = self.kept(&name(owner, resource));
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

fn name(owner: &Owner, resource: &GroupVersionResource) -> String {
    let owner = match owner {
        Owner::Node => "node".to_owned(),
        Owner::Users => "users".to_owned(),
        // Or one who is called `node` would be the node.
        Owner::User(name) => format!("user {name}"),
    };
    let of = format!("{owner}\n{}\n{}", resource.api_version(), resource.resource);
    format!("table-{}", Sha256Digest::of(of.as_bytes()))
}

/// What is known after an answer; nothing, if it is no table whose rows tell of which objects they are.
fn merged(before: Kept, table: &Value, at: u64) -> Option<Kept> {
    let columns = table["columnDefinitions"].as_array().filter(|_| table["kind"] == "Table")?;
    let rows = table["rows"].as_array()?;
    let mut kept = Kept { columns: columns.clone().into(), rows: BTreeMap::new() };
    if before.columns == kept.columns && before.rows.len() + rows.len() <= ROWS {
        kept.rows = before.rows;
    }
    for row in rows.iter().take(ROWS) {
        let metadata = &row["object"]["metadata"];
        let name = metadata["name"].as_str()?;
        let key = format!("{}/{name}", metadata["namespace"].as_str().unwrap_or_default());
        kept.rows.insert(key, Row { at, row: row.clone() });
    }
    Some(kept)
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
        let kept = merged(Kept::default(), &table("7", "5m"), at).unwrap();
        assert_eq!(cells(&kept, &object("u", "7"), 300), Some(json!(["p", "1/1", "5m"])));
        assert_eq!(
            cells(&kept, &object("u", "7"), 7200),
            Some(json!(["p", "1/1", "120m"])),
            "it grows older"
        );
        assert_eq!(cells(&kept, &object("u", "8"), 300), None, "it has changed since");
        assert_eq!(cells(&kept, &object("other", "7"), 300), None, "another of that name");
        let strange = merged(Kept::default(), &table("7", "yesterday"), at).unwrap();
        assert_eq!(
            cells(&strange, &object("u", "7"), 7200),
            Some(json!(["p", "1/1", "yesterday"])),
            "as it was told"
        );
    }

    #[test]
    fn what_is_known_grows_as_long_as_columns_stay() {
        let first = merged(Kept::default(), &table("7", "5m"), 1).unwrap();
        let mut other = table("9", "1s");
        other["rows"][0]["object"]["metadata"]["name"] = "q".into();
        assert_eq!(merged(first, &other, 2).unwrap().rows.len(), 2);
        let first = merged(Kept::default(), &table("7", "5m"), 1).unwrap();
        other["columnDefinitions"][1]["name"] = "Status".into();
        assert_eq!(merged(first, &other, 2).unwrap().rows.len(), 1);
        assert_eq!(merged(Kept::default(), &json!({ "kind": "PodList", "items": [] }), 1), None);
        other["rows"][0]["object"] = Value::Null;
        assert_eq!(merged(Kept::default(), &other, 1), None, "of which object is not said");
    }
}
