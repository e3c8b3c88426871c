//! Lists, watch events and single objects on the wire: a header, the bytes that the cache holds, a trailer. Bodies are lent, or copied
//! right to where they are sent from. In: bodies in the encoding that is written; who needs JSON of an object held as protobuf transcodes it first.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    json::Members,
    object::{Encoding, Object},
    protobuf::{ENVELOPE_TRAILER, envelope_header, field_length, put_bytes, put_header, put_number},
    resource_version::ResourceVersion,
    status::Status,
};

mod list;
pub mod read;

pub use list::{List, ListHead, json_list, list};

/// The annotation of the bookmark after which a watch has shown the whole state.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What is written of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// All of it.
    Whole,
    /// Its metadata, as `PartialObjectMetadata` of this version: `meta.k8s.io/v1`.
    Metadata(&'static str),
}

/// How objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// In which encoding; bodies must be in it.
    pub encoding: Encoding,
    /// What of each.
    pub projection: Projection,
}

/// What objects are, as their `apiVersion` and `kind` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeMeta<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// `Service`.
    pub kind: &'a str,
}

/// What happened to an object, as a watch tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// It is new to the watcher.
    Added,
    /// It changed.
    Modified,
    /// It is gone, for the watcher at least.
    Deleted,
}

/// Something that has bytes to lend.
pub trait Body {
    /// The whole object: JSON, or a raw protobuf message.
    fn whole(&self) -> &Bytes;
    /// Its metadata: the JSON object, or the content of the `ObjectMeta` message.
    fn metadata(&self) -> &[u8];
}

impl Body for Object {
    fn whole(&self) -> &Bytes {
        self.body()
    }

    fn metadata(&self) -> &[u8] {
        Object::metadata(self)
    }
}

impl<T: Body + ?Sized> Body for Arc<T> {
    fn whole(&self) -> &Bytes {
        T::whole(self)
    }

    fn metadata(&self) -> &[u8] {
        T::metadata(self)
    }
}

impl<T: Body + ?Sized> Body for &T {
    fn whole(&self) -> &Bytes {
        T::whole(self)
    }

    fn metadata(&self) -> &[u8] {
        T::metadata(self)
    }
}

/// JSON that was transcoded.
impl Body for Bytes {
    fn whole(&self) -> &Bytes {
        self
    }

    fn metadata(&self) -> &[u8] {
        let metadata = Members::within(self, 0..self.len()).get("metadata");
        metadata.map_or(b"{}", |range| &self[range])
    }
}

impl Form {
    /// The part of a body that is written.
    fn payload(self, body: &impl Body) -> &[u8] {
        match self.projection {
            Projection::Whole => body.whole(),
            Projection::Metadata(_) => body.metadata(),
        }
    }

    /// The same, to be kept: the whole is lent, metadata copied.
    fn lent(self, body: &impl Body) -> Bytes {
        match self.projection {
            Projection::Whole => body.whole().clone(),
            Projection::Metadata(_) => Bytes::copy_from_slice(body.metadata()),
        }
    }

