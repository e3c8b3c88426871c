//! What values are to whoever merges them, read from a schema: maps of members, lists of items, scalars, or any of these. After `schemaconv` and the
//! schemas of `structured-merge-diff`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};

/// What a single value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// What a value may be. Some may be of several shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Atom {
    map: Option<MapAtom>,
    list: Option<ListAtom>,
    scalar: Option<Scalar>,
}

/// Members by name.
#[derive(Debug, Clone)]
pub(super) struct MapAtom {
    fields: BTreeMap<String, Field>,
    /// Of members that are no fields.
    element: AtomRef,
    /// Whether it is one value.
    pub(super) atomic: bool,
}

#[derive(Debug, Clone)]
struct Field {
    atom: AtomRef,
    default: Option<Value>,
}

/// Items.
#[derive(Debug, Clone)]
pub(super) struct ListAtom {
    element: AtomRef,
    /// Whether items are told apart by their value, or by their `keys`; if not, it is one value.
    pub(super) associative: bool,
    pub(super) keys: Vec<String>,
}

#[derive(Debug, Clone)]
enum AtomRef {
    /// There may be none.
    Nothing,
    Here(Box<Atom>),
    /// Anything; its members are merged one by one.
    Deduced,
    /// Anything, as one value.
    Untyped,
}

static NOTHING: Atom = Atom { map: None, list: None, scalar: None };

static DEDUCED: LazyLock<Atom> = LazyLock::new(|| any(false));

static UNTYPED: LazyLock<Atom> = LazyLock::new(|| any(true));

fn any(atomic: bool) -> Atom {
    let element = if atomic { AtomRef::Untyped } else { AtomRef::Deduced };
    Atom {
        map: Some(MapAtom { fields: BTreeMap::new(), element, atomic }),
        list: Some(ListAtom { element: AtomRef::Untyped, associative: false, keys: Vec::new() }),
        scalar: Some(Scalar::Untyped),
    }
}

impl AtomRef {
    fn get(&self) -> &Atom {
        match self {
            Self::Nothing => &NOTHING,
            Self::Here(atom) => atom,
            Self::Deduced => &DEDUCED,
            Self::Untyped => &UNTYPED,
        }
    }
}

impl MapAtom {
    /// What a member is; nothing, if there may be none of this name.
    pub(super) fn member(&self, name: &str) -> Option<&Atom> {
        match (self.fields.get(name), &self.element) {
            (Some(field), _) => Some(field.atom.get()),
            (None, AtomRef::Nothing) => None,
            (None, element) => Some(element.get()),
        }
    }

    /// Whether the schema names the member.
    pub(super) fn declares(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }
}

impl ListAtom {
    pub(super) fn item(&self) -> &Atom {
        self.element.get()
    }

    /// What a key is of an item that does not say it.
    pub(super) fn default_of(&self, key: &str) -> Option<&Value> {
        self.item().map.as_ref()?.fields.get(key)?.default.as_ref()
    }
}

/// Which shapes are possible once a value is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shapes {
    map: bool,
    list: bool,
    scalar: bool,
}

/// The shape in which a value is taken.
pub(super) enum Shape<'a> {
    Map(&'a MapAtom),
    List(&'a ListAtom),
    Scalar(Scalar),
    /// It may not be there.
    None,
}

impl Atom {
    /// Of those possible, the shape that the value has; all, if it has none of them.
    pub(super) fn shapes(&self, value: Option<&Value>) -> Shapes {
        let none = Shapes { map: false, list: false, scalar: false };
        match value {
            Some(Value::Number(_) | Value::String(_) | Value::Bool(_)) if self.scalar.is_some() => {
                Shapes { scalar: true, ..none }
            }
            Some(Value::Array(_)) if self.list.is_some() => Shapes { list: true, ..none },
            Some(Value::Object(_)) if self.map.is_some() => Shapes { map: true, ..none },
            _ => Shapes { map: self.map.is_some(), list: self.list.is_some(), scalar: self.scalar.is_some() },
        }
    }

    /// The first of some shapes.
    pub(super) fn first(&self, shapes: Shapes) -> Shape<'_> {
        match self {
            Self { map: Some(map), .. } if shapes.map => Shape::Map(map),
            Self { scalar: Some(scalar), .. } if shapes.scalar => Shape::Scalar(*scalar),
            Self { list: Some(list), .. } if shapes.list => Shape::List(list),
            _ => Shape::None,
        }
    }

    /// The shape of a value.
    pub(super) fn shape(&self, value: Option<&Value>) -> Shape<'_> {
        self.first(self.shapes(value))
    }

    pub(super) fn map(&self) -> Option<&MapAtom> {
        self.map.as_ref()
    }

    pub(super) fn list(&self) -> Option<&ListAtom> {
        self.list.as_ref()
    }

    /// Reads the `OpenAPI` schema of a whole object; metadata is added.
    pub(crate) fn of_object(schema: &Value) -> Self {
        let mut atom = parse(schema, false);
        if let Some(map) = &mut atom.map {
            embed(map);
        }
        atom
    }
}

