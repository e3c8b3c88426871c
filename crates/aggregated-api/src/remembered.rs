//! Answers remembered for a while, boundedly, so that made-up questions cannot fill the memory. Pure: time comes in as a parameter.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Remembered<K, V> {
    capacity: usize,
    life: Duration,
    entries: HashMap<K, Entry<V>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// Whether it is the first to go: a refusal, so that noise displaces only noise.
    spare: bool,
    until: Instant,
}

impl<K: Eq + Hash + Clone, V: Clone> Remembered<K, V> {
    pub(crate) fn new(capacity: usize, life: Duration) -> Self {
        Self { capacity, life, entries: HashMap::new() }
    }

    /// The answer, if it still holds.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.entries.get(key).filter(|entry| now < entry.until).map(|entry| entry.value.clone())
    }

    /// Remembers an answer. When there is no room, those that no longer hold go, then half of the refusals, then half of all.
    pub(crate) fn insert(&mut self, key: K, value: V, spare: bool, now: Instant) {
        if self.entries.len() >= self.capacity {
            self.entries.retain(|_, entry| now < entry.until);
        }
        if self.entries.len() >= self.capacity {
            self.halve(true);
        }
        if self.entries.len() >= self.capacity {
            self.halve(false);
        }
        self.entries.insert(key, Entry { value, spare, until: now + self.life });
    }

    /// Forgets the older half: making room costs once for many.
    fn halve(&mut self, only_spare: bool) {
        let of = |entry: &Entry<V>| !only_spare || entry.spare;
        let mut ends: Vec<_> =
            self.entries.values().filter(|entry| of(entry)).map(|entry| entry.until).collect();
        let Some(middle) = ends.len().checked_sub(1).map(|last| last / 2) else { return };
        let (_, middle, _) = ends.select_nth_unstable(middle);
        let middle = *middle;
        self.entries.retain(|_, entry| !of(entry) || entry.until > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(10);

    #[test]
    fn an_answer_holds_for_a_while() {
        let now = Instant::now();
        let mut remembered = Remembered::new(4, LIFE);
        remembered.insert(1, "a", false, now);
        assert_eq!(remembered.get(&1, now + LIFE - Duration::from_secs(1)), Some("a"));
        assert_eq!(remembered.get(&1, now + LIFE), None);
        assert_eq!(remembered.get(&2, now), None);
    }

    #[test]
    fn noise_displaces_only_noise() {
        let now = Instant::now();
        let mut remembered = Remembered::new(16, LIFE);
        remembered.insert(0, true, false, now);
        for number in 1..500 {
            remembered.insert(number, false, true, now + Duration::from_millis(1));
            assert!(remembered.entries.len() <= 16);
        }
        assert_eq!(remembered.get(&0, now), Some(true));
        for number in 500..1000 {
            remembered.insert(number, true, false, now + Duration::from_millis(2));
            assert!(remembered.entries.len() <= 16);
        }
    }
}
