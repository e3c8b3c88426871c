//! States of which lists are read page by page, all pages of one version: held for as long as memory allows, since a person may read one page and then
//! the next. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::State;

/// For how long after its last page a state is held, and how many.
const LIFE: Duration = Duration::from_mins(5);
const MOST: usize = 32;

/// Where more objects than this are held in all states together, which may be as many versions of large objects that nobody else needs any
/// more: for how long then, and how many.
const FEW: usize = 2_000;
const SHORT_LIFE: Duration = Duration::from_secs(15);
const MOST_OF_MANY: usize = 4;

/// The states that are held, the one whose page was read last at the end.
#[derive(Debug)]
pub(super) struct Pages<T> {
    held: VecDeque<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    version: u64,
    at: Duration,
    values: State<T>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { held: VecDeque::new() }
    }
}

impl<T> Pages<T> {
    /// The state of that version, if it is held.
    pub(super) fn find(&self, version: u64) -> Option<State<T>> {
        self.held.iter().find(|held| held.version == version).map(|held| Arc::clone(&held.values))
    }

    /// Holds a state for the pages that follow.
    pub(super) fn hold(&mut self, version: u64, values: State<T>, at: Duration) {
        self.held.retain(|held| held.version != version);
        self.held.push_back(Held { version, at, values });
        self.release(at);
    }

    /// Lets go of states whose pages nobody asked for. To be called now and then.
    pub(super) fn release(&mut self, now: Duration) {
        let mut objects: usize = self.held.iter().map(|held| held.values.len()).sum();
        while let Some(oldest) = self.held.front() {
            let (most, life) = if objects > FEW { (MOST_OF_MANY, SHORT_LIFE) } else { (MOST, LIFE) };
            if self.held.len() <= most && now.saturating_sub(oldest.at) < life {
                break;
            }
            objects -= oldest.values.len();
            self.held.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Stored;

    fn state(objects: usize) -> State<()> {
        let stored = Stored { name: "n".into(), version: 1, added: 1, value: () };
        Arc::new(std::iter::repeat_n(Arc::new(stored), objects).collect())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_small_state_is_held_for_minutes_and_a_large_one_for_seconds() {
        for (objects, life) in [(100, 300), (5_000, 15)] {
            let mut pages = Pages::default();
            pages.hold(7, state(objects), at(0));
            pages.release(at(life - 1));
            assert!(pages.find(7).is_some_and(|state| state.len() == objects), "{objects}");
            // Each page that is read begins it anew.
            pages.hold(7, state(objects), at(life - 1));
            pages.release(at(2 * life - 2));
            assert!(pages.find(7).is_some(), "{objects}");
            pages.release(at(2 * life - 1));
            assert!(pages.find(7).is_none(), "{objects}");
        }
    }

    #[test]
    fn many_lists_of_few_objects_go_on_beside_each_other() {
        for (objects, most) in [(10, MOST), (FEW / 4, MOST_OF_MANY), (5_000, MOST_OF_MANY)] {
            let mut pages = Pages::default();
            for version in 1..=100 {
                pages.hold(version, state(objects), at(version));
            }
            let held = (1..=100).filter(|version| pages.find(*version).is_some()).count();
            assert_eq!(held, most, "{objects} objects");
            assert!(pages.find(100).is_some(), "the last");
        }
    }
}
