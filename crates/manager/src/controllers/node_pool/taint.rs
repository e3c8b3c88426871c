//! A taint as it stands on a node, with fields that this version does not know.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A taint. The list of a node's taints can only be written as a whole, so that those of others must come back out of it
/// as they went in.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct NodeTaint {
    #[serde(default)]
    pub(crate) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(default)]
    pub(crate) effect: String,
    /// Everything else, as it came.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl NodeTaint {
    /// What stands once on a node: `key:effect`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.key, self.effect)
    }

    /// Whether the two cannot stand on a node side by side.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.key, &self.effect) == (&other.key, &other.effect)
    }

    /// Whether the two have the same value. An absent value and an empty one are the same taint to the scheduler.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        self.value.as_deref().unwrap_or_default() == other.value.as_deref().unwrap_or_default()
    }
}

/// As a pool's spec names it: the time belongs to the node.
impl From<&Taint> for NodeTaint {
    fn from(taint: &Taint) -> Self {
        let Taint { key, value, effect, time_added: _ } = taint;
        Self { key: key.clone(), value: value.clone(), effect: effect.clone(), rest: Map::new() }
    }
}

/// What differs between two lists: value by `key:effect`, `None` for a taint that goes.
pub(crate) fn changes(before: &[NodeTaint], after: &[NodeTaint]) -> BTreeMap<String, Option<String>> {
    let value = |taint: &NodeTaint| taint.value.clone().unwrap_or_default();
    let gone = before.iter().filter(|taint| !after.iter().any(|other| taint.is_same(other)));
    let new = after.iter().filter(|taint| !before.contains(taint));
    gone.map(|taint| (taint.name(), None))
        .chain(new.map(|taint| (taint.name(), Some(value(taint)))))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_known_come_out_as_they_went_in() {
        let newer = json!({
            "key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z",
            "operator": "Gt", "nested": { "list": [1, null, { "a": 1.5 }] }
        });
        let taint: NodeTaint = serde_json::from_value(newer.clone()).unwrap();
        assert_eq!(serde_json::to_value(&taint).unwrap(), newer);
    }
}
