//! What keeps a component off host-network nodes, and what takes that back: a `DaemonSet` or Deployment as raw JSON in, its
//! new affinity and a JSON patch out.
//!
//! Pure and total: it never panics, whatever the JSON, and never goes through a Rust struct, which would drop the fields of
//! newer Kubernetes versions. The terms of a required node affinity are alternatives, so each of them gets the
//! requirement; without a term, one is made. A term that has one on any of the labels of host-network nodes is right
//! already. A term without any expression matches no node and is left alone: the requirement would turn "nowhere" into
//! "anywhere but there".
//!
//! What was added stands in an annotation on the object ([`Record`]), in the same patch. Null and absent are the same, as
//! they are to the API server.

use api::annotations::HOSTNET_ADDED;
use api::labels::{HOST_NETWORK_NODE, NETWORK_MODE, NODE_NETWORK_MODE};
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, TestOperation};
use serde_json::{Map, Value, json};

use crate::raw_json::{self, is_nothing};
use thiserror::Error;

use super::record::{Made, Record};

/// The objects on the way from a pod's spec to its terms, and the list of them.
const WAY: [&str; 4] =
    ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];

/// Where the pod's spec is in both kinds of object.
const POD_SPEC: [&str; 3] = ["spec", "template", "spec"];

/// What shall become of the requirement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Goal {
    /// Every term has it.
    Keep,
    /// What was added is gone.
    Undo,
}

/// What is to be done to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its affinity; null when it has none.
    pub before: Value,
    /// Its affinity afterwards.
    pub after: Value,
    /// The way there. It fails if the object has changed since it was read. Empty when nothing is to be done.
    pub patch: Patch,
    /// Undoing only: how many of the terms that got the requirement are not there any more, or were changed such that
    /// they cannot be recognised.
    pub lost: usize,
}

impl Plan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.patch.0.is_empty()
    }
}

/// Why nothing can be planned for an object.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PlanError {
    /// A value of another type than the API's.
    #[error("{field} is {found} where the API has {expected}")]
    Malformed {
        /// Where, as Kubernetes writes field paths.
        field: String,
        /// What the API has there.
        expected: &'static str,
        /// What was found.
        found: &'static str,
    },
    /// Somebody else wrote the annotation.
    #[error(
        "annotation {HOSTNET_ADDED} is no record of ours ({reason}): remove it, and the requirement by hand if you want \
         it gone"
    )]
    Record {
        /// What is wrong with it.
        reason: String,
    },
}

/// What is to be done to `object`, a `DaemonSet` or Deployment as the API server has it.
pub fn plan(object: &Value, goal: Goal) -> Result<Plan, PlanError> {
    let version = text(object, &["metadata", "resourceVersion"])?
        .ok_or_else(|| malformed("metadata.resourceVersion", "a string", &Value::Null))?;
    let present = terms(object)?;
    let mut after = object.clone();

    let lost = match goal {
        Goal::Keep => {
            let mut added = Record::default();
            let terms = keep(present, &mut added)?;
            if added.is_empty() {
                0
            } else {
                let mut record = read_record(object)?.unwrap_or_default();
                // What an upgrade has reverted since must not be taken away twice.
                record.retain_present(present, &terms, &requirement());
                added.made = make_terms(&mut after, terms)?;
                record.extend(added);
                write_record(&mut after, Some(&record))?;
                0
            }
        }
        Goal::Undo => match read_record(object)? {
            None => 0,
            Some(record) => {
                let mut terms = present.to_vec();
                let lost = record.take_from(&mut terms, &requirement());
                // Without a term of ours, nothing that stands there is ours.
                let made = record.made.filter(|_| terms.is_empty() && !present.is_empty());
                set_terms(pod_spec_mut(&mut after)?, &WAY, terms, made.map_or(WAY.len(), Made::depth));
                write_record(&mut after, None)?;
                lost
            }
        },
    };

    let mut operations = json_patch::diff(object, &after).0;
    if !operations.is_empty() {
        let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
        operations.insert(0, PatchOperation::Test(TestOperation { path, value: json!(version) }));
    }
    Ok(Plan { before: affinity(object)?, after: affinity(&after)?, patch: Patch(operations), lost })
}

fn affinity(object: &Value) -> Result<Value, PlanError> {
    Ok(object_at(object, &POD_SPEC)?.get(WAY[0]).cloned().unwrap_or_default())
}

/// The terms with the requirement in each; what got it goes to `added`.
fn keep(terms: &[Value], added: &mut Record) -> Result<Vec<Value>, PlanError> {
    let mut kept = Vec::with_capacity(terms.len().max(1));
    for (at, term) in terms.iter().enumerate() {
        let field = format!("{}[{at}]", field_path(WAY.len()));
        let members = as_object(term, &field)?;
        if members.values().all(is_nothing) || keeps_off(members, &field)? {
            kept.push(term.clone());
        } else {
            added.add(members, &kept, &requirement());
            kept.push(with_requirement(members));
        }
    }
    if kept.is_empty() {
        kept.push(with_requirement(&Map::new()));
        added.new_term = true;
    }
    Ok(kept)
}

/// The requirement of the proposal.
fn requirement() -> Value {
    json!({ "key": NETWORK_MODE, "operator": "NotIn", "values": [NODE_NETWORK_MODE] })
}

/// The term with the requirement at its end.
fn with_requirement(term: &Map<String, Value>) -> Value {
    super::record::with(term, &requirement())
}

