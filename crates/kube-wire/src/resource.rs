//! What a request or an object is about: group, version, resource, and the key under which an object is stored.

use std::fmt;

/// A group, version and plural resource name: `""/v1/services`, `discovery.k8s.io/v1/endpointslices`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The version within the group.
    pub version: Box<str>,
    /// The plural, lower-case resource name.
    pub resource: Box<str>,
}

impl GroupVersionResource {
    /// Builds one from its three parts.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// `v1` or `group/version`, as it stands in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// `group/version/resource`, the core group empty, as OpenYurt writes it: `/v1/services`.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.group, self.version, self.resource)
    }
}

/// The key of an object within its resource: `namespace/name`, or `name` for a cluster-scoped one.
///
/// Lists are ordered by the bytes of this string, as the API server orders them: `a-b/x` comes before `a/x`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Box<str>);

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace means a cluster-scoped object.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
