//! How layers come together. Pure.

use std::collections::BTreeSet;

use kube_wire::resource::GroupVersionResource;

use super::Layer;
use crate::{filters::Rules, run::Sharing};

/// Whether who may read which object of a resource is decided by name, so that no stream of it may serve several callers.
pub fn private(resource: &GroupVersionResource) -> bool {
    resource.group.is_empty() && ["secrets", "configmaps"].contains(&&*resource.resource)
}

/// What there is to say of resources that are named in vain by a key.
pub fn in_vain(pooled: &BTreeSet<GroupVersionResource>, sharing: &Sharing, key: &str) -> Vec<String> {
    let why = |resource: &GroupVersionResource| match () {
        () if private(resource) => Some("who may read which is decided by name"),
        () if !sharing.keeps(resource) => Some("it is passed through"),
        () => None,
    };
    let problem = |resource| Some(format!("{key}: {resource} is never shared: {}", why(resource)?));
    pooled.iter().filter_map(problem).collect()
}

/// What there is to say of a list in force that replaces what is shared by default, and leaves some of that out that nobody else adds. One that is empty
/// means it.
fn left_out(pooled: &BTreeSet<GroupVersionResource>, sharing: &Sharing, key: &str) -> Option<String> {
    let standard = Sharing::standard().pooled;
    let unshared = standard.iter().filter(|resource| sharing.keeps(resource) && !sharing.pools(resource));
    let unshared: Vec<String> = unshared.map(ToString::to_string).collect();
    (!pooled.is_empty() && !unshared.is_empty()).then(|| {
        format!("{key}: not shared: {}: the list replaces the default; name them too", unshared.join(", "))
    })
}

/// What else there is to say of the list of one `place`: who says what is shared and counts before it, or what it leaves out as the list in force.
pub fn beside(
    pooled: &BTreeSet<GroupVersionResource>,
    sharing: &Sharing,
    key: &str,
    said_by: Option<&str>,
    place: &str,
) -> Option<String> {
    match said_by {
        Some(name) => Some(format!("{key}: {name} says what is shared, and counts before {place}")),
        None => left_out(pooled, sharing, key),
    }
}

impl Sharing {
    /// What is shared, from all that is said; who counts before whom is said at [`super`].
    pub fn resolve(flags: &Layer, file: &Layer, cloud: &Layer) -> Self {
        let standard = Self::standard();
        let chosen = cloud.pooled.as_ref().or(file.pooled.as_ref()).unwrap_or(&standard.pooled);
        let passed_through: BTreeSet<_> =
            [&standard.passed_through, &flags.passed_through, &file.passed_through, &cloud.passed_through]
                .into_iter()
                .flatten()
                .cloned()
                .collect();
        let pooled = chosen
            .iter()
            .chain(flags.pooled.iter().flatten())
            .filter(|resource| !private(resource) && !passed_through.contains(*resource))
            .cloned()
            .collect();
        let mut freshness = cloud.freshness.clone();
        for said in [file, flags] {
            freshness.extend(said.freshness.iter().map(|(resource, policy)| (resource.clone(), *policy)));
        }
        Self {
            pooled,
            passed_through,
            freshness,
            default_freshness: flags
                .default_freshness
                .or(file.default_freshness)
                .or(cloud.default_freshness)
                .unwrap_or(standard.default_freshness),
            cache_agents: [&flags.cache_agents, &file.cache_agents, &cloud.cache_agents]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            openapi: flags.openapi.or(file.openapi).unwrap_or(standard.openapi),
        }
    }
}