/// Whether one of the term's expressions matches no node of a host-network pool, judged by any label of such nodes.
fn keeps_off(term: &Map<String, Value>, field: &str) -> Result<bool, PlanError> {
    let field = format!("{field}.matchExpressions");
    for (at, expression) in list(term.get("matchExpressions"), &field)?.iter().enumerate() {
        let field = format!("{field}[{at}]");
        let expression = as_object(expression, &field)?;
        let string = |name: &str| as_text(expression.get(name), &format!("{field}.{name}"));
        let (key, operator) = (string("key")?, string("operator")?);
        let values = list(expression.get("values"), &format!("{field}.values"))?;
        let keeps_off = HOST_NETWORK_NODE.iter().filter(|(label, _)| key == Some(label)).any(|(_, value)| {
            let named = values.iter().any(|named| named == value);
            match operator {
                Some("NotIn") => named,
                Some("In") => !named,
                Some("DoesNotExist") => true,
                _ => false,
            }
        });
        if keeps_off {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The terms of the object's required node affinity; none when there is no such affinity.
fn terms(object: &Value) -> Result<&[Value], PlanError> {
    let mut value = object_at(object, &POD_SPEC)?.get(WAY[0]);
    for (depth, name) in WAY.iter().enumerate().skip(1) {
        value = match value {
            None | Some(Value::Null) => return Ok(&[]),
            Some(value) => as_object(value, &field_path(depth))?.get(*name),
        };
    }
    list(value, &field_path(WAY.len()))
}

/// Puts `terms` in place, with as much of the way to them as is missing. What had to be made comes back.
fn make_terms(object: &mut Value, terms: Vec<Value>) -> Result<Option<Made>, PlanError> {
    let mut made = None;
    let mut value = pod_spec_mut(object)?;
    for (depth, name) in WAY.iter().enumerate() {
        let members =
            value.as_object_mut().ok_or_else(|| malformed(&field_path(depth), "an object", &Value::Null))?;
        let member = members.entry(*name).or_insert(Value::Null);
        if member.is_null() {
            made = made.or(Made::at(depth));
            *member = if depth + 1 == WAY.len() { json!([]) } else { json!({}) };
        }
        value = member;
    }
    *value = Value::Array(terms);
    Ok(made)
}

/// Puts `terms` in place of those at the end of `way`, if anything is there. What is empty then, from place `outermost` of
/// the way on, is removed.
fn set_terms(parent: &mut Value, way: &[&str], terms: Vec<Value>, outermost: usize) {
    let (Some((name, rest)), Some(members)) = (way.split_first(), parent.as_object_mut()) else { return };
    let Some(member) = members.get_mut(*name).filter(|member| !member.is_null()) else { return };
    if rest.is_empty() {
        *member = Value::Array(terms);
    } else {
        set_terms(member, rest, terms, outermost.saturating_sub(1));
    }
    let empty = match member {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    if outermost == 0 && empty {
        members.remove(*name);
    }
}

fn read_record(object: &Value) -> Result<Option<Record>, PlanError> {
    let text = text(object, &["metadata", "annotations", HOSTNET_ADDED])?;
    text.map(serde_json::from_str)
        .transpose()
        .map_err(|error| PlanError::Record { reason: error.to_string() })
}

fn write_record(object: &mut Value, record: Option<&Record>) -> Result<(), PlanError> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return Ok(()) };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(members) = annotations.as_object_mut() {
        match record {
            Some(record) => {
                let record = serde_json::to_string(record)
                    .map_err(|error| PlanError::Record { reason: error.to_string() })?;
                members.insert(HOSTNET_ADDED.to_owned(), Value::String(record));
            }
            None => {
                members.remove(HOSTNET_ADDED);
            }
        }
        if members.is_empty() {
            metadata.remove("annotations");
        }
    }
    Ok(())
}

fn pod_spec_mut(object: &mut Value) -> Result<&mut Value, PlanError> {
    POD_SPEC
        .iter()
        .try_fold(object, |value, name| value.get_mut(*name))
        .ok_or_else(|| malformed(&POD_SPEC.join("."), "an object", &Value::Null))
}

/// The object at `path`, which the API requires to be there.
fn object_at<'a>(root: &'a Value, path: &[&str]) -> Result<&'a Map<String, Value>, PlanError> {
    let mut value = root;
    for (at, name) in path.iter().enumerate() {
        let members = as_object(value, &path[..at].join("."))?;
        value = members.get(*name).unwrap_or(&Value::Null);
    }
    as_object(value, &path.join("."))
}

/// The string at `path`; none when a part of the way is not there.
fn text<'a>(root: &'a Value, path: &[&str]) -> Result<Option<&'a str>, PlanError> {
    let mut value = Some(root);
    for (at, name) in path.iter().enumerate() {
        value = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => as_object(value, &path[..at].join("."))?.get(*name),
        };
    }
    as_text(value, &path.join("."))
}

fn as_text<'a>(value: Option<&'a Value>, field: &str) -> Result<Option<&'a str>, PlanError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(malformed(field, "a string", other)),
    }
}

fn as_object<'a>(value: &'a Value, field: &str) -> Result<&'a Map<String, Value>, PlanError> {
    value.as_object().ok_or_else(|| malformed(field, "an object", value))
}

fn list<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a [Value], PlanError> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(malformed(field, "a list", other)),
    }
}

/// The field after `depth` steps on the way to the terms.
fn field_path(depth: usize) -> String {
    [&POD_SPEC, &WAY[..depth]].concat().join(".")
}

fn malformed(field: &str, expected: &'static str, found: &Value) -> PlanError {
    let found = raw_json::kind(found);
    let field = if field.is_empty() { "the object" } else { field };
    PlanError::Malformed { field: field.to_owned(), expected, found }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
