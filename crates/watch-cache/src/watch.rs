//! Watches: at which version one may begin, and what it begins with.

use kube_wire::{
    list_options::{WatchRequest, WatchStart},
    resource_version::ResourceVersion,
};
use thiserror::Error;

use crate::{
    cache::{Cache, State},
    cursor::Cursor,
    selection::{Scope, Selection, Selects},
};

/// Why a version cannot be read, by a watch or by a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WatchAnswer {
    /// The cache has not come so far: wait, or answer "too large resource version".
    #[error("the cache has come to version {current} only")]
    Behind {
        /// How far it has come.
        current: ResourceVersion,
    },
    /// The history does not reach back so far: ask upstream, or answer 410.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// How far it reaches.
        oldest: ResourceVersion,
        /// What was asked for.
        asked: ResourceVersion,
    },
    /// The cache does not hold all objects yet.
    #[error("the cache is not complete")]
    NotComplete,
}

impl Cache {
    /// Begins a watch. As with lists, whether the cache is recent enough is the caller's to know.
    pub fn watch(&self, request: &WatchRequest, scope: Scope) -> Result<Cursor, WatchAnswer> {
        self.watch_with(request, scope, |selection| selection)
    }

    /// Begins a watch on what `narrow` makes of the request's selection.
    pub fn watch_with<S: Selects>(
        &self,
        request: &WatchRequest,
        scope: Scope,
        narrow: impl FnOnce(Selection) -> S,
    ) -> Result<Cursor<S>, WatchAnswer> {
        // `timeout` is the caller's clock, and a request with `shards` must not come here.
        let WatchRequest { start, bookmarks, labels, fields, timeout: _, shards: _ } = request;
        let selection = narrow(Selection { scope, labels: labels.clone(), fields: fields.clone() });
        match *start {
            WatchStart::After(version) => self.watch_after(version, *bookmarks, selection),
            WatchStart::Initial { at_least, most_recent: _, end_bookmark } => {
                self.watch_initial(at_least, end_bookmark, *bookmarks, selection)
            }
            WatchStart::Live { most_recent: _ } => self.watch_live(*bookmarks, selection),
        }
    }

    /// A reader that saw everything up to `version` and is told what came after; one from the future waits for it.
    pub fn watch_after<S: Selects>(
        &self,
        version: ResourceVersion,
        bookmarks: bool,
        selects: S,
    ) -> Result<Cursor<S>, WatchAnswer> {
        let state = self.complete()?;
        let oldest = state.history.floor();
        if version < oldest {
            return Err(WatchAnswer::Expired { oldest, asked: version });
        }
        Ok(Cursor::after(self, state, version, bookmarks, selects))
    }

    /// A reader that is told the current state, which must be of `at_least` this version, then what comes after it.
    pub fn watch_initial<S: Selects>(
        &self,
        at_least: Option<ResourceVersion>,
        end_bookmark: bool,
        bookmarks: bool,
        selects: S,
    ) -> Result<Cursor<S>, WatchAnswer> {
        let state = self.complete()?;
        let current = state.version();
        if at_least.is_some_and(|version| version > current) {
            return Err(WatchAnswer::Behind { current });
        }
        Ok(Cursor::initial(self, state, end_bookmark, bookmarks, selects))
    }

    /// A reader that is told what happens from now on.
    pub fn watch_live<S: Selects>(&self, bookmarks: bool, selects: S) -> Result<Cursor<S>, WatchAnswer> {
        let state = self.complete()?;
        Ok(Cursor::after(self, state, state.version(), bookmarks, selects))
    }

    /// What a complete cache holds.
    pub(crate) fn complete(&self) -> Result<&State, WatchAnswer> {
        self.state.as_ref().ok_or(WatchAnswer::NotComplete)
    }
}

#[cfg(test)]
mod tests;
