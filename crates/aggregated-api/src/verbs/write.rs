//! POST and PUT, and the storing of what a write has made.

use axum::response::Response;
use http::StatusCode;
use kube_wire::{
    accept::Answer, object::Object, resource::ObjectKey, resource_version::ResourceVersion, status::Status,
};
use serde_json::{Map, Value};

use super::{Call, admit, members};
use crate::{
    answer::Form,
    decode,
    field_error::{FieldError, FieldErrors},
    metadata,
    options::{WriteKind, WriteOptions},
    storage::{Draft, Expected, Intent, StorageError},
};

/// How many generated names are tried.
const NAMES: usize = 8;

pub(super) async fn create(call: &Call<'_>) -> Result<Response, Status> {
    let served = call.served;
    let form = Form::negotiate(call.headers, call.query, Answer::Object)?;
    // Before the options, unlike with an update.
    decode::media_type(call.headers)?;
    let options = WriteOptions::parse(WriteKind::Create, call.query, call.headers)?;
    let mut object = admit::read(call, &options)?;
    check_version(call, &object)?;
    admit::place(&mut object, call.namespace())?;
    if call.path.name.is_some() {
        // The creation was authorized for that name. The API server, of a custom resource, takes any other as well.
        check_name(call, &object)?;
    }
    admit::owners_once(call, &mut object, "");
    let base = metadata::text(&object, "generateName").to_owned();
    let generated = metadata::text(&object, "name").is_empty() && !base.is_empty();
    let api_version = served.info.api_version();
    let writer = admit::writer(&options, &api_version, call);
    for attempt in 1.. {
        let mut object = object.clone();
        if generated {
            metadata::of(&mut object).insert("name".to_owned(), admit::generated_name(&base).into());
        }
        let object = admit::created(served, object, &writer, false)?;
        admit::finalizers_of_nobody(call, &object, None);
        match insert(call, object, options.dry_run).await {
            Ok(value) => return Ok(form.value(served, StatusCode::CREATED, &value)),
            Err(status) if generated && status.reason == "AlreadyExists" && attempt < NAMES => {}
            Err(status) => return Err(status),
        }
    }
    Err(Status::internal_error("no name was free"))
}

/// Status 400 if the object is of another version of the API.
pub(super) fn check_version(call: &Call<'_>, object: &Map<String, Value>) -> Result<(), Status> {
    let said = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let expected = call.served.info.api_version();
    if said == expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({said}) does not match the expected API version ({expected})"
    )))
}

/// Stores a new object, unless it is only a trial; returns it as it is answered.
pub(super) async fn insert(
    call: &Call<'_>,
    object: Map<String, Value>,
    dry_run: bool,
) -> Result<Value, Status> {
    let served = call.served;
    let name = metadata::text(&object, "name").to_owned();
    let key = ObjectKey::new(call.namespace(), &name);
    let generates = !metadata::text(&object, "generateName").is_empty();
    served.storage.admit(call.user, &key, Intent::Create).map_err(|error| call.status(error))?;
    if dry_run {
        let there = served.storage.get_to_write(&key).await.map_err(|error| call.status(error))?;
        return match there {
            Some(there) => Err(already_exists(call, &name, generates, Some(&there))?),
            None => Ok(Value::Object(object)),
        };
    }
    // etcd's matter with the API server, which a trial does not come to.
    if !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(Status::untranslated("resourceVersion should not be set on objects to be created"));
    }
    match served.storage.write(&key, Expected::Absent, Draft(object)).await {
        Ok(stored) => members(&stored).map(Value::Object),
        Err(StorageError::Conflict) => {
            let there = served.storage.get_to_write(&key).await.map_err(|error| call.status(error))?;
            // Without one it was there a moment ago.
            Err(already_exists(call, &name, generates, there.as_deref())?)
        }
        Err(error) => Err(call.status(error)),
    }
}

/// Status 409: it is there, or still there.
fn already_exists(
    call: &Call<'_>,
    name: &str,
    generates: bool,
    there: Option<&Object>,
) -> Result<Status, Status> {
    let mut status = call.served.already_exists(name);
    if generates {
        // Also of a name that the client chose, if it says another besides to be generated from.
        status.message += ", the server was not able to generate a unique name for the object";
        status.details.get_or_insert_default().retry_after_seconds = 1;
    }
    let there = there.map(members).transpose()?;
    if there.is_some_and(|there| !metadata::text(&there, "deletionTimestamp").is_empty()) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    Ok(status)
}