    /// What the written object is.
    fn type_meta(self, type_meta: TypeMeta<'_>) -> TypeMeta<'_> {
        match self.projection {
            Projection::Whole => type_meta,
            Projection::Metadata(api_version) => TypeMeta { api_version, kind: "PartialObjectMetadata" },
        }
    }

    /// The length of the raw message around a payload.
    fn raw_length(self, payload: usize) -> usize {
        match self.projection {
            Projection::Whole => payload,
            Projection::Metadata(_) => field_length(payload),
        }
    }

    /// What stands between the header of a raw message and its payload.
    fn put_raw_header(self, out: &mut Vec<u8>, payload: usize) {
        if let Projection::Metadata(_) = self.projection {
            put_header(out, 1, payload);
        }
    }

    /// What stands before and after a payload in JSON to make it an object.
    fn json_around(self) -> (String, &'static [u8]) {
        match self.projection {
            Projection::Whole => (String::new(), b""),
            Projection::Metadata(api_version) => (
                format!(
                    "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":"
                ),
                b"}",
            ),
        }
    }
}

/// One object, as the answer to a GET. A JSON body must carry `apiVersion` and `kind`.
pub fn object(form: Form, type_meta: TypeMeta<'_>, body: &impl Body) -> Vec<Bytes> {
    let payload = form.lent(body);
    match form.encoding {
        Encoding::Json => {
            let (before, after) = form.json_around();
            vec![before.into(), payload, [after, b"\n"].concat().into()]
        }
        Encoding::Protobuf => {
            let TypeMeta { api_version, kind } = form.type_meta(type_meta);
            let mut header = envelope_header(api_version, kind, form.raw_length(payload.len()));
            form.put_raw_header(&mut header, payload.len());
            vec![header.into(), payload, Bytes::from_static(ENVELOPE_TRAILER)]
        }
    }
}

/// One event of a watch. A JSON body must carry `apiVersion` and `kind`; a deleted object must have the event's version.
pub fn watch_event(form: Form, type_meta: TypeMeta<'_>, event: EventType, body: &impl Body) -> Vec<Bytes> {
    let name = match event {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
    };
    event_around(form, type_meta, name, form.lent(body))
}

fn event_around(form: Form, type_meta: TypeMeta<'_>, event: &str, payload: Bytes) -> Vec<Bytes> {
    match form.encoding {
        Encoding::Json => {
            let (before, after) = form.json_around();
            let header = format!("{{\"type\":\"{event}\",\"object\":{before}");
            vec![header.into(), payload, [after, b"}\n"].concat().into()]
        }
        Encoding::Protobuf => {
            let TypeMeta { api_version, kind } = form.type_meta(type_meta);
            let mut envelope = envelope_header(api_version, kind, form.raw_length(payload.len()));
            form.put_raw_header(&mut envelope, payload.len());
            let object = envelope.len() + payload.len() + ENVELOPE_TRAILER.len();
            let mut header = frame_header(event, object);
            header.extend_from_slice(&envelope);
            vec![header.into(), payload, Bytes::from_static(ENVELOPE_TRAILER)]
        }
    }
}

/// The length of the frame, and `WatchEvent{1: type, 2: RawExtension{1: raw}}` up to the raw object of `length` bytes.
fn frame_header(event: &str, length: usize) -> Vec<u8> {
    let extension = field_length(length);
    let message = field_length(event.len()) + field_length(extension);
    let mut out = Vec::with_capacity(event.len() + 64);
    // An object is never longer than 1 GiB.
    out.extend_from_slice(&u32::try_from(message).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(&mut out, 1, event.as_bytes());
    put_header(&mut out, 2, extension);
    put_header(&mut out, 1, length);
    out
}

/// A bookmark: everything up to `version` was sent. With `initial_end` it ends the whole state that a watch begins with.
///
/// The API server sends an empty object of the kind; here it is metadata alone, which clients read no other way.
pub fn bookmark(form: Form, type_meta: TypeMeta<'_>, version: ResourceVersion, initial_end: bool) -> Bytes {
    let TypeMeta { api_version, kind } = form.type_meta(type_meta);
    match form.encoding {
        Encoding::Json => {
            let end = format!(",\"annotations\":{{\"{INITIAL_EVENTS_END}\":\"true\"}}");
            let annotations = if initial_end { end.as_str() } else { "" };
            let metadata = format!("{{\"resourceVersion\":\"{version}\"{annotations}}}");
            format!(
                "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}}}}}\n"
            )
            .into()
        }
        Encoding::Protobuf => {
            let mut metadata = Vec::new();
            put_bytes(&mut metadata, 6, version.to_string().as_bytes());
            if initial_end {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, INITIAL_EVENTS_END.as_bytes());
                put_bytes(&mut entry, 2, b"true");
                put_bytes(&mut metadata, 12, &entry);
            }
            let mut envelope = envelope_header(api_version, kind, field_length(metadata.len()));
            put_bytes(&mut envelope, 1, &metadata);
            let mut out = frame_header("BOOKMARK", envelope.len() + ENVELOPE_TRAILER.len());
            out.extend_from_slice(&envelope);
            out.extend_from_slice(ENVELOPE_TRAILER);
            out.into()
        }
    }
}

/// An error within a watch, after which it ends: the HTTP status was sent long ago.
pub fn watch_error(encoding: Encoding, status: &Status) -> Bytes {
    match encoding {
        Encoding::Json => {
            [&b"{\"type\":\"ERROR\",\"object\":"[..], &status.to_json(), b"}\n"].concat().into()
        }
        Encoding::Protobuf => {
            let object = status.to_protobuf();
            let mut out = frame_header("ERROR", object.len());
            out.extend_from_slice(&object);
            out.into()
        }
    }
}
