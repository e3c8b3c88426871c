//! What is known of each API server: which one is the link, and how the last attempt at each other ended.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Endpoint;

/// What is known of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody tried: one before it answers.
    Untried,
    /// It is the link.
    Connected,
    /// The last attempt failed, or the connection ended, for that reason.
    Failed(String),
}

/// One API server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Which.
    pub endpoint: Endpoint,
    /// What is known of it.
    pub state: ServerState,
    /// When that came to be known.
    at: Instant,
}

impl Server {
    /// How long ago that came to be known; of one that fails again and again, how long ago it failed last.
    pub fn ago(&self) -> Duration {
        self.at.elapsed()
    }
}

/// All API servers, in their order. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Servers(Arc<Mutex<Vec<Server>>>);

impl Servers {
    pub(super) fn new(endpoints: &[Endpoint]) -> Self {
        let server = |endpoint: &Endpoint| Server {
            endpoint: endpoint.clone(),
            state: ServerState::Untried,
            at: Instant::now(),
        };
        Self(Arc::new(Mutex::new(endpoints.iter().map(server).collect())))
    }

    /// Notes how the server of that number is.
    pub(super) fn note(&self, index: usize, state: ServerState) {
        if let Some(server) = self.0.lock().get_mut(index) {
            server.state = state;
            server.at = Instant::now();
        }
    }

    pub(super) fn all(&self) -> Vec<Server> {
        self.0.lock().clone()
    }
}
