//! Two states of an object: which fields came, changed and went.

use serde_json::{Map, Value};

use super::{
    atom::{Atom, ListAtom, MapAtom, Shape},
    field_set::{FieldSet, PathElement, same},
    typed::scalar_misfit,
};

/// What differs.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two states. An error is in the API server's words.
pub(super) fn compare(before: &Value, after: &Value, atom: &Atom) -> Result<Comparison, String> {
    let mut walk = Walk { path: Vec::new(), out: Comparison::default() };
    walk.value(Some(before), Some(after), atom)?;
    Ok(walk.out)
}

struct Walk {
    path: Vec<PathElement>,
    out: Comparison,
}

impl Walk {
    /// One of the two may be missing.
    fn value(&mut self, before: Option<&Value>, after: Option<&Value>, atom: &Atom) -> Result<(), String> {
        let (old, new) = (atom.shapes(before), atom.shapes(after));
        let leaf = if after.is_none() {
            self.shape(before, after, &atom.first(old))?
        } else {
            if before.is_some() && old != new {
                // It was of another shape: both are gone through.
                self.shape(before, after, &atom.first(old))?;
            }
            self.shape(before, after, &atom.first(new))?
        };
        if !leaf {
            match (before, after) {
                (None, _) => self.out.added.insert(&self.path),
                (_, None) => self.out.removed.insert(&self.path),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether it was taken as one value.
    fn shape(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        shape: &Shape<'_>,
    ) -> Result<bool, String> {
        match shape {
            Shape::None => return Err("schema error: invalid atom: inlined".to_owned()),
            Shape::Scalar(scalar) => {
                let misfit = |value: Option<&Value>| value.and_then(|value| scalar_misfit(*scalar, value));
                if let (Some(left), Some(_)) = (misfit(before), misfit(after)) {
                    return Err(format!("lhs: {left}"));
                }
            }
            Shape::Map(map) => {
                let members = |value: Option<&Value>| {
                    value.and_then(Value::as_object).filter(|members| !members.is_empty()).cloned()
                };
                let (old, new) = (members(before), members(after));
                if !map.atomic && (old.is_some() || new.is_some()) {
                    self.members(&old.unwrap_or_default(), &new.unwrap_or_default(), map)?;
                    return Ok(false);
                }
            }
            Shape::List(list) => {
                let items =
                    |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
                let (old, new) = (items(before), items(after));
                if list.associative && !(old.is_empty() && new.is_empty()) {
                    self.items(&old, &new, list)?;
                    return Ok(false);
                }
            }
        }
        self.leaf(before, after);
        Ok(true)
    }

    fn leaf(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(before), Some(after)) if !same(before, after) => self.out.modified.insert(&self.path),
            _ => {}
        }
    }

    fn members(
        &mut self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        map: &MapAtom,
    ) -> Result<(), String> {
        let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
        for name in names {
            let nothing = Atom::default();
            let atom = map.member(name).unwrap_or(&nothing);
            self.within(PathElement::field(name), old.get(name), new.get(name), atom)?;
        }
        Ok(())
    }

    fn within(
        &mut self,
        element: PathElement,
        before: Option<&Value>,
        after: Option<&Value>,
        atom: &Atom,
    ) -> Result<(), String> {
        self.path.push(element);
        let done = self.value(before, after, atom);
        self.path.pop();
        done
    }

    fn items(&mut self, old: &[Value], new: &[Value], list: &ListAtom) -> Result<(), String> {
        let (old, new) = (by_element(old, list)?, by_element(new, list)?);
        let nothing = Vec::new();
        let find = |all: &[(PathElement, Vec<Value>)], element: &PathElement| {
            all.iter()
                .find(|(other, _)| other == element)
                .map_or_else(|| nothing.clone(), |(_, found)| found.clone())
        };
        let elements = old
            .iter()
            .chain(new.iter().filter(|(element, _)| !old.iter().any(|(other, _)| other == element)));
        for (element, _) in elements {
            let (left, right) = (find(&old, element), find(&new, element));
            let mut place = self.path.clone();
            place.push(element.clone());
            match (&left[..], &right[..]) {
                ([] | [_], [] | [_]) => {
                    self.within(element.clone(), left.first(), right.first(), list.item())?;
                }
                // Items that stand twice are one value.
                ([_, _, ..], [_, _, ..]) => {
                    if left.len() != right.len()
                        || !left.iter().zip(&right).all(|(left, right)| same(left, right))
                    {
                        self.out.modified.insert(&place);
                    }
                }
                ([_, _, ..], rest) => {
                    if let Some(one) = rest.first() {
                        self.within(element.clone(), None, Some(one), list.item())?;
                    }
                    self.out.removed.insert(&place);
                }
                (rest, _) => {
                    if let Some(one) = rest.first() {
                        self.within(element.clone(), Some(one), None, list.item())?;
                    }
                    self.out.added.insert(&place);
                }
            }
        }
        Ok(())
    }
}

/// Items by what tells them from the others.
fn by_element(items: &[Value], list: &ListAtom) -> Result<Vec<(PathElement, Vec<Value>)>, String> {
    let mut all: Vec<(PathElement, Vec<Value>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let element = PathElement::of_item(list, item).map_err(|why| format!("element {index}: {why}"))?;
        match all.iter_mut().find(|(other, _)| *other == element) {
            Some((_, found)) => found.push(item.clone()),
            None => all.push((element, vec![item.clone()])),
        }
    }
    Ok(all)
}
