//! The ways in for clients: one handler, whatever they speak.
//!
//! [`http`] for the API server's `EgressSelector` and `proxy_url` (CONNECT), forward proxying and plain HTTP by `Host`;
//! [`sni`] for TLS that is passed through by the server's name, unopened.

pub mod http;
pub mod listen;
pub mod sni;

use std::{sync::Arc, time::Duration};

use crate::{
    audit,
    connector::{Connector, Request},
    protocol::{Class, OpenError},
    serve::new_request_id,
    target::{Host, Target},
};

/// Whom streams of one listener are opened for, and how.
#[derive(Clone)]
pub struct Ingress {
    /// Opens them.
    pub connector: Arc<Connector>,
    /// Kind of traffic.
    pub class: Class,
    /// The name of the listener in the audit.
    pub name: &'static str,
    /// How long a stream waits for a link where there is none; zero, if it is better told at once.
    pub patience: Duration,
}

impl Ingress {
    fn request(&self, target: Target, peer: &str) -> Request {
        Request {
            target,
            origin: None,
            caller: format!("{} {peer}", self.name).into(),
            class: self.class,
            hops: 0,
            request_id: new_request_id(),
            patience: self.patience,
        }
    }

    /// Whether this is the name of a node.
    fn is_node(&self, host: &Host) -> bool {
        matches!(host, Host::Name(name) if self.connector.view().nodes.contains_key(name))
    }

    /// Tells of a stream that was not even tried.
    fn refused(&self, wanted: &str, peer: &str, error: OpenError) {
        self.connector.stats().refused(error);
        audit::refused(&format!("{} {peer}", self.name), wanted, &new_request_id(), error);
    }
}
