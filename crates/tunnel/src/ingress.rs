//! The ways in for clients: one handler, whatever they speak.
//!
//! [`http`] for the API server's `EgressSelector` and `proxy_url` (CONNECT), forward proxying and plain HTTP by `Host`;
//! [`sni`] for TLS that is passed through by the server's name, unopened.

pub mod http;
pub mod listen;
pub mod sni;

use std::sync::Arc;

use crate::{
    connector::{Connector, Request},
    protocol::Class,
    serve::new_request_id,
    target::Target,
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
        }
    }
}
