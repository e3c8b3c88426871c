//! One version of one NodeMetric: what it is made of, and its JSON, made when somebody asks for it.
//!
//! The JSON is several times as long as what it is made of, so a version does not hold it: all who read it at a time share one, and it goes
//! with the last of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use api::slo::freshness::{Freshness, FreshnessState};
use api::slo::load::Load;
use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_wire::object::{MalformedObject, Object};
use kube_wire::resource_version::ResourceVersion;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::ledger::{Selectable, Stored};
use crate::render::{self, Allocatable, buffers::BUFFERS};
use crate::reported::Reported;

/// What one version is made of. Parts that stay from one version to the next are shared.
#[derive(Debug)]
pub struct Record {
    /// `metadata` without the resource version.
    pub metadata: Arc<Map<String, Value>>,
    /// `spec`.
    pub spec: Arc<Value>,
    /// `status`, but for its freshness.
    pub status: Status,
    /// `status.freshness`.
    pub freshness: Freshness,
    /// `status.load`.
    pub load: Load,
    /// What the node has to give.
    pub allocatable: Allocatable,
    /// Its JSON is that of the copied object, but for the version.
    as_copied: bool,
    object: Mutex<Weak<Object>>,
}

/// What selectors look at: labels, and the field that the resource says can be selected by.
#[derive(Clone, Debug)]
pub struct Head {
    /// `metadata` without the resource version.
    pub metadata: Arc<Map<String, Value>>,
    /// `status.freshness.state`
    pub state: FreshnessState,
}

/// Two are equal between which no selector can tell a difference.
impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        let same_labels = Arc::ptr_eq(&self.metadata, &other.metadata)
            || self.metadata.get("labels") == other.metadata.get("labels");
        same_labels && self.state == other.state
    }
}

impl Selectable for Record {
    type Head = Head;

    fn head(&self) -> Head {
        Head { metadata: Arc::clone(&self.metadata), state: self.freshness.state }
    }
}

/// Where a status comes from.
#[derive(Clone, Debug)]
pub enum Status {
    /// There is none yet.
    Absent,
    /// From the node's reports.
    Reported(Arc<Reported>),
    /// From somebody who wrote it through the API.
    Written(Arc<RawValue>),
    /// From the leader that this replica followed, whose object holds it.
    Copied(Arc<Object>),
}

/// An object is not a NodeMetric.
#[derive(Debug, thiserror::Error)]
pub enum MalformedRecord {
    /// Not JSON of an object with metadata.
    #[error("not a NodeMetric")]
    Json(#[from] serde_json::Error),
    /// Its head is not one.
    #[error(transparent)]
    Object(#[from] MalformedObject),
}

#[derive(Deserialize)]
struct Shallow<'a> {
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: Value,
    #[serde(borrow)]
    status: Option<BTreeMap<String, &'a RawValue>>,
}

#[derive(Deserialize)]
struct WithStatus {
    status: Map<String, Value>,
}

#[derive(Serialize)]
struct Whole<'a, S> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'static str,
    metadata: &'a Map<String, Value>,
    spec: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<S>,
}

