//! What a resource is, as data: names, scope, verbs, columns, schema. It says nothing about where its objects are.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube_wire::{request::Verb, resource::GroupVersionResource};
use serde_json::Value;

mod crd;

pub use crd::MalformedResource;

/// A resource of an API: all that clients can ask of it.
#[derive(Debug, Clone)]
pub struct ResourceInfo {
    /// The API group: `example.com`.
    pub group: String,
    /// The version: `v1`.
    pub version: String,
    /// The kind: `Widget`. Its list's is that and `List`.
    pub kind: String,
    /// The name in paths: `widgets`.
    pub plural: String,
    /// `widget`
    pub singular: String,
    /// What people type instead: `wg`.
    pub short_names: Vec<String>,
    /// Groups of resources that it shows up in: `all`.
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether there is a subresource `status`, which writes of the whole leave alone and that leaves alone the rest.
    pub status: bool,
    /// What it can do; anything else is answered 405.
    pub verbs: Vec<Verb>,
    /// What it can do without saying so in discovery. A resource that does not advertise `delete` is left alone by garbage
    /// collector and namespace controller.
    pub unadvertised: Vec<Verb>,
    /// The columns of tables behind the name; none for the column of ages that every custom resource has.
    pub columns: Vec<Column>,
    /// What a cell shows whose path leads nowhere; null, which `kubectl` shows as a blank, as custom resources have it.
    pub missing_cell: Value,
    /// JSON paths that field selectors may name besides name and namespace: `.spec.color`.
    pub selectable_fields: Vec<String>,
    /// The structural `OpenAPI` v3 schema of the whole object.
    pub schema: Value,
}

/// All verbs of a resource.
pub(crate) const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

impl ResourceInfo {
    /// A cluster-scoped resource with all verbs, a status, and a schema that allows everything.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            status: true,
            verbs: VERBS.to_vec(),
            unadvertised: Vec::new(),
            columns: Vec::new(),
            missing_cell: Value::Null,
            selectable_fields: Vec::new(),
            schema: serde_json::json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
        }
    }

    /// `example.com/v1`
    pub fn api_version(&self) -> String {
        self.group_version_resource().api_version()
    }

    /// `WidgetList`
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Group, version and plural name.
    pub fn group_version_resource(&self) -> GroupVersionResource {
        GroupVersionResource::new(&self.group, &self.version, &self.plural)
    }
}

/// A column of tables.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its title, which `kubectl` shows in capitals.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    /// An `OpenAPI` format, or nothing.
    pub format: String,
    /// For people.
    pub description: String,
    /// 0 for what is always shown, more for what `-o wide` shows.
    pub priority: i32,
    /// Where its values come from.
    pub cell: Cell,
}

/// Computes one cell from the whole object and the time.
pub type CellFn = Arc<dyn Fn(&Value, Timestamp) -> Value + Send + Sync>;

/// Where a column's values come from.
#[derive(Clone)]
pub enum Cell {
    /// A simple JSON path such as `.spec.replicas`, as custom resources have them.
    Path(String),
    /// A function of the object and the time.
    Computed(CellFn),
}

impl fmt::Debug for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => formatter.debug_tuple("Path").field(path).finish(),
            Self::Computed(_) => formatter.write_str("Computed"),
        }
    }
}
