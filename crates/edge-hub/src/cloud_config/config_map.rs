//! The keys of OpenYurt's ConfigMaps. What cannot be read is left out and named in a warning: one bad entry must not undo the rest.

use std::collections::BTreeSet;

use api::names::{CACHE_AGENTS, POOL_SCOPED_METADATA};
use kube_wire::resource::GroupVersionResource;
use tracing::warn;

use super::{Layer, list, resource};
use crate::filters::FilterName;

/// Resources of which one stream serves everyone.
type Pooled = BTreeSet<GroupVersionResource>;

/// `yurt-hub-cfg`: `cache_agents`, and the filters by name with their further components. `data` gives the value of a key.
pub fn yurt_hub_cfg(data: impl Fn(&str) -> Option<String>) -> Layer {
    let names = |key: &str| data(key).map(|text| list(&text).map(Into::into).collect());
    let components = FilterName::ALL.into_iter().filter_map(|name| Some((name, names(name.as_str())?)));
    Layer {
        cache_agents: names(CACHE_AGENTS).unwrap_or_default(),
        components: components.collect(),
        ..Layer::default()
    }
}

/// Those of the keys of `yurt-hub-cfg` that mean nothing here: misspelt, or of a filter that there is no more.
pub fn unknown_of_yurt_hub_cfg(keys: Vec<String>) -> Vec<String> {
    let known = |key: &String| key == CACHE_AGENTS || FilterName::ALL.iter().any(|name| name.as_str() == key);
    keys.into_iter().filter(|key| !known(key)).collect()
}

/// `leader-hub-<pool>`: `pool-scoped-metadata`. `before` is what it said last: that stays in force while it says something of which
/// nothing can be read.
pub fn leader_hub(data: impl Fn(&str) -> Option<String>, before: Option<&Pooled>) -> Layer {
    let pooled = data(POOL_SCOPED_METADATA).and_then(|text| {
        let (good, bad): (Vec<_>, Vec<_>) =
            list(&text).map(|entry| (entry, resource(entry))).partition(|(_, resource)| resource.is_some());
        for (entry, _) in &bad {
            warn!(key = POOL_SCOPED_METADATA, entry, "not group/version/resource, such as /v1/services");
        }
        if good.is_empty() && !bad.is_empty() {
            warn!(key = POOL_SCOPED_METADATA, "nothing of it can be read: the configuration stays as it was");
            return before.cloned();
        }
        Some(good.into_iter().filter_map(|(_, resource)| resource).collect())
    });
    Layer { pooled, ..Layer::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_found_and_those_of_openyurt_are_known() {
        let keys = ["cache_agents", "cache-agents", "servicetopology", "masterservice", "Servicetopology"];
        assert_eq!(
            unknown_of_yurt_hub_cfg(keys.map(str::to_owned).into()),
            ["cache-agents", "Servicetopology"]
        );
    }
}
