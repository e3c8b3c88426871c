//! What a subscription is about, and which requests it can answer.

use std::fmt;

use kube_wire::resource::GroupVersionResource;

/// Whose view of the cluster it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The node's, fetched with the hub's certificate. Pooled resources are the node's, and go to others after a review.
    Node,
    /// That of all users of the node who may read it, fetched with the token of one of them; each of them is reviewed. Nobody calls by
    /// this name.
    Users,
    /// One user's own, fetched with that user's token and served to no one else.
    User(Box<str>),
}

/// One upstream stream: whose, of what, and how narrowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose view.
    pub owner: Owner,
    /// Of which resource.
    pub resource: GroupVersionResource,
    /// In which namespace; empty for all of them and for cluster-scoped resources.
    pub namespace: Box<str>,
    /// Canonical label selector; empty for everything.
    pub labels: Box<str>,
    /// Canonical field selector; empty for everything.
    pub fields: Box<str>,
}

impl Key {
    /// The whole of a resource, as the node sees it: what is shared by all who may read it.
    pub fn pooled(resource: &GroupVersionResource) -> Self {
        let none = Box::<str>::default;
        Self {
            owner: Owner::Node,
            resource: resource.clone(),
            namespace: none(),
            labels: none(),
            fields: none(),
        }
    }

    /// Whether it is all of the resource, and no part that a namespace or a selector makes.
    pub fn is_whole(&self) -> bool {
        self.namespace.is_empty() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it is one object, or none, by its name.
    pub fn is_of_one_name(&self) -> bool {
        self.fields.split(',').any(|term| term.starts_with("metadata.name="))
    }

    /// Whether this is the name, as it is displayed, of a subscription of that resource.
    pub fn is_name_of(name: &str, resource: &GroupVersionResource) -> bool {
        // Owners may have spaces in their names, paths have none.
        let path = name.rsplit(' ').next().unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let all = Self::pooled(resource).path();
        let group = all.strip_suffix(&*resource.resource).unwrap_or_default();
        let within = path.strip_prefix(group).and_then(|rest| rest.strip_prefix("namespaces/"));
        let of_namespace = within.and_then(|rest| rest.split_once('/')).map(|(_, resource)| resource);
        path == all || of_namespace == Some(&*resource.resource)
    }

    /// Whether this is the name, as it is displayed, of a subscription of the node's.
    pub fn is_name_of_nodes(name: &str) -> bool {
        name.starts_with("node ")
    }

    /// How the paths of all resources of the group and version begin, `/api/v1` or `/apis/apps/v1`, from the name, as it is displayed, of a
    /// subscription.
    pub fn version_in(name: &str) -> Option<&str> {
        let path = name.rsplit(' ').next()?;
        // Before the resource, or the namespace that it is in.
        let slash = if path.starts_with("/apis/") { 3 } else { 2 };
        let (end, _) = path.match_indices('/').nth(slash)?;
        path.get(..end)
    }

    /// The path and query that list or watch it, without further parameters: `/api/v1/pods?fieldSelector=…`. What a client named is escaped
    /// again: another path than the one whose reader was reviewed must not be asked for.
    pub fn path(&self) -> String {
        let GroupVersionResource { group, version, resource } = &self.resource;
        let mut path = String::from(if group.is_empty() { "/api" } else { "/apis" });
        let namespace = if self.namespace.is_empty() { ["", ""] } else { ["namespaces", &*self.namespace] };
        for segment in [&**group, &**version].into_iter().chain(namespace).chain([&**resource]) {
            if !segment.is_empty() {
                path.push('/');
                path.extend(percent_encoded(segment));
            }
        }
        let mut separator = '?';
        for (name, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                path.push(separator);
                path.push_str(name);
                path.push('=');
                path.extend(percent_encoded(value));
                separator = '&';
            }
        }
        path
    }

    /// The same with further parameters.
    pub fn path_with(&self, parameters: &str) -> String {
        let path = self.path();
        let separator = if path.contains('?') { '&' } else { '?' };
        format!("{path}{separator}{parameters}")
    }

    /// Those that cover this one and are wider, the narrower ones first.
    pub fn wider(&self) -> impl Iterator<Item = Self> + '_ {
        // What is left out: fields, labels, the namespace.
        (1_u8..8).filter_map(|left_out| {
            let mut wider = self.clone();
            for (bit, part) in [(1, &mut wider.fields), (2, &mut wider.labels), (4, &mut wider.namespace)] {
                if left_out & bit != 0 {
                    if part.is_empty() {
                        return None;
                    }
                    *part = Box::default();
                }
            }
            Some(wider)
        })
    }

    /// Whether every object that `wanted` asks for is in this subscription.
    pub fn covers(&self, wanted: &Self) -> bool {
        let wider = |held: &str, asked: &str| held.is_empty() || held == asked;
        self.owner == wanted.owner
            && self.resource == wanted.resource
            && wider(&self.namespace, &wanted.namespace)
            && wider(&self.labels, &wanted.labels)
            && wider(&self.fields, &wanted.fields)
    }
}

