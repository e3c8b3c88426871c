//! The ways in for clients: one handler, whatever they speak.
//!
//! [`http`] for the API server's `EgressSelector` and `proxy_url` (CONNECT), forward proxying and plain HTTP by `Host`;
//! [`sni`] for TLS that is passed through by the server's name, unopened.

pub mod arrival;
pub mod http;
pub mod listen;
pub mod sni;

use std::{sync::Arc, time::Duration};

use self::arrival::Arrival;
use crate::{
    audit,
    connector::{Connector, Request, Unvouched},
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
    /// Whether somebody vouches for the clients: a certificate, the kernel, or the owner of a socket. Those for whom nobody does have a part of
    /// what links carry, and lines of the audit only now and then.
    pub vouched: bool,
    /// How long a stream waits for a link where there is none; zero, if it is better told at once.
    pub patience: Duration,
}

impl Ingress {
    fn request(&self, target: Target, peer: &str, arrival: &Arrival) -> Request {
        let of = || Unvouched { listener: self.name, source: arrival.source() };
        Request {
            target,
            origin: None,
            caller: format!("{} {peer}", self.name).into(),
            class: self.class,
            hops: 0,
            unvouched: (!self.vouched).then(of),
            used: arrival.used(),
            request_id: new_request_id(),
            patience: self.patience,
        }
    }

    /// Whether this is the name of a node.
    fn is_node(&self, host: &Host) -> bool {
        matches!(host, Host::Name(name) if self.connector.view().nodes.contains_key(name))
    }

    /// Tells of a stream that was not even tried.
    fn refused(&self, wanted: &str, peer: &str, arrival: &Arrival, error: OpenError) {
        self.connector.stats().refused(error);
        let (caller, request_id) = (format!("{} {peer}", self.name), new_request_id());
        if self.vouched {
            audit::refused(&caller, None, wanted, &request_id, error);
        } else {
            let source = arrival.source();
            self.connector.unknown().refused(self.name, &caller, source, wanted, &request_id, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::{links::table::LinkTable, protocol::Limits, stats::Stats, view::View};

    /// Whoever vouches for it: a listener's place of one that is in use goes last.
    #[test]
    fn what_passes_for_a_client_is_noted_of_its_place() {
        let view = watch::channel(Arc::<View>::default()).1;
        let (table, stats) = (Arc::<LinkTable>::default(), Arc::<Stats>::default());
        let connector = Connector::new("n", view, table, stats, Limits::default());
        for vouched in [true, false] {
            let (connector, patience) = (connector.clone(), Duration::ZERO);
            let ingress = Ingress { connector, class: Class::Interactive, name: "test", vouched, patience };
            let (arrival, target) = (Arrival::uncounted(), Target::parse("n:1", None).unwrap());
            let request = ingress.request(target, "somebody", &arrival);
            assert!(Arc::ptr_eq(&request.used, &arrival.used()));
            assert_eq!(request.unvouched.is_some(), !vouched);
        }
    }
}
