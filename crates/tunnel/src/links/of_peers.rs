//! The links that are up, by the node at their other end.

use std::{collections::BTreeMap, sync::Arc};

use super::table::Link;

/// Links by peer and number: a gateway of ten thousand nodes looks at those of one for each stream.
#[derive(Debug, Default)]
pub(super) struct OfPeers(BTreeMap<String, BTreeMap<u64, Arc<Link>>>);

impl OfPeers {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.0.values().flat_map(BTreeMap::values)
    }

    pub(super) fn of(&self, peer: &str) -> impl Iterator<Item = &Arc<Link>> + use<'_> {
        self.0.get(peer).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn insert(&mut self, link: Arc<Link>) {
        self.0.entry(link.peer.clone()).or_default().insert(link.id, link);
    }

    pub(super) fn remove(&mut self, link: &Link) {
        let Some(of_peer) = self.0.get_mut(&link.peer) else { return };
        of_peer.remove(&link.id);
        if of_peer.is_empty() {
            self.0.remove(&link.peer);
        }
    }
}
