//! What the Go types mean on the wire and in JSON: messages, fields, kinds. It resolves names across packages and refuses
//! whatever it does not wholly understand, so that a new release cannot be misread in silence.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, bail, ensure};

use super::Modules;
use super::go_source::{self, Body, Declaration, Field as GoField, Package};

/// The modules that hold published types.
pub(super) const MODULES: [&str; 4] =
    ["k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/kube-aggregator", "k8s.io/api"];

const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";
const EXTENSIONS: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
const REGISTRATION: &str = "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1";

const DISCOVERY: &str = "k8s.io/api/apidiscovery/v2";

/// Messages that stand alone, with their packages, in the order in which the table names them.
const ALONE: [(&str, &str); 5] = [
    (META, "Status"),
    (META, "PartialObjectMetadata"),
    (META, "ObjectMeta"),
    (META, "ListMeta"),
    (DISCOVERY, "APIGroupDiscoveryList"),
];

/// Kinds that are served though no client is generated for them: package, type, resource.
const WITHOUT_CLIENT: [(&str, &str, &str); 1] = [("k8s.io/api/core/v1", "Binding", "bindings")];

/// All messages and kinds.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) messages: Vec<Message>,
    pub(super) kinds: Vec<Kind>,
    /// The messages of [`ALONE`].
    pub(super) alone: Vec<usize>,
}

#[derive(Debug)]
// It is what Kubernetes calls a kind, and so is its name.
#[allow(clippy::struct_field_names)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Plural name and whether it is namespaced; `None` for kinds of subresources.
    pub(super) resource: Option<(String, bool)>,
    pub(super) message: usize,
}

/// A struct: its fields in the order of their declaration, which is their order in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    /// The number on the wire.
    pub(super) number: u16,
    pub(super) name: Name,
    pub(super) shape: Shape,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    pub(super) value: Value,
}

/// Where a field stands in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Named(String),
    /// Its fields are those of the message around it.
    Inline,
    /// Only on the wire.
    Hidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    Plain,
    Pointer,
    Repeated,
    Map,
}

/// What a field, an element of a list or the value of a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Message(usize),
    /// A message whose kind and version the API server writes though it is not the outermost.
    VolumeClaim(usize),
    SchemaOrBool(usize),
    SchemaOrArray(usize),
    SchemaOrStringArray(usize),
    Bool,
    Int32,
    Int64,
    Double,
    Text,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    RawExtension,
    RawJson,
    StringList,
}

/// Reads the types of all modules.
pub(super) fn read(modules: &Modules) -> anyhow::Result<Schema> {
    let mut reader =
        Reader { modules, packages: BTreeMap::new(), messages: BTreeMap::new(), schema: Schema::default() };
    for (package, name) in ALONE {
        let message = reader.message(package, name)?;
        reader.schema.alone.push(message);
    }
    for package in packages(modules)? {
        reader.kinds(&package).with_context(|| format!("in {package}"))?;
    }
    ensure!(reader.schema.kinds.len() > 100, "only {} kinds were found", reader.schema.kinds.len());
    Ok(reader.schema)
}

/// The packages whose kinds are read.
fn packages(modules: &Modules) -> anyhow::Result<Vec<String>> {
    let mut packages = vec![EXTENSIONS.to_owned(), REGISTRATION.to_owned()];
    for group in fs::read_dir(modules.folder("k8s.io/api"))?.flatten().filter(|entry| entry.path().is_dir()) {
        for version in fs::read_dir(group.path())?.flatten() {
            if version.path().join("register.go").is_file() {
                let names =
                    [group.file_name(), version.file_name()].map(|name| name.to_string_lossy().into_owned());
                packages.push(format!("k8s.io/api/{}/{}", names[0], names[1]));
            }
        }
    }
    packages.sort();
    Ok(packages)
}

struct Reader<'a> {
    modules: &'a Modules,
    packages: BTreeMap<String, Package>,
    /// Messages by package and name.
    messages: BTreeMap<(String, String), usize>,
    schema: Schema,
}