/// Adds what every object has.
fn embed(map: &mut MapAtom) {
    let mut insert = |name: &str, atom: Atom| {
        let field = Field { atom: AtomRef::Here(Box::new(atom)), default: None };
        map.fields.insert(name.to_owned(), field);
    };
    insert("metadata", parse(&METADATA, false));
    for name in ["apiVersion", "kind"] {
        insert(name, Atom { scalar: Some(Scalar::String), ..Atom::default() });
    }
}

/// `preserve`: whether unknown members are kept, which a schema passes on to all within.
fn parse(schema: &Value, preserve: bool) -> Atom {
    let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let preserve = preserve || flag("x-kubernetes-preserve-unknown-fields");
    let type_ = match schema.get("type") {
        Some(Value::String(name)) => name.as_str(),
        // What may be absent is written so by schemars.
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or_default()
        }
        _ => "",
    };
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    let scalar = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
    match type_ {
        "object" => Atom { map: Some(object(schema, preserve)), ..Atom::default() },
        "array" => Atom { list: Some(list(schema, preserve)), ..Atom::default() },
        "integer" | "number" => scalar(Scalar::Numeric),
        "boolean" => scalar(Scalar::Boolean),
        "string" if matches!(format, "" | "byte") => scalar(Scalar::String),
        "string" => scalar(Scalar::Untyped),
        _ => Atom {
            map: Some(object(schema, preserve)),
            list: Some(list(schema, preserve)),
            scalar: Some(Scalar::Untyped),
        },
    }
}

fn object(schema: &Value, preserve: bool) -> MapAtom {
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields: BTreeMap<_, _> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let atom = AtomRef::Here(Box::new(parse(schema, preserve)));
            (name.clone(), Field { atom, default: schema.get("default").cloned() })
        })
        .collect();
    let element = match schema.get("additionalProperties") {
        None if preserve || fields.is_empty() => AtomRef::Deduced,
        Some(Value::Bool(true)) => AtomRef::Deduced,
        Some(schema @ Value::Object(_)) => AtomRef::Here(Box::new(parse(schema, preserve))),
        _ => AtomRef::Nothing,
    };
    let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    let mut map = MapAtom { fields, element, atomic };
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        embed(&mut map);
    }
    map
}

fn list(schema: &Value, preserve: bool) -> ListAtom {
    let kind = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    ListAtom {
        element: match schema.get("items") {
            Some(items) => AtomRef::Here(Box::new(parse(items, preserve))),
            None => AtomRef::Untyped,
        },
        associative: matches!(kind, Some("set" | "map")),
        keys: if kind == Some("map") { keys.collect() } else { Vec::new() },
    }
}

/// `ObjectMeta`.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let number = json!({ "type": "integer" });
    let flag = json!({ "type": "boolean" });
    json!({
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text, "resourceVersion": text,
            "generation": number, "deletionGracePeriodSeconds": number,
            "creationTimestamp": time, "deletionTimestamp": time,
            "labels": { "type": "object", "additionalProperties": text },
            "annotations": { "type": "object", "additionalProperties": text },
            "finalizers": { "type": "array", "x-kubernetes-list-type": "set", "items": text },
            "ownerReferences": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "items": {
                    "type": "object", "x-kubernetes-map-type": "atomic",
                    "properties": {
                        "apiVersion": text, "kind": text, "name": text, "uid": text,
                        "controller": flag, "blockOwnerDeletion": flag,
                    },
                },
            },
            "managedFields": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "apiVersion": text, "fieldsType": text, "fieldsV1": { "type": "object" }, "manager": text,
                        "operation": text, "subresource": text, "time": time,
                    },
                },
            },
        },
    })
});
