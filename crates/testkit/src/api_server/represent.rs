//! In which form an answer goes out: what was asked for by `Accept`, and objects, lists and events in that form.

use bytes::Bytes;
use serde_json::{Value, json};

use super::kind::Kind;
use super::protobuf::{self, RESOURCES};
use super::status::{Answer, Status};
use super::store::Stored;

/// What stands for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    Metadata,
    MetadataList,
    Table,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) protobuf: bool,
    pub(crate) shape: Shape,
}

/// What stands for objects is of this version.
const META: &str = "meta.k8s.io/v1";

const ACCEPTED: &str = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
const ROUTED: [&str; 4] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*"];
const AVAILABLE_OF_ONE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
const AVAILABLE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

impl Form {
    /// JSON of whole objects.
    pub(crate) const JSON: Self = Self { protobuf: false, shape: Shape::Whole };

    /// The first form of `accept` that can be made; `one`: of one object, which has no streams.
    pub(crate) fn negotiate(accept: &str, kind: &Kind, one: bool) -> Answer<Self> {
        if accept.trim().is_empty() {
            return Ok(Self::JSON);
        }
        // Built-in kinds have routes, which are found by whole media types only (go-restful, `matchesAccept`).
        let routed = |clause: &str| ROUTED.contains(&clause.split(';').next().unwrap_or_default().trim());
        if kind.typed && !accept.split(',').any(routed) {
            return Err(Status::no_route(if one { AVAILABLE_OF_ONE } else { AVAILABLE }));
        }
        let id = kind.id();
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let protobuf = media == "application/vnd.kubernetes.protobuf";
            if !protobuf && !["application/json", "application/*", "*/*", "*"].contains(&media) {
                continue;
            }
            let mut parameters = (None, None, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name {
                    "as" => parameters.0 = Some(value),
                    "g" => parameters.1 = Some(value),
                    "v" => parameters.2 = Some(value),
                    _ => {}
                }
            }
            let meta = parameters.1 == Some("meta.k8s.io") && matches!(parameters.2, Some("v1" | "v1beta1"));
            let shape = match parameters.0 {
                None => Shape::Whole,
                Some("PartialObjectMetadata") if meta => Shape::Metadata,
                Some("PartialObjectMetadataList") if meta => Shape::MetadataList,
                Some("Table") if meta => Shape::Table,
                Some(_) => continue,
            };
            // Metadata is there in protobuf of every kind, tables of none.
            if protobuf
                && (shape == Shape::Table || shape == Shape::Whole && !RESOURCES.contains(&id.as_str()))
            {
                continue;
            }
            return Ok(Self { protobuf, shape });
        }
        Err(Status::not_acceptable(ACCEPTED))
    }

    /// The form of an error: it is turned into nothing else, is there in protobuf of every kind, and is JSON for who accepts neither.
    pub(crate) fn of_error(accept: &str) -> Self {
        let form = |clause: &str| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|_| !parts.any(|part| part.starts_with("as=")))?;
            let protobuf = media == "application/vnd.kubernetes.protobuf";
            let known = protobuf || ["application/json", "application/*", "*/*"].contains(&media);
            known.then_some(Self { protobuf, shape: Shape::Whole })
        };
        accept.split(',').find_map(form).unwrap_or(Self::JSON)
    }

    pub(crate) fn content_type(self, watch: bool) -> &'static str {
        match (self.protobuf, watch) {
            (false, _) => "application/json",
            (true, false) => "application/vnd.kubernetes.protobuf",
            (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// An object by itself.
    pub(crate) fn object(self, kind: &Kind, stored: &Stored) -> Bytes {
        if self.protobuf && self.shape != Shape::Whole {
            let raw = protobuf::message(&metadata_only(&stored.value));
            return protobuf::envelope(META, "PartialObjectMetadata", &raw).into();
        }
        if self.protobuf {
            return protobuf::envelope(&kind.api_version(), &kind.kind, stored.protobuf()).into();
        }
        match self.shape {
            Shape::Whole => stored.whole().clone(),
            Shape::Metadata | Shape::MetadataList => metadata_only(&stored.value).to_string().into(),
            Shape::Table => table(&[&stored.value], true, &json!({"resourceVersion": stored.rv.to_string()}))
                .to_string()
                .into(),
        }
    }

    /// A line or frame of a watch; `first` is the first of its stream.
    pub(crate) fn event(self, kind: &Kind, change: &str, stored: &Stored, first: bool) -> Bytes {
        if self.protobuf {
            return protobuf::frame(change, &self.object(kind, stored)).into();
        }
        let object = match self.shape {
            Shape::Table => {
                table(&[&stored.value], first, &json!({"resourceVersion": stored.rv.to_string()}))
                    .to_string()
                    .into()
            }
            _ => self.object(kind, stored),
        };
        line(change, &object)
    }

    /// A bookmark.
    pub(crate) fn bookmark(self, kind: &Kind, rv: u64, initial_end: bool, first: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": rv.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let bare = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        if self.protobuf {
            let (api_version, kind) = match self.shape {
                Shape::Whole => (kind.api_version(), kind.kind.as_str()),
                _ => (META.to_owned(), "PartialObjectMetadata"),
            };
            let object = protobuf::envelope(&api_version, kind, &protobuf::message(&bare));
            return protobuf::frame("BOOKMARK", &object).into();
        }
        let object = match self.shape {
            Shape::Whole => bare,
            Shape::Metadata | Shape::MetadataList => metadata_only(&bare),
            Shape::Table => table(&[&bare], first, &json!({"resourceVersion": rv.to_string()})),
        };
        line("BOOKMARK", object.to_string().as_bytes())
    }

    /// An error within a watch.
    pub(crate) fn error(self, status: &Status) -> Bytes {
        if self.protobuf {
            let object = protobuf::envelope("v1", "Status", &protobuf::status(&status.body));
            return protobuf::frame("ERROR", &object).into();
        }
        line("ERROR", status.body.to_string().as_bytes())
    }

    /// A list.
    pub(crate) fn list(
        self,
        kind: &Kind,
        rv: u64,
        token: Option<&str>,
        remaining: Option<u64>,
        items: &[&Stored],
    ) -> Bytes {
        let list_kind = format!("{}List", kind.kind);
        if self.protobuf && self.shape != Shape::Whole {
            let items: Vec<_> =
                items.iter().map(|stored| protobuf::message(&metadata_only(&stored.value))).collect();
            let items: Vec<_> = items.iter().map(Vec::as_slice).collect();
            let raw = protobuf::list(rv, token, remaining, &items);
            return protobuf::envelope(META, "PartialObjectMetadataList", &raw).into();
        }
        if self.protobuf {
            let items: Vec<_> = items.iter().map(|stored| stored.protobuf().as_ref()).collect();
            let raw = protobuf::list(rv, token, remaining, &items);
            return protobuf::envelope(&kind.api_version(), &list_kind, &raw).into();
        }
        let mut metadata = json!({"resourceVersion": rv.to_string()});
        if token.is_some() || (!kind.typed && self.shape == Shape::Whole) {
            metadata["continue"] = token.unwrap_or_default().into();
        }
        if let Some(remaining) = remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        match self.shape {
            Shape::Whole => {
                let head = json!({"kind": list_kind, "apiVersion": kind.api_version(), "metadata": metadata})
                    .to_string();
                let mut out = head.into_bytes();
                out.pop();
                out.extend_from_slice(b",\"items\":[");
                for (index, stored) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(stored.item(kind));
                }
                out.extend_from_slice(b"]}");
                out.into()
            }
            Shape::Metadata | Shape::MetadataList => {
                let items: Vec<_> = items.iter().map(|stored| metadata_only(&stored.value)).collect();
                // As a real server does it, unlike with whole objects.
                let items = if items.is_empty() { Value::Null } else { items.into() };
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": metadata, "items": items,
                });
                list.to_string().into()
            }
            Shape::Table => {
                let values: Vec<_> = items.iter().map(|stored| &stored.value).collect();
                let mut table = table(&values, true, &metadata);
                // The printers of built-in kinds leave it at Go's zero value.
                if values.is_empty() && kind.typed {
                    table["rows"] = Value::Null;
                }
                table.to_string().into()
            }
        }
    }

    /// An error by itself.
    pub(crate) fn status(self, status: &Status) -> Bytes {
        if self.protobuf {
            return protobuf::envelope("v1", "Status", &protobuf::status(&status.body)).into();
        }
        status.body.to_string().into()
    }
}

fn line(change: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(change.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": value["metadata"]})
}

/// A table with the one column all kinds have, and their age, which never changes here.
fn table(values: &[&Value], head: bool, metadata: &Value) -> Value {
    let row =
        |value: &&Value| json!({"cells": [value["metadata"]["name"], "1d"], "object": metadata_only(value)});
    let column = |name: &str, kind: &str, format: &str| json!({"name": name, "type": kind, "format": format, "description": "", "priority": 0});
    let columns = if head {
        json!([column("Name", "string", "name"), column("Age", "string", "")])
    } else {
        Value::Null
    };
    json!({
        "kind": "Table", "apiVersion": META, "metadata": metadata, "columnDefinitions": columns,
        "rows": values.iter().map(row).collect::<Vec<_>>(),
    })
}
