//! Places for what is handed on and lasts: nobody keeps the others from an exec, and what one reads slowly takes no more memory than its part.

use std::{collections::HashMap, hash::Hash, sync::LazyLock};

use parking_lot::Mutex;

use crate::subscriptions::Owner;

/// Connections of other protocols: each is one of its own upstream. Each user has a half, and all whose credential is not known to be good together a
/// quarter.
pub(super) static UPGRADES: LazyLock<Places<Option<Owner>>> =
    LazyLock::new(|| Places::new(128, |owner| if owner.is_some() { 64 } else { 32 }));

/// Answers to tokens, by the names of their users, of whom one may have any number: of each as much as its window upstream may be held, 32 MiB of one user together. All
/// tokens that nobody is known to have issued, of which anybody can make up any number, have as much as one user.
pub(super) static ANSWERS: LazyLock<Places<Option<Box<str>>>> = LazyLock::new(|| Places::new(1024, |_| 256));

/// Places of one kind.
pub(super) struct Places<T: 'static> {
    taken: Mutex<HashMap<T, usize>>,
    /// How many there are.
    all: usize,
    /// How many of one holder.
    of_one: fn(&T) -> usize,
}

/// A place of one holder, or several, until this is dropped.
pub(super) struct Place<T: Eq + Hash + 'static> {
    places: &'static Places<T>,
    holder: T,
    count: usize,
}

impl<T: Clone + Eq + Hash> Places<T> {
    pub(super) fn new(all: usize, of_one: fn(&T) -> usize) -> Self {
        Self { taken: Mutex::default(), all, of_one }
    }

    /// One for this holder. None, if there is none left for it.
    pub(super) fn take(&'static self, holder: T) -> Option<Place<T>> {
        let mut place = self.none(holder);
        place.grow(1);
        (place.count > 0).then_some(place)
    }

    /// None yet for this holder, who may take some.
    pub(super) fn none(&'static self, holder: T) -> Place<T> {
        Place { places: self, holder, count: 0 }
    }
}

impl<T: Clone + Eq + Hash> Place<T> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes more, up to so many in all, as far as there are any left for the holder.
    pub(super) fn grow(&mut self, count: usize) {
        let mut taken = self.places.taken.lock();
        let own = taken.get(&self.holder).copied().unwrap_or(0);
        let left = self.places.all.saturating_sub(taken.values().sum());
        let left = left.min((self.places.of_one)(&self.holder).saturating_sub(own));
        let more = left.min(count.saturating_sub(self.count));
        if more > 0 {
            taken.insert(self.holder.clone(), own + more);
            self.count += more;
        }
    }
}

impl<T: Eq + Hash> Place<T> {
    /// Leaves all but so many.
    pub(super) fn shrink(&mut self, count: usize) {
        let fewer = self.count.saturating_sub(count);
        let mut taken = self.places.taken.lock();
        if let Some(own) = taken.get_mut(&self.holder) {
            *own -= fewer;
            self.count -= fewer;
            if *own == 0 {
                taken.remove(&self.holder);
            }
        }
    }
}

impl<T: Eq + Hash> Drop for Place<T> {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_all_and_those_who_are_not_known_have_least() {
        let user = |name: &str| Some(Owner::User(name.into()));
        for (what, taken, holder, expected) in [
            ("the first", vec![], user("a"), true),
            ("one user has no more than a half", vec![(user("a"), 64)], user("a"), false),
            ("but another has as much", vec![(user("a"), 64), (user("b"), 63)], user("b"), true),
            ("who is not known has a quarter with all like it", vec![(None, 31)], None, true),
            ("and no more", vec![(None, 32)], None, false),
            ("so that one and all of those leave some", vec![(user("a"), 64), (None, 32)], user("b"), true),
            ("there are no more than that", vec![(user("a"), 64), (user("b"), 64)], user("c"), false),
        ] {
            let places: &'static Places<_> = Box::leak(Box::new(Places::new(UPGRADES.all, UPGRADES.of_one)));
            let held: Vec<_> = taken
                .into_iter()
                .flat_map(|(holder, count)| vec![holder; count])
                .map(|holder| places.take(holder).unwrap())
                .collect();
            assert_eq!(places.take(holder).is_some(), expected, "{what}");
            drop(held);
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_left() {
        let places: &'static Places<_> = Box::leak(Box::new(Places::new(3, |_| 2)));
        let taken = [places.take("a"), places.take("a")];
        assert!(taken.iter().all(Option::is_some));
        assert!(places.take("a").is_none() && places.take("b").is_some());
        drop(taken);
        assert!(places.take("a").is_some());
    }
}
