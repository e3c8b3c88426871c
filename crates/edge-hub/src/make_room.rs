//! Who makes room where so much is kept for many and there is more: whoever has most, so that nobody drives out what is another's.

use std::{collections::HashMap, hash::Hash};

/// Where there are `most` already: what is over goes; if that is nothing, the lowest of the owner who has most. `of` says whose something is,
/// and its rank.
pub(crate) fn make_room<Key, Value, Owner, Rank>(
    kept: &mut HashMap<Key, Value>,
    most: usize,
    is_over: impl Fn(&Value) -> bool,
    of: impl for<'a> Fn(&'a Key, &'a Value) -> (&'a Owner, Rank),
) where
    Key: Clone + Eq + Hash,
    Owner: Eq + Hash,
    Rank: Ord,
{
    if kept.len() < most {
        return;
    }
    kept.retain(|_, value| !is_over(value));
    if kept.len() < most {
        return;
    }
    let all = kept.iter().map(|(key, value)| {
        let (owner, rank) = of(key, value);
        (key, owner, rank)
    });
    if let Some(gone) = lowest_of_most(all).cloned() {
        kept.remove(&gone);
    }
}

/// What goes first, of things with their owners and ranks: the lowest of the owner who has most.
pub(crate) fn lowest_of_most<Key, Owner, Rank>(
    all: impl Iterator<Item = (Key, Owner, Rank)> + Clone,
) -> Option<Key>
where
    Owner: Eq + Hash,
    Rank: Ord,
{
    let mut counts = HashMap::<Owner, usize>::new();
    for (_, owner, _) in all.clone() {
        *counts.entry(owner).or_default() += 1;
    }
    let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let of_most = all.filter(|(_, owner, _)| *owner == most);
    of_most.min_by(|(_, _, one), (_, _, other)| one.cmp(other)).map(|(key, _, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_lowest_of_whoever_has_most() {
        let all = [(1, "few", 0), (2, "many", 7), (3, "many", 5), (4, "many", 6), (5, "few", 1)];
        assert_eq!(lowest_of_most(all.into_iter()), Some(3));
        assert_eq!(lowest_of_most(std::iter::empty::<(u8, u8, u8)>()), None);
    }
}
