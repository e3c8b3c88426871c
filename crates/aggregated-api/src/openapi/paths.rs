//! The paths of documents: what `kubectl` looks for are kinds, patches, and the parameters `dryRun` and `fieldValidation`.

use kube_wire::request::Verb;
use serde_json::{Map, Value, json};

use super::definitions::{self, name};
use crate::{resource::ResourceInfo, verbs::verb_name};

/// Parameters and their types.
const READ: &[(&str, &str)] = &[("pretty", "string"), ("resourceVersion", "string")];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("pretty", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string")];
const PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
    ("pretty", "string"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
];

/// One operation: the method, the verb, what it is called, its parameters, what goes in and comes out.
struct Operation {
    method: &'static str,
    verb: Verb,
    words: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Kind>,
    answer: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Object,
    List,
    Status,
    Patch,
    DeleteOptions,
}

impl Kind {
    fn name(self, info: &ResourceInfo) -> String {
        match self {
            Self::Object => name(info, &info.kind),
            Self::List => name(info, &info.list_kind()),
            Self::Status => definitions::STATUS.to_owned(),
            Self::Patch => definitions::PATCH.to_owned(),
            Self::DeleteOptions => definitions::DELETE_OPTIONS.to_owned(),
        }
    }
}

fn operation(
    method: &'static str,
    verb: Verb,
    words: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Kind>,
    answer: Kind,
) -> Operation {
    Operation { method, verb, words, parameters, body, answer }
}

fn of_collection() -> [Operation; 3] {
    [
        operation("get", Verb::List, "list objects of kind", LIST, None, Kind::List),
        operation("post", Verb::Create, "create a", WRITE, Some(Kind::Object), Kind::Object),
        operation(
            "delete",
            Verb::DeleteCollection,
            "delete collection of",
            LIST,
            Some(Kind::DeleteOptions),
            Kind::Status,
        ),
    ]
}

fn of_object(status: bool) -> Vec<Operation> {
    let mut all = vec![
        operation("get", Verb::Get, "read the specified", READ, None, Kind::Object),
        operation("put", Verb::Update, "replace the specified", WRITE, Some(Kind::Object), Kind::Object),
        operation(
            "patch",
            Verb::Patch,
            "partially update the specified",
            PATCH,
            Some(Kind::Patch),
            Kind::Object,
        ),
    ];
    if !status {
        all.push(operation(
            "delete",
            Verb::Delete,
            "delete a",
            DELETE,
            Some(Kind::DeleteOptions),
            Kind::Status,
        ));
    }
    all
}

/// The paths of a resource, their parameters in braces, and their operations.
fn of(info: &ResourceInfo) -> Vec<(String, Vec<Operation>)> {
    let root = format!("/apis/{}", info.api_version());
    let mut base = format!("{root}/{}", info.plural);
    let mut paths = Vec::new();
    if info.namespaced {
        let list = operation("get", Verb::List, "list objects of kind", LIST, None, Kind::List);
        paths.push((base, vec![list]));
        base = format!("{root}/namespaces/{{namespace}}/{}", info.plural);
    }
    paths.push((base.clone(), of_collection().into()));
    paths.push((format!("{base}/{{name}}"), of_object(false)));
    if info.status {
        paths.push((format!("{base}/{{name}}/status"), of_object(true)));
    }
    let served = |operation: &Operation| {
        info.verbs.contains(&operation.verb) && !info.unadvertised.contains(&operation.verb)
    };
    for (_, operations) in &mut paths {
        operations.retain(served);
    }
    paths
}

fn group_version_kind(info: &ResourceInfo) -> Value {
    json!({ "group": info.group, "version": info.version, "kind": info.kind })
}

/// `readTestIsthmusDevV1Gadget…`: unique for each operation.
fn operation_id(info: &ResourceInfo, path: &str, operation: &Operation) -> String {
    let capital = |text: &str| {
        let mut letters = text.chars();
        letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
    };
    let group: String = info.group.split('.').map(capital).collect();
    let place = if path.contains("{namespace}") { "Namespaced" } else { "" };
    let end = if path.ends_with("/status") { "Status" } else { "" };
    format!("{}{group}{}{place}{}{end}", verb_name(operation.verb), capital(&info.version), info.kind)
}

fn path_parameters(path: &str) -> impl Iterator<Item = &'static str> + use<'_> {
    ["name", "namespace"].into_iter().filter(move |name| path.contains(&format!("{{{name}}}")))
}

fn patch_types() -> [&'static str; 3] {
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
}

const MEDIA: [&str; 2] = ["application/json", "application/yaml"];

/// The paths of a document of version 3.
pub(super) fn v3(resources: &[&ResourceInfo]) -> Map<String, Value> {
    let mut paths = Map::new();
    for info in resources {
        for (path, operations) in of(info) {
            let mut item = Map::new();
            for one in &operations {
                let content = |kind: Kind, types: &[&str]| {
                    let schema =
                        json!({ "schema": { "$ref": format!("#/components/schemas/{}", kind.name(info)) } });
                    let types = types.iter().map(|name| ((*name).to_owned(), schema.clone()));
                    Value::Object(types.collect())
                };
                let parameters = one.parameters.iter().map(|(name, type_)| {
                    json!({ "name": name, "in": "query", "schema": { "type": type_, "uniqueItems": true } })
                });
                let mut described = json!({
                    "tags": [tag(info)],
                    "description": format!("{} {}", one.words, info.kind),
                    "operationId": operation_id(info, &path, one),
                    "parameters": parameters.collect::<Vec<_>>(),
                    "responses": {
                        "200": { "description": "OK", "content": content(one.answer, &MEDIA) },
                        "401": { "description": "Unauthorized" },
                    },
                    "x-kubernetes-action": verb_name(one.verb),
                    "x-kubernetes-group-version-kind": group_version_kind(info),
                });
                if let Some(body) = one.body {
                    let types = if one.verb == Verb::Patch { patch_types().to_vec() } else { MEDIA.to_vec() };
                    described["requestBody"] = json!({ "content": content(body, &types) });
                }
                item.insert(one.method.to_owned(), described);
            }
            let parameters = path_parameters(&path).map(|name| {
                json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } })
            });
            item.insert("parameters".to_owned(), parameters.collect());
            paths.insert(path.clone(), Value::Object(item));
        }
    }
    paths
}

