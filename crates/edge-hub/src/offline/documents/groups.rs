//! Discovery as clients ask for it that do not know the aggregated one: groups, one group, and the resources of one version. All of it but hashes
//! of storage versions, which are optional, stands in that document, in the same order.

use std::borrow::Cow;

use axum::body::Bytes;
use kube_wire::resource::GroupVersionResource;
use serde::{Deserialize, Serialize};

use super::{Documents, forms};
use crate::definitions::has_namespaces;

/// Which aggregated document tells what plain discovery does at `path`.
pub(super) fn source(path: &str) -> Option<&'static str> {
    match parts(path)[..] {
        ["apis"] | ["apis", _] | ["apis", _, _] => Some("/apis"),
        ["api", _] => Some("/api"),
        _ => None,
    }
}

/// The parts of a path; none of one with an empty part, which nothing is served at.
fn parts(path: &str) -> Vec<&str> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if parts.contains(&"") { Vec::new() } else { parts }
}

/// The plain answer to `path` by the document that [`source`] names; none if it has no such group or version.
pub(super) fn plain(path: &str, aggregated: &Bytes) -> Option<Vec<u8>> {
    let Aggregated { items } = serde_json::from_slice(aggregated).ok()?;
    let group =
        |name: &str| items.iter().find(|item| item.metadata.name.as_deref().unwrap_or_default() == name);
    let json = match parts(path)[..] {
        ["apis"] => {
            let groups = items.iter().filter_map(Group::of).collect();
            serde_json::to_vec(&List { kind: "APIGroupList", api_version: "v1", groups })
        }
        ["apis", name] => {
            let group = Group::of(group(name)?)?;
            serde_json::to_vec(&Alone { kind: "APIGroup", api_version: "v1", group })
        }
        ["apis", name, version] => serde_json::to_vec(&VersionList::of(group(name)?, name, version)?),
        ["api", version] => serde_json::to_vec(&VersionList::of(group("")?, "", version)?),
        _ => return None,
    };
    let mut json = json.ok()?;
    // As Go's encoder ends every document.
    json.push(b'\n');
    Some(json)
}

impl Documents {
    /// Whether the objects of a resource have namespaces, as what is kept of discovery says it: it may be some hours old.
    pub fn is_namespaced(&self, resource: &GroupVersionResource) -> Option<bool> {
        is_namespaced(resource, &self.body(naming(resource), forms::AGGREGATED)?)
    }

    /// Whether what is kept of discovery names a resource: without a link clients find no other.
    pub fn names(&self, resource: &GroupVersionResource) -> bool {
        let kept = self.body(naming(resource), forms::AGGREGATED);
        kept.is_some_and(|aggregated| kept_of(resource, &aggregated).is_some())
    }
}

/// Which aggregated document names a resource.
pub fn naming(resource: &GroupVersionResource) -> &'static str {
    if resource.group.is_empty() { "/api" } else { "/apis" }
}

/// Whether the objects of a resource have namespaces, by that document.
fn is_namespaced(resource: &GroupVersionResource, aggregated: &Bytes) -> Option<bool> {
    has_namespaces(&kept_of(resource, aggregated)?.scope)
}

/// What that document says of a resource.
fn kept_of(resource: &GroupVersionResource, aggregated: &Bytes) -> Option<Kept> {
    let Aggregated { items } = serde_json::from_slice(aggregated).ok()?;
    let name = &*resource.group;
    let mut groups = items.into_iter();
    let group = groups.find(|item| item.metadata.name.as_deref().unwrap_or_default() == name)?;
    let version = group.versions.into_iter().find(|of| *of.version == *resource.version)?;
    version.resources.into_iter().find(|kept| *kept.resource == *resource.resource)
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
    /// The core group has none.
    name: Option<String>,
}

