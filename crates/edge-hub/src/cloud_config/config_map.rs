//! The keys of OpenYurt's ConfigMaps. What cannot be read is left out and told of: one bad entry must not undo the rest.

use std::collections::BTreeSet;

use api::names::{CACHE_AGENTS, POOL_SCOPED_METADATA};
use kube_wire::resource::GroupVersionResource;

use super::{Layer, list, resource};
use crate::filters::FilterName;

/// Resources of which one stream serves everyone.
type Pooled = BTreeSet<GroupVersionResource>;

/// `yurt-hub-cfg`: `cache_agents`, and the filters by name with their further components. `data` gives the value of a key.
pub fn yurt_hub_cfg(data: impl Fn(&str) -> Option<String>) -> Layer {
    let mut layer = Layer::default();
    if let Some(agents) = data(CACHE_AGENTS) {
        layer.cache_agents = layer.named(list(&agents), CACHE_AGENTS, true);
    }
    for filter in FilterName::ALL {
        let key = filter.as_str();
        if let Some(components) = data(key) {
            let components = layer.named(list(&components), key, false);
            layer.components.insert(filter, components);
        }
    }
    layer
}

/// What of [`yurt_hub_cfg`] counts for nothing.
pub fn problems_of_yurt_hub_cfg(said: &Layer, keys: Vec<String>) -> Vec<String> {
    let mut problems = unknown_of_yurt_hub_cfg(keys);
    problems.extend(said.nameless.iter().cloned());
    problems
}

/// What there is to say of keys of `yurt-hub-cfg` that mean nothing here: misspelt, or of a filter that there is no more.
fn unknown_of_yurt_hub_cfg(keys: Vec<String>) -> Vec<String> {
    let known = |key: &String| key == CACHE_AGENTS || FilterName::ALL.iter().any(|name| name.as_str() == key);
    let problem = |key| format!("{key}: nothing reads it: keys are {CACHE_AGENTS} and the names of filters");
    keys.into_iter().filter(|key| !known(key)).map(problem).collect()
}

/// `leader-hub-<pool>`: `pool-scoped-metadata`, and what of it counts for nothing. An error if nothing of it can be read, why: then what it said last stays
/// in force.
pub fn leader_hub(
    data: impl Fn(&str) -> Option<String>,
) -> Result<(Option<Pooled>, Vec<String>), Vec<String>> {
    let Some(text) = data(POOL_SCOPED_METADATA) else {
        let problem = format!(
            "{POOL_SCOPED_METADATA} is not there: what is shared goes by the file of --config, or the default"
        );
        return Ok((None, vec![problem]));
    };
    let (mut pooled, mut problems) = (Pooled::new(), Vec::new());
    for entry in list(&text) {
        match resource(entry) {
            Some(resource) => drop(pooled.insert(resource)),
            None => problems.push(format!(
                "{POOL_SCOPED_METADATA}: entry {entry:?} is not group/version/resource, such as /v1/services"
            )),
        }
    }
    if pooled.is_empty() && !problems.is_empty() {
        problems.push(format!(
            "{POOL_SCOPED_METADATA}: nothing of it can be read: the configuration stays as it was"
        ));
        return Err(problems);
    }
    Ok((Some(pooled), problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_has_are_told_of_and_do_not_count() {
        let said = yurt_hub_cfg(|key| match key {
            CACHE_AGENTS => Some("till-agent,Backup, a b,,*x".to_owned()),
            "servicetopology" => Some("envoy,*".to_owned()),
            _ => None,
        });
        assert_eq!(said.cache_agents, ["a b".into(), "backup".into(), "till-agent".into()].into());
        assert_eq!(said.components[&FilterName::ServiceTopology], ["envoy".into()].into());
        let problems = problems_of_yurt_hub_cfg(&said, vec![CACHE_AGENTS.to_owned()]);
        let told: Vec<&str> =
            problems.iter().filter_map(|problem| problem.split(" is nobody's").next()).collect();
        assert_eq!(told, ["cache_agents: \"*x\"", "servicetopology: \"*\""]);
    }

    #[test]
    fn a_misspelt_key_is_found_and_those_of_openyurt_are_known() {
        let keys = ["cache_agents", "cache-agents", "servicetopology", "masterservice", "Servicetopology"];
        let unknown = unknown_of_yurt_hub_cfg(keys.map(str::to_owned).into());
        let unknown: Vec<&str> = unknown.iter().filter_map(|problem| problem.split(':').next()).collect();
        assert_eq!(unknown, ["cache-agents", "Servicetopology"]);
    }
}
