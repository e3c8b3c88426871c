//! PATCH: JSON patch, merge patch, and server-side apply. A patch without a version is computed anew when another write comes first.

use axum::response::Response;
use http::{StatusCode, header};
use json_patch::PatchOperation;
use kube_wire::{
    accept::{Answer, MediaType},
    status::{Status, StatusDetails},
};
use serde_json::{Map, Value, json};

use super::{Call, admit, members, write};
use kube_wire::quoting::quoted;

use crate::{
    answer::Form,
    decode,
    field_error::{FieldError, FieldErrors, failure},
    managed_fields::{self, Applied, Writer},
    metadata,
    options::{FieldValidation, WriteKind, WriteOptions},
    schema,
    storage::StorageError,
};

mod operations;

/// How often a patch is computed before the conflict is told.
const ATTEMPTS: usize = 5;

/// The most operations of a JSON patch.
const OPERATIONS_MAX: usize = 10_000;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What to do to the object.
enum Change {
    Json(Vec<PatchOperation>),
    Merge(Value),
    Apply(Map<String, Value>),
}

pub(super) async fn patch(call: &Call<'_>) -> Result<Response, Status> {
    let served = call.served;
    let said = call.headers.get(header::CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim();
    if ![JSON_PATCH, MERGE_PATCH, APPLY].contains(&said) {
        return Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY]));
    }
    let form = Form::negotiate(call.headers, call.query, Answer::Object)?;
    let kind = if said == APPLY { WriteKind::Apply } else { WriteKind::Patch };
    let options = WriteOptions::parse(kind, call.query, call.headers)?;
    // Only a configuration says all of an object.
    if (kind != WriteKind::Apply || call.is_status()) && !exists(call).await? {
        return Err(served.not_found(call.name()));
    }
    let mut found = Vec::new();
    let lax = options.validation == FieldValidation::Ignore;
    let change = match said {
        JSON_PATCH => Change::Json(operations(call.body, lax, &mut found)?),
        MERGE_PATCH => Change::Merge(merge_patch(call.body, lax, &mut found)?),
        _ => Change::Apply(configuration(call)?),
    };
    let mut attempt = 1;
    loop {
        let tried = once(call, &options, &change, &found).await;
        match tried {
            Err(Failure::Storage(StorageError::Conflict)) if attempt < ATTEMPTS => attempt += 1,
            Err(Failure::Storage(error)) => return Err(call.status(error)),
            Err(Failure::Answer(status)) => return Err(*status),
            Ok((code, value)) => return Ok(form.value(served, code, &value)),
        }
    }
}

async fn exists(call: &Call<'_>) -> Result<bool, Status> {
    let found = call.served.storage.get_to_write(&call.key()).await;
    found.map(|found| found.is_some()).map_err(|error| call.status(error))
}

enum Failure {
    Storage(StorageError),
    Answer(Box<Status>),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Answer(Box::new(status))
    }
}

