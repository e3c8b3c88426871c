//! Paths of requests about objects. Pure.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: String,
}

impl ObjectPath {
    /// Reads `/api/v1/…` and `/apis/group/version/…`; nothing if it is not so long, or a part of it is empty or dots.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<_> = path.strip_prefix('/')?.trim_end_matches('/').split('/').collect();
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return None;
        }
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // A namespace is an object, too; only its own subresources look like resources in it.
            ["namespaces", namespace, rest @ ..]
                if rest.first().is_some_and(|resource| !["status", "finalize"].contains(resource)) =>
            {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, None, String::new()),
            [resource, name, rest @ ..] => (*resource, Some((*name).to_owned()), rest.join("/")),
            [] => return None,
        };
        let (group, version, resource) = (group.to_owned(), version.to_owned(), resource.to_owned());
        Some(Self { group, version, namespace, resource, name, subresource })
    }

    /// `resource.group`, or `resource` in the core group.
    pub(crate) fn id(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_path_names() {
        let read = |path: &str| {
            let path = ObjectPath::parse(path)?;
            let (namespace, name) =
                (path.namespace.clone().unwrap_or_default(), path.name.clone().unwrap_or_default());
            Some([path.id(), path.version, namespace, name, path.subresource].join(" "))
        };
        let table = [
            ("/api/v1/pods", "pods v1   "),
            ("/api/v1/namespaces/a/pods/b/status", "pods v1 a b status"),
            ("/api/v1/namespaces/a", "namespaces v1  a "),
            ("/api/v1/namespaces/a/status", "namespaces v1  a status"),
            ("/apis/apps/v1/namespaces/a/deployments", "deployments.apps v1 a  "),
        ];
        for (path, expected) in table {
            assert_eq!(read(path).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(read("/api/v1/pods//").as_deref(), Some("pods v1   "));
        for path in
            ["/", "/api/v1", "/version", "//api/v1/pods", "/api/v1//pods", "/api/v1/namespaces/a/../pods"]
        {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
