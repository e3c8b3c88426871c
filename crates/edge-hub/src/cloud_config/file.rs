//! The file of `--config`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::ValueEnum as _;
use kube_wire::resource::GroupVersionResource;
use serde::Deserialize;
use serde_path_to_error::{Segment, Track};

use super::{Layer, NOT_A_RESOURCE, resource};
use crate::{filters::FilterName, offline::discover::OpenApi};

/// The most a file may hold, in bytes: a mistaken path must not fill the memory.
const MOST: u64 = 1 << 20;

/// The keys of the file.
const KEYS: [&str; 8] = [
    "poolScopeResources",
    "passThroughResources",
    "freshness",
    "cacheAgents",
    "openapi",
    "filters",
    "tunnel",
    "tunnelDestinations",
];

/// What the reader says of values of the wrong kind, and the same for people.
const KINDS: [(&str, &str); 4] = [
    ("expected sequence start", "here must be a list, as [a, b]"),
    ("expected mapping start", "here must be names with values, as {a: b}"),
    ("expected string scalar", "here must be one word"),
    ("invalid boolean", "here must be true or false"),
];

/// What is wrong with the file. Each names it, and the key.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("--config {path}: {source}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is too large.
    #[error("--config {path}: larger than 1 MiB: this is no configuration of edge-hub")]
    Large {
        /// Which one.
        path: PathBuf,
    },
    /// No YAML, an unknown key, or a value of the wrong kind.
    #[error("--config {path}: {reason}")]
    Syntax {
        /// Which one.
        path: PathBuf,
        /// What the reader says, with the line; and the keys, unless it is about the value of one.
        reason: String,
    },
    /// A value is not as it must be.
    #[error("--config {path}: {key}: {reason}")]
    Value {
        /// Which one.
        path: PathBuf,
        /// The way to the key, as `freshness./v1/pods` or `poolScopeResources[0]`.
        key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    pool_scope_resources: Option<Vec<String>>,
    pass_through_resources: Vec<String>,
    freshness: BTreeMap<String, String>,
    cache_agents: Vec<String>,
    openapi: Option<String>,
    filters: BTreeMap<String, Vec<String>>,
    tunnel: bool,
    tunnel_destinations: Vec<String>,
}

/// Reads the file.
pub fn read(path: &Path) -> Result<Layer, FileError> {
    let unreadable = |source| FileError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MOST {
        return Err(FileError::Large { path: path.to_owned() });
    }
    parse(path, &std::fs::read_to_string(path).map_err(unreadable)?)
}

/// In one line, as a log has it: what follows the first shows the file. The reader says where a value is of the wrong kind, and not of which key: that is
/// the way `to` it.
fn syntax(path: &Path, to: &serde_path_to_error::Path, error: &serde_saphyr::Error) -> FileError {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
    // Of the keys the message tells by itself.
    let cut = [", expected one of", ", set DuplicateKeyPolicy"].map(|rest| first.find(rest));
    let mut reason = first[..cut.into_iter().flatten().min().unwrap_or(first.len())].to_owned();
    let names_key = ["unknown field", "duplicate mapping key"].into_iter().any(|what| reason.contains(what));
    let key = key(to, names_key);
    if key.is_empty() {
        reason = format!("{reason}; keys are {}", KEYS.join(", "));
    } else {
        for (words, plain) in KINDS {
            reason = reason.replace(words, plain);
        }
        let remedy = if names_key { ": write it once" } else { "" };
        reason = format!("{key}: {reason}{remedy}");
    }
    FileError::Syntax { path: path.to_owned(), reason }
}

