//! The file of `--config`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::ValueEnum as _;
use kube_wire::resource::GroupVersionResource;
use serde::Deserialize;

use super::{Layer, resource};
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
        /// The key.
        key: &'static str,
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

/// In one line, as a log has it: what follows the first shows the file. The reader says where a value is of the wrong kind, and not of which key.
fn syntax(path: &Path, text: &str, error: &serde_saphyr::Error) -> FileError {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
    // Of the keys the message tells by itself.
    let cut = [", expected one of", ", set DuplicateKeyPolicy"].map(|rest| first.find(rest));
    let mut reason = first[..cut.into_iter().flatten().min().unwrap_or(first.len())].to_owned();
    let names_key = ["unknown field", "duplicate mapping key"].into_iter().any(|what| reason.contains(what));
    let at = error.location().filter(|_| !names_key);
    if let Some(key) = at.and_then(|at| key_before(text, at.line(), at.column())) {
        for (words, plain) in KINDS {
            reason = reason.replace(words, plain);
        }
        reason.insert_str(0, &format!("{key}: "));
    } else {
        reason = format!("{reason}; keys are {}", KEYS.join(", "));
    }
    FileError::Syntax { path: path.to_owned(), reason }
}

/// The last key of the file before a place in it; the first line and column are 1.
fn key_before(text: &str, line: u64, column: u64) -> Option<&'static str> {
    let (line, column) = (usize::try_from(line).ok()?.checked_sub(1)?, usize::try_from(column).ok()?);
    let begin: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let within: usize = text.get(begin..)?.chars().take(column).map(char::len_utf8).sum();
    let before = text.get(..begin + within)?;
    let last = |key: &str| before.rfind(&format!("{key}:")).max(before.rfind(&format!("{key}\":")));
    let found = KEYS.into_iter().filter_map(|key| Some((last(key)?, key))).max();
    found.map(|(_, key)| key)
}

fn parse(path: &Path, text: &str) -> Result<Layer, FileError> {
    let file = if text.trim().is_empty() {
        File::default()
    } else {
        serde_saphyr::from_str(text).map_err(|error| syntax(path, text, &error))?
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
    let wrong = |key, reason| FileError::Value { path: path.to_owned(), key, reason };
    let named = |key, text: &str| {
        resource(text).ok_or_else(|| {
            wrong(
                key,
                format!(
                    "{text:?} is not group/version/resource in lower case; the core group is empty: /v1/services"
                ),
            )
        })
    };
    let resources = |key, list: &[String]| -> Result<BTreeSet<GroupVersionResource>, FileError> {
        list.iter().map(|text| named(key, text)).collect()
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
            .map(|rule| rule.parse().map_err(|error| wrong("tunnelDestinations", format!("{error}"))))
            .collect::<Result<_, _>>()?,
        ..Layer::default()
    };
    layer.cache_agents = layer.named(cache_agents.iter().map(String::as_str), "cacheAgents", true);
    for (of, policy) in freshness {
        let policy = policy.parse().map_err(|error| wrong("freshness", format!("{error}")))?;
        if of == "default" {
            layer.default_freshness = Some(policy);
        } else {
            layer.freshness.insert(named("freshness", &of)?, policy);
        }
    }
    for (name, more) in filters {
        let name: FilterName = name.parse().map_err(|error| wrong("filters", format!("{error}")))?;
        let components = layer.named(more.iter().map(String::as_str), &format!("filters: {name}"), false);
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
            layer.nameless.iter().filter_map(|problem| problem.split(" is nobody's").next()).collect();
        let expected = ["cacheAgents: \"\"", "cacheAgents: \"*x\"", "filters: servicetopology: \"*\""];
        assert_eq!(told, expected);
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        for (text, words) in [
            ("poolScope: []", "unknown field `poolScope`"),
            ("- a", "keys are poolScopeResources"),
            ("freshness: [", "f: freshness: line 1 column 12: here must be names with values, as {a: b}"),
            ("poolScopeResources: [nodes]", "poolScopeResources: \"nodes\" is not group/version/resource"),
            (
                "passThroughResources: ['/v1/*']",
                "passThroughResources: \"/v1/*\" is not group/version/resource",
            ),
            ("freshness: { /v1/pods: soon }", "write strict, any, or bounded:SECONDS"),
            ("tunnelDestinations: [x]", "tunnelDestinations: \"x\" is not WHAT[@WHERE]=PORTS[:WHO]"),
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
            ("cacheAgents: [{a: b}]", "f: cacheAgents: line 1 column 15: here must be one word"),
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
