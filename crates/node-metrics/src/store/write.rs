//! Writes through the API, such as those of reporters that know of no other way.

use std::sync::Arc;

use api::slo::freshness::{Freshness, FreshnessState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::{Phase, Store, seconds};
use crate::freshness::{Now, Silence};
use crate::ledger::Stored;
use crate::record::{Record, Status, object, uid_of_made};

/// How long in JSON metadata and spec may be together, and a status that somebody writes, in bytes. What grows beyond a request by many patches would be too long
/// for those who copy it. etcd takes a part of that.
pub const MOST_WRITTEN: (usize, usize) = (1 << 20, 8 << 20);

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// What is there is not what was expected.
    #[error("another write came first")]
    Conflict,
    /// This replica does not lead.
    #[error("this replica does not lead")]
    NotLeading,
    /// There is nothing that it could be of.
    #[error("there is no Node {0:?}: a NodeMetric is that of the Node of its name")]
    NoNode(String),
    /// There is too much of it.
    #[error("{0} would be longer than {1} bytes")]
    Long(&'static str, usize),
    /// What is to be written is no NodeMetric.
    #[error("not a NodeMetric: {0}")]
    Malformed(String),
}

impl Store {
    /// Whether an object of that name may be made: it is that of a Node.
    pub fn may_make(&self, name: &str) -> Result<(), WriteError> {
        match (self.nodes.contains_key(name), self.nodes_listed) {
            (true, _) => Ok(()),
            (false, true) => Err(WriteError::NoNode(name.to_owned())),
            (false, false) => Err(WriteError::NotLeading),
        }
    }

    /// Stores what a client made of an object, if what is there is of version `expected` (`None`: nothing). A status that differs
    /// from what is there counts as a report.
    pub fn write(
        &mut self,
        now: Now,
        name: &Arc<str>,
        expected: Option<u64>,
        draft: &Map<String, Value>,
        api_version: &str,
    ) -> Result<Arc<Stored<Record>>, WriteError> {
        if self.phase == Phase::Following {
            return Err(WriteError::NotLeading);
        }
        if expected.is_none() {
            self.may_make(name)?;
        }
        let before = self.ledger.get(name).cloned();
        if before.as_ref().map(|before| before.version) != expected {
            return Err(WriteError::Conflict);
        }
        let malformed = |error: &dyn std::fmt::Display| WriteError::Malformed(error.to_string());
        let Some(Value::Object(mut metadata)) = draft.get("metadata").cloned() else {
            return Err(WriteError::Malformed("no metadata".to_owned()));
        };
        metadata.remove("resourceVersion");
        if let (None, Some(tracked)) = (expected, self.nodes.get(name)) {
            // By it the next leader knows of which Node the object is.
            let chance = metadata.get("uid").and_then(Value::as_str).unwrap_or_default();
            let uid = uid_of_made(&tracked.facts.uid, chance);
            metadata.insert("uid".to_owned(), uid.into());
        }
        let spec = Arc::new(draft.get("spec").cloned().unwrap_or_else(|| Value::Object(Map::new())));
        let status = draft.get("status").filter(|status| status.as_object().is_some_and(|s| !s.is_empty()));
        let head = serde_json::to_vec(&(&metadata, &*spec)).map_err(|error| malformed(&error))?;
        if head.len() > MOST_WRITTEN.0 {
            return Err(WriteError::Long("metadata and spec", MOST_WRITTEN.0));
        }
        let metadata = Arc::new(metadata);

        let known = before.as_ref().map(|before| object(before, api_version, |_| {})).transpose();
        let known = known.map_err(|error| malformed(&error))?;
        let known: Option<Value> = known.and_then(|object| serde_json::from_slice(object.body()).ok());
        let same = known.as_ref().map_or(status.is_none(), |known| known.get("status") == status);
        let allocatable = self.nodes.get(name).map(|tracked| tracked.facts.allocatable).unwrap_or_default();
        let record = if let (Some(before), true) = (&before, same) {
            let (status, freshness) = (before.value.status.clone(), before.value.freshness.clone());
            Record::new(metadata, spec, status, freshness, allocatable).with_load(before.value.load)
        } else {
            let status = match status {
                None => Status::Absent,
                Some(status) => {
                    let mut status = status.clone();
                    if let Some(status) = status.as_object_mut() {
                        // The server's, as of all reports: consumers compare it with each other's.
                        let time = serde_json::to_value(Time(seconds(now.wall)));
                        status.insert("updateTime".to_owned(), time.map_err(|error| malformed(&error))?);
                    }
                    let raw: Box<RawValue> = to_raw_value(&status).map_err(|error| malformed(&error))?;
                    if raw.get().len() > MOST_WRITTEN.1 {
                        return Err(WriteError::Long("the status", MOST_WRITTEN.1));
                    }
                    Status::Written(raw.into())
                }
            };
            let freshness = match status {
                Status::Absent => Freshness { state: self.state_of_made(name, now), ..Freshness::default() },
                _ => Freshness {
                    state: FreshnessState::Fresh,
                    received_time: Some(Time(seconds(now.wall))),
                    age_seconds: Some(0),
                    sampled_time: None,
                },
            };
            if let (Some(tracked), true) =
                (self.nodes.get_mut(name), freshness.state == FreshnessState::Fresh)
            {
                tracked.heard = now.steady;
                tracked.silence = Some(Silence::Fresh);
                tracked.reported = None;
            }
            Record::new(metadata, spec, status, freshness, allocatable)
        };
        let stored = self.ledger.put(name, record, now.micros());
        self.warm(now);
        Ok(stored)
    }

    /// Removes the object of exactly this version; returns its last state and the version of its going. The next look at its Node
    /// makes another. That the node reported, and when, is not forgotten: its silence goes on.
    pub fn erase(
        &mut self,
        now: Now,
        name: &str,
        expected: u64,
    ) -> Result<(u64, Arc<Stored<Record>>), WriteError> {
        if self.phase == Phase::Following {
            return Err(WriteError::NotLeading);
        }
        if self.ledger.get(name).is_none_or(|stored| stored.version != expected) {
            return Err(WriteError::Conflict);
        }
        if let Some(tracked) = self.nodes.get_mut(name) {
            tracked.reported = None;
        }
        self.ledger.remove(name, now.micros()).ok_or(WriteError::Conflict)
    }
}
