//! A set of fields of an object, and its form in `fieldsV1`.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Map, Value};

use super::atom::{Atom, ListAtom};
use crate::go_print;

/// One step from a value to one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    /// A member.
    Field(String),
    /// An item by its key members, in the order of their names.
    Key(Vec<(String, Ordered)>),
    /// An item by its value.
    Value(Ordered),
    /// An item by its place.
    Index(usize),
}

/// A value in the order in which the API server keeps them: numbers, texts, truths, lists, maps, null.
#[derive(Debug, Clone)]
pub(super) struct Ordered(pub(super) Value);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().unwrap_or_default().total_cmp(&right.as_f64().unwrap_or_default()),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let items = left.iter().zip(right).map(|(left, right)| compare(left, right));
            items.reduce(Ordering::then).unwrap_or(Ordering::Equal).then(left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let members = left.iter().zip(right);
            let members = members.map(|(left, right)| left.0.cmp(right.0).then(compare(left.1, right.1)));
            members.reduce(Ordering::then).unwrap_or(Ordering::Equal).then(left.len().cmp(&right.len()))
        }
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

/// Whether two values are the same; `1` is `1.0`.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    compare(left, right) == Ordering::Equal
}

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// What tells an item of an associative list from the others; an error in the API server's words if nothing does.
    pub(super) fn of_item(list: &ListAtom, item: &Value) -> Result<Self, String> {
        if list.keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                other => Ok(Self::Value(Ordered(other.clone()))),
            };
        }
        let members = match item {
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            Value::Object(members) => members,
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let key = |name: &String| {
            let value = members.get(name).or_else(|| list.default_of(name))?;
            Some((name.clone(), Ordered(value.clone())))
        };
        let mut keys: Vec<_> = list.keys.iter().filter_map(key).collect();
        if keys.is_empty() {
            let names: Vec<_> = list.keys.iter().map(|key| kube_wire::quoting::quoted(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(Self::Key(keys))
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let members = keys.iter().map(|(name, value)| (name.clone(), value.0.clone()));
                format!("k:{}", Value::Object(members.collect()))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "k" => {
                let members: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let mut keys: Vec<_> =
                    members.into_iter().map(|(name, value)| (name, Ordered(value))).collect();
                keys.sort_by(|left, right| left.0.cmp(&right.0));
                Self::Key(keys)
            }
            "v" => Self::Value(Ordered(serde_json::from_str(rest).ok()?)),
            "i" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }

    /// As it stands in messages.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(keys) => {
                let members: Vec<_> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={}", go_print::path_value(&value.0)))
                    .collect();
                format!("[{}]", members.join(","))
            }
            Self::Value(value) => format!("[={}]", go_print::path_value(&value.0)),
            Self::Index(index) => format!("[{index}]"),
        }
    }
}

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<PathElement>,
    /// None is empty.
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// Holders of a field are not put in with it.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// What is within a part.
    pub(super) fn child(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let united = all.children.get(element).map_or_else(|| child.clone(), |own| own.union(child));
            all.children.insert(element.clone(), united);
        }
        all
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let common = |(element, child): (&PathElement, &Self)| {
            let child = child.intersection(other.children.get(element)?);
            Some((element.clone(), child)).filter(|(_, child)| !child.is_empty())
        };
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(common).collect(),
        }
    }

    /// Without the fields of another set; what is within them stays.
    #[must_use]
    pub(super) fn difference(&self, other: &Self) -> Self {
        let rest = |(element, child): (&PathElement, &Self)| {
            let rest =
                other.children.get(element).map_or_else(|| child.clone(), |other| child.difference(other));
            Some((element.clone(), rest)).filter(|(_, rest)| !rest.is_empty())
        };
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(rest).collect(),
        }
    }

    /// Without the fields at the top, and all that is within them.
    #[must_use]
    pub(super) fn without_tops(mut self, names: &[&str]) -> Self {
        let kept = |element: &PathElement| !matches!(element, PathElement::Field(name) if names.contains(&name.as_str()));
        self.members.retain(kept);
        self.children.retain(|element, _| kept(element));
        self
    }

    /// With the members that the schema names wherever something within them is in the set.
    pub(super) fn with_named(&self, atom: &Atom) -> Self {
        let mut all = Self { members: self.members.clone(), children: BTreeMap::new() };
        let nothing = Atom::default();
        for (element, child) in &self.children {
            let within = match element {
                PathElement::Field(name) => atom.map().and_then(|map| map.member(name)),
                PathElement::Key(_) => atom.list().map(ListAtom::item),
                PathElement::Value(_) | PathElement::Index(_) => None,
            };
            if let (PathElement::Field(name), Some(map)) = (element, atom.map())
                && map.declares(name)
            {
                all.members.insert(element.clone());
            }
            all.children.insert(element.clone(), child.with_named(within.unwrap_or(&nothing)));
        }
        all
    }

    /// All fields as they stand in messages: those at hand first, then those within.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.members.iter().map(PathElement::show).collect();
        for (element, child) in &self.children {
            let before = element.show();
            paths.extend(child.paths().into_iter().map(|path| format!("{before}{path}")));
        }
        paths
    }

    pub(super) fn to_json(&self) -> Value {
        let mut out = Map::new();
        for member in &self.members {
            out.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut value = child.to_json();
            if let (true, Some(object)) = (self.members.contains(element), value.as_object_mut()) {
                object.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), value);
        }
        Value::Object(out)
    }

    /// Reads a set; what is no path element is passed over.
    pub(super) fn from_json(value: &Value) -> Self {
        let mut set = Self::default();
        for (name, value) in value.as_object().into_iter().flatten() {
            let Some(element) = PathElement::decode(name) else { continue };
            let child = Self::from_json(value);
            let itself = value.as_object().is_some_and(|inner| inner.contains_key("."));
            if itself || child.is_empty() {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        set
    }
}
