//! Few requests in which each value of a parameter meets each value of every other: what two parameters do together differs in a way that no
//! handful of draws from the whole product can be trusted to show.

use std::collections::BTreeSet;

use super::{COMMON, Case, Verb};
use crate::random::SplitMix64;

/// How many requests are tried for each that is taken.
const TRIED: usize = 20;

/// A value of a parameter: their numbers in the product.
type Chosen = (usize, usize);

/// Two values of two parameters, the lower parameter first.
type Pair = (Chosen, Chosen);

impl Case {
    /// Requests of a verb in which each pair of values of any two parameters occurs; the same for the same seed. Each is the one of some tries
    /// that has the most pairs no other had before.
    pub fn pairs(watch: bool, seed: u64) -> Vec<Self> {
        let verb = Verb::of(watch);
        let mut dice = SplitMix64(seed ^ (verb as u64) << 32);
        let mut missing = all_pairs();
        let mut cases = Vec::new();
        while !missing.is_empty() {
            let tries = (0..TRIED).map(|_| tried(&missing, &mut dice));
            let best = tries.max_by_key(|chosen| gain(chosen, &missing)).unwrap_or_default();
            for pair in pairs_of(&best) {
                missing.remove(&pair);
            }
            let values = COMMON.iter().zip(&best).map(|((name, values), at)| (*name, values[*at]));
            cases.push(Self { verb, values: values.collect() });
        }
        cases
    }
}

fn all_pairs() -> BTreeSet<Pair> {
    let values = |at: usize| (0..COMMON[at].1.len()).map(move |value| (at, value));
    let parameters =
        (0..COMMON.len()).flat_map(|first| (first + 1..COMMON.len()).map(move |second| (first, second)));
    parameters
        .flat_map(|(first, second)| {
            values(first).flat_map(move |one| values(second).map(move |other| (one, other)))
        })
        .collect()
}

fn pairs_of(chosen: &[usize]) -> impl Iterator<Item = Pair> {
    let values = chosen.iter().copied().enumerate();
    values.clone().flat_map(move |first| values.clone().skip(first.0 + 1).map(move |second| (first, second)))
}

fn gain(chosen: &[usize], missing: &BTreeSet<Pair>) -> usize {
    pairs_of(chosen).filter(|pair| missing.contains(pair)).count()
}

/// A request with one of the missing pairs; the other parameters, in any order, have what adds the most.
fn tried(missing: &BTreeSet<Pair>, dice: &mut SplitMix64) -> Vec<usize> {
    let all: Vec<Pair> = missing.iter().copied().collect();
    let (first, second) = dice.pick(&all);
    let mut chosen = vec![first, second];
    let mut others: Vec<usize> = (0..COMMON.len()).filter(|at| ![first.0, second.0].contains(at)).collect();
    while !others.is_empty() {
        let at = dice.pick(&others);
        others.retain(|other| *other != at);
        let values: Vec<usize> = (0..COMMON[at].1.len()).collect();
        let added = |value: usize| {
            let with =
                |other: &Chosen| if other.0 < at { (*other, (at, value)) } else { ((at, value), *other) };
            chosen.iter().filter(|other| missing.contains(&with(other))).count()
        };
        let most = values.iter().map(|value| added(*value)).max().unwrap_or(0);
        let best: Vec<usize> = values.into_iter().filter(|value| added(*value) == most).collect();
        chosen.push((at, dice.pick(&best)));
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_pair_of_values_of_any_two_parameters_is_there_in_few_requests() {
        for (watch, seed) in [(false, 0), (true, 0), (false, 7), (true, 42)] {
            let cases = Case::pairs(watch, seed);
            assert!(cases.iter().all(|case| case.verb == Verb::of(watch)));
            let mut met = HashSet::new();
            for case in &cases {
                for one in &case.values {
                    met.extend(case.values.iter().map(|other| (*one, *other)));
                }
            }
            for (one, values) in &COMMON {
                for (other, others) in COMMON.iter().filter(|(other, _)| other != one) {
                    for value in *values {
                        for other_value in *others {
                            let pair = ((*one, *value), (*other, *other_value));
                            assert!(met.contains(&pair), "{pair:?}");
                        }
                    }
                }
            }
            // The two parameters with the most values have 49 pairs.
            assert!((49..=70).contains(&cases.len()), "{}", cases.len());
        }
    }

    #[test]
    fn a_seed_gives_the_same_again_and_another_gives_others() {
        assert_eq!(Case::pairs(false, 7), Case::pairs(false, 7));
        assert_ne!(Case::pairs(false, 7), Case::pairs(false, 8));
    }
}