async fn once(
    call: &Call<'_>,
    options: &WriteOptions,
    change: &Change,
    found: &[String],
) -> Result<(StatusCode, Value), Failure> {
    let served = call.served;
    let api_version = served.info.api_version();
    let writer = admit::writer(options, &api_version, call);
    let there = served.storage.get_to_write(&call.key()).await.map_err(Failure::Storage)?;
    let Some(stored) = there else {
        let Change::Apply(config) = change else { return Err(served.not_found(call.name()).into()) };
        let kind = json!({ "apiVersion": api_version, "kind": served.info.kind });
        let nothing = kind.as_object().cloned().unwrap_or_default();
        let mut object = apply(call, options, &nothing, config, &writer)?;
        let uid = metadata::text(&object, "uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(served.conflict(call.name(), &why).into());
        }
        admit::place(&mut object, call.namespace())?;
        write::check_name(call, &object)?;
        admit::owners_once(call, &mut object, " after mutating admission happens");
        let object = admit::created(served, object, &writer, true)?;
        admit::finalizers_of_nobody(call, &object, None);
        return match write::insert(call, object, options.dry_run).await {
            Ok(value) => Ok((StatusCode::CREATED, value)),
            // Somebody made it in between: it is applied to then.
            Err(status) if status.reason == "AlreadyExists" => Err(Failure::Storage(StorageError::Conflict)),
            Err(status) => Err(status.into()),
        };
    };
    let old = members(&stored)?;
    let mut new = match change {
        Change::Json(operations) => {
            let value = operations::applied(Value::Object(old.clone()), operations);
            let Some(Value::Object(mut new)) = value else { return Err(rejected().into()) };
            structure(call, options, &mut new, found.to_vec())?;
            new
        }
        Change::Merge(patch) => {
            let mut value = Value::Object(old.clone());
            merge(&mut value, patch);
            let Value::Object(mut new) = value else { return Err(rejected().into()) };
            structure(call, options, &mut new, found.to_vec())?;
            new
        }
        Change::Apply(config) => apply(call, options, &old, config, &writer)?,
    };
    admit::place(&mut new, call.namespace())?;
    write::check_name(call, &new)?;
    admit::owners_once(call, &mut new, " after mutating admission happens");
    // What the patch did not say is as it was read.
    write::check_resource_version(call, &new, &stored)?;
    let applied = matches!(change, Change::Apply(_));
    let object = admit::updated(served, &old, new, call.is_status(), &writer, applied)?;
    admit::finalizers_of_nobody(call, &object, Some(&old));
    let value =
        write::replace(call, &stored, &old, object, options.dry_run).await.map_err(Failure::Storage)?;
    Ok((StatusCode::OK, value))
}

/// What a configuration makes of an object, with defaults in it. Nulls stay for validation to refuse.
fn apply(
    call: &Call<'_>,
    options: &WriteOptions,
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    writer: &Writer<'_>,
) -> Result<Map<String, Value>, Status> {
    let served = call.served;
    let Applied { mut object, changed } =
        managed_fields::applied(live, config, &served.merging, writer, options.force)?;
    if changed {
        let mut value = Value::Object(object);
        schema::default(&mut value, &served.schema);
        let Value::Object(complete) = value else {
            return Err(Status::internal_error("defaults lost the object"));
        };
        object = complete;
    }
    let twice = decode::strictly(call.body);
    match (options.validation, twice) {
        (FieldValidation::Strict, Err(why)) => {
            let words = "error converting YAML to JSON: yaml: unmarshal errors";
            return Err(Status::bad_request(format!("error strict decoding YAML: {words}:\n  {why}")));
        }
        (FieldValidation::Warn, Err(why)) => *call.warnings.lock() = vec![why],
        _ => {}
    }
    // What of the metadata cannot be read was not said.
    let _ = metadata::coerce(&mut object);
    Ok(object)
}

