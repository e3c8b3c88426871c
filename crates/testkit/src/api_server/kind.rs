//! What kinds of object a server has, and what is known of each.

use serde_json::{Value, json};

/// A kind of object in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Its group; empty for the core group.
    pub group: String,
    /// The version it is served in.
    pub version: String,
    /// Its plural name in paths.
    pub resource: String,
    /// Its name, as in `kind:`.
    pub kind: String,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// Whether it is built in: then list items carry neither `apiVersion` nor `kind`, as Go's typed lists have it.
    pub typed: bool,
    /// The fields it can be selected by, besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<String>,
}

impl Kind {
    /// A built-in kind.
    pub fn built_in(group: &str, version: &str, resource: &str, kind: &str, namespaced: bool) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            typed: true,
            fields: Vec::new(),
        }
    }

    /// The same kind, selectable by `fields` as well.
    #[must_use]
    pub fn selectable(mut self, fields: &[&str]) -> Self {
        self.fields = fields.iter().map(|&field| field.to_owned()).collect();
        self
    }

    /// A kind as the storage version of a `CustomResourceDefinition` says.
    pub fn of_crd(crd: &Value) -> Option<Self> {
        let spec = &crd["spec"];
        let version = spec["versions"].as_array()?.iter().find(|version| version["storage"] == true)?;
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        let path = |field: &Value| Some(field["jsonPath"].as_str()?.trim_start_matches('.').to_owned());
        Some(Self {
            group: spec["group"].as_str()?.to_owned(),
            version: version["name"].as_str()?.to_owned(),
            resource: spec["names"]["plural"].as_str()?.to_owned(),
            kind: spec["names"]["kind"].as_str()?.to_owned(),
            namespaced: spec["scope"] == "Namespaced",
            typed: false,
            fields: fields.filter_map(path).collect(),
        })
    }

    /// The manifest of a `CustomResourceDefinition` that defines this kind.
    pub fn crd(&self) -> Value {
        let singular = self.kind.to_lowercase();
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let fields: Vec<Value> =
            self.fields.iter().map(|field| json!({"jsonPath": format!(".{field}")})).collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.id()},
            "spec": {
                "group": self.group,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {"plural": self.resource, "singular": singular, "kind": self.kind, "listKind": format!("{}List", self.kind)},
                "versions": [{
                    "name": self.version, "served": true, "storage": true, "schema": schema, "selectableFields": fields,
                }],
            },
        })
    }

    /// `resource.group`, or `resource` in the core group: what it is called in messages and in this crate.
    pub fn id(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// `group/version`, or the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of its collection, in `namespace` if given.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let scope = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        format!("{root}/{}{scope}/{}", self.version, self.resource)
    }
}

/// The kinds every fake server begins with.
pub fn well_known() -> Vec<Kind> {
    let core = |resource: &str, kind: &str| Kind::built_in("", "v1", resource, kind, true);
    vec![
        core("services", "Service").selectable(&["spec.clusterIP", "spec.type"]),
        Kind::built_in("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
        core("pods", "Pod").selectable(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]),
        Kind::built_in("", "v1", "nodes", "Node", false).selectable(&["spec.unschedulable"]),
        Kind::built_in("", "v1", "namespaces", "Namespace", false).selectable(&["status.phase"]),
        core("configmaps", "ConfigMap"),
        core("secrets", "Secret").selectable(&["type"]),
        core("serviceaccounts", "ServiceAccount"),
        Kind::built_in("coordination.k8s.io", "v1", "leases", "Lease", true),
        Kind::built_in(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            false,
        ),
    ]
}
