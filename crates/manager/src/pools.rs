//! An index of `NodePool`s that every replica keeps: what the webhook needs to know of a pool, by its name.
//!
//! Fed by one watch ([`Pools::follow`]). The watch lags behind, so a name that the index lacks is asked for once at the
//! API server itself before it counts as unknown, and the answer is kept for a second. Pools that cannot be read stay in
//! the index as such. It must not write anything.

mod index;
mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{NetworkMode, NodePool, PoolType};
use futures::StreamExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use index::{Index, Recent};
pub use live::{Live, LiveError};

/// How long a question to the API server may take; a webhook's caller waits 3 s at most.
const LIVE_DEADLINE: Duration = Duration::from_secs(1);

/// How many questions may be on the way at once, so that made-up names do not load the API server.
const LIVE_AT_ONCE: usize = 16;

/// What the webhook needs to know of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PoolView {
    /// How the pool connects its pods.
    Network(NetworkMode),
    /// The pool is there but cannot be read; why.
    Unreadable(Arc<str>),
}

impl From<&DeserializeGuard<NodePool>> for PoolView {
    fn from(DeserializeGuard(pool): &DeserializeGuard<NodePool>) -> Self {
        match pool {
            Ok(pool) => Self::Network(pool.network_mode()),
            Err(invalid) => Self::Unreadable(invalid.error.as_str().into()),
        }
    }
}

/// Why it is not known whether a pool exists.
#[derive(Debug, Error)]
pub enum FindError {
    /// The API server did not answer in time.
    #[error("node pool \"{pool}\" could not be looked up within {} ms", LIVE_DEADLINE.as_millis())]
    Timeout {
        /// The pool.
        pool: String,
    },
    /// The API server could not be asked.
    #[error("node pool \"{pool}\" could not be looked up: {source}")]
    Live {
        /// The pool.
        pool: String,
        /// What went wrong.
        source: LiveError,
    },
}

/// The index, shared by its clones.
#[derive(Clone)]
pub struct Pools {
    shared: Arc<Shared>,
}

struct Shared {
    index: RwLock<Index>,
    recent: Mutex<Recent>,
    ready: watch::Sender<bool>,
    changes: watch::Sender<u64>,
    live: Box<dyn Live>,
    permits: Semaphore,
}

impl Pools {
    /// An empty index that asks `live` for names it lacks.
    pub fn new(live: impl Live + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                index: RwLock::default(),
                recent: Mutex::default(),
                ready: watch::Sender::new(false),
                changes: watch::Sender::default(),
                live: Box::new(live),
                permits: Semaphore::new(LIVE_AT_ONCE),
            }),
        }
    }

    /// Becomes true when the index has been filled once, and stays so.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.shared.ready.subscribe()
    }

    /// Changes whenever a pool does.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// All pools that can be read.
    pub(crate) fn all(&self) -> Vec<Arc<NodePool>> {
        self.shared.index.read().iter().filter_map(|(_, entry)| entry.pool.clone()).collect()
    }

    /// The pool `name` as far as the index knows.
    pub fn get(&self, name: &str) -> Option<PoolView> {
        self.shared.index.read().get(name).map(|entry| entry.view.clone())
    }

    /// The whole pool `name`, if the index knows it and it can be read.
    pub(crate) fn whole(&self, name: &str) -> Option<Arc<NodePool>> {
        self.shared.index.read().get(name).and_then(|entry| entry.pool.clone())
    }

    /// The names of all pools, readable or not.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.index.read().iter().map(|(name, _)| name.clone()).collect()
    }

    /// The type of every pool, by its name; `None` of one that cannot be read, whose nodes are in it all the same.
    pub(crate) fn types(&self) -> BTreeMap<String, Option<PoolType>> {
        let index = self.shared.index.read();
        let type_ = |pool: &Arc<NodePool>| pool.spec.type_;
        index.iter().map(|(name, entry)| (name.clone(), entry.pool.as_ref().map(type_))).collect()
    }

    /// Whether any pool is in host-network mode.
    pub(crate) fn any_host_network(&self) -> bool {
        let host = PoolView::Network(NetworkMode::HostNetwork);
        self.shared.index.read().iter().any(|(_, entry)| entry.view == host)
    }

    /// The pool `name`, asked for at the API server when the index lacks it; `None` when there is no such pool.
    pub async fn find(&self, name: &str) -> Result<Option<PoolView>, FindError> {
        if let Some(view) = self.get(name) {
            return Ok(Some(view));
        }
        if !is_pool_name(name) {
            return Ok(None);
        }
        if let Some(answer) = self.shared.recent.lock().get(name) {
            return Ok(answer.pool.clone());
        }
        let ask = async {
            let _permit = self.shared.permits.acquire().await;
            self.shared.live.get(name).await
        };
        let answer = timeout(LIVE_DEADLINE, ask)
            .await
            .map_err(|_| FindError::Timeout { pool: name.to_owned() })?
            .map_err(|source| FindError::Live { pool: name.to_owned(), source })?;
        self.shared.recent.lock().put(name, answer.clone());
        Ok(answer)
    }

    /// Takes in one event of the watch, and returns the names of the pools that it concerns.
    pub fn apply(&self, event: watcher::Event<DeserializeGuard<NodePool>>) -> BTreeSet<String> {
        let filled = matches!(event, watcher::Event::InitDone);
        let changed = self.shared.index.write().apply(event);
        if filled {
            self.shared.ready.send_replace(true);
        }
        if !changed.is_empty() {
            self.shared.changes.send_modify(|count| *count += 1);
        }
        changed
    }

    /// Keeps the index up to date, and tells `changed` the names of the pools that changed; never ends by itself.
    pub async fn follow(&self, client: Client, changed: impl Fn(BTreeSet<String>)) {
        let pools = Api::<DeserializeGuard<NodePool>>::all(client);
        let config = watcher::Config::default().streaming_lists();
        let mut events = std::pin::pin!(watcher(pools, config).backoff(crate::watches::backoff()));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => changed(self.apply(event)),
                Err(error) => tracing::warn!(%error, "watching node pools"),
            }
        }
    }
}

/// Whether `name` can be the name of a pool: labels reach the webhook before anyone has validated them.
fn is_pool_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests;
