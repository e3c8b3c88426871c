//! A configuration laid over an object, and the removal of fields.

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom, Shape},
    field_set::{FieldSet, PathElement},
};

/// `config` laid over `live`. An error is in the API server's words.
pub(super) fn merge(live: &Value, config: &Value, atom: &Atom) -> Result<Value, String> {
    Ok(over(Some(live), Some(config), atom, "")?.unwrap_or(Value::Null))
}

/// Nothing comes of what is nothing, or of a map or list that is left without a part.
fn over(
    live: Option<&Value>,
    config: Option<&Value>,
    atom: &Atom,
    path: &str,
) -> Result<Option<Value>, String> {
    let shapes = atom.shapes(if config.is_some() { config } else { live });
    match atom.first(shapes) {
        Shape::None => Err(format!("{path}: schema error: invalid atom: inlined")),
        Shape::Map(map) if !map.atomic => {
            let members = |value: Option<&Value>| {
                value.and_then(Value::as_object).filter(|members| !members.is_empty()).cloned()
            };
            match (members(live), members(config)) {
                // What is empty keeps its form.
                (None, None) => Ok(config.or(live).cloned()),
                (old, new) => all_members(&old.unwrap_or_default(), &new.unwrap_or_default(), map, path),
            }
        }
        Shape::List(list) if list.associative => {
            let items = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
            match (items(live), items(config)) {
                (old, new) if old.is_empty() && new.is_empty() => Ok(config.or(live).cloned()),
                (old, new) => all_items(&old, &new, list, path),
            }
        }
        _ => Ok(config.or(live).cloned()),
    }
}

fn all_members(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    map: &MapAtom,
    path: &str,
) -> Result<Option<Value>, String> {
    let nothing = Atom::default();
    let mut out = Map::new();
    for name in live.keys().chain(config.keys().filter(|name| !live.contains_key(*name))) {
        let atom = map.member(name).unwrap_or(&nothing);
        let place = format!("{path}.{name}");
        if let Some(merged) = over(live.get(name), config.get(name), atom, &place)? {
            out.insert(name.clone(), merged);
        }
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// The items of a list with what tells them apart; of those that stand twice nothing is merged.
struct Indexed<'a> {
    elements: Vec<PathElement>,
    items: &'a [Value],
}

impl<'a> Indexed<'a> {
    fn new(items: &'a [Value], list: &ListAtom, path: &str) -> Result<Self, String> {
        let element = |(index, item)| {
            PathElement::of_item(list, item).map_err(|why| format!("{path}: element {index}: {why}"))
        };
        Ok(Self { elements: items.iter().enumerate().map(element).collect::<Result<_, _>>()?, items })
    }

    fn has(&self, element: &PathElement) -> bool {
        self.elements.contains(element)
    }

    fn get(&self, element: &PathElement) -> Option<&'a Value> {
        static NULL: Value = Value::Null;
        let mut found = self.elements.iter().zip(self.items).filter(|(other, _)| *other == element);
        match (found.next(), found.next()) {
            (Some((_, item)), None) => Some(item),
            (Some(_), Some(_)) => Some(&NULL),
            (None, _) => None,
        }
    }
}

/// Items that both have are in the order of the configuration, those that only one has stay where they are.
fn all_items(live: &[Value], config: &[Value], list: &ListAtom, path: &str) -> Result<Option<Value>, String> {
    let (left, right) = (Indexed::new(live, list, path)?, Indexed::new(config, list, path)?);
    let merged = |element: &PathElement, live: Option<&Value>, config: Option<&Value>| {
        over(live, config, list.item(), &format!("{path}{}", element.show()))
    };
    let mut shared = right.elements.iter().filter(|element| left.has(element));
    let mut next_shared = shared.next();
    let mut taken: Vec<&PathElement> = Vec::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.elements.len() || r < right.elements.len() {
        if let (Some(old), Some(new)) = (left.elements.get(l), right.elements.get(r)) {
            if old == new {
                taken.push(old);
                out.extend(merged(old, left.get(old), right.get(old))?);
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if right.has(old) && next_shared.is_some_and(|next| next != old) {
                // Both have it, but it is not its turn.
                l += 1;
                continue;
            }
        }
        if let Some(old) = left.elements.get(l) {
            if !right.has(old) {
                out.extend(merged(old, live.get(l), None)?);
                l += 1;
                continue;
            }
            if taken.contains(&old) {
                l += 1;
            }
        }
        if let Some(new) = right.elements.get(r) {
            taken.push(new);
            out.extend(merged(new, left.get(new), right.get(new))?);
            r += 1;
            if next_shared == Some(new) {
                next_shared = shared.next();
            }
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// A value without some of its fields. A map or list that they were in goes when nothing is left in it.
pub(super) fn without(value: &Value, gone: &FieldSet, atom: &Atom) -> Value {
    match (atom.shape(Some(value)), value) {
        (Shape::Scalar(_), value) => value.clone(),
        (Shape::Map(map), Value::Object(members)) if !map.atomic && !members.is_empty() => {
            let nothing = Atom::default();
            let mut out = Map::new();
            for (name, member) in members {
                let element = PathElement::field(name);
                if gone.has(&element) {
                    continue;
                }
                let atom = map.member(name).unwrap_or(&nothing);
                let kept =
                    gone.child(&element).map_or_else(|| member.clone(), |gone| without(member, gone, atom));
                out.insert(name.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Shape::List(list), Value::Array(items)) if list.associative && !items.is_empty() => {
            let mut out = Vec::new();
            for item in items {
                let Ok(element) = PathElement::of_item(list, item) else { continue };
                if gone.has(&element) {
                    continue;
                }
                let kept = gone
                    .child(&element)
                    .map_or_else(|| item.clone(), |gone| without(item, gone, list.item()));
                out.push(kept);
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}