/// The way to what is wrong: `freshness./v1/pods`, `cacheAgents[0]`; of a key that is itself wrong and `named` in the message, what it stands in. Empty: the
/// file as a whole.
fn key(to: &serde_path_to_error::Path, named: bool) -> String {
    let mut key = String::new();
    for segment in to.iter().take(to.iter().len().saturating_sub(usize::from(named))) {
        match segment {
            Segment::Map { key: name } if key.is_empty() => key.push_str(name),
            Segment::Map { key: name } => key.extend([".", name.as_str()]),
            Segment::Seq { index } => _ = write!(key, "[{index}]"),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    key
}

fn parse(path: &Path, text: &str) -> Result<Layer, FileError> {
    let file = if text.trim().is_empty() {
        File::default()
    } else {
        let mut track = Track::new();
        let read = serde_saphyr::with_deserializer_from_str(text, |reader| {
            File::deserialize(serde_path_to_error::Deserializer::new(reader, &mut track))
        });
        read.map_err(|error| syntax(path, &track.path(), &error))?
    };
    let File {
        pool_scope_resources,
        pass_through_resources,
        freshness,
        cache_agents,
        openapi,
        filters,
        tunnel,
        tunnel_destinations,
    } = file;
    let wrong = |key: &str, reason| FileError::Value { path: path.to_owned(), key: key.to_owned(), reason };
    let named = |key: &str, text: &str| {
        resource(text).ok_or_else(|| wrong(key, format!("{text:?} {NOT_A_RESOURCE}")))
    };
    let resources = |key: &str, list: &[String]| -> Result<BTreeSet<GroupVersionResource>, FileError> {
        list.iter().enumerate().map(|(index, text)| named(&format!("{key}[{index}]"), text)).collect()
    };
    let mut layer = Layer {
        pooled: match pool_scope_resources {
            Some(list) => Some(resources("poolScopeResources", &list)?),
            None => None,
        },
        passed_through: resources("passThroughResources", &pass_through_resources)?,
        openapi: match openapi {
            Some(text) => Some(
                OpenApi::from_str(&text, false)
                    .map_err(|_| wrong("openapi", format!("{text:?} is not one of used, all, asked")))?,
            ),
            None => None,
        },
        tunnel,
        tunnel_destinations: tunnel_destinations
            .iter()
            .enumerate()
            .map(|(index, rule)| {
                rule.parse()
                    .map_err(|error| wrong(&format!("tunnelDestinations[{index}]"), format!("{error}")))
            })
            .collect::<Result<_, _>>()?,
        ..Layer::default()
    };
    layer.cache_agents = layer.named(cache_agents.iter().map(String::as_str), "cacheAgents", true);
    for (of, policy) in freshness {
        let policy = policy.parse().map_err(|error| wrong(&format!("freshness.{of}"), format!("{error}")))?;
        if of == "default" {
            layer.default_freshness = Some(policy);
        } else {
            layer.freshness.insert(named("freshness", &of)?, policy);
        }
    }
    for (name, more) in filters {
        let name: FilterName = name.parse().map_err(|error| wrong("filters", format!("{error}")))?;
        let components = layer.named(more.iter().map(String::as_str), &format!("filters.{name}"), false);
        layer.components.insert(name, components);
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "poolScopeResources: [/v1/nodes]\npassThroughResources: [a.b/v1/cs]\nfreshness:\n  default: any\n  /v1/pods: \
                    bounded:5\ncacheAgents: [x]\nopenapi: all\nfilters:\n  servicetopology: [y]\ntunnel: true\ntunnelDestinations: ['kube.svc=443']\n";
        let layer = parse(Path::new("f"), text).unwrap();
        let of = GroupVersionResource::new;
        assert_eq!(layer.pooled, Some([of("", "v1", "nodes")].into()));
        assert_eq!(layer.passed_through, [of("a.b", "v1", "cs")].into());
        assert_eq!(layer.default_freshness.map(|policy| policy.to_string()).as_deref(), Some("any"));
        assert_eq!(layer.freshness[&of("", "v1", "pods")].to_string(), "bounded:5");
        assert!(layer.cache_agents.contains("x"));
        assert_eq!(layer.openapi, Some(OpenApi::All));
        assert!(layer.components[&FilterName::ServiceTopology].contains("y"));
        assert!(layer.tunnel && layer.tunnel_destinations == ["kube.svc=443".parse().unwrap()]);
        assert_eq!(parse(Path::new("f"), "\n").unwrap(), Layer::default());
    }

    #[test]
    fn names_that_nobody_has_are_told_of_and_do_not_count() {
        let text =
            "cacheAgents: [till-agent, Backup, a b, '', '*x']\nfilters: { servicetopology: ['*', y] }\n";
        let layer = parse(Path::new("f"), text).unwrap();
        assert_eq!(layer.cache_agents, ["a b".into(), "backup".into(), "till-agent".into()].into());
        assert_eq!(layer.components[&FilterName::ServiceTopology], ["y".into()].into());
        let told: Vec<&str> =
            layer.problems.iter().filter_map(|problem| problem.split(" is nobody's").next()).collect();
        let expected = ["cacheAgents: \"\"", "cacheAgents: \"*x\"", "filters.servicetopology: \"*\""];
        assert_eq!(told, expected);
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        for (text, words) in [
            ("poolScope: []", "unknown field `poolScope`"),
            ("- a", "keys are poolScopeResources"),
            ("freshness: [", "f: freshness: line 1 column 12: here must be names with values, as {a: b}"),
            ("poolScopeResources: [nodes]", "poolScopeResources[0]: \"nodes\" is not group/version/resource"),
            (
                "passThroughResources: ['/v1/*']",
                "passThroughResources[0]: \"/v1/*\" is not group/version/resource",
            ),
            (
                "freshness: { /v1/pods: soon }",
                "f: freshness./v1/pods: \"soon\" is no freshness policy: write strict, any, or bounded:SECONDS",
            ),
            ("freshness: { default: soon }", "f: freshness.default: \"soon\" is no freshness policy"),
            ("freshness: { pods: any }", "f: freshness: \"pods\" is not group/version/resource"),
            (
                "freshness:\n  default: any\n  /v1/pods: [any]\n",
                "f: freshness./v1/pods: line 3 column 13: here must be one word",
            ),
            // What is another key elsewhere.
            ("freshness:\n  tunnel: [any]\n", "f: freshness.tunnel: line 2 column 11: here must be one word"),
            (
                "freshness:\n  /v1/pods: any\n  /v1/pods: strict\n",
                "f: freshness: line 3 column 3: duplicate mapping key: /v1/pods: write it once",
            ),
            (
                "filters: { servicetopology: envoy }",
                "f: filters.servicetopology: line 1 column 29: here must be a list",
            ),
            ("poolScopeResources: [/v1/nodes, nodes]", "f: poolScopeResources[1]: \"nodes\" is not"),
            ("tunnelDestinations: [x]", "tunnelDestinations[0]: \"x\" is not WHAT[@WHERE]=PORTS[:WHO]"),
            ("openapi: some", "openapi: \"some\" is not one of used, all, asked"),
            ("filters: { x: [] }", "write one of discardcloudservice"),
            ("tunnel: yes please", "f: tunnel: "),
            (
                "cacheAgents: [a]\nfilters: {}\ncacheAgents: [b]\n",
                "f: line 3 column 1: duplicate mapping key: cacheAgents; keys are poolScopeResources, ",
            ),
            (
                "cacheAgents:\n- a\nfreshness:\n  - /v1/pods\n",
                "f: freshness: line 4 column 3: here must be names with values, as {a: b}",
            ),
            (
                "tunnel: true\npoolScopeResources: 3\n",
                "f: poolScopeResources: line 2 column 21: here must be a list, as [a, b]",
            ),
            ("cacheAgents: [{a: b}]", "f: cacheAgents[0]: line 1 column 15: here must be one word"),
            ("tunnel: 3", "f: tunnel: line 1 column 9: here must be true or false"),
            ("{cacheAgents: [a], tunnel: 3, filters: {}}", "f: tunnel: "),
            ("{\"poolScopeResources\": 3, \"tunnel\": true}", "f: poolScopeResources: "),
            (
                "tunnel: true\nfilter: {}\n",
                "f: line 2 column 1: unknown field `filter`; keys are poolScopeResources, ",
            ),
        ] {
            let error = parse(Path::new("f"), text).unwrap_err().to_string();
            assert!(error.starts_with("--config f: ") && error.contains(words), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
