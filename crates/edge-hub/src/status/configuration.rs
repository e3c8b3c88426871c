//! What is shared, and by which configuration, as `edge-hub status` shows it.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

use crate::{
    cloud_config::places::{Place, PlaceState},
    hub::Hub,
};

/// What is in force of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationView {
    /// Resources of which one stream serves everyone, as `group/version/resource`.
    pub shared: Vec<String>,
    /// Resources that are never kept.
    pub passed_through: Vec<String>,
    /// How fresh reads of the most recent state are, where nothing else is said of a resource.
    pub freshness: String,
    /// How fresh those of single resources are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub freshness_of: BTreeMap<String, String>,
    /// What of `OpenAPI` is fetched though nobody asks; empty: the hub does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub openapi: String,
    /// Agents whose answers are kept however seldom they ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_agents: Vec<String>,
    /// Components that filters are for, beside those that they are for by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, Vec<String>>,
    /// The file and the ConfigMaps that say so, beside flags.
    pub places: Vec<Place>,
}

impl ConfigurationView {
    /// As it is now.
    pub(super) fn of(hub: &Hub) -> Self {
        let sharing = hub.sharing.load();
        Self {
            shared: sharing.pooled.iter().map(ToString::to_string).collect(),
            passed_through: sharing.passed_through.iter().map(ToString::to_string).collect(),
            freshness: sharing.default_freshness.to_string(),
            freshness_of: sharing
                .freshness
                .iter()
                .map(|(of, policy)| (of.to_string(), policy.to_string()))
                .collect(),
            openapi: sharing.openapi.to_string(),
            cache_agents: sharing.cache_agents.iter().map(ToString::to_string).collect(),
            components: hub
                .filters
                .rules()
                .components
                .iter()
                .map(|(filter, names)| (filter.to_string(), names.iter().map(ToString::to_string).collect()))
                .collect(),
            places: hub.configured_by.load().to_vec(),
        }
    }
}

pub(super) fn print(view: &ConfigurationView, out: &mut dyn Write) -> io::Result<()> {
    let ConfigurationView {
        shared,
        passed_through,
        freshness,
        freshness_of,
        openapi,
        cache_agents,
        components,
        places,
    } = view;
    let names = |of: &[String]| if of.is_empty() { "nothing".to_owned() } else { of.join(", ") };
    writeln!(out, "config shared: {}", names(shared))?;
    writeln!(out, "       passed through: {}", names(passed_through))?;
    write!(out, "       freshness: {freshness}")?;
    freshness_of.iter().try_for_each(|(of, policy)| write!(out, ", of {of} {policy}"))?;
    writeln!(out)?;
    if !openapi.is_empty() {
        writeln!(out, "       openapi: {openapi}")?;
    }
    if !cache_agents.is_empty() {
        writeln!(out, "       cached agents: {}", names(cache_agents))?;
    }
    for (filter, more) in components.iter().filter(|(_, more)| !more.is_empty()) {
        writeln!(out, "       {filter} for {} as well", names(more))?;
    }
    for Place { name, state, version, problems } in places {
        let version = version.map_or_else(String::new, |version| format!(", version {version}"));
        let state = match state {
            PlaceState::Unread => "NOT READ yet",
            PlaceState::Absent => "not there",
            PlaceState::InForce => "in force",
            PlaceState::NotInForce => "NOT in force, what it said before is",
        };
        writeln!(out, "       {name}: {state}{version}")?;
        for problem in problems {
            writeln!(out, "         {problem}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_shown_with_what_is_wrong_in_it() {
        let place = |name: &str, state, version, problems: &[&str]| Place {
            name: name.to_owned(),
            state,
            version,
            problems: problems.iter().map(ToString::to_string).collect(),
        };
        let view = ConfigurationView {
            shared: vec!["/v1/services".to_owned(), "example.com/v1/widgets".to_owned()],
            passed_through: Vec::new(),
            freshness: "bounded:10".to_owned(),
            freshness_of: [("/v1/pods".to_owned(), "strict".to_owned())].into(),
            openapi: "used".to_owned(),
            cache_agents: vec!["till".to_owned()],
            components: [("servicetopology".to_owned(), vec!["envoy".to_owned()])].into(),
            places: vec![
                place("/etc/hub.yaml", PlaceState::NotInForce, None, &["freshness: soon"]),
                place("kube-system/yurt-hub-cfg", PlaceState::Absent, None, &[]),
                place(
                    "kube-system/leader-hub-shop",
                    PlaceState::Unread,
                    None,
                    &["it cannot be read: forbidden"],
                ),
                place("kube-system/leader-hub-b", PlaceState::InForce, Some(12), &[]),
            ],
        };
        let mut out = Vec::new();
        print(&view, &mut out).unwrap();
        let expected = "config shared: /v1/services, example.com/v1/widgets\n       passed through: nothing\n       \
            freshness: bounded:10, of /v1/pods strict\n       openapi: used\n       cached agents: till\n       servicetopology for envoy as well\n       \
            /etc/hub.yaml: NOT in force, what it said before is\n         freshness: soon\n       kube-system/yurt-hub-cfg: not there\n       \
            kube-system/leader-hub-shop: NOT READ yet\n         it cannot be read: forbidden\n       \
            kube-system/leader-hub-b: in force, version 12\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
