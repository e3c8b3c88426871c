//! The whole product of the parameters of a list or of a watch, one combination after another, of which none is held.
//!
//! A parameter that is of no consequence to a verb is drawn for each combination instead of multiplied: the values of `limit` would ask the
//! same watch five times. [`Case::indifferent`] is for showing with a server that it is none.

use std::ops::Range;

use super::{COMMON, Case, Dimension, Verb};
use crate::random::SplitMix64;

/// The form of whole objects and of metadata, each in both encodings, and the table, of which there is JSON only.
const FORMS: Dimension = ("$accept", &["json", "protobuf", "metadata", "protobuf metadata", "table"]);

/// A list sends no bookmarks and does not last.
const OF_NO_CONSEQUENCE_TO_LISTS: [Dimension; 2] =
    [("allowWatchBookmarks", &["", "true", "false"]), ("timeoutSeconds", &["", "0", "1", "5"])];

/// A watch has no pages.
const OF_NO_CONSEQUENCE_TO_WATCHES: [Dimension; 1] = [("limit", &["", "1", "2", "500", "-1"])];

/// How long a watch lasts decides when it ends and nothing else; without a time it would last for half an hour, and is given one.
const TIMES: Dimension = ("timeoutSeconds", &["", "1", "2"]);

/// What is of no consequence to a verb.
fn indifferent(verb: Verb) -> &'static [Dimension] {
    if verb == Verb::Watch { &OF_NO_CONSEQUENCE_TO_WATCHES } else { &OF_NO_CONSEQUENCE_TO_LISTS }
}

/// What is multiplied.
fn axes(verb: Verb) -> Vec<Dimension> {
    let is_drawn = |name: &str| indifferent(verb).iter().any(|(drawn, _)| *drawn == name);
    let of_verb = COMMON.iter().filter(|(name, _)| !is_drawn(name));
    of_verb.map(|dimension| if dimension.0 == FORMS.0 { FORMS } else { *dimension }).collect()
}

/// Every combination once, see [`Case::product`].
#[derive(Debug, Clone)]
pub struct Product {
    verb: Verb,
    axes: Vec<Dimension>,
    all: usize,
    step: usize,
    seed: u64,
    left: Range<usize>,
}

impl Case {
    /// The whole product for a verb. Any stretch of it is spread over the whole, so that a part is a fair one, and what takes its time comes
    /// among what does not. The seed decides where it begins and what is drawn.
    pub fn product(watch: bool, seed: u64) -> Product {
        let verb = Verb::of(watch);
        let axes = axes(verb);
        let all = axes.iter().map(|(_, values)| values.len()).product();
        Product { verb, all, step: step(all), seed, left: 0..all, axes }
    }

    /// This one with each combination of what is of no consequence to its verb: a server says the same to all of them.
    pub fn indifferent(&self) -> Vec<Self> {
        indifferent(self.verb).iter().fold(vec![self.clone()], |cases, (name, values)| {
            let each = |case: Self| values.iter().map(move |value| case.clone().with(name, value));
            cases.into_iter().flat_map(each).collect()
        })
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.values.retain(|(other, _)| *other != name);
        self.values.push((name, value));
        self
    }
}

/// The part of `all` that the golden ratio cuts off, or the next number that has no factor in common with `all`: multiples of it come to each
/// number once, and lie evenly wherever one stops.
fn step(all: usize) -> usize {
    let divisor = |one: usize| {
        let (mut one, mut other) = (one, all);
        while other != 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    (all * 618 / 1000..=all + 1).find(|step| divisor(*step) == 1).unwrap_or(1)
}

impl Product {
    /// The rest of it after so many.
    #[must_use]
    pub fn beginning_at(mut self, at: usize) -> Self {
        self.left.start = at.min(self.all);
        self
    }

    /// The number of the combination that comes at this place.
    fn number(&self, at: usize) -> usize {
        let all = self.all as u64;
        // Below `all`, which is a usize.
        usize::try_from((self.seed % all + at as u64 * self.step as u64) % all).unwrap_or(0)
    }

    fn case(&self, number: usize) -> Case {
        let mut case = Case { verb: self.verb, values: super::combination(&self.axes, number) };
        let mut dice = SplitMix64(self.seed ^ number as u64);
        for (name, values) in indifferent(self.verb) {
            case.values.push((name, dice.pick(values)));
        }
        // One that waits must not end before what it waits for.
        if self.verb == Verb::Watch && case.lasts() == 1 {
            case.values.push((TIMES.0, dice.pick(TIMES.1)));
        }
        case
    }
}

impl Iterator for Product {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        let at = self.left.next()?;
        Some(self.case(self.number(at)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Product {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The number of a combination, by its values.
    fn number(product: &Product, case: &Case) -> usize {
        product.axes.iter().rev().fold(0, |number, (name, values)| {
            let at = values.iter().position(|value| *value == case.value(name)).unwrap();
            number * values.len() + at
        })
    }

    #[test]
    fn each_combination_comes_once() {
        for (watch, seed, all) in [(false, 0, 735_000), (true, 7, 294_000)] {
            let product = Case::product(watch, seed);
            assert_eq!(product.len(), all);
            let mut met = vec![false; all];
            for at in 0..all {
                let number = product.number(at);
                assert!(!std::mem::replace(&mut met[number], true), "{number} comes twice");
            }
            // And a number is a combination of its own.
            for at in (0..all).step_by(97) {
                assert_eq!(number(&product, &product.case(at)), at);
            }
            assert_eq!(product.count(), all);
        }
    }

    #[test]
    fn of_every_parameter_each_value_is_multiplied_or_drawn() {
        for watch in [false, true] {
            let met: HashSet<_> = Case::product(watch, 3).take(1000).flat_map(|case| case.values).collect();
            for (name, values) in COMMON.iter().chain([&FORMS]) {
                for value in *values {
                    assert!(met.contains(&(*name, *value)), "{name}={value}");
                }
            }
            for seconds in ["", "1"] {
                assert!(met.contains(&("timeoutSeconds", seconds)), "{seconds}");
            }
        }
    }

    #[test]
    fn a_part_is_spread_evenly_over_the_whole() {
        for watch in [false, true] {
            for (at, (name, values)) in axes(Verb::of(watch)).iter().enumerate() {
                for value in *values {
                    let some = Case::product(watch, 5).skip(700).take(1000);
                    let count = some.filter(|case| case.values[at] == (*name, *value)).count();
                    let fair = 1000 / values.len();
                    assert!((fair * 8 / 10..=fair * 12 / 10).contains(&count), "{name}={value}: {count}");
                }
            }
        }
    }

    #[test]
    fn what_was_asked_already_can_be_left_out() {
        for (watch, at) in [(false, 0), (false, 1), (true, 4321)] {
            let rest = Case::product(watch, 8).beginning_at(at);
            assert_eq!(rest.len(), Case::product(watch, 8).len() - at);
            assert!(rest.take(5).eq(Case::product(watch, 8).skip(at).take(5)), "{watch} {at}");
        }
        assert_eq!(Case::product(true, 8).beginning_at(usize::MAX).next(), None);
    }

    #[test]
    fn what_is_of_no_consequence_is_all_that_varies() {
        for (watch, count) in [(false, 12), (true, 5)] {
            let case = Case::product(watch, 9).next().unwrap();
            let same = case.indifferent();
            let requests: HashSet<_> = same.iter().map(|case| format!("{case:?}")).collect();
            assert_eq!(requests.len(), count);
            let product = Case::product(watch, 9);
            assert!(same.iter().all(|other| number(&product, other) == number(&product, &case)));
        }
    }
}