impl Record {
    /// One whose JSON is not made yet.
    pub fn new(
        metadata: Arc<Map<String, Value>>,
        spec: Arc<Value>,
        status: Status,
        freshness: Freshness,
        allocatable: Allocatable,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
            freshness,
            load: Load::default(),
            allocatable,
            as_copied: false,
            object: Mutex::default(),
        }
    }

    /// The same, for another version.
    pub(crate) fn again(&self) -> Self {
        Self { as_copied: self.as_copied, ..self.with_freshness(self.freshness.clone()) }
    }

    /// The NodeMetric of a new Node. Its identity follows from the Node's, so that it is the same whichever leader makes it.
    pub fn of_node(name: &str, node_uid: &str, created: Option<&Time>, spec: Arc<Value>) -> Self {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.into());
        metadata.insert("uid".to_owned(), uid(node_uid).into());
        metadata.insert("creationTimestamp".to_owned(), json!(created));
        metadata.insert("generation".to_owned(), 1.into());
        let freshness = Freshness::default();
        Self::new(Arc::new(metadata), spec, Status::Absent, freshness, Allocatable::default())
    }

    /// What the leader sent as JSON: the object as it came holds the status.
    pub fn from_json(body: Bytes) -> Result<(Self, Arc<Object>), MalformedRecord> {
        let Shallow { mut metadata, spec, status } = serde_json::from_slice(&body)?;
        metadata.remove("resourceVersion");
        let members = status.unwrap_or_default();
        let freshness: Option<Freshness> =
            members.get("freshness").map(|raw| serde_json::from_str(raw.get())).transpose()?;
        let load: Option<Load> =
            members.get("load").map(|raw| serde_json::from_str(raw.get())).transpose()?;
        // Those two are the server's; without anything else the node has told nothing.
        let is_told = members.keys().any(|key| !matches!(key.as_str(), "freshness" | "load"));
        drop(members);
        let object = Arc::new(Object::from_valid_json(body)?);
        let status = if is_told { Status::Copied(Arc::clone(&object)) } else { Status::Absent };
        let mut record = Self::new(
            Arc::new(metadata),
            Arc::new(spec),
            status,
            freshness.unwrap_or_default(),
            Allocatable::default(),
        )
        .with_load(load.unwrap_or_default());
        record.as_copied = is_told;
        *record.object.lock() = Arc::downgrade(&object);
        Ok((record, object))
    }

    /// So loaded; of a record of which no JSON is made yet.
    #[must_use]
    pub fn with_load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    /// The same with another freshness.
    #[must_use]
    pub fn with_freshness(&self, freshness: Freshness) -> Self {
        let Self { metadata, spec, status, freshness: _, load, allocatable, as_copied: _, object: _ } = self;
        Self::new(Arc::clone(metadata), Arc::clone(spec), status.clone(), freshness, *allocatable)
            .with_load(*load)
    }

    /// The same with another spec, as the next generation.
    #[must_use]
    pub fn with_spec(&self, spec: Arc<Value>) -> Self {
        let Self { metadata, spec: _, status, freshness, load, allocatable, as_copied: _, object: _ } = self;
        let mut metadata = Map::clone(metadata);
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".to_owned(), (generation + 1).into());
        Self::new(Arc::new(metadata), spec, status.clone(), freshness.clone(), *allocatable).with_load(*load)
    }

    /// Whether it holds anything that a node told.
    pub fn has_status(&self) -> bool {
        !matches!(self.status, Status::Absent)
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.metadata.get("uid").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it is that of the Node of this UID, as its own says; `None` if that does not tell: a client made it at a leader of an
    /// earlier release, which gave it one of chance.
    pub fn is_of_node(&self, node_uid: &str) -> Option<bool> {
        let half = self.uid().get(..NODES_HALF)?;
        let follows = half.as_bytes()[UID_VERSION_AT] == b'8';
        follows.then(|| uid(node_uid).starts_with(half))
    }

    /// `metadata.creationTimestamp`.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.get("creationTimestamp").and_then(Value::as_str).and_then(|text| text.parse().ok())
    }

    fn encode(&self, version: u64, api_version: &str) -> Result<Bytes, serde_json::Error> {
        let mut metadata = Map::clone(&self.metadata);
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        let (spec, kind) = (&*self.spec, "NodeMetric");
        match &self.status {
            Status::Reported(reported) => {
                let before = Whole::<()> { api_version, kind, metadata: &metadata, spec, status: None };
                // About what it will be, so that it is not moved often.
                let mut out = BUFFERS.take(8_192 + 640 * reported.pod_count());
                serde_json::to_writer(&mut out, &before)?;
                out.pop();
                out.extend_from_slice(b",\"status\":");
                render::write(reported, &self.freshness, (self.load, self.allocatable), &mut out)?;
                out.push(b'}');
                Ok(BUFFERS.share(out))
            }
            Status::Written(_) | Status::Copied(_) => {
                let mut status: Map<String, Value> = match &self.status {
                    Status::Written(raw) => serde_json::from_str(raw.get())?,
                    Status::Copied(object) => serde_json::from_slice::<WithStatus>(object.body())?.status,
                    Status::Absent | Status::Reported(_) => Map::new(),
                };
                status.insert("freshness".to_owned(), serde_json::to_value(&self.freshness)?);
                status.remove("load");
                if self.load != Load::default() {
                    status.insert("load".to_owned(), serde_json::to_value(self.load)?);
                }
                let status = Some(status);
                let whole = Whole { api_version, kind, metadata: &metadata, spec, status };
                serde_json::to_vec(&whole).map(Bytes::from)
            }
            Status::Absent => {
                let status = Some(json!({ "freshness": self.freshness }));
                let whole = Whole { api_version, kind, metadata: &metadata, spec, status };
                serde_json::to_vec(&whole).map(Bytes::from)
            }
        }
    }
}

/// The version as clients get it. Who asks while another still holds it gets the same; `made` gets one that had to be made, to hold it
/// for those who come next.
pub fn object(
    stored: &Stored<Record>,
    api_version: &str,
    made: impl FnOnce(&Arc<Object>),
) -> Result<Arc<Object>, MalformedRecord> {
    // Held while it is made: whoever asks meanwhile would make the same.
    let mut held = stored.value.object.lock();
    if let Some(object) = held.upgrade() {
        return Ok(object);
    }
    if let Status::Copied(object) = &stored.value.status
        && object.resource_version().get() == stored.version
    {
        return Ok(Arc::clone(object));
    }
    let moved = match (&stored.value.status, ResourceVersion::new(stored.version)) {
        // Tens of kilobytes, of which some digits differ.
        (Status::Copied(object), Some(version)) if stored.value.as_copied => {
            Some(object.with_resource_version(version))
        }
        _ => None,
    };
    let object = match moved {
        Some(object) => object,
        None => Object::from_valid_json(stored.value.encode(stored.version, api_version)?)?,
    };
    let object = Arc::new(object);
    *held = Arc::downgrade(&object);
    made(&object);
    Ok(object)
}

