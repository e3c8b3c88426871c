//! What a write makes of an object before it is stored: strictness, names, identity, generation, owners of fields, validity. It stores nothing.

use jiff::Timestamp;
use kube_wire::status::Status;
use serde_json::{Map, Value};

use super::Call;
use crate::{
    decode,
    managed_fields::{self, Writer},
    metadata,
    options::{FieldValidation, WriteOptions},
    served::Served,
};

/// The letters and digits of generated names: none that make words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Finalizers of Kubernetes itself.
const FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
/// How long a generated name may be, without its random end of five.
const NAME_BASE: usize = 58;

/// Reads a body into the resource's structure. Status 400 if it is none, or not strictly.
pub(super) fn read(call: &Call<'_>, options: &WriteOptions) -> Result<Map<String, Value>, Status> {
    let served = call.served;
    let media_type = decode::media_type(call.headers)?;
    let (mut object, duplicates) = decode::object(call.body, media_type, &served.info)?;
    let kind = &served.info.kind;
    let refused = |why: &str| {
        let version = kube_wire::quoting::quoted(&served.info.version);
        Status::bad_request(format!("{kind} in version {version} cannot be handled as a {kind}: {why}"))
    };
    let mut unknown = served.structure(&mut object).map_err(|why| refused(&why))?;
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !api_version.is_empty() && api_version != served.info.api_version() {
        // Nothing is known of another version.
        let own = |name: &&String| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        unknown = object.keys().filter(own).cloned().collect();
    }
    let duplicates = duplicates.iter().map(|path| duplicate(path)).collect();
    let warnings = strictness(options, duplicates, &unknown).map_err(|why| refused(&why))?;
    call.warnings.lock().extend(warnings);
    Ok(object)
}

/// What is said of a member that stands twice.
pub(super) fn duplicate(path: &str) -> String {
    format!("duplicate field {}", kube_wire::quoting::quoted(path))
}

/// What is said of a member that nobody knows.
pub(super) fn unknown(path: &str) -> String {
    format!("unknown field {}", kube_wire::quoting::quoted(path))
}

/// What to warn of; an error if that is an error. In: what was `found` before, and members that the schema does not know.
pub(super) fn strictness(
    options: &WriteOptions,
    mut found: Vec<String>,
    unknown: &[String],
) -> Result<Vec<String>, String> {
    found.extend(unknown.iter().map(|path| self::unknown(path)));
    match options.validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(found),
        FieldValidation::Strict if found.is_empty() => Ok(found),
        FieldValidation::Strict => Err(format!("strict decoding error: {}", found.join(", "))),
    }
}

/// Puts the object into the request's namespace. Status 400 if it says another.
pub(super) fn place(object: &mut Map<String, Value>, namespace: &str) -> Result<(), Status> {
    let said = metadata::text(object, "namespace").to_owned();
    if namespace.is_empty() {
        metadata::of(object).remove("namespace");
    } else if said.is_empty() {
        metadata::of(object).insert("namespace".to_owned(), namespace.into());
    } else if said != namespace {
        let words = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(words));
    }
    Ok(())
}

/// Takes away owners that stand twice, with a warning. `when` says after what it was noticed, in the words of the API server.
pub(super) fn owners_once(call: &Call<'_>, object: &mut Map<String, Value>, when: &str) {
    let twice = metadata::owners_once(object);
    if twice.is_empty() {
        return;
    }
    let warning = format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such \
         requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        twice.join(", ")
    );
    warn(call, warning);
}

/// Warns once.
fn warn(call: &Call<'_>, warning: String) {
    let mut warnings = call.warnings.lock();
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// Warns of finalizers that were not there before and of which nobody can tell whose they are.
pub(super) fn finalizers_of_nobody(
    call: &Call<'_>,
    new: &Map<String, Value>,
    old: Option<&Map<String, Value>>,
) {
    let before = old.map(metadata::finalizers).unwrap_or_default();
    let mut added = metadata::finalizers(new);
    added.retain(|name| !before.contains(name) && !name.contains('/') && !FINALIZERS.contains(name));
    added.sort_unstable();
    for name in added {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        let words = format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers",
            kube_wire::quoting::quoted(name)
        );
        warn(call, words);
    }
}

/// A name that begins with `base` and has not been there, most likely.
pub(super) fn generated_name(base: &str) -> String {
    let end =
        base.char_indices().map(|(at, _)| at).take_while(|at| *at <= NAME_BASE).last().unwrap_or_default();
    let base = if base.len() > NAME_BASE { &base[..end.min(NAME_BASE)] } else { base };
    let random = (0..5).map(|_| char::from(NAME_ALPHABET[fastrand::usize(..NAME_ALPHABET.len())]));
    random.fold(base.to_owned(), |mut name, letter| {
        name.push(letter);
        name
    })
}

