//! Which peers may hold a link. Pure: an identity and the local view in, the domain that the link is for out.
//!
//! A node registers only itself, and stands for a pool only where it is one of its active endpoints. So a stolen key gives
//! that node and no more.

use crate::{
    identity::Identity,
    links::desired::may_accept,
    route::Direction,
    view::{Domain, View},
};

/// Why a peer may not hold the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// No such node is known here.
    #[error("unknown node")]
    UnknownNode,
    /// It is a node, and neither of this node's domain nor one that may come from outside.
    #[error("not an active endpoint of its domain")]
    NotAnEndpoint,
}

/// Decides who may hold links. [`ByView`] is what is used; tests and other settings may have their own.
pub trait Admission: Send + Sync {
    /// The domain for which `peer` may hold a link of this direction to this node.
    fn admit(&self, peer: &Identity, direction: Direction, view: &View) -> Result<Domain, NotAdmitted>;
}

/// Admission by the rules of [`crate::links::desired`]: whoever should dial may.
#[derive(Debug, Clone)]
pub struct ByView {
    /// The name of this node.
    pub me: String,
}

impl Admission for ByView {
    fn admit(&self, peer: &Identity, direction: Direction, view: &View) -> Result<Domain, NotAdmitted> {
        let domain = view.domain_of(&peer.node).ok_or(NotAdmitted::UnknownNode)?;
        if may_accept(&self.me, &peer.node, &domain, direction, view) {
            Ok(domain)
        } else {
            Err(NotAdmitted::NotAnEndpoint)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::view::{GatewayState, Node, Place};

    fn identity(node: &str) -> Identity {
        Identity { node: node.to_owned(), expires: SystemTime::UNIX_EPOCH }
    }

    #[test]
    fn a_node_stands_only_for_what_it_was_elected_for() {
        let view = View {
            nodes: [
                ("c1".to_owned(), Node::of(Place::Cloud, None)),
                ("c2".to_owned(), Node::of(Place::Cloud, None)),
                ("a1".to_owned(), Node::of(Place::Edge, Some("a"))),
                ("a2".to_owned(), Node::of(Place::Edge, Some("a"))),
                ("solo".to_owned(), Node::of(Place::Edge, None)),
            ]
            .into(),
            gateways: [
                (Domain::Cloud, GatewayState::of(true, &["c1"])),
                // Elected by mistake for a pool it is not in.
                (Domain::Pool("a".into()), GatewayState::of(false, &["a1", "solo"])),
            ]
            .into(),
            ..View::default()
        };
        let admission = ByView { me: "c1".into() };
        let check = |peer: &str, direction| {
            let admitted = admission.admit(&identity(peer), direction, &view);
            admitted.map(|domain| domain.to_string()).map_err(|error| error.to_string())
        };
        let refused = Err("not an active endpoint of its domain".to_owned());
        assert_eq!(check("a1", Direction::Reverse), Ok("pool/a".into()));
        assert_eq!(check("a2", Direction::Reverse), refused);
        assert_eq!(check("a2", Direction::Forward), refused);
        assert_eq!(check("solo", Direction::Reverse), Ok("node/solo".into()));
        assert_eq!(check("c2", Direction::Reverse), refused);
        assert_eq!(check("c2", Direction::Forward), Ok("cloud".into()));
        assert_eq!(check("x", Direction::Forward), Err("unknown node".into()));
        // The endpoint of a pool that is not exposed forwards for its own nodes, and for nobody else.
        let admission = ByView { me: "a1".into() };
        let check = |peer: &str, direction| {
            admission.admit(&identity(peer), direction, &view).map(|domain| domain.to_string())
        };
        assert_eq!(check("a2", Direction::Forward), Ok("pool/a".into()));
        let refused = Err(NotAdmitted::NotAnEndpoint);
        for peer in ["a2", "c1", "c2", "solo"] {
            assert_eq!(check(peer, Direction::Reverse), refused, "{peer}");
        }
        for peer in ["c1", "c2", "solo"] {
            assert_eq!(check(peer, Direction::Forward), refused, "{peer}");
        }
    }
}
