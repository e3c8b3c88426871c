//! What a certificate is for: whom it names, who signs it, and in which files it is kept. Data only.

use api::names::{
    GATEWAY_SERVER_NAME, GATEWAY_SIGNER, GATEWAY_USAGES, HUB_GROUP, HUB_REQUEST_PREFIX, HUB_SIGNER,
    HUB_USAGES, NODE_GROUP, NODE_USER_PREFIX, POOL_GATEWAY_SERVER_NAME,
};
use tls::certificate::Certificate;

use crate::authenticate::user_of;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The hub shows it to API servers, and to the gateways that it dials.
    Client,
    /// An endpoint of an exposed Gateway shows it to those who dial it. Its signer takes no group beside that of nodes.
    Gateway,
    /// The same of an endpoint that nodes of its own pool alone dial.
    PoolGateway,
}

impl Purpose {
    pub(super) fn signer(self) -> &'static str {
        match self {
            Self::Client => HUB_SIGNER,
            Self::Gateway | Self::PoolGateway => GATEWAY_SIGNER,
        }
    }

    pub(super) fn usages(self) -> [&'static str; 2] {
        match self {
            Self::Client => HUB_USAGES,
            Self::Gateway | Self::PoolGateway => GATEWAY_USAGES,
        }
    }

    pub(super) fn organizations(self) -> Vec<String> {
        let groups: &[&str] = match self {
            Self::Client => &[NODE_GROUP, HUB_GROUP],
            Self::Gateway | Self::PoolGateway => &[NODE_GROUP],
        };
        groups.iter().map(|&group| group.to_owned()).collect()
    }

    /// DNS names of the certificate.
    pub(super) fn dns_names(self, node: &str) -> Vec<String> {
        match self {
            Self::Client => Vec::new(),
            Self::Gateway => vec![GATEWAY_SERVER_NAME.to_owned(), node.to_owned()],
            Self::PoolGateway => vec![POOL_GATEWAY_SERVER_NAME.to_owned(), node.to_owned()],
        }
    }

    /// How requests for it begin.
    pub(super) fn request_prefix(self) -> String {
        match self {
            Self::Client => HUB_REQUEST_PREFIX.to_owned(),
            Self::Gateway => format!("{HUB_REQUEST_PREFIX}gateway-"),
            Self::PoolGateway => format!("{HUB_REQUEST_PREFIX}pool-gateway-"),
        }
    }

    /// The file of certificate and key.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Client => "client.pem",
            Self::Gateway => "gateway.pem",
            Self::PoolGateway => "pool-gateway.pem",
        }
    }

    /// The file of the key of a request that was not answered yet.
    pub(super) fn next_key_file(self) -> &'static str {
        match self {
            Self::Client => "next.key",
            Self::Gateway => "gateway-next.key",
            Self::PoolGateway => "pool-gateway-next.key",
        }
    }

    /// Whether a certificate is the one for this node.
    pub(super) fn check(self, certificate: &Certificate, node: &str) -> Result<(), String> {
        let wanted = user(node);
        let found = user_of(certificate.der()).map(|user| user.name);
        if found.as_deref() != Some(&wanted) {
            return Err(format!("it names {found:?} and not {wanted:?}"));
        }
        let names = certificate.dns_names();
        match self.dns_names(node).into_iter().find(|name| !names.contains(name)) {
            Some(missing) => Err(format!("it lacks the name {missing:?}")),
            None => Ok(()),
        }
    }
}

/// The user that the hub of a node is.
pub(super) fn user(node: &str) -> String {
    format!("{NODE_USER_PREFIX}{node}")
}
