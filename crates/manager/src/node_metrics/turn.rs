//! Who is next when there is more to do than in one turn: pure.

use std::sync::Arc;

/// Turns of what waits, by name. What fails again and again keeps nobody else from theirs.
pub(super) struct Turns {
    most: usize,
    last: Option<Arc<str>>,
}

impl Turns {
    /// Of at most so many each.
    pub(super) fn of(most: usize) -> Self {
        Self { most, last: None }
    }

    /// The first of those that wait, in the order of their names, after the last of the turn before; after the last name comes the first.
    pub(super) fn next<T>(&mut self, mut waiting: Vec<(Arc<str>, T)>) -> Vec<(Arc<str>, T)> {
        let Self { most, last } = self;
        waiting.sort_by(|(a, _), (b, _)| a.cmp(b));
        let begin = last.as_ref().map_or(0, |last| waiting.partition_point(|(name, _)| name <= last));
        waiting.rotate_left(begin);
        waiting.truncate(*most);
        if let Some((name, _)) = waiting.last() {
            *last = Some(Arc::clone(name));
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_whoever_fails() {
        // Nobody is ever done.
        let waiting = || ["a", "b", "c", "d", "e"].map(|name| (Arc::from(name), ())).to_vec();
        let mut turns = Turns::of(2);
        let mut turn = || {
            let chosen = turns.next(waiting()).into_iter();
            chosen.map(|(name, ())| name.to_string()).collect::<String>()
        };
        assert_eq!([turn(), turn(), turn(), turn()], ["ab", "cd", "ea", "bc"]);
        // Where the last one is gone the next one is next.
        let mut turns = Turns { most: 1, last: Some("bb".into()) };
        assert_eq!(&*turns.next(waiting())[0].0, "c");
        assert_eq!(turns.next(Vec::<(Arc<str>, ())>::new()), []);
        assert_eq!(&*turns.next(waiting())[0].0, "d", "a turn of nobody changes nothing");
        assert_eq!(Turns::of(9).next(waiting()).len(), 5);
    }
}
