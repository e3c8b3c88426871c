//! What was added to an object's affinity: enough to take away exactly that, even after others edited the object.
//!
//! Pure. Terms have no names, so a term is recognised by its content: first one that is exactly what adding made of it,
//! then one to which more was added since. One that was edited otherwise is left alone: the requirement in it may be its
//! author's by now. Among equal terms, of which one may have had the requirement from its author, it is told by how many
//! of them stand before it; a place in the list would not survive that others insert or remove terms.

use std::iter::repeat;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What was added. It stands as JSON in the annotation, so its names are an interface.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    /// The terms that got the requirement, as they were before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) terms: Vec<Map<String, Value>>,
    /// For each of them, how many equal terms stood before it once it had the requirement; 0 where nothing is said.
    #[serde(default, skip_serializing_if = "all_zero")]
    pub(super) equal_before: Vec<usize>,
    /// Whether a term was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) new_term: bool,
    /// The outermost of what had to be made for the terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) made: Option<Made>,
}

/// What had to be made on the way to the terms, with all that is further in.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Made {
    /// All of it.
    Affinity,
    /// From `nodeAffinity` on.
    NodeAffinity,
    /// From `requiredDuringSchedulingIgnoredDuringExecution` on.
    Required,
    /// The list of terms.
    Terms,
}

impl Made {
    pub(super) fn at(depth: usize) -> Option<Self> {
        [Self::Affinity, Self::NodeAffinity, Self::Required, Self::Terms].get(depth).copied()
    }

    pub(super) fn depth(self) -> usize {
        self as usize
    }
}

impl Record {
    pub(super) fn is_empty(&self) -> bool {
        let Self { terms, equal_before: _, new_term, made: _ } = self;
        terms.is_empty() && !new_term
    }

    /// Remembers that `term` got the requirement, after `earlier`, the terms before it as they are afterwards.
    pub(super) fn add(&mut self, term: &Map<String, Value>, earlier: &[Value], requirement: &Value) {
        self.equal_before.resize(self.terms.len(), 0);
        self.equal_before.push(equal_to(term, earlier, requirement));
        self.terms.push(term.clone());
    }

    /// Takes the requirement out of the recorded terms among `present`. The number of those that were not found comes
    /// back.
    pub(super) fn take_from(&self, present: &mut Vec<Value>, requirement: &Value) -> usize {
        let found = self.find(present, requirement);
        let lost = found.iter().filter(|found| found.at.is_none()).count();
        let mut removed = Vec::new();
        for Found { before, equal_before: _, at } in found {
            let Some(at) = at else { continue };
            let without = without(&present[at], before, requirement);
            if without.is_empty() {
                removed.push(at);
            }
            present[at] = Value::Object(without);
        }
        removed.sort_unstable();
        for at in removed.into_iter().rev() {
            present.remove(at);
        }
        lost
    }

    /// Forgets what is not among `present` any more. `after` are the same terms with the requirement in each.
    pub(super) fn retain_present(&mut self, present: &[Value], after: &[Value], requirement: &Value) {
        let mut retained = Self::default();
        for Found { before, equal_before: _, at } in self.find(present, requirement) {
            match (before, at) {
                (_, None) => {}
                (None, Some(_)) => retained.new_term = true,
                (Some(before), Some(at)) => retained.add(before, &after[..at], requirement),
            }
        }
        // What was made stays ours only as long as something of ours is in it.
        retained.made = self.made.filter(|_| !present.is_empty());
        *self = retained;
    }

    /// Adds what was added later.
    pub(super) fn extend(&mut self, later: Self) {
        let Self { terms, equal_before, new_term, made } = later;
        self.equal_before.resize(self.terms.len(), 0);
        self.terms.extend(terms);
        self.equal_before.extend(equal_before);
        self.new_term |= new_term;
        self.made = self.made.or(made);
    }

