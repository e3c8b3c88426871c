//! What the tunnel counts. Every label is one of a fixed set, so the series stay as many as they are.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::OpenError;

/// Where connections come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Links of other nodes.
    Links,
    /// Clients that dial nodes by TLS.
    NodesTls,
    /// Clients that dial nodes by plain HTTP.
    NodesHttp,
    /// Programs of this node.
    Loopback,
    /// Clients with a certificate.
    Clients,
}

impl Listener {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Links, Self::NodesTls, Self::NodesHttp, Self::Loopback, Self::Clients];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::NodesTls => "internal-tls",
            Self::NodesHttp => "internal-http",
            Self::Loopback => "loopback",
            Self::Clients => "clients",
        }
    }
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Stats {
    opened: AtomicU64,
    refused: [AtomicU64; OpenError::ALL.len()],
    retried: AtomicU64,
    links_registered: AtomicU64,
    links_failed: AtomicU64,
    links_dead: AtomicU64,
    silent: [AtomicU64; Listener::ALL.len()],
}

/// [`Stats`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Streams opened.
    pub opened: u64,
    /// Streams not opened, by reason ([`OpenError::reason`]).
    pub refused: Vec<(&'static str, u64)>,
    /// Attempts that another link made good, or tried to.
    pub retried: u64,
    /// Links registered.
    pub links_registered: u64,
    /// Connections that did not become links.
    pub links_failed: u64,
    /// Links whose peer fell silent.
    pub links_dead: u64,
    /// Connections that ended before anything was said, as checks of load balancers do, by [`Listener::name`].
    pub silent: Vec<(&'static str, u64)>,
}

impl Stats {
    /// What has been counted.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            opened: read(&self.opened),
            refused: OpenError::ALL.iter().zip(&self.refused).map(|(e, n)| (e.reason(), read(n))).collect(),
            retried: read(&self.retried),
            links_registered: read(&self.links_registered),
            links_failed: read(&self.links_failed),
            links_dead: read(&self.links_dead),
            silent: Listener::ALL.iter().zip(&self.silent).map(|(l, n)| (l.name(), read(n))).collect(),
        }
    }

    pub(crate) fn opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, error: OpenError) {
        if let Some((_, counter)) =
            OpenError::ALL.iter().zip(&self.refused).find(|(known, _)| **known == error)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn link_registered(&self) {
        self.links_registered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn link_failed(&self) {
        self.links_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection on which nothing was said.
    pub fn silent(&self, listener: Listener) {
        if let Some((_, counter)) =
            Listener::ALL.iter().zip(&self.silent).find(|(known, _)| **known == listener)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn link_dead(&self) {
        self.links_dead.fetch_add(1, Ordering::Relaxed);
    }
}
