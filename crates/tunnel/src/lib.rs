//! Isthmus's tunnel: reverse-dialled HTTP/2 CONNECT over mutual TLS, by which the cloud reaches edge nodes by name, and edge
//! nodes reach the cloud and one another's pools. See `docs/adr/0014-tunnel.md` for the protocol.
//!
//! What decides is pure: [`mod@route`], [`destination`], [`admission`], [`links::plan`], [`candidates`], [`backoff`], [`liveness`].
//! What acts: [`agent`] dials links and keeps them, [`gateway`] accepts them, [`link`] is one of them, [`connector`] opens
//! streams, [`serve`] answers those of peers, [`ingress`] those of clients. The cluster comes in as a [`view::View`]; no
//! Kubernetes client is here, and no certificate is issued here.

pub mod admission;
pub mod agent;
mod allowance;
pub mod audit;
pub mod backoff;
pub mod candidates;
pub mod connector;
pub mod credentials;
mod crowd;
pub mod destination;
pub mod dial;
pub mod doorway;
pub mod ending;
mod expiry;
pub mod gateway;
pub mod hello;
pub mod hop_by_hop;
pub mod identity;
pub mod ingress;
pub mod last_use;
pub mod link;
pub mod links;
pub mod liveness;
pub mod protocol;
mod read_ahead;
pub mod relay;
pub mod route;
pub mod serve;
pub mod socket;
mod spare_buffer;
pub mod stats;
mod strangers;
pub mod stream;
pub mod target;
pub mod view;
pub mod window;