#[derive(Deserialize)]
struct OfItem {
    version: String,
    #[serde(default)]
    resources: Vec<Kept>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    subresource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
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
    fn of(Item { metadata: Metadata { name }, versions }: &Item) -> Option<Self> {
        let name = name.clone()?;
        let of = |version: &OfItem| Version {
            group_version: format!("{name}/{}", version.version),
            version: version.version.clone(),
        };
        let versions: Vec<_> = versions.iter().map(of).collect();
        let preferred_version = versions.first()?.clone();
        Some(Self { name, versions, preferred_version })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Alone {
    kind: &'static str,
    api_version: &'static str,
    #[serde(flatten)]
    group: Group,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionList<'a> {
    kind: &'static str,
    /// The core group's list has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<Listed<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    name: Cow<'a, str>,
    singular_name: &'a str,
    namespaced: bool,
    /// Where they are not those of the list, as of `pods/eviction`.
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [String],
}

impl<'a> VersionList<'a> {
    fn of(item: &'a Item, group: &str, version: &str) -> Option<Self> {
        let of = item.versions.iter().find(|of| of.version == version)?;
        let listed = |resource: &'a Kept, name, told: &'a Option<ResponseKind>, verbs| {
            let (of_group, of_version, kind) = told.as_ref().map_or(("", "", ""), |told| {
                let here = told.group == group && told.version == version;
                let (group, version) = if here { ("", "") } else { (&*told.group, &*told.version) };
                (group, version, &*told.kind)
            });
            Listed {
                name,
                singular_name: "",
                namespaced: resource.scope == "Namespaced",
                group: of_group,
                version: of_version,
                kind,
                verbs,
                short_names: &[],
                categories: &[],
            }
        };
        let mut resources = Vec::new();
        for resource in &of.resources {
            let name = Cow::Borrowed(&*resource.resource);
            resources.push(Listed {
                singular_name: &resource.singular_resource,
                short_names: &resource.short_names,
                categories: &resource.categories,
                ..listed(resource, name, &resource.response_kind, &resource.verbs)
            });
            resources.extend(resource.subresources.iter().map(|part| {
                let name = Cow::Owned(format!("{}/{}", resource.resource, part.subresource));
                listed(resource, name, &part.response_kind, &part.verbs)
            }));
        }
        let (api_version, group_version) = match group {
            "" => (None, version.to_owned()),
            group => (Some("v1"), format!("{group}/{version}")),
        };
        Some(Self { kind: "APIResourceList", api_version, group_version, resources })
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
        assert_eq!(super::plain("/apis", &aggregated), Some(plain.as_bytes().to_vec()));
        assert_eq!(super::plain("/api", &aggregated), None, "it has addresses, which are not in here");
        let alone = concat!(
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"autoscaling","versions":["#,
            r#"{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],"#,
            r#""preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}}"#,
            "\n"
        );
        assert_eq!(super::plain("/apis/autoscaling", &aggregated), Some(alone.as_bytes().to_vec()));
        for none in ["/apis/nobody", "/apis/autoscaling/v3", "/apis/nobody/v1", "/apis/empty"] {
            assert_eq!(super::plain(none, &aggregated), None, "{none}");
        }
    }

    #[test]
    fn the_resources_of_a_version_are_those_of_the_whole_document() {
        let aggregated = Bytes::from_static(
            br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
            {"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"configmaps","responseKind":{"group":"","version":"v1","kind":"ConfigMap"},"scope":"Namespaced",
                 "singularResource":"configmap","verbs":["create","get"],"shortNames":["cm"]},
                {"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod",
                 "verbs":["get"],"shortNames":["po"],"categories":["all"],"subresources":[
                    {"subresource":"eviction","responseKind":{"group":"policy","version":"v1","kind":"Eviction"},"verbs":["create"]},
                    {"subresource":"log","responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":["get"]}]}]}]}]}"#,
        );
        // As kube-apiserver v1.36 writes them, but for `storageVersionHash`.
        let plain = concat!(
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":["#,
            r#"{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["create","get"],"shortNames":["cm"]},"#,
            r#"{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"],"categories":["all"]},"#,
            r#"{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]},"#,
            r#"{"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#,
            "\n"
        );
        assert_eq!(super::plain("/api/v1", &aggregated), Some(plain.as_bytes().to_vec()));
        assert_eq!(super::plain("/api/v2", &aggregated), None);
    }

    #[test]
    fn whether_a_resource_has_namespaces_is_in_the_whole_document() {
        let aggregated = Bytes::from_static(
            br#"{"items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v1","resources":[
                {"resource":"widgets","scope":"Namespaced"},{"resource":"planets","scope":"Cluster"},{"resource":"odd"}]}]},
                {"metadata":{"name":"stale.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#,
        );
        for (group, version, resource, expected) in [
            ("example.com", "v1", "widgets", Some(true)),
            ("example.com", "v1", "planets", Some(false)),
            ("example.com", "v1", "odd", None),
            ("example.com", "v1", "moons", None),
            ("example.com", "v2", "planets", None),
            ("stale.example.com", "v1", "planets", None),
            ("", "v1", "planets", None),
        ] {
            let resource = GroupVersionResource::new(group, version, resource);
            assert_eq!(is_namespaced(&resource, &aggregated), expected, "{resource}");
        }
    }

    #[test]
    fn only_discovery_has_a_source() {
        for (path, expected) in [
            ("/apis", Some("/apis")),
            ("/apis/apps", Some("/apis")),
            ("/apis/apps/v1", Some("/apis")),
            ("/api/v1", Some("/api")),
            ("/api", None),
            ("/apis/", None),
            ("/apisx", None),
            ("/apis/apps/v1/deployments", None),
            ("/api/v1/pods", None),
            ("/version", None),
        ] {
            assert_eq!(source(path), expected, "{path}");
        }
    }
}
