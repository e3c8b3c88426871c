//! What links may make this process hold, of what their peer may in all.
//!
//! A link's part counts from when it is granted until the link has ended and its last stream is gone: whatever has come over it may be held as long.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::window::{beyond_least, link_window};

/// How often it is looked whether there is more for a link: so long what one end has heard of the other's part is true of it.
pub(crate) const LOOKED_AT: Duration = Duration::from_secs(30);

/// What has been granted, by peer.
#[derive(Debug, Default)]
pub(crate) struct Allowances(Arc<Mutex<BTreeMap<String, Granted>>>);

#[derive(Debug, Default)]
struct Granted {
    links: usize,
    /// More than each of them has anyway, in bytes.
    more: u32,
}

/// A link's part.
#[derive(Debug)]
pub(crate) struct Allowance {
    granted: Arc<Mutex<BTreeMap<String, Granted>>>,
    peer: String,
    // How many links the peer may have.
    most: usize,
    bytes: AtomicU32,
}

impl Allowances {
    /// A part for one more link of this peer, which may have `most`.
    pub(crate) fn take(&self, peer: &str, most: usize) -> Option<Arc<Allowance>> {
        let mut all = self.0.lock();
        let granted = all.entry(peer.to_owned()).or_default();
        if granted.links >= most {
            return None;
        }
        let bytes = link_window(granted.more, most);
        granted.links += 1;
        granted.more += beyond_least(bytes);
        let (granted, bytes) = (self.0.clone(), AtomicU32::new(bytes));
        Some(Arc::new(Allowance { granted, peer: peer.to_owned(), most, bytes }))
    }
}

impl Allowance {
    /// How much it is.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Makes it what a new link would have in its place, if that is more: others may have ended.
    pub(crate) fn grow(&self) -> Option<u32> {
        let mut all = self.granted.lock();
        let (granted, bytes) = (all.get_mut(&self.peer)?, self.bytes());
        let others = granted.more.saturating_sub(beyond_least(bytes));
        let grown = link_window(others, self.most);
        if grown <= bytes {
            return None;
        }
        granted.more = others + beyond_least(grown);
        self.bytes.store(grown, Ordering::Relaxed);
        Some(grown)
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        let mut all = self.granted.lock();
        let Some(granted) = all.get_mut(&self.peer) else { return };
        granted.links -= 1;
        granted.more = granted.more.saturating_sub(beyond_least(self.bytes()));
        if granted.links == 0 {
            all.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::PEER;

    #[test]
    fn all_that_a_peer_has_is_bounded_and_what_ends_is_for_those_that_stay() {
        let allowances = Allowances::default();
        let sum = |links: &[Arc<Allowance>]| links.iter().map(|link| link.bytes()).sum::<u32>();
        let mut links: Vec<_> = (0..32).map(|_| allowances.take("a1", 32).unwrap()).collect();
        assert!(allowances.take("a1", 32).is_none());
        assert!(sum(&links) <= PEER && sum(&links) > PEER / 10 * 9);
        assert!(links.iter().all(|link| link.grow().is_none()));
        let other = allowances.take("a2", 32).unwrap();
        assert_eq!(other.bytes(), links[0].bytes(), "another peer has its own");
        // Those that were made last are left, as after a change of all links.
        let before = links.split_off(28);
        drop(std::mem::replace(&mut links, before));
        for link in &links {
            let grown = link.grow();
            assert_eq!(grown, Some(link.bytes()));
        }
        assert!(sum(&links) <= PEER && sum(&links) > PEER / 2, "{links:?}");
        drop((links, other));
        assert!(allowances.0.lock().is_empty());
    }
}
