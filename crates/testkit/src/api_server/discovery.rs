//! Discovery: groups, their resources, the aggregated form, version and health.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kind::Kind;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn groups(cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, Vec<Kind>>> {
    let mut groups = BTreeMap::<String, BTreeMap<String, Vec<Kind>>>::new();
    for table in cluster.store().tables.values() {
        let kind = table.kind.as_ref().clone();
        groups.entry(kind.group.clone()).or_default().entry(kind.version.clone()).or_default().push(kind);
    }
    groups
}

fn resource(kind: &Kind) -> Value {
    json!({
        "name": kind.resource, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": VERBS,
    })
}

fn resource_list(group_version: &str, kinds: &[Kind]) -> Value {
    let resources: Vec<_> = kinds.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn group(name: &str, versions: &BTreeMap<String, Vec<Kind>>) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<_> = versions.keys().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn aggregated(groups: &BTreeMap<String, BTreeMap<String, Vec<Kind>>>, core: bool) -> Value {
    let resource = |kind: &Kind| {
        json!({
            "resource": kind.resource, "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": kind.kind.to_lowercase(), "verbs": VERBS,
        })
    };
    let version = |(version, kinds): (&String, &Vec<Kind>)| json!({"version": version, "resources": kinds.iter().map(resource).collect::<Vec<_>>(), "freshness": "Current"});
    let item = |(name, versions): (&String, &BTreeMap<String, Vec<Kind>>)| {
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        json!({"metadata": metadata, "versions": versions.iter().map(version).collect::<Vec<_>>()})
    };
    let items: Vec<_> = groups.iter().filter(|(name, _)| name.is_empty() == core).map(item).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// The media type of aggregated discovery.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer to a path that is about no object: its media type and body.
pub(crate) fn answer(cluster: &Cluster, path: &str, accept: &str) -> Option<(&'static str, String)> {
    const JSON: &str = "application/json";
    const PLAIN: &str = "text/plain; charset=utf-8";
    if let Some(document) = cluster.document(path) {
        return Some((JSON, document));
    }
    let wants_aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2");
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let groups = groups(cluster);
    let body = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Some((PLAIN, "ok".to_owned())),
        ["version"] => json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "testkit", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26.8", "compiler": "gc", "platform": "linux/amd64",
        }),
        ["openapi", "v2"] => {
            json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}})
        }
        ["openapi", "v3"] => json!({"paths": {}}),
        ["api" | "apis"] if wants_aggregated => {
            let body = aggregated(&groups, parts == ["api"]);
            return Some((AGGREGATED, body.to_string()));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        }),
        ["apis"] => {
            let groups: Vec<_> = groups
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", "v1"] => resource_list("v1", groups.get("")?.get("v1")?),
        ["apis", name] => {
            let mut group = group(name, groups.get(*name)?);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        ["apis", name, version] => {
            resource_list(&format!("{name}/{version}"), groups.get(*name)?.get(*version)?)
        }
        _ => return None,
    };
    Some((JSON, body.to_string()))
}
