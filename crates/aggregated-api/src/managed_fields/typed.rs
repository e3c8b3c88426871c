//! Whether an object has the types of its schema, without which it cannot be merged, and which fields it mentions. Errors are in the words of
//! the API server's merging library.

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom, Scalar, Shape},
    field_set::{FieldSet, PathElement},
};
use crate::go_print::{plain, source, type_name};

/// Where the types differ; items that stand twice are `duplicates`, allowed or not.
pub(super) fn misfits(value: &Value, atom: &Atom, duplicates: bool) -> Vec<String> {
    let mut found = Vec::new();
    check(value, atom, "", duplicates, &mut found);
    found
}

/// Why a value is not such a scalar, if it is not.
pub(super) fn scalar_misfit(scalar: Scalar, value: &Value) -> Option<String> {
    let fits = match scalar {
        _ if value.is_null() => true,
        Scalar::Numeric => value.is_number(),
        Scalar::String => value.is_string(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Untyped => !(value.is_array() || value.is_object()),
    };
    if fits {
        return None;
    }
    Some(match scalar {
        Scalar::Numeric => format!("expected numeric (int or float), got {}", type_name(value)),
        Scalar::String => format!("expected string, got &value.valueUnstructured{{Value:{}}}", source(value)),
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", plain(value)),
        Scalar::Untyped => format!("expected any scalar, got &{{{}}}", plain(value)),
    })
}

fn check(value: &Value, atom: &Atom, path: &str, duplicates: bool, found: &mut Vec<String>) {
    let mut misfit = |path: &str, why: &str| {
        found.push(if path.is_empty() { why.to_owned() } else { format!("{path}: {why}") });
    };
    match (atom.shape(Some(value)), value) {
        (Shape::None, _) => misfit(path, "schema error: invalid atom: inlined"),
        (Shape::Scalar(scalar), value) => {
            if let Some(why) = scalar_misfit(scalar, value) {
                misfit(path, &why);
            }
        }
        (_, Value::Null) => {}
        (Shape::Map(map), Value::Object(members)) => {
            for (name, member) in members {
                let place = format!("{path}{}", PathElement::field(name).show());
                match map.member(name) {
                    Some(atom) => check(member, atom, &place, duplicates, found),
                    None => found.push(format!("{place}: field not declared in schema")),
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => check_items(items, list, path, duplicates, found),
        (Shape::Map(_), value) => misfit(path, &format!("expected map, got &{{{}}}", plain(value))),
        (Shape::List(_), value) => misfit(path, &format!("expected list, got &{{{}}}", plain(value))),
    }
}

fn check_items(items: &[Value], list: &ListAtom, path: &str, duplicates: bool, found: &mut Vec<String>) {
    let mut seen = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut element = PathElement::Index(index);
        if list.associative {
            element = match PathElement::of_item(list, item) {
                Ok(element) => element,
                Err(why) => return found.push(format!("{path}: element {index}: {why}")),
            };
            if !duplicates && seen.contains(&element) {
                found.push(format!("{path}: duplicate entries for key {}", element.show()));
            }
            seen.push(element.clone());
        }
        check(item, list.item(), &format!("{path}{}", element.show()), duplicates, found);
    }
}

/// The fields that an object mentions: its leaves and its items, not what holds them.
pub(super) fn field_set(value: &Value, atom: &Atom) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, atom, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, atom: &Atom, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (atom.shape(Some(value)), value) {
        (Shape::Scalar(_), _) => set.insert(path),
        (Shape::Map(map), _) if map.atomic => set.insert(path),
        (Shape::List(list), _) if !list.associative => set.insert(path),
        (Shape::Map(map), Value::Object(members)) => collect_members(members, map, path, set),
        (Shape::List(list), Value::Array(items)) => collect_items(items, list, path, set),
        (Shape::None | Shape::Map(_) | Shape::List(_), _) => {}
    }
}

fn collect_members(
    members: &Map<String, Value>,
    map: &MapAtom,
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    for (name, member) in members {
        path.push(PathElement::field(name));
        if let Some(atom) = map.member(name) {
            collect(member, atom, path, set);
        }
        if member.is_null() || member.as_object().is_some_and(Map::is_empty) || !map.declares(name) {
            set.insert(path);
        }
        path.pop();
    }
}

fn collect_items(items: &[Value], list: &ListAtom, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    let elements: Vec<_> =
        items.iter().filter_map(|item| Some((PathElement::of_item(list, item).ok()?, item))).collect();
    for (element, item) in &elements {
        let twice = elements.iter().filter(|(other, _)| other == element).count() > 1;
        path.push(element.clone());
        if !twice {
            collect(item, list.item(), path, set);
        }
        set.insert(path);
        path.pop();
    }
}
