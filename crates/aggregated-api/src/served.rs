//! A resource as it is served: what it is, compiled once, and where its objects are.

use std::sync::Arc;

use kube_wire::{
    request::Verb,
    resource::GroupVersionResource,
    selectable_field::SelectableFields,
    status::{Status, StatusDetails},
};
use serde_json::{Map, Value};

use crate::{
    field_error::{FieldErrors, failure},
    managed_fields::Atom,
    metadata,
    resource::ResourceInfo,
    schema::{self, Schema},
    storage::Storage,
    table::Columns,
};

pub(crate) struct Served {
    pub(crate) info: ResourceInfo,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) resource: GroupVersionResource,
    pub(crate) schema: Schema,
    /// The schema of whole objects, metadata too, for who owns what.
    pub(crate) merging: Atom,
    pub(crate) fields: SelectableFields,
    pub(crate) columns: Columns,
}

impl Served {
    pub(crate) fn new(info: ResourceInfo, storage: Arc<dyn Storage>) -> Self {
        let schema = Schema::compile(&info.schema);
        let fields = SelectableFields::custom(info.selectable_fields.iter().map(String::as_str));
        Self {
            resource: info.group_version_resource(),
            merging: Atom::of_object(&info.schema),
            columns: Columns::of(&info),
            schema,
            fields,
            info,
            storage,
        }
    }

    /// Whether a verb is served, advertised or not.
    pub(crate) fn can(&self, verb: Verb) -> bool {
        self.info.verbs.contains(&verb)
    }

    /// Status 404 about an object.
    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.resource, name)
    }

    /// Status 409: it is there already.
    pub(crate) fn already_exists(&self, name: &str) -> Status {
        let message = format!("{} already exists", self.named(name));
        failure(409, "AlreadyExists", message, Some(self.details(name)))
    }

    /// Status 409: somebody else wrote first, or a precondition does not hold.
    pub(crate) fn conflict(&self, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {}: {why}", self.named(name));
        failure(409, "Conflict", message, Some(self.details(name)))
    }

    fn named(&self, name: &str) -> String {
        let group = if self.info.group.is_empty() { String::new() } else { format!(".{}", self.info.group) };
        format!("{}{group} {}", self.info.plural, kube_wire::quoting::quoted(name))
    }

    fn details(&self, name: &str) -> StatusDetails {
        StatusDetails {
            name: name.to_owned(),
            group: self.info.group.clone(),
            kind: self.info.plural.clone(),
            ..StatusDetails::default()
        }
    }

    /// Brings an object into the form in which it is stored: typed metadata, nothing unknown, no nulls, defaults. Returns what was unknown; an
    /// error is in Go's words.
    pub(crate) fn structure(&self, object: &mut Map<String, Value>) -> Result<Vec<String>, String> {
        let mut unknown = metadata::coerce(object)?;
        let mut value = Value::Object(std::mem::take(object));
        unknown.extend(schema::prune(&mut value, &self.schema));
        schema::drop_nulls(&mut value, &self.schema);
        schema::default(&mut value, &self.schema);
        if let Value::Object(structured) = value {
            *object = structured;
        }
        Ok(unknown)
    }

    /// Status 422 if a new object is not valid by the rules of metadata and by its schema.
    pub(crate) fn validate(&self, object: &Map<String, Value>) -> Result<(), Status> {
        let mut errors = FieldErrors::default();
        metadata::validate(object, &self.info, &mut errors);
        self.by_schema(object, false, &mut errors);
        errors.check(&self.info.group, &self.info.kind, metadata::text(object, "name"))
    }

    /// Status 422 if the object is not valid in place of the old one. Of a write of the status alone only that is looked at.
    pub(crate) fn validate_update(
        &self,
        object: &Map<String, Value>,
        old: &Map<String, Value>,
        status: bool,
    ) -> Result<(), Status> {
        let mut errors = FieldErrors::default();
        metadata::validate_update(object, old, &self.info, &mut errors);
        self.by_schema(object, status, &mut errors);
        errors.check(&self.info.group, &self.info.kind, metadata::text(object, "name"))
    }

    fn by_schema(&self, object: &Map<String, Value>, status: bool, errors: &mut FieldErrors) {
        if status {
            let found = object.get("status").zip(self.schema.properties.get("status"));
            if let Some((value, schema)) = found {
                // Paths in words are those within the status.
                let mut within = FieldErrors::default();
                schema::validate(value, schema, "", &mut within);
                errors.extend(within.under("status"));
            }
        }
        // One copy: the schema is of values.
        let value = Value::Object(object.clone());
        if !status {
            schema::validate(&value, &self.schema, "", errors);
        }
        schema::unique(&value, &self.schema, "", errors);
    }
}
