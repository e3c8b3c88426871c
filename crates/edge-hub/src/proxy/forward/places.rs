//! Places for connections of other protocols: each user has a part of them, and all whose credential is not known to be good together a smaller
//! one, so that nobody keeps the others from an exec.

use std::{collections::HashMap, sync::LazyLock};

use parking_lot::Mutex;

use crate::subscriptions::Owner;

/// How many connections of other protocols there may be upstream: each is one of its own.
const ALL: usize = 128;

/// How many of one user.
const OF_ONE: usize = 64;

/// How many of all those whose names are not known, whom the API server has yet to ask.
const OF_UNKNOWN: usize = 32;

static TAKEN: LazyLock<Mutex<HashMap<Option<Owner>, usize>>> = LazyLock::new(Mutex::default);

/// A place, until it is dropped.
pub(super) struct Place(Option<Owner>);

impl Place {
    /// One for a user, or for somebody whose name is not known. None, if there is none left for such.
    pub(super) fn take(owner: Option<Owner>) -> Option<Self> {
        let mut taken = TAKEN.lock();
        if !may_take(&taken, owner.as_ref()) {
            return None;
        }
        *taken.entry(owner.clone()).or_default() += 1;
        Some(Self(owner))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        if let Some(count) = taken.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.0);
            }
        }
    }
}

fn may_take<T: Eq>(taken: &HashMap<Option<T>, usize>, owner: Option<&T>) -> bool {
    let most = if owner.is_some() { OF_ONE } else { OF_UNKNOWN };
    let own = taken.iter().find(|(holder, _)| holder.as_ref() == owner);
    taken.values().sum::<usize>() < ALL && own.is_none_or(|(_, own)| *own < most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_all_and_those_who_are_not_known_have_least() {
        for (what, taken, owner, expected) in [
            ("the first", &[][..], Some("a"), true),
            ("one user has no more than a half", &[(Some("a"), 64)], Some("a"), false),
            ("but another has as much", &[(Some("a"), 64), (Some("b"), 63)], Some("b"), true),
            ("who is not known has a quarter with all like it", &[(None, 31)], None, true),
            ("and no more", &[(None, 32)], None, false),
            ("so that one and all of those leave some", &[(Some("a"), 64), (None, 32)], Some("b"), true),
            ("there are no more than that", &[(Some("a"), 64), (Some("b"), 64)], Some("c"), false),
        ] {
            assert_eq!(may_take(&taken.iter().copied().collect(), owner.as_ref()), expected, "{what}");
        }
    }

    #[test]
    fn a_place_is_free_again_when_it_is_left() {
        let taken: Vec<_> = (0..OF_UNKNOWN).map(|_| Place::take(None).unwrap()).collect();
        assert!(Place::take(None).is_none() && Place::take(Some(Owner::Node)).is_some());
        drop(taken);
        assert!(Place::take(None).is_some());
    }
}
