//! Who is next when there is more to do than in one turn: pure.

use std::sync::Arc;

/// The first `most` of those that wait, in the order of their names, after the last that was tried; after the last name comes the first. So
/// what fails again and again keeps nobody else from their turn.
pub(super) fn next<T>(
    mut waiting: Vec<(Arc<str>, T)>,
    after: Option<&Arc<str>>,
    most: usize,
) -> Vec<(Arc<str>, T)> {
    waiting.sort_by(|(a, _), (b, _)| a.cmp(b));
    let begin = after.map_or(0, |after| waiting.partition_point(|(name, _)| name <= after));
    waiting.rotate_left(begin);
    waiting.truncate(most);
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_whoever_fails() {
        // Nobody is ever done.
        let waiting = || ["a", "b", "c", "d", "e"].map(|name| (Arc::from(name), ())).to_vec();
        let mut last = None;
        let mut turns = Vec::new();
        for _ in 0..4 {
            let chosen = next(waiting(), last.as_ref(), 2);
            last = chosen.last().map(|(name, ())| Arc::clone(name));
            turns.push(chosen.into_iter().map(|(name, ())| name.to_string()).collect::<String>());
        }
        assert_eq!(turns, ["ab", "cd", "ea", "bc"]);
        // Where the last one is gone the next one is next.
        assert_eq!(&*next(waiting(), Some(&"bb".into()), 1)[0].0, "c");
        assert_eq!(next(Vec::<(Arc<str>, ())>::new(), Some(&"a".into()), 2), []);
        assert_eq!(next(waiting(), None, 9).len(), 5);
    }
}