/// The paths of a document of version 2.
pub(super) fn v2(resources: &[&ResourceInfo]) -> Map<String, Value> {
    let mut paths = Map::new();
    for info in resources {
        for (path, operations) in of(info) {
            let mut item = Map::new();
            for one in &operations {
                let schema = |kind: Kind| json!({ "$ref": format!("#/definitions/{}", kind.name(info)) });
                let mut parameters: Vec<_> = one
                    .parameters
                    .iter()
                    .map(|(name, type_)| json!({ "name": name, "in": "query", "type": type_, "uniqueItems": true }))
                    .collect();
                if let Some(body) = one.body {
                    let required = matches!(body, Kind::Object | Kind::Patch);
                    parameters.push(
                        json!({ "name": "body", "in": "body", "required": required, "schema": schema(body) }),
                    );
                }
                let consumes = if one.verb == Verb::Patch { patch_types().to_vec() } else { MEDIA.to_vec() };
                let described = json!({
                    "tags": [tag(info)],
                    "description": format!("{} {}", one.words, info.kind),
                    "operationId": operation_id(info, &path, one),
                    "consumes": consumes,
                    "produces": MEDIA,
                    "schemes": ["https"],
                    "parameters": parameters,
                    "responses": {
                        "200": { "description": "OK", "schema": schema(one.answer) },
                        "401": { "description": "Unauthorized" },
                    },
                    "x-kubernetes-action": verb_name(one.verb),
                    "x-kubernetes-group-version-kind": group_version_kind(info),
                });
                item.insert(one.method.to_owned(), described);
            }
            let parameters = path_parameters(&path)
                .map(|name| json!({ "name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true }));
            item.insert("parameters".to_owned(), parameters.collect());
            paths.insert(path.clone(), Value::Object(item));
        }
    }
    paths
}

/// `testIsthmusDev_v1`
fn tag(info: &ResourceInfo) -> String {
    let mut out = String::new();
    for (index, part) in info.group.split('.').enumerate() {
        let mut letters = part.chars();
        match letters.next() {
            Some(first) if index > 0 => out.extend(first.to_uppercase().chain(letters)),
            Some(first) => out.extend(std::iter::once(first).chain(letters)),
            None => {}
        }
    }
    format!("{out}_{}", info.version)
}
