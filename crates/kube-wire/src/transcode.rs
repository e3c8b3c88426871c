//! JSON of built-in kinds from the protobuf messages that the API server sends, the same that it would send itself; and protobuf of the metadata of
//! custom resources, of which it sends JSON.
//!
//! In: the raw message of one object (what stands in `runtime.Unknown.raw`, or an item of a list) and what it is. Out: the
//! bytes of its JSON, in the order and with the escapes of Go's `encoding/json`. A table, generated from the published Go
//! types of one Kubernetes release by `cargo xtask codegen`, says which field has which number, name, shape and rule of
//! omission; nothing here knows a kind by name.
//!
//! A field number that the table lacks is an error, never ignored: the server is newer than the table, and an object with a
//! field missing must not be passed off as whole. The caller asks upstream for JSON instead. The same holds for whatever
//! else is not as the table says. What the wire does not carry cannot be told apart: an empty list is written as an absent
//! one. A server that is *older* may differ where a later release changed a rule of omission (before 1.34 it wrote
//! `"creationTimestamp":null` in pod templates).
//!
//! It must not panic on any input, and allocates the answer and one list of positions, whatever the number of fields.

mod discovery;
mod embedded;
mod message;
mod metadata;
mod table;
mod text;
mod time;
mod value;
mod wire;

#[cfg(test)]
mod tests;

pub use discovery::discovery_to_json;
pub use metadata::metadata_to_protobuf;
use thiserror::Error;

use crate::resource::GroupVersionResource;

/// Why a message was not turned into JSON. In each case the answer is to ask upstream for JSON.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TranscodeError {
    /// No built-in resource of that name is in the table.
    #[error("{0} is no built-in resource of the release that the table is of")]
    UnknownResource(GroupVersionResource),
    /// The server is newer than the table.
    #[error("field number {number} is not known; the server is newer than the table")]
    UnknownField {
        /// The number on the wire.
        number: u64,
    },
    /// The bytes are not the message that they were said to be.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// A `RawExtension` or the like holds something other than JSON, such as CBOR.
    #[error("an embedded object is not JSON")]
    EmbeddedNotJson,
    /// Messages lie deeper within each other than any published type's can.
    #[error("messages are nested too deeply")]
    TooDeep,
    /// Positions are counted in 32 bits.
    #[error("a message of {0} bytes is too large")]
    TooLarge(usize),
}

/// Under which name a kind is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceOfKind {
    /// The plural, lower-case resource name.
    pub resource: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// Messages that are not resources but that a hub meets or makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaMessage {
    /// `v1.Status`, how errors are answered.
    Status,
    /// `meta.k8s.io/v1.PartialObjectMetadata`.
    PartialObjectMetadata,
    /// The metadata of an object, which has no kind of its own.
    ObjectMeta,
    /// The metadata of a list, which has no kind of its own.
    ListMeta,
    /// `apidiscovery.k8s.io/v2.APIGroupDiscoveryList`, discovery of all groups.
    ApiGroupDiscoveryList,
}

/// Whether objects of a resource can be transcoded.
pub fn knows(resource: &GroupVersionResource) -> bool {
    table::resource(resource).is_some()
}

/// The kind of a built-in resource's objects.
pub fn kind_of(resource: &GroupVersionResource) -> Option<&'static str> {
    table::resource(resource).map(table::Kind::name)
}

/// Whether objects of a built-in resource are in namespaces; `None` of what is not built in.
pub fn is_namespaced(resource: &GroupVersionResource) -> Option<bool> {
    table::resource(resource).map(table::Kind::namespaced)
}

/// The resource of a built-in kind; `None` for kinds of subresources, such as `Scale`.
pub fn resource_of(group: &str, version: &str, kind: &str) -> Option<ResourceOfKind> {
    table::resources()
        .find(|entry| (entry.group(), entry.version(), entry.name()) == (group, version, kind))
        .map(|entry| ResourceOfKind { resource: entry.resource(), namespaced: entry.namespaced() })
}

/// The JSON of an object of a built-in resource.
///
/// `typed` writes `kind` and `apiVersion`: an answer to a get or an event of a watch has them, an item of a list has not.
pub fn to_json(resource: &GroupVersionResource, raw: &[u8], typed: bool) -> Result<Vec<u8>, TranscodeError> {
    let kind = table::resource(resource).ok_or_else(|| TranscodeError::UnknownResource(resource.clone()))?;
    let type_of = message::TypeOf { kind: kind.name(), group: kind.group(), version: kind.version() };
    message::object(kind.message(), raw, typed.then_some(&type_of))
}

/// The JSON of a message that is no resource. `typed` writes `kind` and `apiVersion` if the message is of a kind.
pub fn meta_to_json(message: MetaMessage, raw: &[u8], typed: bool) -> Result<Vec<u8>, TranscodeError> {
    let type_of = match message {
        MetaMessage::Status => Some(message::TypeOf { kind: "Status", group: "", version: "v1" }),
        MetaMessage::PartialObjectMetadata => {
            Some(message::TypeOf { kind: "PartialObjectMetadata", group: "meta.k8s.io", version: "v1" })
        }
        MetaMessage::ApiGroupDiscoveryList => Some(message::TypeOf {
            kind: "APIGroupDiscoveryList",
            group: "apidiscovery.k8s.io",
            version: "v2",
        }),
        MetaMessage::ObjectMeta | MetaMessage::ListMeta => None,
    };
    message::object(table::alone(message), raw, type_of.as_ref().filter(|_| typed))
}
