//! One version of one object: the bytes that came from upstream and what the cache must know of them. Labels, annotations and
//! fields are read in place each time; nothing is decoded and kept.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::{
    protobuf,
    resource::ObjectKey,
    resource_version::{MalformedResourceVersion, ResourceVersion},
    selectable_field::SelectableField,
};

pub use metadata::Entries;

mod metadata;

/// The longest body: positions in it are kept in 32 bits. The API server accepts requests of 3 MiB.
const BODY_MAX: usize = 1 << 30;

/// How an object's canonical bytes are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// One JSON object with `apiVersion` and `kind`: custom resources.
    Json,
    /// The raw protobuf message, without the `k8s\0` envelope: built-in kinds.
    Protobuf,
}

/// One version of one object. Its bytes are shared: cloning copies no body.
///
/// Beyond the body it takes 72 bytes and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    body: Bytes,
    key: ObjectKey,
    resource_version: ResourceVersion,
    /// Where `metadata` stands in the body.
    metadata: Span,
    uid_start: u32,
    uid_length: u8,
    encoding: Encoding,
}

/// A range of the body, in half the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
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

impl From<protobuf::Malformed> for MalformedObject {
    fn from(malformed: protobuf::Malformed) -> Self {
        Self::Undecodable(malformed.to_string())
    }
}

impl Object {
    /// Takes one JSON object as the API server sent it.
    pub fn from_json(body: Bytes) -> Result<Self, MalformedObject> {
        let undecodable = |error: &dyn std::fmt::Display| MalformedObject::Undecodable(error.to_string());
        let text = std::str::from_utf8(&body).map_err(|error| undecodable(&error))?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| undecodable(&error))?;
        Self::from_valid_json(body)
    }

    /// Takes one JSON object that the caller has parsed, or written by a serializer: it is not looked through again. Of what is not
    /// well-formed nothing sensible is read.
    pub fn from_valid_json(body: Bytes) -> Result<Self, MalformedObject> {
        std::str::from_utf8(&body).map_err(|error| MalformedObject::Undecodable(error.to_string()))?;
        let object = Self::new(body.len(), Encoding::Json, &metadata::json_head(&body)?)?;
        Ok(Self { body, ..object })
    }

    /// Takes one raw protobuf message, without its envelope, as the API server sent it.
    pub fn from_protobuf(body: Bytes) -> Result<Self, MalformedObject> {
        let object = Self::new(body.len(), Encoding::Protobuf, &metadata::protobuf_head(&body)?)?;
        Ok(Self { body, ..object })
    }

    /// An object of this head, without its body of `length` bytes.
    fn new(length: usize, encoding: Encoding, head: &metadata::Head<'_>) -> Result<Self, MalformedObject> {
        let metadata::Head { metadata, name, namespace, resource_version, uid } = head;
        if length > BODY_MAX {
            return Err(MalformedObject::Undecodable(format!("it is {length} bytes long")));
        }
        if name.is_empty() {
            return Err(MalformedObject::Missing("metadata.name"));
        }
        Ok(Self {
            key: ObjectKey::new(namespace, name),
            resource_version: resource_version.parse()?,
            metadata: Span { start: position(metadata.start), end: position(metadata.end) },
            uid_start: position(uid.start),
            uid_length: u8::try_from(uid.len())
                .map_err(|_| MalformedObject::Undecodable("metadata.uid is too long".to_owned()))?,
            encoding,
            body: Bytes::new(),
        })
    }

    /// Where the object is stored.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The identity of the object through its life; a recreated object of the same name has another. Empty if it has none.
    pub fn uid(&self) -> &str {
        let start = self.uid_start as usize;
        self.body
            .get(start..start + usize::from(self.uid_length))
            .and_then(|uid| std::str::from_utf8(uid).ok())
            .unwrap_or_default()
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

    /// The bytes of `metadata`, lent from the body: the content of the `ObjectMeta` message, or the JSON object.
    pub fn metadata(&self) -> &[u8] {
        &self.body[self.metadata.range()]
    }

    /// The labels, in the order in which they stand.
    pub fn labels(&self) -> Entries<'_> {
        Entries::labels(&self.body, self.metadata.range(), self.encoding)
    }

    /// The annotations, in the order in which they stand.
    pub fn annotations(&self) -> Entries<'_> {
        Entries::annotations(&self.body, self.metadata.range(), self.encoding)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.labels().get(key)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        self.annotations().get(key)
    }

    /// The value of a selectable field, as the API server compares it: absent text is `""`, an absent bool `"false"`.
    pub fn field(&self, field: &SelectableField) -> Cow<'_, str> {
        field.value(self)
    }

    /// The same object at another version: the version is spliced into a copy of the body, all other bytes stay.
    #[must_use]
    pub fn with_resource_version(&self, resource_version: ResourceVersion) -> Self {
        let spliced =
            metadata::splice(&self.body, self.metadata.range(), self.encoding, &resource_version.to_string());
        let moved = spliced.map(|body| Bytes::from(body.into_boxed_slice())).and_then(|body| {
            let head = match self.encoding {
                Encoding::Json => metadata::json_head(&body),
                Encoding::Protobuf => metadata::protobuf_head(&body),
            };
            let object = Self::new(body.len(), self.encoding, &head.ok()?).ok()?;
            Some(Self { body, ..object })
        });
        // An object without a version is not made, and replacing digits by digits breaks none.
        moved.unwrap_or_else(|| Self { resource_version, ..self.clone() })
    }

    /// About how much memory the object takes, in bytes: its body, its key and itself.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.key.as_str().len() + self.body.len()
    }
}

/// What a bookmark says: an object of metadata alone, without a name.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    pub(crate) resource_version: ResourceVersion,
    pub(crate) annotations: Entries<'a>,
}

impl<'a> Progress<'a> {
    /// Reads a bookmark's object.
    pub(crate) fn read(body: &'a [u8], encoding: Encoding) -> Result<Self, MalformedObject> {
        let head = match encoding {
            Encoding::Json => metadata::json_head(body)?,
            Encoding::Protobuf => metadata::protobuf_head(body)?,
        };
        let resource_version = head.resource_version.parse()?;
        Ok(Self { resource_version, annotations: Entries::annotations(body, head.metadata, encoding) })
    }
}

/// A position in a body that is not longer than [`BODY_MAX`].
fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
