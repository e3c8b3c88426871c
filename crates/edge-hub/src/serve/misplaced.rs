//! Reads at a path where the API server serves nothing: of a resource without namespaces below one, or of one object of a resource with namespaces
//! beside them. What is held of the whole resource would answer them, and an empty list says that there is nothing. And selectors by namespace, which the
//! API server refuses of custom resources that have none.
//!
//! A definition may go and come again with another scope. So what the API server said of such a path counts for more than what is held, while there is a
//! link: such a read is handed on, and its answer is the next word.

use http::Uri;
use kube_wire::{
    request::{ResourcePath, Verb},
    resource::GroupVersionResource,
    status::Status,
    transcode,
};

use super::{Asked, place, wanted::Wanted};
use crate::{hub::Hub, subscriptions::Subscription};

impl Asked<'_> {
    /// What the API server says to a read that it does not serve, as far as that is known.
    pub(super) async fn unserved(
        &self,
        wanted: &Wanted,
        verb: Verb,
        path: &ResourcePath,
        uri: &Uri,
    ) -> Option<Status> {
        let refused = wanted.refused_without_namespaces(verb, path, uri.query().unwrap_or_default());
        let is_namespaced = match transcode::is_namespaced(&path.resource) {
            // Beside namespaces, where no selector names one, all that is listed is there in either case.
            None if refused.is_none() && place(path).is_none() && !matches!(wanted, Wanted::Get) => {
                return None;
            }
            None => self.is_namespaced(place(path).is_some(), refused.is_some()).await,
            built_in => built_in,
        };
        if is_namespaced.is_some_and(|is_namespaced| !is_at(wanted, path, uri, is_namespaced)) {
            return Some(Status::no_such_path());
        }
        unselectable(refused?, is_namespaced)
    }

    /// Whether the objects have namespaces, of what is not built in; `in_one`: it is read in one, `by_namespace`: a selector names one.
    async fn is_namespaced(&self, in_one: bool, by_namespace: bool) -> Option<bool> {
        let (hub, resource) = (self.hub, &self.key().resource);
        let found = hub.subscriptions.find(self.key(), self.is_protobuf(), &self.carrier);
        let found = found.filter(|found| found.is_whole());
        let held = found.as_deref().and_then(Subscription::in_namespaces);
        let is_of_all = found.is_some_and(|found| found.key().namespace.is_empty());
        // That there is nothing at a path says so only where there is something beside it: the definition may be gone.
        let said = || {
            let said = hub.subscriptions.scopes().said(resource);
            said.filter(|is_namespaced| *is_namespaced || is_of_all)
        };
        let up = hub.upstream.is_up();
        let matters = by_namespace || in_one && is_of_all;
        let defined = || hub.definitions.is_namespaced(resource);
        if up && (said() == Some(false) || held.is_none() && matters) {
            if said().or_else(defined) == Some(true) {
                // It was so, and who reads does not wait for the news.
                let (hub, resource) = (hub.clone(), resource.clone());
                self.hub.tasks.spawn(async move { look_up(&hub, &resource).await });
            } else {
                // Seldom, and a large future.
                Box::pin(look_up(hub, resource)).await;
            }
        }
        let discovered = || hub.documents.is_namespaced(resource);
        heard(up, held, said()).or_else(defined).or_else(discovered)
    }

    /// Whether the objects that are held have namespaces; all of a resource do, or none.
    pub(super) fn held_in_namespaces(&self) -> Option<bool> {
        let found = self.hub.subscriptions.find(self.key(), self.is_protobuf(), &self.carrier)?;
        found.in_namespaces()
    }
}

/// Asks the definition whether there are namespaces, and which fields are selectable, if that was not done a moment ago.
pub(super) async fn look_up(hub: &Hub, resource: &GroupVersionResource) {
    if let Some(is_namespaced) = hub.definitions.refresh(resource).await {
        hub.subscriptions.scopes().say(resource, is_namespaced);
    }
}

/// The API server answered a read that was handed on to it: what it is asked for in a namespace, or by one, has namespaces.
pub(super) fn is_served(hub: &Hub, verb: Verb, path: &ResourcePath, query: &str) {
    let by_namespace = || {
        query.contains("metadata.namespace")
            && Wanted::known(hub, verb, path, query)
                .is_ok_and(|wanted| wanted.refused_without_namespaces(verb, path, query).is_some())
    };
    if place(path).is_some() || by_namespace() {
        hub.subscriptions.scopes().say(&path.resource, true);
    }
}

/// Whether there are namespaces, by the objects that are `held` and by what the API server `said`. Objects may be of the time before it said that there are none:
/// while it can be asked, it is.
fn heard(up: bool, held: Option<bool>, said: Option<bool>) -> Option<bool> {
    match said {
        Some(false) if up => said,
        _ => held.or(said),
    }
}

/// What is said to who selects by namespace, where the API server refuses that (`refused`) or may.
fn unselectable(refused: Status, is_namespaced: Option<bool>) -> Option<Status> {
    match is_namespaced {
        Some(true) => None,
        Some(false) => Some(refused),
        None => Some(Status::service_unavailable(format!(
            "edge-hub: no link to the API server, which alone knows whether this custom resource has namespaces: {}",
            refused.message
        ))),
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
    use kube_wire::request::RequestInfo;

    use super::*;

    #[test]
    fn while_the_api_server_can_be_asked_its_word_counts() {
        let (yes, no) = (Some(true), Some(false));
        // Held, said; what is believed with a link, and without.
        for (held, said, linked, alone) in [
            (None, None, None, None),
            (yes, None, yes, yes),
            (no, None, no, no),
            (None, yes, yes, yes),
            (None, no, no, no),
            (yes, no, no, yes),
            (no, yes, no, no),
        ] {
            assert_eq!(
                (heard(true, held, said), heard(false, held, said)),
                (linked, alone),
                "{held:?} {said:?}"
            );
        }
    }

    #[test]
    fn who_selects_by_namespace_where_there_may_be_none_is_not_answered() {
        for (is_namespaced, expected) in [(Some(true), None), (Some(false), Some(400)), (None, Some(503))] {
            let refused = Status::bad_request("field label not supported: metadata.namespace");
            let said = unselectable(refused, is_namespaced);
            assert_eq!(said.map(|status| status.code), expected, "{is_namespaced:?}");
        }
    }

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