/// The filters' rules: those of the flags, with the components of the file and the cluster.
pub fn rules(flags: &Rules, file: &Layer, cloud: &Layer) -> Rules {
    let mut rules = flags.clone();
    for (name, components) in file.components.iter().chain(&cloud.components) {
        rules.components.entry(*name).or_default().extend(components.iter().cloned());
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud_config::{leader_hub, resource, yurt_hub_cfg},
        filters::FilterName,
        freshness::Policy,
        offline::discover::OpenApi,
    };

    fn set(list: &[&str]) -> BTreeSet<GroupVersionResource> {
        list.iter().map(|text| resource(text).unwrap()).collect()
    }

    fn pooled(list: &[&str]) -> Layer {
        Layer { pooled: Some(set(list)), ..Layer::default() }
    }

    #[test]
    fn the_cluster_counts_before_the_file_and_flags_are_added() {
        let none = Layer::default();
        let standard = ["/v1/services", "discovery.k8s.io/v1/endpointslices"];
        let cases: [(&Layer, &Layer, &Layer, &[&str]); 7] = [
            (&none, &none, &none, &standard),
            (&none, &pooled(&["/v1/nodes"]), &none, &["/v1/nodes"]),
            (&none, &pooled(&["/v1/nodes"]), &pooled(&["/v1/services"]), &["/v1/services"]),
            (&pooled(&["/v1/nodes"]), &none, &pooled(&["/v1/services"]), &["/v1/services", "/v1/nodes"]),
            (&none, &pooled(&[]), &none, &[]),
            (&pooled(&["/v1/secrets"]), &none, &pooled(&["/v1/configmaps", "/v1/secrets"]), &[]),
            (
                &Layer { passed_through: set(&["/v1/services"]), ..Layer::default() },
                &none,
                &none,
                &standard[1..],
            ),
        ];
        for (flags, file, cloud, expected) in cases {
            assert_eq!(
                Sharing::resolve(flags, file, cloud).pooled,
                set(expected),
                "{flags:?} {file:?} {cloud:?}"
            );
        }
    }

    #[test]
    fn a_list_that_replaces_the_default_is_told_what_it_leaves_out() {
        let (services, slices) = ("/v1/services", "discovery.k8s.io/v1/endpointslices");
        let none = Layer::default();
        let passing = Layer { passed_through: set(&[services]), ..Layer::default() };
        let cases: [(&[&str], &Layer, &[&str]); 7] = [
            (&["/v1/nodes"], &none, &[services, slices]),
            (&["/v1/nodes", services], &none, &[slices]),
            (&["/v1/nodes", services, slices], &none, &[]),
            (&[], &none, &[]),
            (&["/v1/nodes"], &pooled(&[slices]), &[services]),
            (&["/v1/nodes"], &pooled(&[services, slices]), &[]),
            (&["/v1/nodes"], &passing, &[slices]),
        ];
        for (list, flags, expected) in cases {
            let sharing = Sharing::resolve(flags, &pooled(list), &none);
            let said = beside(&set(list), &sharing, "key", None, "it");
            let told = format!(
                "key: not shared: {}: the list replaces the default; name them too",
                expected.join(", ")
            );
            assert_eq!(said, (!expected.is_empty()).then_some(told), "{list:?} {flags:?}");
            let said = beside(&set(list), &sharing, "key", Some("another"), "it");
            assert_eq!(said.as_deref(), Some("key: another says what is shared, and counts before it"));
        }
    }

    #[test]
    fn a_flag_says_how_fresh_before_the_file_and_the_file_before_the_cluster() {
        let say = |said: &[&str]| {
            let mut layer = Layer::default();
            for text in said {
                layer.say_how_fresh(text).unwrap();
            }
            layer
        };
        // What is said by flags, the file and the cluster, and then of Pods and of Nodes.
        let cases: [([&[&str]; 3], [&str; 2]); 7] = [
            ([&[], &[], &[]], ["bounded:10", "bounded:10"]),
            ([&["/v1/pods=strict"], &["/v1/pods=any", "default=any"], &[]], ["strict", "any"]),
            ([&[], &[], &["/v1/pods=strict", "default=any"]], ["strict", "any"]),
            ([&[], &["/v1/pods=any"], &["/v1/pods=strict", "default=strict"]], ["any", "strict"]),
            ([&["/v1/pods=bounded:1"], &[], &["/v1/pods=strict"]], ["bounded:1", "bounded:10"]),
            ([&[], &["default=any"], &["/v1/pods=strict", "default=bounded:3"]], ["strict", "any"]),
            ([&["default=bounded:2"], &["default=any"], &["default=strict"]], ["bounded:2", "bounded:2"]),
        ];
        for (said, expected) in cases {
            let [flags, file, cloud] = said.map(say);
            let sharing = Sharing::resolve(&flags, &file, &cloud);
            let of = |text: &str| sharing.freshness(&resource(text).unwrap());
            assert_eq!(
                [of("/v1/pods"), of("/v1/nodes")].map(|policy| policy.to_string()),
                expected,
                "{said:?}"
            );
            assert_eq!(of("coordination.k8s.io/v1/leases"), Policy::Strict);
        }
    }

    #[test]
    fn what_is_passed_through_adds_up() {
        let passing = |list: &[&str]| Layer { passed_through: set(list), ..Layer::default() };
        let (flags, file, cloud) =
            (passing(&["a.b/v1/as"]), passing(&["a.b/v1/bs"]), passing(&["/v1/services"]));
        let sharing = Sharing::resolve(&flags, &file, &cloud);
        let mut expected = Sharing::standard().passed_through;
        expected.extend(set(&["a.b/v1/as", "a.b/v1/bs", "/v1/services"]));
        assert_eq!(sharing.passed_through, expected);
        assert_eq!(sharing.pooled, set(&["discovery.k8s.io/v1/endpointslices"]));
    }

    #[test]
    fn a_flag_says_what_of_openapi_is_fetched_before_the_file() {
        let say = |openapi| Layer { openapi, ..Layer::default() };
        for (flag, file, expected) in [
            (None, None, OpenApi::Used),
            (None, Some(OpenApi::All), OpenApi::All),
            (Some(OpenApi::Asked), Some(OpenApi::All), OpenApi::Asked),
        ] {
            let sharing = Sharing::resolve(&say(flag), &say(file), &Layer::default());
            assert_eq!(sharing.openapi, expected, "{flag:?} {file:?}");
        }
    }

    #[test]
    fn the_clusters_config_maps_are_read_as_openyurt_writes_them() {
        let said = |key: &str| match key {
            "cache_agents" => Some(" a, b,,".to_owned()),
            "servicetopology" => Some("ingress".to_owned()),
            _ => None,
        };
        let cloud = yurt_hub_cfg(said, &Layer::default());
        assert_eq!(cloud.cache_agents, ["a".into(), "b".into()].into());
        let rules = rules(&Rules::default(), &Layer::default(), &cloud);
        assert!(rules.components[&FilterName::ServiceTopology].contains("ingress"));
        let cases: [(Option<&str>, Option<&[&str]>); 4] = [
            (
                Some("/v1/services,bad,discovery.k8s.io/v1/endpointslices"),
                Some(&["/v1/services", "discovery.k8s.io/v1/endpointslices"]),
            ),
            (Some(","), Some(&[])),
            (Some(""), Some(&[])),
            (None, None),
        ];
        for (text, expected) in cases {
            let (said, problems) = leader_hub(|_| text.map(str::to_owned)).unwrap();
            assert_eq!(said, expected.map(set), "{text:?}");
            let bad = text.is_some_and(|text| text.contains("bad"));
            assert_eq!(problems.iter().any(|problem| problem.contains("entry \"bad\"")), bad, "{problems:?}");
            assert_eq!(problems.iter().any(|problem| problem.contains("is not there")), text.is_none());
        }
        let problems = leader_hub(|_| Some("bad".into())).unwrap_err();
        assert!(problems[1].ends_with("the configuration stays as it was"), "{problems:?}");
        let (said, _) = leader_hub(|_| Some("/v1/secrets,/v1/services,/v1/events,a.b/v1/cs".into())).unwrap();
        let file = Layer { passed_through: set(&["a.b/v1/cs"]), ..Layer::default() };
        let sharing = Sharing::resolve(&Layer::default(), &file, &Layer::default());
        let problems = in_vain(&said.unwrap(), &sharing, "pool-scoped-metadata");
        let expected = [
            "pool-scoped-metadata: /v1/events is never shared: it is passed through",
            "pool-scoped-metadata: /v1/secrets is never shared: who may read which is decided by name",
            "pool-scoped-metadata: a.b/v1/cs is never shared: it is passed through",
        ];
        assert_eq!(problems, expected);
    }
}
