//! The tunnel's roles on this node: agent of a domain, gateway of an exposed one, or neither; and its ways in and out. What is
//! carried, and how, is crate `tunnel`; what hub and manager tell one another is in ADR 0015.
//!
//! ```text
//!  Gateways, own Node, nodes of its pool (gateways: Nodes, NodePools, the internal Service) ─► follow ─► plan (pure) ─► State: view, role, ways in
//!  State ─► links: agent, its credentials        State ─► gateway: listener, certificate, ways in, announce ─► report ConfigMap
//!  flags ─► ways: loopback, Unix socket, TCP with mutual TLS ─► Connector
//! ```
//! All of it is off unless asked for. A role changes without a restart; what need not change stays up.

mod announce;
mod args;
mod config;
mod destinations;
mod follow;
mod gateway;
mod links;
mod objects;
mod plan;
mod report;
#[cfg(test)]
mod shown_files;
mod state;
mod thread;
mod view;
mod ways;
mod ways_in;

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::args::TunnelArgs;
pub use self::config::{Mutual, TunnelConfig, TunnelConfigError};
pub use self::destinations::{DestinationError, DestinationRule};
pub use self::plan::Role;
pub use self::state::State;
pub use self::thread::TunnelThread;
pub(crate) use self::view::encode;
pub use self::view::{TunnelLinkView, TunnelView};
pub use self::ways::{Ways, WaysError};
use crate::{
    hub::Hub,
    identity::{ServingCertificates, Shown},
};

/// What the roles need beside the hub.
pub struct Tunnel {
    /// How it was asked for.
    pub config: TunnelConfig,
    /// Where the bytes pass.
    pub thread: TunnelThread,
    /// What is known, and what there is.
    pub state: Arc<State>,
    /// The listeners that do not depend on the role.
    pub ways: Ways,
    /// The certificates of a gateway.
    pub serving: ServingCertificates,
    /// The certificate that the hub shows.
    pub shown: watch::Receiver<Option<Shown>>,
}

impl Tunnel {
    /// Plays whatever role the cluster gives this node, until `shutdown`; then drains.
    pub async fn run(self, hub: Arc<Hub>, shutdown: CancellationToken) {
        let Self { config, thread: _thread, state, ways, serving, shown } = self;
        let config = Arc::new(config);
        let mut tasks = JoinSet::new();
        let close = CancellationToken::new();
        tasks.spawn(gateway::leave(state.clone(), shutdown.clone(), close.clone()));
        tasks.spawn(follow::follow(hub.clone(), state.clone(), config.clone(), close.clone()));
        let (told, end) = (state.clone(), close.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = told.connector.unknown().tell() => {}
                () = end.cancelled() => {}
            }
        });
        tasks.spawn(links::keep(state.clone(), config.clone(), shown, close.clone()));
        tasks.spawn(ways.serve(state.clone(), serving.exposed.shown(), close));
        tasks.spawn(gateway::forget_exposed(state.clone(), serving.exposed.clone(), shutdown.clone()));
        tasks.spawn(gateway::follow_role(hub, state, config, serving, shutdown));
        while tasks.join_next().await.is_some() {}
    }
}