/// An object that has of a version as clients get it what selectors look at, and who it is: a hundredth of the whole. It is what is told of one that left
/// a selection and is not there any more.
pub fn head(head: &Head, version: u64, api_version: &str) -> Result<Object, MalformedRecord> {
    let Head { metadata, state } = head;
    let mut metadata = Map::clone(metadata);
    metadata.insert("resourceVersion".to_owned(), version.to_string().into());
    let status = Some(json!({ "freshness": { "state": state } }));
    let (spec, kind) = (&json!({}), "NodeMetric");
    let head = Whole { api_version, kind, metadata: &metadata, spec, status };
    Ok(Object::from_valid_json(serde_json::to_vec(&head)?.into())?)
}

/// The last state under the version of its end.
pub fn departed(
    last: &Stored<Record>,
    version: u64,
    api_version: &str,
) -> Result<Arc<Object>, MalformedRecord> {
    let object = object(last, api_version, |_| {})?;
    Ok(ResourceVersion::new(version)
        .map_or_else(|| Arc::clone(&object), |version| Arc::new(object.with_resource_version(version))))
}

/// Where the version of a UUID stands in its text.
const UID_VERSION_AT: usize = 14;

/// So much of the text of a UUID tells of which Node an object is, whoever made it.
const NODES_HALF: usize = 18;

/// That of an object which a client makes: one half follows from the Node's, and the other is of `chance`, for it is another object than one that was deleted.
pub(crate) fn uid_of_made(node_uid: &str, chance: &str) -> String {
    let mut made = uid(node_uid);
    if let Some(rest) = chance.get(NODES_HALF..).filter(|rest| rest.len() == made.len() - NODES_HALF) {
        made.replace_range(NODES_HALF.., rest);
    }
    made
}

/// A UUID (version 8, RFC 9562) that follows from the Node's.
pub(crate) fn uid(node_uid: &str) -> String {
    let fnv = |seed: u64| {
        node_uid.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    let (high, low) = (fnv(0xcbf2_9ce4_8422_2325), fnv(0x6c62_272e_07bb_0142));
    format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use api::slo::freshness::FreshnessState;

    use super::*;
    use crate::ledger::Ledger;

    const VERSION: &str = "slo.koordinator.sh/v1beta1";

    fn ledger_of(record: Record, version: u64) -> Arc<Stored<Record>> {
        let mut ledger = Ledger::default();
        ledger.copy(&"n1".into(), record, (version, version));
        Arc::clone(ledger.get("n1").unwrap())
    }

    #[test]
    fn what_was_rendered_is_read_again() {
        let mut ledger = Ledger::default();
        let spec = Arc::new(json!({"metricCollectPolicy": {"reportIntervalSeconds": 10}}));
        let record = Record::of_node("n1", "0b1f", None, spec);
        let stored = ledger.put(&"n1".into(), record, 7);
        let mut made = Vec::new();
        let first = object(&stored, VERSION, |object| made.push(Arc::clone(object))).unwrap();
        let second = object(&stored, VERSION, |object| made.push(Arc::clone(object))).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && made.len() == 1, "made once while somebody holds it");
        drop((second, made));
        let (again, copied) = Record::from_json(first.body().clone()).unwrap();
        let again = ledger_of(again, 7);
        assert!(Arc::ptr_eq(&copied, &object(&again, VERSION, |_| unreachable!("it came so")).unwrap()));
        let again = &again.value;
        assert_eq!((again.uid(), again.uid().len()), (stored.value.uid(), 36));
        assert_eq!(again.spec, stored.value.spec);
        assert!(!again.has_status());
        let gone = departed(&stored, 9, VERSION).unwrap();
        assert_eq!((first.resource_version().get(), gone.resource_version().get()), (7, 9));
    }

    #[test]
    fn freshness_of_what_others_wrote_is_the_servers() {
        let body = r#"{"apiVersion":"slo.koordinator.sh/v1beta1","kind":"NodeMetric","metadata":{"name":"n1","resourceVersion":"5"},
            "spec":{},"status":{"podsMetric":[{"name":"p"}],"freshness":{"state":"Fresh"}}}"#;
        let (record, _) = Record::from_json(Bytes::from(body)).unwrap();
        assert_eq!(record.freshness.state, FreshnessState::Fresh);
        let freshness = Freshness { state: FreshnessState::Stale, ..Freshness::default() };
        let stale = Ledger::default().put(&"n1".into(), record.with_freshness(freshness), 6);
        let value: Value = serde_json::from_slice(object(&stale, "v", |_| {}).unwrap().body()).unwrap();
        assert_eq!(value["status"], json!({"podsMetric": [{"name": "p"}], "freshness": {"state": "Stale"}}));
    }
}
