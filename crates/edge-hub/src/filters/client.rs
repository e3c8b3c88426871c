//! Which component a request comes from, as far as filters care. Policy only: nothing is allowed or refused by it.

use http::{HeaderMap, header};

use crate::subscriptions::Owner;

/// Whoever asks, by the names that rules know components by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// From the credential, in lower case: the name of a `ServiceAccount` or of a component's certificate; `None` for the node.
    identity: Option<Box<str>>,
    /// From the `User-Agent`, in lower case, up to the first `/`, as OpenYurt reads it. A hint: agents that use the node's own
    /// credential cannot be told apart otherwise.
    agent: Box<str>,
    owner: Owner,
}

impl Client {
    /// The client behind a name and its request.
    pub fn of(owner: &Owner, headers: &HeaderMap) -> Self {
        let identity = match owner {
            Owner::Node | Owner::Users => None,
            Owner::User(user) => match user.strip_prefix("system:serviceaccount:") {
                Some(account) => account.split_once(':').map(|(_, name)| name.to_lowercase().into()),
                None => user.strip_prefix("system:").map(|name| name.to_lowercase().into()),
            },
        };
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let component = agent.split('/').next().unwrap_or_default().trim().to_lowercase();
        Self { identity, agent: component.into(), owner: owner.clone() }
    }

    /// The same name for the same client in every run of the hub, and another one for any other.
    pub(super) fn name(&self) -> String {
        match &self.owner {
            Owner::Node => format!("node {:?}", self.agent),
            Owner::Users => format!("users {:?}", self.agent),
            Owner::User(user) => format!("user {user:?} {:?}", self.agent),
        }
    }

    /// Whether it is the component: by its credential, or by what it calls itself. One without a name is nobody's, not that of who calls itself nothing.
    pub fn is(&self, component: &str) -> bool {
        !component.is_empty() && (self.identity.as_deref() == Some(component) || &*self.agent == component)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_credential_names_the_component_and_the_agent_hints() {
        let client = |owner: Option<&str>, agent: &str| {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_str(agent).unwrap())]);
            Client::of(&owner.map_or(Owner::Node, |name| Owner::User(name.into())), &headers)
        };
        let proxy = Some("system:serviceaccount:kube-system:kube-proxy");
        assert!(client(proxy, "curl/8").is("kube-proxy"));
        assert!(client(Some("system:kube-proxy"), "").is("kube-proxy"));
        assert!(client(None, "Kubelet/v1.36 (linux)").is("kubelet"));
        assert!(!client(None, "curl/8").is("kubelet"));
        assert!(client(Some("system:serviceaccount:a:b"), "coredns").is("coredns"));
        assert!(!client(Some("system:serviceaccount:kube-proxy:b"), "").is("kube-proxy"));
    }
}
