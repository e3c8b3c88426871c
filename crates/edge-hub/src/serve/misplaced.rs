//! Reads at a path where the API server serves nothing: of a resource without namespaces below one, or of one object of a resource with namespaces
//! beside them. What is held of the whole resource would answer them, and an empty list says that there is nothing.

use http::Uri;
use kube_wire::{request::ResourcePath, transcode};
use watch_cache::Cache;

use super::{Asked, place, wanted::Wanted};

impl Asked<'_> {
    /// Whether the resource is not where it is looked for, as far as that is known: of what is built in, and else by the objects that are held.
    pub(super) fn is_misplaced(&self, wanted: &Wanted, path: &ResourcePath, uri: &Uri) -> bool {
        let is_namespaced = transcode::is_namespaced(&path.resource).or_else(|| self.held_in_namespaces());
        is_namespaced.is_some_and(|is_namespaced| !is_at(wanted, path, uri, is_namespaced))
    }

    /// Whether the objects that are held have namespaces; all of a resource do, or none.
    pub(super) fn held_in_namespaces(&self) -> Option<bool> {
        let found = self.hub.subscriptions.find(self.key(), self.is_protobuf(), &self.carrier)?;
        let held = found.read(Cache::snapshot)?;
        held.iter().next().map(|object| !object.key().namespace().is_empty())
    }
}

/// Whether a resource with namespaces, or without, is served at a path: all of it at once in both cases.
fn is_at(wanted: &Wanted, path: &ResourcePath, uri: &Uri, is_namespaced: bool) -> bool {
    match (is_namespaced, place(path)) {
        (true, Some(_)) => true,
        // A list may have a name, too, by its field selector.
        (true, None) => !matches!(wanted, Wanted::Get),
        (false, Some(_)) => false,
        // `/api/v1/namespaces/a` is in no namespace, and `/api/v1/namespaces/a/namespaces/a` reads like it.
        (false, None) => path.namespace.is_none() || uri.path().trim_end_matches('/').split('/').count() <= 5,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kube_wire::request::{RequestInfo, Verb};

    use super::*;

    #[test]
    fn a_resource_is_where_the_api_server_serves_it() {
        for (path, is_namespaced, expected) in [
            ("/api/v1/nodes", false, true),
            ("/api/v1/nodes/n", false, true),
            ("/api/v1/namespaces/a/nodes", false, false),
            ("/api/v1/namespaces/a/nodes/n", false, false),
            ("/api/v1/namespaces", false, true),
            ("/api/v1/namespaces/a", false, true),
            ("/api/v1/namespaces/a/", false, true),
            ("/api/v1/namespaces/a/namespaces", false, false),
            ("/api/v1/namespaces/a/namespaces/a", false, false),
            ("/api/v1/namespaces/a/namespaces/b", false, false),
            ("/apis/example.com/v1/namespaces", true, true),
            ("/api/v1/services", true, true),
            ("/api/v1/services?fieldSelector=metadata.name%3Ds", true, true),
            ("/api/v1/services/s", true, false),
            ("/api/v1/namespaces/a/services", true, true),
            ("/api/v1/namespaces/a/services/s", true, true),
        ] {
            let uri: Uri = path.parse().unwrap();
            let info = RequestInfo::parse(&Method::GET, &uri);
            let asked = info.resource().unwrap();
            let verb = if asked.name.is_some() && !path.contains('?') { Verb::Get } else { Verb::List };
            let wanted = Wanted::parse(verb, asked, uri.query().unwrap_or_default()).unwrap();
            assert_eq!(is_at(&wanted, asked, &uri, is_namespaced), expected, "{path}");
        }
    }
}
