//! What a pool owns on a node: pure merging of a pool's labels, annotations and taints into a node's, and back out.
//!
//! A record on the node (annotation [`PREVIOUS_ATTRIBUTES`](api::annotations::PREVIOUS_ATTRIBUTES)) says what the pool
//! wrote and what stood there before. From it follow the three promises: what the pool owned leaves with it, what it
//! did not put there is never touched, and a node's own value comes back when the pool lets go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::nodes::NodeView;

/// Labels, annotations and taints: what a pool wants, has written, or has covered.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Attributes {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) taints: Vec<Taint>,
}

impl Attributes {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { labels, annotations, taints } = self;
        labels.is_empty() && annotations.is_empty() && taints.is_empty()
    }
}

impl Attributes {
    /// Takes on the node's values of everything that both have.
    pub(crate) fn follow(&mut self, node: &NodeView) {
        let Self { labels, annotations, taints } = self;
        for (map, present) in [(labels, &node.labels), (annotations, &node.annotations)] {
            for (key, value) in map {
                if let Some(present) = present.get(key) {
                    value.clone_from(present);
                }
            }
        }
        for taint in taints {
            if let Some(present) = node.taints.iter().find(|present| same_identity(present, taint)) {
                taint.value.clone_from(&present.value);
            }
        }
    }
}

/// The record on a node. The three fields of [`Attributes`] are as `OpenYurt` writes them (there the record ends), so
/// that either controller can take over from the other.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Record {
    /// What the pool wrote last.
    #[serde(flatten)]
    pub(crate) owned: Attributes,
    /// The pool that wrote it; absent in records of `OpenYurt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<String>,
    /// The node's own values that the pool's cover.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub(crate) covered: Attributes,
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.owned.is_empty() && self.covered.is_empty()
    }
}

/// Go writes an empty map or list as `null`.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The keys of a map to set, or with `None` to remove.
pub(crate) type Changes = BTreeMap<String, Option<String>>;

/// Merges `wanted` into the map `actual` of a node, given what the pool `owned` until now and what it `covered`.
///
/// Returns the changes to the node's map, and updates `covered`. Values for which `may_cover` is false, given key and
/// value, are never remembered as the node's own.
pub(crate) fn merge_map(
    wanted: &BTreeMap<String, String>,
    owned: &BTreeMap<String, String>,
    covered: &mut BTreeMap<String, String>,
    actual: &BTreeMap<String, String>,
    may_cover: impl Fn(&str, &str) -> bool,
) -> Changes {
    let mut changes = Changes::new();
    for (key, value) in wanted {
        let present = actual.get(key);
        if let Some(own) = present.filter(|own| !owned.contains_key(key) && may_cover(key, own)) {
            covered.insert(key.clone(), own.clone());
        }
        if present != Some(value) {
            changes.insert(key.clone(), Some(value.clone()));
        }
    }
    for (key, written) in owned.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
        let own = covered.remove(key);
        match actual.get(key) {
            // Somebody wrote another value since: it is theirs now.
            Some(present) if present != written => {}
            Some(present) if own.as_ref() == Some(present) => {}
            None if own.is_none() => {}
            _ => {
                changes.insert(key.clone(), own);
            }
        }
    }
    changes
}

/// Merges the taints `wanted` into `actual`; a taint's identity is its key and effect. Returns the whole new list if
/// it differs. Taints for which `may_cover` is false are never remembered as the node's own.
pub(crate) fn merge_taints(
    wanted: &[Taint],
    owned: &[Taint],
    covered: &mut Vec<Taint>,
    actual: &[Taint],
    may_cover: impl Fn(&Taint) -> bool,
) -> Option<Vec<Taint>> {
    let mut merged = actual.to_vec();
    let mut changed = false;
    for taint in wanted {
        let place = merged.iter().position(|present| same_identity(present, taint));
        let own =
            place.map(|place| &merged[place]).filter(|_| !owned.iter().any(|o| same_identity(o, taint)));
        covered.extend(own.filter(|own| may_cover(own)).cloned());
        match place {
            Some(place) if same_value(&merged[place], taint) => {}
            Some(place) => {
                merged[place] = taint.clone();
                changed = true;
            }
            None => {
                merged.push(taint.clone());
                changed = true;
            }
        }
    }
    for written in owned.iter().filter(|o| !wanted.iter().any(|w| same_identity(w, o))) {
        let own = covered.iter().position(|c| same_identity(c, written)).map(|place| covered.remove(place));
        let place = merged.iter().position(|present| same_identity(present, written));
        match (place, own) {
            (Some(place), _) if !same_value(&merged[place], written) => {}
            (Some(place), Some(own)) => {
                changed |= !same_value(&merged[place], &own);
                merged[place] = own;
            }
            (Some(place), None) => {
                merged.remove(place);
                changed = true;
            }
            (None, Some(own)) => {
                merged.push(own);
                changed = true;
            }
            (None, None) => {}
        }
    }
    changed.then_some(merged)
}

/// What differs between two lists of taints: value by `key:effect`, `None` for one that goes.
pub(crate) fn taint_changes(before: &[Taint], after: &[Taint]) -> Changes {
    let name = |taint: &Taint| format!("{}:{}", taint.key, taint.effect);
    let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
    let gone = before.iter().filter(|taint| !after.iter().any(|other| same_identity(taint, other)));
    let new = after.iter().filter(|taint| !before.contains(taint));
    gone.map(|taint| (name(taint), None)).chain(new.map(|taint| (name(taint), Some(value(taint))))).collect()
}

pub(crate) fn same_identity(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// An absent value and an empty one are the same taint to the scheduler.
pub(crate) fn same_value(a: &Taint, b: &Taint) -> bool {
    a.value.as_deref().unwrap_or_default() == b.value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
