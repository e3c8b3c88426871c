//! One version of one object: the bytes that came from upstream and what the cache must know of them.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use thiserror::Error;

use crate::{
    resource::ObjectKey,
    resource_version::{MalformedResourceVersion, ResourceVersion},
};

/// How an object's canonical bytes are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One JSON object with `apiVersion` and `kind`: custom resources.
    Json,
    /// The raw protobuf message, without the `k8s\0` envelope: built-in kinds.
    Protobuf,
}

/// One version of one object. Its bytes are shared: cloning copies no body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    encoding: Encoding,
    body: Bytes,
}

/// The bytes are not an object with a name and a resource version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MalformedObject {
    /// Not JSON, or not protobuf.
    #[error("the object cannot be decoded: {0}")]
    Undecodable(String),
    /// A field that every stored object has is missing.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// `metadata.resourceVersion` is not one.
    #[error(transparent)]
    ResourceVersion(#[from] MalformedResourceVersion),
}

impl Object {
    /// Takes one JSON object as the API server sent it.
    pub fn from_json(body: Bytes) -> Result<Self, MalformedObject> {
        let value: Value =
            serde_json::from_slice(&body).map_err(|error| MalformedObject::Undecodable(error.to_string()))?;
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
        if text("name").is_empty() {
            return Err(MalformedObject::Missing("metadata.name"));
        }
        Ok(Self {
            key: ObjectKey::new(text("namespace"), text("name")),
            uid: text("uid").into(),
            resource_version: text("resourceVersion").parse()?,
            encoding: Encoding::Json,
            body: body.clone(),
        })
    }

    /// Where the object is stored.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The identity of the object through its life; a recreated object of the same name has another. Empty if it has none.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The object's version.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// How [`Object::body`] is encoded.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The canonical bytes, as upstream sent them.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        let value: Value = serde_json::from_slice(&self.body).ok()?;
        value["metadata"]["labels"][key].as_str().map(|text| Cow::Owned(text.to_owned()))
    }
}
