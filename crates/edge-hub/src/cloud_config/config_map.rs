//! The keys of OpenYurt's ConfigMaps. What cannot be read is left out and named in a warning: one bad entry must not undo the rest.

use api::names::{CACHE_AGENTS, POOL_SCOPED_METADATA};
use tracing::warn;

use super::{Layer, list, resource};
use crate::filters::FilterName;

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

/// `leader-hub-<pool>`: `pool-scoped-metadata`.
pub fn leader_hub(data: impl Fn(&str) -> Option<String>) -> Layer {
    let pooled = data(POOL_SCOPED_METADATA).map(|text| {
        let entries = list(&text).filter_map(|entry| {
            let resource = resource(entry);
            if resource.is_none() {
                warn!(key = POOL_SCOPED_METADATA, entry, "not group/version/resource, such as /v1/services");
            }
            resource
        });
        entries.collect()
    });
    Layer { pooled, ..Layer::default() }
}
