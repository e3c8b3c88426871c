//! The index and the recent answers as data: events and times in, views out.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::NodePool;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::PoolView;

/// A pool as the watch told of it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) view: PoolView,
    /// The whole pool, if it can be read.
    pub(super) pool: Option<Arc<NodePool>>,
}

impl From<DeserializeGuard<NodePool>> for Entry {
    fn from(guarded: DeserializeGuard<NodePool>) -> Self {
        let view = PoolView::from(&guarded);
        Self { view, pool: guarded.0.ok().map(slim) }
    }
}

/// Managed fields and the copy that kubectl keeps are a large part of a pool, and nothing here reads them.
fn slim(mut pool: NodePool) -> Arc<NodePool> {
    pool.metadata.managed_fields = None;
    if let Some(annotations) = &mut pool.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    Arc::new(pool)
}

/// The pools that the watch has told of.
#[derive(Debug, Default)]
pub(super) struct Index {
    pools: HashMap<String, Entry>,
    /// The pools of a list that is not complete yet; until it is, those of the last one count.
    incoming: HashMap<String, Entry>,
}

impl Index {
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.pools.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.pools.iter()
    }

    /// Takes in an event, and returns the names of the pools that it concerns.
    pub(super) fn apply(&mut self, event: Event<DeserializeGuard<NodePool>>) -> BTreeSet<String> {
        match event {
            Event::Init => {
                self.incoming.clear();
                BTreeSet::new()
            }
            Event::InitApply(pool) => {
                self.incoming.insert(pool.name_any(), pool.into());
                BTreeSet::new()
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.pools, std::mem::take(&mut self.incoming));
                before.into_keys().chain(self.pools.keys().cloned()).collect()
            }
            Event::Apply(pool) => {
                let name = pool.name_any();
                self.pools.insert(name.clone(), pool.into());
                [name].into()
            }
            Event::Delete(pool) => {
                let name = pool.name_any();
                self.pools.remove(&name);
                [name].into()
            }
        }
    }
}

/// Answers of the API server, each good for a second.
#[derive(Debug, Default)]
pub(super) struct Recent {
    answers: HashMap<String, Answer>,
}

/// An answer of the API server.
#[derive(Debug)]
pub(super) struct Answer {
    at: Instant,
    /// The pool, or that there is none.
    pub(super) pool: Option<PoolView>,
}

impl Answer {
    fn is_good(&self) -> bool {
        self.at.elapsed() < Recent::GOOD_FOR
    }
}

impl Recent {
    const GOOD_FOR: Duration = Duration::from_secs(1);
    const MOST: usize = 1_024;

    pub(super) fn get(&self, name: &str) -> Option<&Answer> {
        self.answers.get(name).filter(|answer| answer.is_good())
    }

    pub(super) fn put(&mut self, name: &str, pool: Option<PoolView>) {
        if self.answers.len() >= Self::MOST {
            self.answers.retain(|_, answer| answer.is_good());
        }
        // Rather forget all than grow: an answer costs one request.
        if self.answers.len() >= Self::MOST {
            self.answers.clear();
        }
        self.answers.insert(name.to_owned(), Answer { at: Instant::now(), pool });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }
}
