//! A resource as a `CustomResourceDefinition` describes it.

use serde::Deserialize;
use serde_json::Value;

use super::{Cell, Column, ResourceInfo};

/// Why a custom resource definition does not describe a resource.
#[derive(Debug, thiserror::Error)]
pub enum MalformedResource {
    /// It is not a definition.
    #[error("not a custom resource definition")]
    Definition(#[from] serde_json::Error),
    /// It has no such version.
    #[error("the definition has no version {0}")]
    Version(String),
}

#[derive(Deserialize)]
struct Definition {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    scope: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
// As it is called there.
#[allow(clippy::struct_field_names)]
struct Names {
    kind: String,
    plural: String,
    singular: Option<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    #[serde(default)]
    schema: Schema,
    #[serde(default)]
    subresources: Subresources,
    #[serde(default)]
    additional_printer_columns: Vec<PrinterColumn>,
    #[serde(default)]
    selectable_fields: Vec<SelectableField>,
}

#[derive(Default, Deserialize)]
struct Schema {
    #[serde(default, rename = "openAPIV3Schema")]
    schema: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Subresources {
    status: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrinterColumn {
    name: String,
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    priority: i32,
    json_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

impl ResourceInfo {
    /// The resource of one version of a `CustomResourceDefinition`, given as JSON.
    pub fn from_crd(definition: &Value, version: &str) -> Result<Self, MalformedResource> {
        let Definition { spec } = Definition::deserialize(definition)?;
        let Spec { group, scope, names, versions } = spec;
        let Names { kind, plural, singular, short_names, categories } = names;
        let found = versions.into_iter().find(|candidate| candidate.name == version);
        let found = found.ok_or_else(|| MalformedResource::Version(version.to_owned()))?;
        let mut info = Self::new(&group, version, &kind, &plural);
        let Version { name: _, schema, subresources, additional_printer_columns, selectable_fields } = found;
        info.singular = singular.unwrap_or(info.singular);
        info.short_names = short_names;
        info.categories = categories;
        info.namespaced = scope == "Namespaced";
        info.status = subresources.status.is_some();
        info.columns = additional_printer_columns.into_iter().map(Column::from).collect();
        info.selectable_fields = selectable_fields.into_iter().map(|field| field.json_path).collect();
        info.schema = schema.schema.unwrap_or(info.schema);
        Ok(info)
    }
}

impl From<PrinterColumn> for Column {
    fn from(column: PrinterColumn) -> Self {
        let PrinterColumn { name, type_, format, description, priority, json_path } = column;
        Self { name, type_, format, description, priority, cell: Cell::Path(json_path) }
    }
}
