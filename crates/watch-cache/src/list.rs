//! Lists: the objects at a version that a request may be answered with, whole or in pages.
//!
//! Any version that the history reaches back to can be listed exactly: each event knows what was there before it, so the
//! current snapshot is taken back event by event. Nothing is held for pages that may never be asked for.

use std::sync::Arc;

use kube_wire::{object::Object, resource_version::ResourceVersion};

use crate::{
    cache::{Cache, State},
    selection::Selects,
    snapshot::Snapshot,
    watch::WatchAnswer,
};

/// Some objects of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The objects, in the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version of the list: of all its pages the same.
    pub resource_version: ResourceVersion,
    /// The last key of this page, relative to the request's path, if there are more objects.
    pub last: Option<String>,
    /// How many objects come after this page; only counted where no selector would have to look at each.
    pub remaining: Option<u64>,
}

impl Cache {
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

/// The objects of `snapshot` that are selected and come after the key `after`, no more than `limit`.
///
/// As the API server does, the limit counts selected objects, and there is a next page whenever any object comes after the
/// last, selected or not.
pub fn page(snapshot: &Snapshot, selects: &impl Selects, after: Option<&str>, limit: Option<u64>) -> Page {
    let scope = selects.scope();
    let mut rest = scope.range(snapshot);
    if let Some(after) = after {
        // The smallest key above it.
        rest.start = rest.start.max(snapshot.seek(&(scope.key(after) + "\0")));
    }
    let limit =
        limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let mut objects =
        Vec::with_capacity(if selects.is_everything() { snapshot.count(&rest).min(limit) } else { 0 });
    while objects.len() < limit {
        let Some(object) = snapshot.next_in(&mut rest) else { break };
        if selects.selects(object) {
            objects.push(Arc::clone(object));
        }
    }
    let remaining = snapshot.count(&rest);
    let last = objects.last().filter(|_| remaining > 0).map(|object| scope.relative(object.key()).to_owned());
    Page {
        resource_version: snapshot.resource_version(),
        remaining: (remaining > 0 && selects.is_everything()).then_some(remaining as u64),
        last,
        objects,
    }
}