/// A version 4 UUID.
fn uid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A new object: identity, first generation, owners, validity. The status of a resource that has one apart is not the creator's.
pub(super) fn created(
    served: &Served,
    mut object: Map<String, Value>,
    writer: &Writer<'_>,
    applied: bool,
) -> Result<Map<String, Value>, Status> {
    let metadata = metadata::of(&mut object);
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(name);
    }
    if !applied {
        // With the status that was sent: it is not the creator's to say, but must fit the schema.
        managed_fields::updated(None, &mut object, &served.merging, writer);
    }
    if served.info.status {
        object.remove("status");
    }
    let metadata = metadata::of(&mut object);
    metadata.insert("uid".to_owned(), uid().into());
    metadata.insert("creationTimestamp".to_owned(), metadata::rfc3339(writer.now).into());
    metadata.insert("generation".to_owned(), 1.into());
    decode::check_kind(&object, &served.info)?;
    served.validate(&object)?;
    let metadata = metadata::of(&mut object);
    if applied {
        // A configuration may hold the version that it was once read at.
        metadata.remove("resourceVersion");
    }
    Ok(object)
}

/// An object after an update: what is not the writer's is as it was, the generation counts what was wanted, owners, validity.
pub(super) fn updated(
    served: &Served,
    old: &Map<String, Value>,
    mut new: Map<String, Value>,
    status: bool,
    writer: &Writer<'_>,
    applied: bool,
) -> Result<Map<String, Value>, Status> {
    if !applied {
        managed_fields::updated(Some(old), &mut new, &served.merging, writer);
    }
    let mut object = if status { only_status(old, &new) } else { new };
    if !status && served.info.status {
        match old.get("status") {
            Some(value) => object.insert("status".to_owned(), value.clone()),
            None => object.remove("status"),
        };
    }
    keep_identity(&mut object, old);
    let wanted = |object: &Map<String, Value>| {
        let mut wanted = object.clone();
        wanted.remove("metadata");
        if served.info.status {
            wanted.remove("status");
        }
        wanted
    };
    if wanted(&object) != wanted(old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        metadata::of(&mut object).insert("generation".to_owned(), generation.into());
    }
    decode::check_kind(&object, &served.info)?;
    served.validate_update(&object, old, status)?;
    // Who writes what is so writes nothing.
    Ok(if managed_fields::same_but_times(&object, old) { old.clone() } else { object })
}

/// The old object with the new status.
fn only_status(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut object = old.clone();
    match new.get("status") {
        Some(value) => object.insert("status".to_owned(), value.clone()),
        None => object.remove("status"),
    };
    let metadata = metadata::of(&mut object);
    match new.get("metadata").and_then(|metadata| metadata.get("managedFields")) {
        Some(fields) => metadata.insert("managedFields".to_owned(), fields.clone()),
        None => metadata.remove("managedFields"),
    };
    // Checked before: what was read may not be what is written over.
    object
}

/// What the server gave an object stays, unless the writer says something else, which validation then refuses.
fn keep_identity(object: &mut Map<String, Value>, old: &Map<String, Value>) {
    let before = old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let metadata = metadata::of(object);
    metadata.remove("selfLink");
    if let Some(value) = before.get("creationTimestamp") {
        metadata.insert("creationTimestamp".to_owned(), value.clone());
    }
    // Once it is said, no update says another.
    if let Some(value) = before.get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".to_owned(), value.clone());
    }
    for name in ["uid", "deletionGracePeriodSeconds"] {
        if let (false, Some(value)) = (metadata.contains_key(name), before.get(name)) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    match before.get("generation") {
        Some(value) => metadata.insert("generation".to_owned(), value.clone()),
        None => metadata.remove("generation"),
    };
    match before.get("resourceVersion") {
        Some(value) => metadata.insert("resourceVersion".to_owned(), value.clone()),
        None => metadata.remove("resourceVersion"),
    };
}

/// Who writes, by the options and now.
pub(super) fn writer<'a>(options: &'a WriteOptions, api_version: &'a str, call: &'a Call<'_>) -> Writer<'a> {
    Writer {
        manager: &options.manager,
        api_version,
        subresource: call.subresource(),
        has_status: call.served.info.status,
        now: Timestamp::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::{generated_name, uid};

    #[test]
    fn names_and_identities_are_well_formed() {
        let name = generated_name("gen-");
        assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
        assert_eq!(generated_name(&"x".repeat(80)).len(), 63);
        let uid = uid();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
    }
}