impl Reader<'_> {
    fn package(&mut self, path: &str) -> anyhow::Result<&Package> {
        if !self.packages.contains_key(path) {
            let package = go_source::read(&self.modules.folder(path))?;
            self.packages.insert(path.to_owned(), package);
        }
        Ok(&self.packages[path])
    }

    fn declaration(&mut self, path: &str, name: &str) -> anyhow::Result<&Declaration> {
        self.package(path)?.declarations.get(name).with_context(|| format!("{path} does not declare {name}"))
    }

    /// Adds the kinds that a package registers: what has a type and metadata of an object.
    fn kinds(&mut self, path: &str) -> anyhow::Result<()> {
        let package = self.package(path)?;
        let group = package.group.clone().context("no GroupName")?;
        let version = package.version.clone().context("no SchemeGroupVersion")?;
        for name in package.registered.clone() {
            let declaration = self.declaration(path, &name)?;
            let Body::Struct(fields) = &declaration.body else { continue };
            let has = |of: &str| fields.iter().any(|field| field.embedded && field.name == of);
            if !has("TypeMeta") || !has("ObjectMeta") {
                continue;
            }
            let says = |tag: &str| declaration.comments.iter().any(|comment| comment == tag);
            let without_client =
                WITHOUT_CLIENT.iter().find(|(package, kind, _)| (*package, *kind) == (path, name.as_str()));
            let resource = match without_client {
                Some((_, _, resource)) => Some(((*resource).to_owned(), true)),
                None => says("+genclient").then(|| (plural(&name), !says("+genclient:nonNamespaced"))),
            };
            let message = self.message(path, &name).with_context(|| format!("in kind {name}"))?;
            let (group, version) = (group.clone(), version.clone());
            self.schema.kinds.push(Kind { group, version, kind: name, resource, message });
        }
        Ok(())
    }

    /// The message of a struct.
    fn message(&mut self, path: &str, name: &str) -> anyhow::Result<usize> {
        let key = (path.to_owned(), name.to_owned());
        if let Some(message) = self.messages.get(&key) {
            return Ok(*message);
        }
        ensure!(
            !self.package(path)?.json_marshalers.contains(name),
            "{path}.{name} has a JSON form of its own"
        );
        // Known before its fields are: types refer to themselves.
        let index = self.schema.messages.len();
        self.schema.messages.push(Message { fields: Vec::new() });
        self.messages.insert(key, index);
        let declaration = self.declaration(path, name)?;
        let Body::Struct(declared) = &declaration.body else { bail!("{path}.{name} is no struct") };
        let declared: Vec<_> = declared
            .iter()
            .map(|GoField { name, of, embedded, json, protobuf }| {
                (name.clone(), of.clone(), *embedded, json.clone().unwrap_or_default(), protobuf.clone())
            })
            .collect();
        let imports = declaration.imports.clone();
        let mut fields = Vec::new();
        for (field, of, embedded, json, protobuf) in declared {
            let number = protobuf.as_deref().and_then(|tag| tag.split(',').nth(1));
            let Some(number) = number else {
                // The type stands in the envelope. All else would be lost on the wire.
                ensure!(field == "TypeMeta" || json == "-", "{path}.{name}.{field} has no number");
                continue;
            };
            let resolved =
                self.resolve(path, &imports, &of).with_context(|| format!("in {path}.{name}.{field}"))?;
            let (shape, mut value) = resolved;
            if (name, field.as_str()) == ("StatefulSetSpec", "VolumeClaimTemplates") {
                let Value::Message(claim) = value else { bail!("claim templates are no messages") };
                value = Value::VolumeClaim(claim);
            }
            let mut options = json.split(',');
            let name = match options.next().unwrap_or_default() {
                "-" => Name::Hidden,
                "" if embedded => Name::Inline,
                "" => Name::Named(field),
                named => Name::Named(named.to_owned()),
            };
            let options: Vec<_> = options.collect();
            ensure!(!options.contains(&"string"), "numbers as text are not known");
            let (omit_empty, omit_zero) = (options.contains(&"omitempty"), options.contains(&"omitzero"));
            ensure!(!omit_zero || value == Value::Time, "omitzero is known of times only");
            ensure!(name != Name::Inline || matches!((shape, value), (Shape::Plain, Value::Message(_))));
            fields.push(Field { number: number.parse()?, name, shape, omit_empty, omit_zero, value });
        }
        self.schema.messages[index].fields = fields;
        Ok(index)
    }

    /// What a type as written in package `path` is.
    fn resolve(
        &mut self,
        path: &str,
        imports: &BTreeMap<String, String>,
        of: &str,
    ) -> anyhow::Result<(Shape, Value)> {
        let (shape, element) = if of == "[]byte" {
            return Ok((Shape::Plain, Value::Bytes));
        } else if let Some(element) = of.strip_prefix("[]") {
            (Shape::Repeated, element)
        } else if let Some(element) = of.strip_prefix('*') {
            (Shape::Pointer, element)
        } else if let Some(rest) = of.strip_prefix("map[") {
            let (key, element) = rest.split_once(']').context("a map without a key")?;
            ensure!(self.resolve(path, imports, key)? == (Shape::Plain, Value::Text), "a key is no text");
            (Shape::Map, element)
        } else {
            return self.named(path, imports, of);
        };
        match self.resolve(path, imports, element)? {
            (Shape::Plain, value) => Ok((shape, value)),
            (_, _) => bail!("{of} is nested"),
        }
    }

    /// What a named type is.
    fn named(
        &mut self,
        path: &str,
        imports: &BTreeMap<String, String>,
        of: &str,
    ) -> anyhow::Result<(Shape, Value)> {
        let plain = |value| Ok((Shape::Plain, value));
        let (path, name) = match of.split_once('.') {
            Some((package, name)) => {
                (imports.get(package).with_context(|| format!("{package} is not imported"))?.clone(), name)
            }
            None => (path.to_owned(), of),
        };
        match (path.as_str(), name) {
            (_, "bool") => return plain(Value::Bool),
            (_, "int32") => return plain(Value::Int32),
            (_, "int64") => return plain(Value::Int64),
            (_, "float64") => return plain(Value::Double),
            (_, "string") => return plain(Value::Text),
            (META, "Time") => return plain(Value::Time),
            (META, "MicroTime") => return plain(Value::MicroTime),
            (META, "Duration") => return plain(Value::Duration),
            (META, "FieldsV1") | (EXTENSIONS, "JSON") => return plain(Value::RawJson),
            ("k8s.io/apimachinery/pkg/api/resource", "Quantity") => return plain(Value::Quantity),
            ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString") => return plain(Value::IntOrString),
            ("k8s.io/apimachinery/pkg/runtime", "RawExtension") => return plain(Value::RawExtension),
            (EXTENSIONS, "JSONSchemaPropsOrBool") => {
                return plain(Value::SchemaOrBool(self.message(EXTENSIONS, "JSONSchemaProps")?));
            }
            (EXTENSIONS, "JSONSchemaPropsOrArray") => {
                return plain(Value::SchemaOrArray(self.message(EXTENSIONS, "JSONSchemaProps")?));
            }
            (EXTENSIONS, "JSONSchemaPropsOrStringArray") => {
                return plain(Value::SchemaOrStringArray(self.message(EXTENSIONS, "JSONSchemaProps")?));
            }
            _ => {}
        }
        ensure!(
            !self.package(&path)?.json_marshalers.contains(name),
            "{path}.{name} has a JSON form of its own"
        );
        let declaration = self.declaration(&path, name)?;
        let Body::Alias(aliased) = &declaration.body else {
            return plain(Value::Message(self.message(&path, name)?));
        };
        // A list that may be nil within a map is a message with one repeated field.
        if declaration.comments.iter().any(|comment| comment == "+protobuf.nullable=true") {
            ensure!(aliased == "[]string", "{path}.{name} is no list of strings");
            return plain(Value::StringList);
        }
        let (aliased, imports) = (aliased.clone(), declaration.imports.clone());
        self.resolve(&path, &imports, &aliased)
    }
}

/// The plural that the API server serves a kind under; the rules are those of the client generator.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let before_last = kind.chars().rev().nth(1);
    if kind == "endpoints" {
        kind
    } else if ["s", "x", "z", "ch", "sh"].iter().any(|end| kind.ends_with(end)) {
        format!("{kind}es")
    } else if kind.ends_with('y') && before_last.is_some_and(|c| !"aeiou".contains(c)) {
        format!("{}ies", &kind[..kind.len() - 1])
    } else {
        format!("{kind}s")
    }
}

#[test]
fn plurals_are_those_of_the_api_server() {
    for (kind, expected) in [
        ("Pod", "pods"),
        ("Endpoints", "endpoints"),
        ("NetworkPolicy", "networkpolicies"),
        ("Ingress", "ingresses"),
        ("ComponentStatus", "componentstatuses"),
        ("IPAddress", "ipaddresses"),
        ("APIService", "apiservices"),
    ] {
        assert_eq!(plural(kind), expected);
    }
}
