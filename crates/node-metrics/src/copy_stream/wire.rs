//! What stands in the stream: frames behind their length, protobuf. Unknown fields pass.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use node_report::Message;
use serde::de::DeserializeOwned;

use crate::ledger::{Reselected, Stored};
use crate::record::{self, Head, MalformedRecord, Record, Status};
use crate::render::Allocatable;
use crate::reported::{Reported, State};
use crate::store;

/// The longest frame. What a node can report ([`node_report::report::MAX_PODS`]) and what can be written through the API ([`store::MOST_WRITTEN`]) is
/// shorter: a longer one would stop every follower for ever.
const FRAME_MAX: usize = 16 << 20;

/// One of these.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Frame {
    /// A NodeMetric is so now.
    #[prost(message, optional, tag = "1")]
    pub(crate) record: Option<Copied>,
    /// One is gone.
    #[prost(message, optional, tag = "2")]
    pub(crate) gone: Option<Gone>,
    /// The whole state was told, as of this version.
    #[prost(uint64, optional, tag = "3")]
    pub(crate) whole: Option<u64>,
    /// Nothing else happened up to this version.
    #[prost(uint64, optional, tag = "4")]
    pub(crate) progress: Option<u64>,
    /// Selectors may choose one otherwise since then.
    #[prost(message, optional, tag = "5")]
    pub(crate) reselected: Option<Reselection>,
}

/// How that changed by which selectors choose; metadata and states in JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Reselection {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    version: u64,
    #[prost(uint64, tag = "3")]
    added: u64,
    #[prost(bytes = "bytes", tag = "4")]
    metadata_before: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    state_before: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    metadata_after: Bytes,
    #[prost(bytes = "bytes", tag = "7")]
    state_after: Bytes,
}

/// What went, and when.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Gone {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) version: u64,
}

/// One version of a NodeMetric: of a node that reported its parts, else the object as clients get it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Copied {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    version: u64,
    #[prost(bytes = "bytes", optional, tag = "3")]
    object: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    reported: Option<State>,
    /// The rest in JSON, as it stands in the object.
    #[prost(bytes = "bytes", tag = "5")]
    metadata: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    spec: Bytes,
    #[prost(bytes = "bytes", tag = "7")]
    freshness: Bytes,
    #[prost(bytes = "bytes", tag = "8")]
    load: Bytes,
    #[prost(uint64, tag = "9")]
    allocatable_cpu_milli: u64,
    #[prost(uint64, tag = "10")]
    allocatable_memory_bytes: u64,
    /// When it came to be.
    #[prost(uint64, tag = "11")]
    added: u64,
}

/// What is sent is no such stream.
#[derive(Debug, thiserror::Error)]
pub enum MalformedFrame {
    /// It is too long.
    #[error("a frame of {0} bytes")]
    Long(usize),
    /// It is no message.
    #[error(transparent)]
    Message(#[from] prost::DecodeError),
    /// It is of no object.
    #[error(transparent)]
    Record(#[from] MalformedRecord),
    /// Its parts are no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its pods are not in order.
    #[error("pods of {0:?} are not in order")]
    Pods(String),
}

impl Frame {
    pub(crate) fn record(stored: &Stored<Record>, api_version: &str) -> Result<Self, MalformedRecord> {
        Ok(Self { record: Some(Copied::of(stored, api_version)?), ..Self::default() })
    }

    pub(crate) fn reselected(how: &Reselected<Head>) -> Result<Self, MalformedRecord> {
        let Reselected { name, version, added, before, after } = how;
        let reselection = Reselection {
            name: name.to_string(),
            version: *version,
            added: *added,
            metadata_before: serde_json::to_vec(&*before.metadata)?.into(),
            state_before: serde_json::to_vec(&before.state)?.into(),
            metadata_after: serde_json::to_vec(&*after.metadata)?.into(),
            state_after: serde_json::to_vec(&after.state)?.into(),
        };
        Ok(Self { reselected: Some(reselection), ..Self::default() })
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        let length = self.encoded_len();
        out.reserve(4 + length);
        out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        // Room was made.
        let _ = self.encode(out);
    }

    /// The next frame of `buffer`, if all of it is there.
    pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, MalformedFrame> {
        let Some(length) = buffer.first_chunk().map(|length| u32::from_be_bytes(*length) as usize) else {
            return Ok(None);
        };
        if length > FRAME_MAX {
            return Err(MalformedFrame::Long(length));
        }
        if buffer.len() < 4 + length {
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(Self::decode(buffer.split_to(length).freeze())?))
    }
}

impl Copied {
    fn of(stored: &Stored<Record>, api_version: &str) -> Result<Self, MalformedRecord> {
        let Stored { name, version, added, value, .. } = stored;
        let head = Self { name: name.to_string(), version: *version, added: *added, ..Self::default() };
        let Status::Reported(reported) = &value.status else {
            let object = record::object(stored, api_version, |_| {})?;
            return Ok(Self { object: Some(object.body().clone()), ..head });
        };
        Ok(Self {
            reported: Some(reported.state()),
            metadata: serde_json::to_vec(&*value.metadata)?.into(),
            spec: serde_json::to_vec(&*value.spec)?.into(),
            freshness: serde_json::to_vec(&value.freshness)?.into(),
            load: serde_json::to_vec(&value.load)?.into(),
            allocatable_cpu_milli: value.allocatable.cpu_milli,
            allocatable_memory_bytes: value.allocatable.memory_bytes,
            ..head
        })
    }

    /// What it says.
    pub(crate) fn into_record(self) -> Result<store::Copied, MalformedFrame> {
        let (name, version, added) = (self.name.as_str().into(), self.version, self.added);
        if let Some(object) = self.object {
            // A body of its own: a slice would keep its whole chunk of the stream.
            let (record, _) = Record::from_json(Bytes::copy_from_slice(&object))?;
            return Ok(store::Copied { name, version, added, record });
        }
        let reported = self.reported.as_ref().and_then(Reported::of_state);
        let reported = reported.ok_or_else(|| MalformedFrame::Pods(self.name.clone()))?;
        let allocatable = Allocatable {
            cpu_milli: self.allocatable_cpu_milli,
            memory_bytes: self.allocatable_memory_bytes,
        };
        let (metadata, spec) = (Arc::new(json(&self.metadata)?), Arc::new(json(&self.spec)?));
        let status = Status::Reported(Arc::new(reported));
        let record = Record::new(metadata, spec, status, json(&self.freshness)?, allocatable)
            .with_load(json(&self.load)?);
        Ok(store::Copied { name, version, added, record })
    }
}

impl Reselection {
    /// What it says.
    pub(crate) fn into_reselected(self) -> Result<Reselected<Head>, MalformedFrame> {
        let head = |metadata: &[u8], state: &[u8]| {
            Ok::<_, MalformedFrame>(Head { metadata: Arc::new(json(metadata)?), state: json(state)? })
        };
        Ok(Reselected {
            before: head(&self.metadata_before, &self.state_before)?,
            after: head(&self.metadata_after, &self.state_after)?,
            name: self.name.into(),
            version: self.version,
            added: self.added,
        })
    }
}

fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text)
}

#[cfg(test)]
mod tests;
