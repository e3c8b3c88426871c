//! Places for what many do at a time: nobody keeps the others out, however long what it does may last.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;

use crate::authenticate::User;

/// How many of the places that are free there are for each that one user may have.
const FREE: usize = 3;

/// Places of one kind. One user may have a third as many as are free: a quarter of all where nobody else has any, and fewer the more others have.
/// So one or a few who take all that they get leave some for everybody else: of 400 places it takes nineteen.
///
/// A user is who was found to call, by name: for whom a front proxy asks, and not that proxy. All who are not recognised are one.
pub struct Places {
    all: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    sum: usize,
    of: HashMap<Arc<str>, usize>,
}

/// A place, until it is dropped.
pub struct Place {
    places: Arc<Places>,
    user: Arc<str>,
}

impl Places {
    /// So many.
    pub fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all, taken: Mutex::default() })
    }

    /// One for this user. `None` if there is none left for it.
    pub fn take(self: &Arc<Self>, user: &User) -> Option<Place> {
        let user: Arc<str> = user.name.as_str().into();
        let mut taken = self.taken.lock();
        let own = taken.of.get(&user).copied().unwrap_or(0);
        if own * FREE >= self.all.saturating_sub(taken.sum) {
            return None;
        }
        taken.sum += 1;
        taken.of.insert(Arc::clone(&user), own + 1);
        Some(Place { places: Arc::clone(self), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.sum -= 1;
        if let Some(count) = taken.of.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.user);
            }
        }
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("all", &self.all).field("taken", &self.taken.lock().sum).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: impl fmt::Display) -> User {
        User { name: name.to_string(), ..User::default() }
    }

    /// All that one gets who takes whatever there is.
    fn greedy(places: &Arc<Places>, name: impl fmt::Display) -> Vec<Place> {
        let user = user(name);
        std::iter::from_fn(|| places.take(&user)).collect()
    }

    #[test]
    fn one_user_has_a_quarter_and_a_few_leave_some() {
        let places = Places::new(400);
        let shares: Vec<_> = (0..18).map(|name| greedy(&places, name)).collect();
        let had: Vec<_> = shares.iter().map(Vec::len).collect();
        assert_eq!(had, [100, 75, 57, 42, 32, 24, 18, 13, 10, 8, 6, 4, 3, 2, 2, 1, 1, 1]);
        assert!(places.take(&user("somebody else")).is_some());
    }

    #[test]
    fn of_many_each_has_one() {
        let places = Places::new(400);
        let mut all: Vec<_> = (0..400).map(|name| places.take(&user(name)).unwrap()).collect();
        assert!(places.take(&user("somebody else")).is_none(), "there are no more than that");
        all.pop();
        assert!(places.take(&user("somebody else")).is_some());
    }

    #[test]
    fn a_place_that_is_left_is_free_again_for_its_user_and_for_others() {
        let places = Places::new(4);
        let first = greedy(&places, "a");
        assert_eq!(first.len(), 1);
        let others = ["b", "c"].map(|name| places.take(&user(name)).unwrap());
        drop(first);
        assert_eq!(greedy(&places, "a").len(), 1);
        drop(others);
        assert_eq!(greedy(&places, "a").len(), 1);
        let Taken { sum, of } = &*places.taken.lock();
        assert_eq!((*sum, of.len()), (0, 0), "who has none is not remembered");
    }

    #[test]
    fn a_user_is_one_whatever_else_is_known_of_it() {
        let places = Places::new(8);
        let alice = |uid: &str| User { uid: uid.to_owned(), groups: vec![uid.to_owned()], ..user("alice") };
        let held = ["1", "2"].map(|uid| places.take(&alice(uid)).unwrap());
        assert!(places.take(&alice("3")).is_none());
        drop(held);
        assert!(Places::new(0).take(&alice("1")).is_none());
    }
}
