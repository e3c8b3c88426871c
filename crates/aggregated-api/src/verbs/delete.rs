//! DELETE of one object and of many. What has finalizers only begins to go.

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use kube_wire::{accept::Answer, list_options::ListRequest, object::Object, request::Verb, status::Status};
use serde_json::{Map, Value, json};

use super::{Call, members, read};
use crate::{
    answer::Form,
    decode,
    field_error::failure,
    metadata,
    options::{DeleteOptions, Propagation},
    storage::{Draft, Expected, Intent, StorageError},
};

/// How often a deletion without preconditions is tried.
const ATTEMPTS: usize = 8;

fn options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    let body = if call.body.is_empty() {
        Value::Null
    } else {
        let media_type = decode::media_type(call.headers)?;
        decode::options(call.body, media_type)?
    };
    DeleteOptions::parse(call.query, &body)
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Response, Status> {
    let form = Form::negotiate(call.headers, call.query, Answer::Object)?;
    let options = options(call)?;
    match one(call, &options).await? {
        Outcome::Gone { uid } => {
            let info = &call.served.info;
            let mut details = Map::new();
            for (name, value) in
                [("name", call.name()), ("group", &info.group), ("kind", &info.plural), ("uid", &uid)]
            {
                if !value.is_empty() {
                    details.insert(name.to_owned(), value.into());
                }
            }
            let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
            Ok(form.encoded(StatusCode::OK, &status))
        }
        Outcome::Going(object) => {
            let code = if options.waits { StatusCode::ACCEPTED } else { StatusCode::OK };
            Ok(form.value(call.served, code, &Value::Object(object)))
        }
    }
}

/// What a deletion came to.
enum Outcome {
    /// The object is no more.
    Gone { uid: String },
    /// The object waits for its finalizers.
    Going(Map<String, Value>),
}

async fn one(call: &Call<'_>, options: &DeleteOptions) -> Result<Outcome, Status> {
    let mut attempt = 1;
    loop {
        let stored = call.current_to_write().await?;
        match attempt_one(call, options, &stored).await? {
            Ok(outcome) => return Ok(outcome),
            Err(StorageError::Conflict) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(call.status(error)),
        }
    }
}

async fn attempt_one(
    call: &Call<'_>,
    options: &DeleteOptions,
    stored: &Object,
) -> Result<Result<Outcome, StorageError>, Status> {
    let storage = &call.served.storage;
    let mut object = members(stored)?;
    preconditions(call, options, &object)?;
    storage.admit(call.user, &call.key(), Intent::Remove).map_err(|error| call.status(error))?;
    let uid = metadata::text(&object, "uid").to_owned();
    let mut finalizers: Vec<Value> = metadata::finalizers(&object).into_iter().map(Value::from).collect();
    // Whoever does not advertise deletion is not known to the garbage collector, which takes these away.
    if call.served.can(Verb::Delete) && !call.served.info.unadvertised.contains(&Verb::Delete) {
        propagate(options.propagation, &mut finalizers);
    }
    if finalizers.is_empty() {
        if options.dry_run {
            return Ok(Ok(Outcome::Gone { uid }));
        }
        return Ok(storage
            .remove(&call.key(), stored.resource_version())
            .await
            .map(|_| Outcome::Gone { uid }));
    }
    let already = !metadata::text(&object, "deletionTimestamp").is_empty();
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    let before = object.clone();
    let metadata = metadata::of(&mut object);
    metadata.insert("finalizers".to_owned(), Value::Array(finalizers));
    if !already {
        metadata.insert("deletionTimestamp".to_owned(), metadata::rfc3339(Timestamp::now()).into());
        metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
        if generation > 0 {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
    }
    if options.dry_run || object == before {
        return Ok(Ok(Outcome::Going(object)));
    }
    let expected = Expected::Version(stored.resource_version());
    match storage.write(&call.key(), expected, Draft(object)).await {
        Ok(written) => members(&written).map(|object| Ok(Outcome::Going(object))),
        Err(error) => Ok(Err(error)),
    }
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Puts the garbage collector's finalizer where the caller wants it. Who says nothing leaves it as it is.
fn propagate(wanted: Option<Propagation>, finalizers: &mut Vec<Value>) {
    let found = || {
        finalizers.iter().find_map(|finalizer| match finalizer.as_str() {
            Some(FOREGROUND) => Some(Propagation::Foreground),
            Some(ORPHAN) => Some(Propagation::Orphan),
            _ => None,
        })
    };
    let wanted = match wanted.or_else(found) {
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) | None => None,
    };
    finalizers.retain(|finalizer| {
        let is_collectors = finalizer == FOREGROUND || finalizer == ORPHAN;
        !is_collectors || wanted.is_some_and(|wanted| finalizer == wanted)
    });
    if let Some(wanted) = wanted.filter(|wanted| finalizers.iter().all(|finalizer| finalizer != wanted)) {
        finalizers.push(wanted.into());
    }
}

/// Status 409 if the caller means another object or another state of it.
fn preconditions(
    call: &Call<'_>,
    options: &DeleteOptions,
    object: &Map<String, Value>,
) -> Result<(), Status> {
    let info = &call.served.info;
    let conflict = |why: String| {
        let kind =
            if info.group.is_empty() { info.kind.clone() } else { format!("{}.{}", info.kind, info.group) };
        let name = kube_wire::quoting::quoted(call.name());
        let details = kube_wire::status::StatusDetails {
            name: call.name().to_owned(),
            group: info.group.clone(),
            kind: info.kind.clone(),
            ..Default::default()
        };
        failure(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {kind} {name}: {why}"),
            Some(details),
        )
    };
    let uid = metadata::text(object, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and \
             then recreated"
        )));
    }
    let version = metadata::text(object, "resourceVersion");
    if let Some(wanted) = options.version.as_deref().filter(|wanted| *wanted != version) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might \
             have been modified"
        )));
    }
    Ok(())
}

/// Deletes all that a list shows, and answers with that list.
pub(super) async fn delete_collection(call: &Call<'_>) -> Result<Response, Status> {
    let form = Form::negotiate(call.headers, call.query, Answer::List)?;
    let request = ListRequest::parse(call.query, &call.served.fields)?;
    let options = options(call)?;
    let page = read::page(call, &request).await?;
    for object in page.objects() {
        let object = object.map_err(|error| call.status(error))?;
        let mut path = call.path.clone();
        path.name = Some(object.key().name().into());
        let namespace = object.key().namespace();
        path.namespace = (!namespace.is_empty()).then(|| namespace.into());
        let single = Call { path: &path, ..*call };
        match one(&single, &options).await {
            Ok(_) => {}
            // Somebody else was faster.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    form.list(call.served, page).map_err(|error| call.status(error))
}
