//! The keys of OpenYurt's ConfigMaps. What cannot be read is left out and told of: one bad entry must not undo the rest.

use std::collections::BTreeSet;

use api::names::{
    CACHE_AGENTS, FRESHNESS, HUB_CONFIG_MAP, PASS_THROUGH_RESOURCES, POOL_SCOPE_RESOURCES,
    POOL_SCOPED_METADATA,
};
use kube_wire::resource::GroupVersionResource;

use super::{Layer, list, resource};
use crate::filters::FilterName;

/// The keys of `yurt-hub-cfg`, beside the names of filters.
const KEYS: [&str; 4] = [CACHE_AGENTS, POOL_SCOPE_RESOURCES, PASS_THROUGH_RESOURCES, FRESHNESS];

/// Resources of which one stream serves everyone.
type Pooled = BTreeSet<GroupVersionResource>;

/// `yurt-hub-cfg`: what is kept, shared and passed through, how fresh reads must be, and the filters by name with their further components. `data` gives the
/// value of a key. Where nothing of one can be read, what it said `before` stays in force.
pub fn yurt_hub_cfg(data: impl Fn(&str) -> Option<String>, before: &Layer) -> Layer {
    let mut layer = Layer::default();
    if let Some(agents) = data(CACHE_AGENTS) {
        layer.cache_agents = layer.named(list(&agents), CACHE_AGENTS, true);
    }
    if let Some(text) = data(POOL_SCOPE_RESOURCES) {
        let said = resources(&text, POOL_SCOPE_RESOURCES, &mut layer.problems, before.pooled.is_some());
        layer.pooled = said.or_else(|| before.pooled.clone());
    }
    if let Some(text) = data(PASS_THROUGH_RESOURCES) {
        let said_before = !before.passed_through.is_empty();
        let said = resources(&text, PASS_THROUGH_RESOURCES, &mut layer.problems, said_before);
        layer.passed_through = said.unwrap_or_else(|| before.passed_through.clone());
    }
    if let Some(text) = data(FRESHNESS) {
        freshness(&text, &mut layer, before);
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

/// How fresh reads must be, as [`yurt_hub_cfg`] says it.
fn freshness(text: &str, layer: &mut Layer, before: &Layer) {
    let mut can_be_read = list(text).next().is_none();
    for entry in list(text) {
        match layer.say_how_fresh(entry) {
            Ok(()) => can_be_read = true,
            Err(error) => layer.problems.push(format!("{FRESHNESS}: {error}")),
        }
    }
    if !can_be_read {
        let said = !before.freshness.is_empty() || before.default_freshness.is_some();
        layer.problems.push(unreadable(FRESHNESS, said));
        layer.freshness.clone_from(&before.freshness);
        layer.default_freshness = before.default_freshness;
    }
}

/// The resources that a key names. What is none is told of; so is it if nothing can be read, and whether it `said_before` what stays in force: there are no
/// resources then.
fn resources(text: &str, key: &str, problems: &mut Vec<String>, said_before: bool) -> Option<Pooled> {
    let (mut found, told) = (Pooled::new(), problems.len());
    for entry in list(text) {
        match resource(entry) {
            Some(resource) => drop(found.insert(resource)),
            None => problems
                .push(format!("{key}: entry {entry:?} is not group/version/resource, such as /v1/services")),
        }
    }
    if found.is_empty() && problems.len() > told {
        problems.push(unreadable(key, said_before));
        return None;
    }
    Some(found)
}

/// Of a key whose every entry is wrong, and that said something `before`.
fn unreadable(key: &str, before: bool) -> String {
    let so = if before { "the configuration stays as it was" } else { "it counts for nothing" };
    format!("{key}: nothing of it can be read: {so}")
}

/// What of [`yurt_hub_cfg`] counts for nothing.
pub fn problems_of_yurt_hub_cfg(said: &Layer, keys: Vec<String>) -> Vec<String> {
    let mut problems = unknown_of_yurt_hub_cfg(keys);
    problems.extend(said.problems.iter().cloned());
    problems
}

/// What there is to say of keys of `yurt-hub-cfg` that mean nothing here: misspelt, or of a filter that there is no more.
fn unknown_of_yurt_hub_cfg(keys: Vec<String>) -> Vec<String> {
    let known = |key: &str| KEYS.contains(&key) || FilterName::ALL.iter().any(|name| name.as_str() == key);
    let problem =
        |key| format!("{key}: nothing reads it: keys are {}, and the names of filters", KEYS.join(", "));
    keys.into_iter().filter(|key| !known(key)).map(problem).collect()
}

/// `leader-hub-<pool>`: `pool-scoped-metadata`, and what of it counts for nothing. An error if nothing of it can be read, why: then what it said last stays
/// in force.
pub fn leader_hub(
    data: impl Fn(&str) -> Option<String>,
) -> Result<(Option<Pooled>, Vec<String>), Vec<String>> {
    let Some(text) = data(POOL_SCOPED_METADATA) else {
        let problem = format!(
            "{POOL_SCOPED_METADATA} is not there: what is shared goes by {POOL_SCOPE_RESOURCES} of {HUB_CONFIG_MAP}, the file of --config, or the default"
        );
        return Ok((None, vec![problem]));
    };
    let mut problems = Vec::new();
    match resources(&text, POOL_SCOPED_METADATA, &mut problems, true) {
        Some(pooled) => Ok((Some(pooled), problems)),
        None => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_has_are_told_of_and_do_not_count() {
        let data = |key: &str| match key {
            CACHE_AGENTS => Some("till-agent,Backup, a b,,*x".to_owned()),
            "servicetopology" => Some("envoy,*".to_owned()),
            _ => None,
        };
        let said = yurt_hub_cfg(data, &Layer::default());
        assert_eq!(said.cache_agents, ["a b".into(), "backup".into(), "till-agent".into()].into());
        assert_eq!(said.components[&FilterName::ServiceTopology], ["envoy".into()].into());
        let problems = problems_of_yurt_hub_cfg(&said, vec![CACHE_AGENTS.to_owned()]);
        let told: Vec<&str> =
            problems.iter().filter_map(|problem| problem.split(" is nobody's").next()).collect();
        assert_eq!(told, ["cache_agents: \"*x\"", "servicetopology: \"*\""]);
    }

    /// What is in force, and told, where that is all the ConfigMap says, and it said something `before`.
    fn after(key: &str, text: Option<&str>, before: &Layer) -> (Layer, Vec<String>) {
        let data = |asked: &str| text.filter(|_| asked == key).map(str::to_owned);
        let mut said = yurt_hub_cfg(data, before);
        let problems = std::mem::take(&mut said.problems);
        (said, problems)
    }

    #[test]
    fn resources_are_read_as_flags_take_them_and_the_rest_is_told_of() {
        let of = |text: &str| resource(text).unwrap();
        let before = Layer {
            pooled: Some([of("/v1/nodes")].into()),
            passed_through: [of("/v1/nodes")].into(),
            ..Layer::default()
        };
        // What is in force then, and the entries that are told of.
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("", &[], &[]),
            (" , ", &[], &[]),
            ("/v1/services", &["/v1/services"], &[]),
            (" /v1/services,\n example.com/v1/tills ,", &["/v1/services", "example.com/v1/tills"], &[]),
            ("services,/v1/services,/v1/*", &["/v1/services"], &["services", "/v1/*"]),
            ("services", &["/v1/nodes"], &["services"]),
            ("/v1/services=any,\u{0}", &["/v1/nodes"], &["/v1/services=any", "\u{0}"]),
        ];
        for (text, expected, wrong) in cases {
            let expected: Pooled = expected.iter().map(|text| of(text)).collect();
            for key in [POOL_SCOPE_RESOURCES, PASS_THROUGH_RESOURCES] {
                let (said, problems) = after(key, Some(text), &before);
                let in_force = if key == POOL_SCOPE_RESOURCES {
                    Layer { pooled: Some(expected.clone()), ..Layer::default() }
                } else {
                    Layer { passed_through: expected.clone(), ..Layer::default() }
                };
                assert_eq!(said, in_force, "{key}: {text:?}");
                let mut told: Vec<String> = wrong
                    .iter()
                    .map(|entry| {
                        format!("{key}: entry {entry:?} is not group/version/resource, such as /v1/services")
                    })
                    .collect();
                if expected == before.passed_through {
                    told.push(unreadable(key, true));
                }
                assert_eq!(problems, told, "{key}: {text:?}");
            }
        }
        assert_eq!(after(POOL_SCOPE_RESOURCES, None, &before), (Layer::default(), Vec::new()));
        let (said, problems) = after(POOL_SCOPE_RESOURCES, Some("services"), &Layer::default());
        assert_eq!((said, problems.len()), (Layer::default(), 2), "nothing was said before");
    }

    #[test]
    fn freshness_is_read_as_the_flag_takes_it_and_the_rest_is_told_of() {
        let before = after(FRESHNESS, Some("/v1/pods=any,default=strict"), &Layer::default()).0;
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("", &[], &[]),
            ("/v1/nodes=strict, default=any,", &["/v1/nodes=strict", "default=any"], &[]),
            ("default=bounded:5", &["default=bounded:5"], &[]),
            ("/v1/nodes=any,/v1/nodes=strict", &["/v1/nodes=strict"], &[]),
            (
                "nodes=any,/v1/nodes=strict,/v1/pods=soon,default",
                &["/v1/nodes=strict"],
                &[
                    "freshness: \"nodes\" is not group/version/resource in lower case; the core group is empty: /v1/services",
                    "freshness: /v1/pods: \"soon\" is no freshness policy: write strict, any, or bounded:SECONDS",
                    "freshness: \"default\" is not RESOURCE=POLICY: write /v1/pods=strict, or default=bounded:10",
                ],
            ),
            (
                "default=bounded:-1",
                &["/v1/pods=any", "default=strict"],
                &[
                    "freshness: default: \"bounded:-1\" is no freshness policy: write strict, any, or bounded:SECONDS",
                    "freshness: nothing of it can be read: the configuration stays as it was",
                ],
            ),
            (
                "=",
                &["/v1/pods=any", "default=strict"],
                &[
                    "freshness: \"\" is not group/version/resource in lower case; the core group is empty: /v1/services",
                    "freshness: nothing of it can be read: the configuration stays as it was",
                ],
            ),
        ];
        for (text, expected, told) in cases {
            let (said, problems) = after(FRESHNESS, Some(text), &before);
            let mut in_force = Layer::default();
            for text in expected {
                in_force.say_how_fresh(text).unwrap();
            }
            assert_eq!(said, in_force, "{text:?}");
            assert_eq!(problems, told, "{text:?}");
        }
        assert_eq!(after(FRESHNESS, None, &before), (Layer::default(), Vec::new()));
    }

    #[test]
    fn one_key_that_cannot_be_read_undoes_no_other() {
        let data = |key: &str| match key {
            PASS_THROUGH_RESOURCES => Some("audits".to_owned()),
            FRESHNESS => Some("default=any".to_owned()),
            CACHE_AGENTS => Some("till".to_owned()),
            _ => None,
        };
        let audits: Pooled = [resource("example.com/v1/audits").unwrap()].into();
        let before =
            Layer { passed_through: audits.clone(), pooled: Some(Pooled::new()), ..Layer::default() };
        let said = yurt_hub_cfg(data, &before);
        assert_eq!((said.passed_through, said.pooled), (audits, None), "a key that is gone says nothing");
        assert!(said.default_freshness.is_some() && said.cache_agents.contains("till"));
        assert_eq!(said.problems.len(), 2, "{:?}", said.problems);
    }

    #[test]
    fn a_misspelt_key_is_found_and_those_of_openyurt_and_ours_are_known() {
        let keys = ["cache_agents", "cache-agents", "servicetopology", "masterservice", "Servicetopology"];
        let ours = ["pool_scope_resources", "poolScopeResources", "pass_through_resources", "freshness"];
        let keys = keys.into_iter().chain(ours).map(str::to_owned).collect();
        let unknown = unknown_of_yurt_hub_cfg(keys);
        assert!(unknown.iter().all(|problem| KEYS.iter().all(|key| problem.contains(key))), "{unknown:?}");
        let unknown: Vec<&str> = unknown.iter().filter_map(|problem| problem.split(':').next()).collect();
        assert_eq!(unknown, ["cache-agents", "Servicetopology", "poolScopeResources"]);
    }
}
