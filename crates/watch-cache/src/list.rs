//! Lists: the objects at a version that a request may be answered with, whole or in pages.
//!
//! Any version that the history reaches back to can be listed exactly: each event knows what was there before it, so the
//! current snapshot is taken back event by event. Nothing is held for pages that may never be asked for.

use std::sync::Arc;

use kube_wire::{
    continue_token,
    list_options::{ListRead, ListRequest},
    object::Object,
    resource_version::ResourceVersion,
};

use crate::{
    cache::{Cache, State},
    selection::{Scope, Selection, Selects},
    snapshot::Snapshot,
    watch::WatchAnswer,
};

/// The answer to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListAnswer {
    /// These objects.
    Page(Page),
    /// The cache has not come so far: wait, or answer "too large resource version".
    Behind {
        /// How far it has come.
        current: ResourceVersion,
    },
    /// The history does not reach back so far: ask upstream, or answer 410.
    Expired {
        /// How far it reaches.
        oldest: ResourceVersion,
        /// What was asked for.
        asked: ResourceVersion,
    },
    /// The cache does not hold all objects yet.
    NotComplete,
}

/// Some objects of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The objects, in the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version of the list: of all its pages the same.
    pub resource_version: ResourceVersion,
    /// `metadata.continue`, if there are more objects.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`: how many objects come after this page; only without selectors, as the API server does.
    pub remaining: Option<u64>,
}

impl From<WatchAnswer> for ListAnswer {
    fn from(answer: WatchAnswer) -> Self {
        match answer {
            WatchAnswer::Behind { current } => Self::Behind { current },
            WatchAnswer::Expired { oldest, asked } => Self::Expired { oldest, asked },
            WatchAnswer::NotComplete => Self::NotComplete,
        }
    }
}

impl Cache {
    /// Answers a list. [`ListRead::MostRecent`] is answered with what there is: whether that is fresh enough is the caller's
    /// to know.
    pub fn list(&self, request: &ListRequest, scope: Scope) -> ListAnswer {
        // `timeout` is the time to wait if the cache is behind, and a request with `shards` must not come here.
        let ListRequest { read, limit, labels, fields, timeout: _, shards: _ } = request;
        let selection = Selection { scope, labels: labels.clone(), fields: fields.clone() };
        let (snapshot, from) = match read {
            ListRead::MostRecent | ListRead::Any => (self.snapshot_at_least(None), ""),
            ListRead::NotOlderThan(version) => (self.snapshot_at_least(Some(*version)), ""),
            ListRead::Exact(version) => (self.snapshot_at(*version), ""),
            ListRead::Continue { at: Some(version), after } => (self.snapshot_at(*version), after.as_str()),
            ListRead::Continue { at: None, after } => (self.snapshot_at_least(None), after.as_str()),
        };
        // The API server answers version 0 from its cache, whole whatever the limit.
        let limit = limit.filter(|_| *read != ListRead::Any);
        match snapshot {
            Ok(snapshot) => ListAnswer::Page(page(&snapshot, &selection, from, limit)),
            Err(answer) => answer.into(),
        }
    }

    /// The current state, if it is of this version or a later one.
    fn snapshot_at_least(&self, version: Option<ResourceVersion>) -> Result<Snapshot, WatchAnswer> {
        let state = self.complete()?;
        let current = state.version();
        if version.is_some_and(|version| version > current) {
            return Err(WatchAnswer::Behind { current });
        }
        Ok(state.snapshot.clone())
    }

    /// The state at exactly `version`; the cost grows with the number of events since.
    pub fn snapshot_at(&self, version: ResourceVersion) -> Result<Snapshot, WatchAnswer> {
        let state = self.complete()?;
        let State { snapshot, history } = state;
        if version > state.version() {
            return Err(WatchAnswer::Behind { current: state.version() });
        }
        if version < history.floor() {
            return Err(WatchAnswer::Expired { oldest: history.floor(), asked: version });
        }
        let mut snapshot = snapshot.clone();
        for event in history.newest_above(version) {
            snapshot.undo(event);
        }
        snapshot.set_version(version);
        Ok(snapshot)
    }
}

/// The objects of `snapshot` that are selected and whose key, as it stands in a continue token, is not below `from`; no more
/// than `limit`.
///
/// As the API server does, the limit counts selected objects, and there is a next page whenever any object comes after the
/// last, selected or not.
fn page(snapshot: &Snapshot, selection: &Selection, from: &str, limit: Option<u64>) -> Page {
    let scope = selection.scope();
    let mut rest = scope.range(snapshot);
    // A token cannot lead out of the scope.
    rest.start = rest.start.max(snapshot.seek(&scope.key(from)));
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let known = if selection.is_everything() { snapshot.count(&rest).min(limit) } else { 0 };
    let mut objects = Vec::with_capacity(known);
    while objects.len() < limit {
        let Some(object) = snapshot.next_in(&mut rest) else { break };
        if selection.selects(object) {
            objects.push(Arc::clone(object));
        }
    }
    let remaining = snapshot.count(&rest);
    let version = snapshot.resource_version();
    let token = |last: &Arc<Object>| continue_token::encode(scope.relative(last.key()), Some(version));
    Page {
        resource_version: version,
        continue_token: objects.last().filter(|_| remaining > 0).map(token),
        remaining: (remaining > 0 && selection.is_everything()).then_some(remaining as u64),
        objects,
    }
}

#[cfg(test)]
mod tests;