pub(super) async fn update(call: &Call<'_>) -> Result<Response, Status> {
    let served = call.served;
    let form = Form::negotiate(call.headers, call.query, Answer::Object)?;
    let options = WriteOptions::parse(WriteKind::Update, call.query, call.headers)?;
    let mut object = admit::read(call, &options)?;
    check_version(call, &object)?;
    admit::place(&mut object, call.namespace())?;
    check_name(call, &object)?;
    admit::owners_once(call, &mut object, "");
    let stored = call.current_to_write().await?;
    let old = members(&stored)?;
    check_uid(call, &object, &old, options.dry_run)?;
    check_resource_version(call, &object, &stored)?;
    let api_version = served.info.api_version();
    let writer = admit::writer(&options, &api_version, call);
    let object = admit::updated(served, &old, object, call.is_status(), &writer, false)?;
    admit::finalizers_of_nobody(call, &object, Some(&old));
    let value =
        replace(call, &stored, &old, object, options.dry_run).await.map_err(|error| call.status(error))?;
    Ok(form.value(served, StatusCode::OK, &value))
}

/// Status 400 if the object has another name than the path.
pub(super) fn check_name(call: &Call<'_>, object: &Map<String, Value>) -> Result<(), Status> {
    let (said, name) = (metadata::text(object, "name"), call.name());
    if said.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if said != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Status 422, 409 or 500 if the writer has not read what is stored.
pub(super) fn check_resource_version(
    call: &Call<'_>,
    new: &Map<String, Value>,
    stored: &Object,
) -> Result<(), Status> {
    let text = metadata::text(new, "resourceVersion");
    if matches!(text, "" | "0") {
        let mut errors = FieldErrors::default();
        let words = "must be specified for an update";
        errors.push(FieldError::invalid("metadata.resourceVersion", "0", words));
        return errors.check(&call.served.info.group, &call.served.info.plural, call.name());
    }
    match text.parse::<u64>() {
        Ok(version) if version == stored.resource_version().get() => Ok(()),
        Ok(_) => Err(call.status(StorageError::Conflict)),
        Err(_) => {
            let shown = kube_wire::quoting::quoted(text);
            Err(Status::untranslated(format!("strconv.ParseUint: parsing {shown}: invalid syntax")))
        }
    }
}

/// Status 409 if the writer means another object of this name.
fn check_uid(
    call: &Call<'_>,
    new: &Map<String, Value>,
    old: &Map<String, Value>,
    dry_run: bool,
) -> Result<(), Status> {
    let (said, found) = (metadata::text(new, "uid"), metadata::text(old, "uid"));
    if said.is_empty() || said == found {
        return Ok(());
    }
    let crate::resource::ResourceInfo { group, plural, .. } = &call.served.info;
    let key = call.key();
    let root = if dry_run { "" } else { "/registry" };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {root}/{group}/{plural}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {said}, UID in object meta: {found}"
    );
    Err(call.served.conflict(call.name(), &why))
}

/// Stores an object in place of what it was computed from, unless it is the same or only a trial. The last finalizer of an object on its way out takes the
/// object with it.
pub(super) async fn replace(
    call: &Call<'_>,
    stored: &Object,
    old: &Map<String, Value>,
    object: Map<String, Value>,
    dry_run: bool,
) -> Result<Value, StorageError> {
    call.admit_update()?;
    let version: ResourceVersion = stored.resource_version();
    let gone = !metadata::text(&object, "deletionTimestamp").is_empty()
        && metadata::finalizers(&object).is_empty()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0;
    if gone && !dry_run {
        call.served.storage.remove(&call.key(), version).await?;
        return Ok(Value::Object(object));
    }
    if dry_run || object == *old {
        return Ok(Value::Object(object));
    }
    let written = call.served.storage.write(&call.key(), Expected::Version(version), Draft(object)).await?;
    members(&written).map(Value::Object).map_err(|status| StorageError::Refused(Box::new(status)))
}
