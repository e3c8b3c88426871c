//! What a subscription spares the link.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that a subscription cost and gave.
#[derive(Debug, Default)]
pub struct Traffic {
    fetched: AtomicU64,
    served: AtomicU64,
}

impl Traffic {
    /// So many bytes of a body came from upstream.
    pub fn fetched(&self, bytes: usize) {
        self.fetched.fetch_add(bytes as u64, Relaxed);
    }

    /// So many bytes of a body went to a client.
    pub fn served(&self, bytes: usize) {
        self.served.fetch_add(bytes as u64, Relaxed);
    }

    /// What the link was spared.
    pub fn saved(&self) -> u64 {
        self.served.load(Relaxed).saturating_sub(self.fetched.load(Relaxed))
    }
}
