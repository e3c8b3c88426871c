//! What a pool owns on a node: pure merging of a pool's labels, annotations and taints into a node's, and back out.
//!
//! A record on the node (annotation [`PREVIOUS_ATTRIBUTES`](api::annotations::PREVIOUS_ATTRIBUTES)) says what the pool
//! wrote and what stood there before. From it follow the three promises: what the pool owned leaves with it, what it
//! did not put there is never touched, and a node's own value comes back when the pool lets go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::taint::NodeTaint;
use crate::nodes::NodeView;

/// Labels, annotations and taints: what a pool wants, has written, or has covered.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Attributes {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) taints: Vec<NodeTaint>,
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
            if let Some(present) = node.taints.iter().find(|present| present.is_same(taint)) {
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
    wanted: &[NodeTaint],
    owned: &[NodeTaint],
    covered: &mut Vec<NodeTaint>,
    actual: &[NodeTaint],
    may_cover: impl Fn(&NodeTaint) -> bool,
) -> Option<Vec<NodeTaint>> {
    let mut merged = actual.to_vec();
    let mut changed = false;
    for taint in wanted {
        let place = merged.iter().position(|present| present.is_same(taint));
        let own = place.map(|place| &merged[place]).filter(|_| !owned.iter().any(|o| o.is_same(taint)));
        covered.extend(own.filter(|own| may_cover(own)).cloned());
        match place {
            Some(place) if merged[place].is_equal(taint) => {}
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
    for written in owned.iter().filter(|o| !wanted.iter().any(|w| w.is_same(o))) {
        let own = covered.iter().position(|c| c.is_same(written)).map(|place| covered.remove(place));
        let place = merged.iter().position(|present| present.is_same(written));
        match (place, own) {
            (Some(place), _) if !merged[place].is_equal(written) => {}
            (Some(place), Some(own)) => {
                changed |= !merged[place].is_equal(&own);
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

#[cfg(test)]
mod tests;
