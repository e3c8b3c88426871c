//! Lists: the objects at a version that a request may be answered with, whole or in pages.
//!
//! Any version that the history reaches back to can be listed exactly: each event knows what was there before it, so the
//! current snapshot is taken back event by event. Nothing is held for pages that may never be asked for.
//!
//! What a list is made of is handed out at once, and no longer has to do with the cache: to take events back, and to look at every object,
//! takes its time, in which upstream's events go on.

use std::sync::Arc;

use kube_wire::{
    continue_token,
    list_options::{ListRead, ListRequest},
    object::Object,
    resource_version::ResourceVersion,
};

use crate::{
    cache::{Cache, State},
    event::Event,
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

/// What a list is made of: a state, and what is to be taken back of it.
#[derive(Debug, Clone)]
pub struct Listed {
    snapshot: Snapshot,
    version: ResourceVersion,
    /// The events since `version`, newest first.
    since: Vec<Arc<Event>>,
}

impl Cache {
    /// Answers a list. [`ListRead::MostRecent`] is answered with what there is: whether that is fresh enough is the caller's
    /// to know.
    pub fn list(&self, request: &ListRequest, scope: Scope) -> ListAnswer {
        match self.listed(&request.read) {
            Ok(listed) => ListAnswer::Page(listed.page(request, scope)),
            Err(answer) => answer.into(),
        }
    }

    /// What a list that reads so is made of. Looks at no object; of an earlier version the cost grows with the number of events since.
    pub fn listed(&self, read: &ListRead) -> Result<Listed, WatchAnswer> {
        match read {
            ListRead::MostRecent | ListRead::Any | ListRead::Continue { at: None, .. } => {
                self.listed_at_least(None)
            }
            ListRead::NotOlderThan(version) => self.listed_at_least(Some(*version)),
            ListRead::Exact(version) | ListRead::Continue { at: Some(version), .. } => {
                self.listed_at(*version)
            }
        }
    }

    /// The current state, if it is of this version or a later one.
    fn listed_at_least(&self, version: Option<ResourceVersion>) -> Result<Listed, WatchAnswer> {
        let state = self.complete()?;
        let current = state.version();
        if version.is_some_and(|version| version > current) {
            return Err(WatchAnswer::Behind { current });
        }
        Ok(Listed { snapshot: state.snapshot.clone(), version: current, since: Vec::new() })
    }

    /// The state at exactly `version`.
    fn listed_at(&self, version: ResourceVersion) -> Result<Listed, WatchAnswer> {
        let state = self.complete()?;
        let State { snapshot, history } = state;
        if version > state.version() {
            return Err(WatchAnswer::Behind { current: state.version() });
        }
        if version < history.floor() {
            return Err(WatchAnswer::Expired { oldest: history.floor(), asked: version });
        }
        let since = history.newest_above(version).cloned().collect();
        Ok(Listed { snapshot: snapshot.clone(), version, since })
    }

    /// The state at exactly `version`; the cost grows with the number of events since.
    pub fn snapshot_at(&self, version: ResourceVersion) -> Result<Snapshot, WatchAnswer> {
        self.listed_at(version).map(Listed::snapshot)
    }
}

impl Listed {
    /// What of it is to be answered.
    pub fn page(self, request: &ListRequest, scope: Scope) -> Page {
        // `timeout` is the time to wait if the cache is behind, and a request with `shards` must not come here.
        let ListRequest { read, limit, labels, fields, timeout: _, shards: _ } = request;
        let selection = Selection { scope, labels: labels.clone(), fields: fields.clone() };
        let from = if let ListRead::Continue { after, .. } = read { after.as_str() } else { "" };
        // The API server answers version 0 from its cache, whole whatever the limit.
        let limit = limit.filter(|_| *read != ListRead::Any);
        page(&self.snapshot(), &selection, from, limit)
    }

    fn snapshot(self) -> Snapshot {
        let Self { mut snapshot, version, since } = self;
        for event in &since {
            snapshot.undo(event);
        }
        snapshot.set_version(version);
        snapshot
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
