//! The groups of an API server without their resources, as clients ask for them that do not know aggregated discovery: all of it stands in
//! that document, in the same order.

use axum::body::Bytes;
use serde::{Deserialize, Serialize};

/// The plain answer to `/apis` by an aggregated one; none to any other path.
pub(super) fn alone(path: &str, aggregated: &Bytes) -> Option<Vec<u8>> {
    if path != "/apis" {
        return None;
    }
    let Aggregated { items } = serde_json::from_slice(aggregated).ok()?;
    let groups = items.into_iter().filter_map(Group::of).collect();
    let list = List { kind: "APIGroupList", api_version: "v1", groups };
    let mut json = serde_json::to_vec(&list).ok()?;
    // As Go's encoder ends every document.
    json.push(b'\n');
    Some(json)
}

#[derive(Deserialize)]
struct Aggregated {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    versions: Vec<OfItem>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct OfItem {
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<Group>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    versions: Vec<Version>,
    preferred_version: Version,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    group_version: String,
    version: String,
}

impl Group {
    /// The first version is the preferred one. A group without any is none.
    fn of(Item { metadata: Metadata { name }, versions }: Item) -> Option<Self> {
        let of = |OfItem { version }| Version { group_version: format!("{name}/{version}"), version };
        let versions: Vec<_> = versions.into_iter().map(of).collect();
        let preferred_version = versions.first()?.clone();
        Some(Self { name, versions, preferred_version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_are_those_of_the_whole_document() {
        let aggregated = Bytes::from_static(
            br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
            {"metadata":{"name":"autoscaling","creationTimestamp":null},"versions":[
                {"version":"v2","resources":[{"resource":"horizontalpodautoscalers"}],"freshness":"Current"},
                {"version":"v1","freshness":"Stale"}]},
            {"metadata":{"name":"empty"}}]}"#,
        );
        // As kube-apiserver v1.36 writes such a group.
        let plain = concat!(
            r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"autoscaling","versions":["#,
            r#"{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],"#,
            r#""preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}}]}"#,
            "\n"
        );
        assert_eq!(alone("/apis", &aggregated), Some(plain.as_bytes().to_vec()));
        assert_eq!(alone("/api", &aggregated), None, "it has addresses, which are not in here");
    }
}
