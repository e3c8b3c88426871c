//! What the API server was asked of a resource, and until when that is believed.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube_wire::resource::GroupVersionResource;
use parking_lot::Mutex;

/// Of how many resources it is kept; of others it is asked each time.
const KEPT: usize = 1024;

/// What was found out, by resource.
pub(crate) struct FoundOut<T>(Mutex<HashMap<GroupVersionResource, (T, Instant)>>);

impl<T> Default for FoundOut<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> FoundOut<T> {
    /// What is believed now.
    pub(crate) fn now(&self, resource: &GroupVersionResource) -> Option<T> {
        let known = self.0.lock();
        known.get(resource).filter(|(_, until)| *until > Instant::now()).map(|(what, _)| what.clone())
    }

    /// What was believed last, and may be so no more.
    pub(crate) fn last(&self, resource: &GroupVersionResource) -> Option<T> {
        self.0.lock().get(resource).map(|(what, _)| what.clone())
    }

    /// This is believed for so long.
    pub(crate) fn believe(&self, resource: &GroupVersionResource, what: T, within: Duration) {
        let now = Instant::now();
        let mut known = self.0.lock();
        if known.len() >= KEPT {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < KEPT || known.contains_key(resource) {
            known.insert(resource.clone(), (what, now + within));
        }
    }
}
