//! What a read asks for, its options read: how it is reviewed, what it may be answered from, and where the API server would look.

use kube_wire::{
    deadline,
    list_options::{ListRead, ListRequest, WatchRequest, WatchStart},
    request::{ResourcePath, Verb},
    resource_version::ResourceVersion,
    selectable_field::SelectableFields,
    status::Status,
    transcode,
};

use super::{misplaced::look_up, place};
use crate::{
    authenticate::Caller,
    authorize::Attributes,
    hub::Hub,
    subscriptions::{Key, Owner},
};

/// What the request asks for, its options read.
pub(super) enum Wanted {
    List(ListRequest),
    Watch(WatchRequest),
    Get,
}

impl Wanted {
    /// Reads the options of a get, list or watch; the API server's own refusal, if they are not right.
    pub(super) fn parse(verb: Verb, path: &ResourcePath, query: &str) -> Result<Self, Status> {
        Self::parse_by(&SelectableFields::of(&path.resource), verb, query)
    }

    fn parse_by(selectable: &SelectableFields, verb: Verb, query: &str) -> Result<Self, Status> {
        if verb != Verb::Watch {
            deadline::check(query)?;
        }
        match verb {
            Verb::List => ListRequest::parse(query, selectable).map(Self::List),
            Verb::Watch => WatchRequest::parse(query, selectable).map(Self::Watch),
            _ => Ok(Self::Get),
        }
    }

    /// The same by all fields that the resource's definition makes selectable, which may be asked for first.
    pub(super) async fn of(
        hub: &Hub,
        caller: &Caller,
        verb: Verb,
        path: &ResourcePath,
        query: &str,
    ) -> Result<Self, Status> {
        match Self::parse(verb, path, query) {
            Err(status) if is_unknown_field(path, &status) => {}
            parsed => return parsed,
        }
        // Nobody has the hub ask whom nobody knows.
        if hub.upstream.is_up() && hub.name(caller).await.is_ok() {
            Box::pin(look_up(hub, &path.resource)).await;
        }
        Self::known(hub, verb, path, query)
    }

    /// The same by all fields that are known to be selectable, for which nobody is asked: of what was asked just before.
    pub(super) fn known(hub: &Hub, verb: Verb, path: &ResourcePath, query: &str) -> Result<Self, Status> {
        let refused = match Self::parse(verb, path, query) {
            Err(status) if is_unknown_field(path, &status) => status,
            parsed => return parsed,
        };
        let Some(fields) = hub.definitions.fields(&path.resource) else { return Err(refused) };
        Self::parse_by(&fields, verb, query)
    }

    /// The API server's refusal, if that is of a custom resource whose objects have no namespaces, and it is selected by namespace.
    pub(super) fn refused_without_namespaces(
        &self,
        verb: Verb,
        path: &ResourcePath,
        query: &str,
    ) -> Option<Status> {
        if matches!(self, Self::Get) || transcode::knows(&path.resource) {
            return None;
        }
        let (_, fields) = self.selectors(path);
        if !fields.contains("metadata.namespace") {
            return None;
        }
        let selectable = SelectableFields::named_by(&path.resource, &fields).without_namespace();
        Self::parse_by(&selectable, verb, query).err()
    }

    pub(super) fn is_sharded(&self) -> bool {
        match self {
            Self::List(request) => request.shards.is_some(),
            Self::Watch(request) => request.shards.is_some(),
            Self::Get => false,
        }
    }

    /// The only namespace whose objects its field selector lets through. The API server looks nowhere else then, and its tokens count from
    /// there; but one that counts from all namespaces, as it has a namespace and a name, counts from all. The API server reads every token so,
    /// its own of such a list as well, and then leaves objects out or says them twice; what is asked here has its pages whole.
    pub(super) fn selected_namespace(&self) -> Option<Box<str>> {
        let from_all = |after: &str| after.trim_start_matches('/').contains('/');
        let fields = match self {
            Self::List(ListRequest { read: ListRead::Continue { after, .. }, .. }) if from_all(after) => {
                return None;
            }
            Self::List(request) => &request.fields,
            Self::Watch(request) => &request.fields,
            Self::Get => return None,
        };
        fields
            .requires_exactly("metadata.namespace")
            .filter(|namespace| !namespace.is_empty())
            .map(Into::into)
    }

    /// The version from which on it tells, or which it is of, if it names one.
    pub(super) fn since(&self) -> Option<ResourceVersion> {
        match self {
            Self::List(ListRequest { read: ListRead::Exact(version), .. })
            | Self::Watch(WatchRequest { start: WatchStart::After(version), .. }) => Some(*version),
            Self::List(ListRequest { read: ListRead::Continue { at, .. }, .. }) => *at,
            Self::List(_) | Self::Watch(_) | Self::Get => None,
        }
    }

