//! What the store had of subscriptions that nobody has asked for since: kept for their clients to come back, with or without a link,
//! and let go after a time online. Pure: time comes in as a parameter.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use watch_cache::Cache;

/// How often it is stored how long each has waited.
const STORE: Duration = Duration::from_hours(1);

/// The caches that wait, by the names of their subscriptions.
#[derive(Debug, Default)]
pub(super) struct Unasked {
    caches: HashMap<String, Waiting>,
    /// How much of the time is not stored.
    unstored: Duration,
}

#[derive(Debug)]
struct Waiting {
    cache: Cache,
    /// For how long, while there was a link.
    since: Duration,
}

impl Unasked {
    /// What the store had; `waited` is what [`Unasked::export`] gave in an earlier run.
    pub(super) fn new(caches: HashMap<String, Cache>, waited: Option<&[u8]>) -> Self {
        let waited: BTreeMap<String, u64> =
            waited.and_then(|stored| serde_json::from_slice(stored).ok()).unwrap_or_default();
        let since = |name: &str| Duration::from_secs(waited.get(name).copied().unwrap_or_default());
        let caches =
            caches.into_iter().map(|(name, cache)| (name.clone(), Waiting { cache, since: since(&name) }));
        Self { caches: caches.collect(), unstored: Duration::ZERO }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.caches.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.caches.keys().map(String::as_str)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Cache> {
        self.caches.get(name).map(|waiting| &waiting.cache)
    }

    /// Somebody asks for it.
    pub(super) fn take(&mut self, name: &str) -> Option<Cache> {
        self.caches.remove(name).map(|waiting| waiting.cache)
    }

    /// Lets go of some, and gives their names.
    pub(super) fn let_go(&mut self, meant: impl Fn(&str) -> bool) -> Vec<String> {
        self.caches.extract_if(|name, _| meant(name)).map(|(name, _)| name).collect()
    }

    /// There was a link for so long. Lets go of those that nobody asked for during `kept`, and gives their names.
    pub(super) fn pass(&mut self, time: Duration, kept: Duration) -> Vec<String> {
        self.unstored += time;
        let gone = self.caches.extract_if(|_, waiting| {
            waiting.since += time;
            waiting.since > kept
        });
        gone.map(|(name, _)| name).collect()
    }

    /// How long each has waited, to be stored, once an hour.
    pub(super) fn export(&mut self) -> Option<Vec<u8>> {
        if self.unstored < STORE {
            return None;
        }
        self.unstored = Duration::ZERO;
        let waited = self.caches.iter().map(|(name, waiting)| (name, waiting.since.as_secs()));
        serde_json::to_vec(&waited.collect::<BTreeMap<_, _>>()).ok()
    }
}

#[cfg(test)]
mod tests {
    use watch_cache::Limits;

    use super::*;

    fn stored() -> HashMap<String, Cache> {
        ["a", "b"].map(|name| (name.to_owned(), Cache::new(Limits::default()))).into()
    }

    #[test]
    fn what_nobody_asks_for_is_let_go_after_its_time_online_over_restarts() {
        let (day, week) = (Duration::from_hours(24), Duration::from_hours(24 * 7));
        let mut first = Unasked::new(stored(), None);
        assert!(first.pass(day * 4, week).is_empty());
        let waited = first.export().unwrap();
        assert!(first.export().is_none(), "once an hour");
        let mut second = Unasked::new(stored(), Some(&waited));
        assert!(second.pass(day * 3, week).is_empty() && second.has("a"));
        assert!(second.take("a").is_some() && !second.has("a"));
        assert_eq!(second.pass(Duration::from_secs(1), week), ["b"]);
        assert!(!second.has("b") && second.pass(week, week).is_empty());
    }

    #[test]
    fn some_are_let_go_at_once() {
        let mut unasked = Unasked::new(stored(), None);
        assert_eq!(unasked.let_go(|name| name == "a"), ["a"]);
        assert!(!unasked.has("a") && unasked.has("b"));
    }
}