/// As it names the subscription on disk and in `edge-hub status`: `node /api/v1/services`.
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Owner::Node => write!(formatter, "node {}", self.path()),
            Owner::Users => write!(formatter, "users {}", self.path()),
            // Or one who is called `node` would be the node.
            Owner::User(name) => write!(formatter, "user {name} {}", self.path()),
        }
    }
}

/// Encodes all but unreserved characters (RFC 3986, 2.3).
fn percent_encoded(text: &str) -> impl Iterator<Item = char> {
    text.bytes().flat_map(|byte| {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let encoded = if plain { String::from(char::from(byte)) } else { format!("%{byte:02X}") };
        encoded.chars().collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, labels: &str, fields: &str) -> Key {
        let resource = GroupVersionResource::new("", "v1", "pods");
        Key {
            owner: Owner::Node,
            resource,
            namespace: namespace.into(),
            labels: labels.into(),
            fields: fields.into(),
        }
    }

    #[test]
    fn a_path_asks_for_what_the_key_says() {
        assert_eq!(key("", "", "").path(), "/api/v1/pods");
        assert_eq!(
            key("a", "", "spec.nodeName=n").path(),
            "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn"
        );
        assert_eq!(
            key("", "a in (b,c)", "x=y").path(),
            "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=x%3Dy"
        );
        let resource = GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices");
        assert_eq!(Key { resource, ..key("", "", "") }.path(), "/apis/discovery.k8s.io/v1/endpointslices");
    }

    #[test]
    fn what_a_client_named_stays_what_was_reviewed() {
        for (namespace, path) in [
            ("a b", "/api/v1/namespaces/a%20b/pods"),
            ("a/secrets?x=", "/api/v1/namespaces/a%2Fsecrets%3Fx%3D/pods"),
            ("a%2Fsecrets%3F", "/api/v1/namespaces/a%252Fsecrets%253F/pods"),
            ("a\r\nx: y", "/api/v1/namespaces/a%0D%0Ax%3A%20y/pods"),
        ] {
            assert_eq!(key(namespace, "", "").path(), path);
        }
        let resource = GroupVersionResource::new("example.com", "v1", "pods#secrets");
        assert_eq!(Key { resource, ..key("", "", "") }.path(), "/apis/example.com/v1/pods%23secrets");
    }

    #[test]
    fn a_name_says_which_resource_it_is_of() {
        let (pods, namespaces) =
            ["pods", "namespaces"].map(|resource| GroupVersionResource::new("", "v1", resource)).into();
        for owner in [Owner::Node, Owner::Users, Owner::User("a user".into())] {
            for key in [key("", "", ""), key("a", "", ""), key("a", "x=a b", "spec.nodeName=n")] {
                let name = Key { owner: owner.clone(), ..key }.to_string();
                assert!(Key::is_name_of(&name, &pods) && !Key::is_name_of(&name, &namespaces), "{name}");
                let other = GroupVersionResource::new("example.com", "v1", "pods");
                assert!(!Key::is_name_of(&name, &other), "{name}");
            }
        }
        assert!(Key::is_name_of("node /api/v1/namespaces", &namespaces));
        assert!(!Key::is_name_of("node /api/v1/namespaces", &pods));
    }

    #[test]
    fn a_name_says_of_which_group_and_version_it_is() {
        let resource = GroupVersionResource::new("apps", "v1", "deployments");
        for owner in [Owner::Node, Owner::Users, Owner::User("a /user".into())] {
            for part in [key("", "", ""), key("a/b", "x=a/b", ""), key("", "", "spec.nodeName=n")] {
                let core = Key { owner: owner.clone(), ..part };
                assert_eq!(Key::version_in(&core.to_string()), Some("/api/v1"));
                let apps = Key { resource: resource.clone(), ..core };
                assert_eq!(Key::version_in(&apps.to_string()), Some("/apis/apps/v1"));
            }
        }
        assert_eq!(Key::version_in("nothing of that kind"), None);
    }

    #[test]
    fn the_wider_covers_the_narrower_and_nobody_elses() {
        let all = key("", "", "");
        assert!(all.covers(&key("a", "x=1", "f=2")) && all.covers(&all));
        assert!(!key("a", "", "").covers(&all) && !key("a", "", "").covers(&key("b", "", "")));
        assert!(!key("", "x=1", "").covers(&key("", "x=2", "")));
        let theirs = Key { owner: Owner::User("u".into()), ..all.clone() };
        assert!(!all.covers(&theirs) && !theirs.covers(&all));
    }
}
