//! The index and the recent answers as data: events and times in, views out.

use std::collections::HashMap;
use std::time::Duration;

use api::NodePool;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::PoolView;

/// The pools that the watch has told of.
#[derive(Debug, Default)]
pub(super) struct Index {
    pools: HashMap<String, PoolView>,
    /// The pools of a list that is not complete yet; until it is, those of the last one count.
    incoming: HashMap<String, PoolView>,
}

impl Index {
    pub(super) fn get(&self, name: &str) -> Option<&PoolView> {
        self.pools.get(name)
    }

    pub(super) fn apply(&mut self, event: Event<DeserializeGuard<NodePool>>) {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply(pool) => {
                self.incoming.insert(pool.name_any(), PoolView::from(&pool));
            }
            Event::InitDone => self.pools = std::mem::take(&mut self.incoming),
            Event::Apply(pool) => {
                self.pools.insert(pool.name_any(), PoolView::from(&pool));
            }
            Event::Delete(pool) => {
                self.pools.remove(&pool.name_any());
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