    /// The recorded terms with their places among `present`; no two have the same.
    fn find(&self, present: &[Value], requirement: &Value) -> Vec<Found<'_>> {
        let nothing = Map::new();
        let equal_before = self.equal_before.iter().copied().chain(repeat(0));
        let recorded =
            self.terms.iter().map(Some).zip(equal_before).chain(self.new_term.then_some((None, 0)));
        let mut found: Vec<_> =
            recorded.map(|(before, equal_before)| Found { before, equal_before, at: None }).collect();
        let mut taken = vec![false; present.len()];
        for recognition in [Recognition::Same, Recognition::Equal, Recognition::Grown] {
            for Found { before, equal_before, at } in found.iter_mut().filter(|found| found.at.is_none()) {
                let before = before.unwrap_or(&nothing);
                let mut places = (0..present.len()).filter(|&at| match recognition {
                    Recognition::Same | Recognition::Equal => is_exactly(&present[at], before, requirement),
                    Recognition::Grown => contains(&present[at], before, requirement),
                });
                *at = match recognition {
                    Recognition::Same => places.nth(*equal_before).filter(|&at| !taken[at]),
                    Recognition::Equal | Recognition::Grown => places.find(|&at| !taken[at]),
                };
                if let Some(at) = *at {
                    taken[at] = true;
                }
            }
        }
        found
    }
}

/// How a recorded term is recognised, the surest way first.
#[derive(Clone, Copy)]
enum Recognition {
    /// It is exactly what adding made of it, and as many equal ones stand before it.
    Same,
    /// It is exactly what adding made of it.
    Equal,
    /// It has all of that, and more.
    Grown,
}

/// A recorded term among those that are there.
struct Found<'a> {
    /// As it was before; none for the one that was made.
    before: Option<&'a Map<String, Value>>,
    /// How many equal terms stood before it.
    equal_before: usize,
    /// Its place; none if it is gone or cannot be recognised.
    at: Option<usize>,
}

/// The term with `requirement` at the end of its expressions.
pub(super) fn with(term: &Map<String, Value>, requirement: &Value) -> Value {
    let mut term = term.clone();
    let expressions = term.entry("matchExpressions").or_insert(Value::Null);
    match expressions {
        Value::Array(items) => items.push(requirement.clone()),
        other => *other = json!([requirement]),
    }
    Value::Object(term)
}

/// How many of `terms` are what adding `requirement` makes of `before`.
fn equal_to(before: &Map<String, Value>, terms: &[Value], requirement: &Value) -> usize {
    terms.iter().filter(|term| is_exactly(term, before, requirement)).count()
}

/// Whether `term` is what adding `requirement` made of `before`.
fn is_exactly(term: &Value, before: &Map<String, Value>, requirement: &Value) -> bool {
    *term == with(before, requirement)
}

/// Whether `term` has `requirement` and all that `before` has.
fn contains(term: &Value, before: &Map<String, Value>, requirement: &Value) -> bool {
    let Some(term) = term.as_object() else { return false };
    let has = |name: &str, item: &Value| items(term.get(name)).contains(item);
    has("matchExpressions", requirement)
        && before.iter().all(|(name, value)| match value {
            Value::Array(values) => values.iter().all(|item| has(name, item)),
            value => value.is_null() || term.get(name) == Some(value),
        })
}

/// The term as it would be had `requirement` not been added to `before`.
fn without(term: &Value, before: Option<&Map<String, Value>>, requirement: &Value) -> Map<String, Value> {
    if let Some(before) = before.filter(|before| is_exactly(term, before, requirement)) {
        return before.clone();
    }
    let mut term = term.as_object().cloned().unwrap_or_default();
    let mut expressions = items(term.get("matchExpressions")).to_vec();
    // The last one, because it was added at the end.
    if let Some(at) = expressions.iter().rposition(|item| item == requirement) {
        expressions.remove(at);
    }
    if expressions.is_empty() && before.is_none_or(|before| !before.contains_key("matchExpressions")) {
        term.remove("matchExpressions");
    } else {
        term.insert("matchExpressions".to_owned(), Value::Array(expressions));
    }
    term
}

fn all_zero(numbers: &[usize]) -> bool {
    numbers.iter().all(|&number| number == 0)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