/// A merge patch as the API server's library does it: what is new has no nulls, in lists neither, but for items that are null.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *value = patch.clone();
        return;
    };
    let Value::Object(members) = value else {
        *value = without_nulls(patch);
        return;
    };
    for (name, change) in changes {
        match (members.get_mut(name), change) {
            (_, Value::Null) => {
                members.remove(name);
            }
            (None | Some(Value::Null), change) => {
                members.insert(name.clone(), without_nulls(change));
            }
            (Some(member @ Value::Object(_)), change) => merge(member, change),
            (Some(member), change) => *member = without_nulls(change),
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, member)| !member.is_null());
            Value::Object(kept.map(|(name, member)| (name.clone(), without_nulls(member))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Brings the patched object into its structure.
fn structure(
    call: &Call<'_>,
    options: &WriteOptions,
    new: &mut Map<String, Value>,
    found: Vec<String>,
) -> Result<(), Status> {
    let patched = Value::Object(new.clone());
    let refused = |why: &str| invalid_patch(&patched.to_string(), why);
    let unknown = call.served.structure(new).map_err(|why| refused(&why))?;
    *call.warnings.lock() = admit::strictness(options, found, &unknown).map_err(|why| refused(&why))?;
    Ok(())
}

/// Status 422 about the whole patched object, as the API server says it, which has no kind then.
fn invalid_patch(patched: &str, why: &str) -> Status {
    let mut errors = FieldErrors::default();
    errors.push(FieldError::invalid("patch", &quoted(patched), why));
    errors.check("", "", "").err().unwrap_or_default()
}

fn rejected() -> Status {
    let words = "the server rejected our request due to an error in our request";
    failure(422, "Invalid", words.to_owned(), Some(StatusDetails::default()))
}

/// Status 400. Who wants nothing said of members has it from another parser.
fn undecodable(why: &str, lax: bool) -> Status {
    Status::bad_request(if lax { why.to_owned() } else { format!("error decoding patch: {why}") })
}

/// The operations; what is strange about their members is added to `found`, unless nothing of that is to be said.
fn operations(body: &[u8], lax: bool, found: &mut Vec<String>) -> Result<Vec<PatchOperation>, Status> {
    let decoded = decode::value(body, MediaType::Json).map_err(|why| undecodable(&why, lax))?;
    let (whole, part) = if lax {
        ("jsonpatch.Patch", "jsonpatch.Operation")
    } else {
        ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    };
    let type_ = |value: &Value, type_: &str| {
        let words =
            format!("json: cannot unmarshal {} into Go value of type {type_}", decode::go_kind(value));
        undecodable(&words, lax)
    };
    let items = match decoded.value {
        // No operations.
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(type_(&other, whole)),
    };
    if let Some(other) = items.iter().find(|item| !item.is_object() && !item.is_null()) {
        return Err(type_(other, part));
    }
    let strange = items.iter().enumerate().flat_map(|(index, item)| {
        let names = item.as_object().into_iter().flat_map(Map::keys);
        let unknown = names.filter(|name| !["op", "path", "from", "value"].contains(&name.as_str()));
        unknown.map(move |name| admit::unknown(&format!("[{index}].{name}")))
    });
    let twice = decoded.duplicates.iter().map(|path| admit::duplicate(path));
    found.extend(twice.chain(strange).map(|words| format!("json patch {words}")));
    if items.len() > OPERATIONS_MAX {
        let words = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            items.len()
        );
        return Err(failure(413, "RequestEntityTooLarge", words, None));
    }
    let complete = items.into_iter().map(|mut item| {
        if let Some(members) = item.as_object_mut().filter(|members| !members.contains_key("value")) {
            // What is not said is null.
            members.insert("value".to_owned(), Value::Null);
        }
        item
    });
    let operations: Vec<PatchOperation> =
        serde_json::from_value(complete.collect()).map_err(|_| rejected())?;
    let whole = |operation: &PatchOperation| {
        operation.path().is_root() && !matches!(operation, PatchOperation::Test(_))
    };
    if operations.iter().any(whole) { Err(rejected()) } else { Ok(operations) }
}

fn merge_patch(body: &[u8], lax: bool, found: &mut Vec<String>) -> Result<Value, Status> {
    let invalid = || Status::bad_request("Invalid JSON Patch");
    let decoded = decode::value(body, MediaType::Json)
        .map_err(|why| if lax { invalid() } else { undecodable(&why, false) })?;
    match &decoded.value {
        Value::Object(_) => {}
        Value::Null => return Err(invalid()),
        Value::Array(_) if lax => return Err(rejected()),
        _ if lax => return Err(invalid()),
        other => {
            let name = decode::go_kind(other);
            let words =
                format!("json: cannot unmarshal {name} into Go value of type map[string]interface {{}}");
            return Err(undecodable(&words, false));
        }
    }
    found.extend(decoded.duplicates.iter().map(|path| admit::duplicate(path)));
    Ok(decoded.value)
}

/// What is to be applied: an object of the kind, without a record of who owns what.
fn configuration(call: &Call<'_>) -> Result<Map<String, Value>, Status> {
    let info = &call.served.info;
    let decoded = decode::value(call.body, MediaType::Yaml).map_err(|why| {
        Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
    })?;
    let config = match decoded.value {
        Value::Object(config) => config,
        Value::Null => Map::new(),
        other => {
            return Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                decode::go_kind(&other)
            )));
        }
    };
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != info.api_version() || kind != info.kind {
        let words = format!("invalid object type: {}, Kind={kind}", group_version(api_version));
        return Err(Status::bad_request(words));
    }
    let fields = config.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    if fields.and_then(Value::as_array).is_some_and(|all| all.iter().all(Value::is_object)) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(config)
}

/// `group/version`, both of which may be missing.
fn group_version(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}