    pub(super) fn selectors(&self, path: &ResourcePath) -> (String, String) {
        match self {
            Self::List(request) => (request.labels.to_string(), request.fields.to_string()),
            Self::Watch(request) => (request.labels.to_string(), request.fields.to_string()),
            Self::Get => {
                (String::new(), format!("metadata.name={}", path.name.as_deref().unwrap_or_default()))
            }
        }
    }

    pub(super) fn attributes(&self, path: &ResourcePath) -> Attributes {
        let (labels, fields) = self.selectors(path);
        let ResourcePath { resource, namespace, name, subresource: _, verb_in_path: _ } = path;
        let (verb, fields) = match self {
            Self::List(_) => ("list", fields),
            Self::Watch(_) => ("watch", fields),
            Self::Get => ("get", String::new()),
        };
        Attributes {
            verb: verb.into(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            resource: resource.resource.clone(),
            namespace: namespace.clone().unwrap_or_default(),
            name: name.clone().unwrap_or_default(),
            labels: labels.into(),
            fields: fields.into(),
        }
    }

    pub(super) fn key(&self, path: &ResourcePath, owner: &Owner) -> Key {
        let (labels, fields) = self.selectors(path);
        let namespace = place(path);
        Key {
            owner: owner.clone(),
            resource: path.resource.clone(),
            namespace: namespace.unwrap_or_default(),
            labels: labels.into(),
            fields: fields.into(),
        }
    }
}

/// Whether a request names a field of a custom resource that its definition may say is selectable.
fn is_unknown_field(path: &ResourcePath, status: &Status) -> bool {
    !transcode::knows(&path.resource) && status.message.starts_with("field label not supported")
}

/// What is said without a link to who is refused. That a field of a custom resource cannot be selected by is not known then: its definition may have changed.
pub(super) fn unknown_without_link(path: &ResourcePath, refused: Status) -> Status {
    if !is_unknown_field(path, &refused) {
        return refused;
    }
    Status::service_unavailable(format!(
        "edge-hub: no link to the API server, which alone knows the selectable fields of a custom resource: {}",
        refused.message
    ))
}

/// The refusal of a request with a selector of shards, which the API server alone understands: nothing is wrong with it while that cannot be asked. With a
/// link only who cannot be handed on is told so.
pub(super) fn sharded(up: bool) -> Status {
    if up {
        Status::bad_request("edge-hub: shardSelector needs the API server")
    } else {
        Status::service_unavailable(
            "edge-hub: no link to the API server, which alone understands a shardSelector",
        )
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};
    use kube_wire::{continue_token, request::RequestInfo};

    use super::*;

    #[test]
    fn a_custom_resource_without_namespaces_is_not_selected_by_them() {
        let refused = |path: &'static str, query: &str| {
            let info = RequestInfo::parse(&Method::GET, &Uri::from_static(path));
            let path = info.resource().unwrap();
            let wanted = Wanted::parse(Verb::List, path, query).unwrap_or_else(|_| panic!("{query}"));
            wanted
                .refused_without_namespaces(Verb::List, path, query)
                .map(|status| (status.code, status.message))
        };
        let custom = "/apis/example.com/v1/widgets";
        let said = (400, "field label not supported: metadata.namespace".to_owned());
        for (path, query, expected) in [
            (custom, "", None),
            (custom, "fieldSelector=metadata.name%3Da", None),
            (custom, "labelSelector=metadata.namespace%3Da", None),
            (custom, "fieldSelector=metadata.name%3Dmetadata.namespace", None),
            (custom, "fieldSelector=metadata.namespace%3Da", Some(&said)),
            (custom, "fieldSelector=metadata.namespace%3D", Some(&said)),
            (custom, "fieldSelector=metadata.namespace%21%3Da", Some(&said)),
            (custom, "fieldSelector=metadata.name%3Da,metadata.namespace%3Da&limit=1", Some(&said)),
            ("/api/v1/pods", "fieldSelector=metadata.namespace%3Da", None),
        ] {
            assert_eq!(refused(path, query).as_ref(), expected, "{path} {query}");
        }
    }

    #[test]
    fn a_token_counts_from_where_it_was_given() {
        let selected = |last: Option<&str>| {
            let info = RequestInfo::parse(&Method::GET, &Uri::from_static("/api/v1/pods"));
            let path = info.resource().unwrap();
            let token = last.map(|last| continue_token::encode(last, None)).unwrap_or_default();
            let query = format!("fieldSelector=metadata.namespace%3Da&limit=1&continue={token}");
            Wanted::parse(Verb::List, path, &query).unwrap_or_else(|_| panic!("{query}")).selected_namespace()
        };
        assert_eq!(selected(None).as_deref(), Some("a"));
        assert_eq!(selected(Some("o-1")).as_deref(), Some("a"), "of this very list");
        assert_eq!(selected(Some("a/o-1")), None, "of one of all namespaces");
    }
}
