//! In which order links are asked for a stream. Pure.
//!
//! Those of the stream's class first, of them those with the fewest streams, of them the nearest; then the others. All are
//! in the order, so a stream fails only when every link has failed it.

use std::time::Duration;

use crate::protocol::Class;

/// What is known of a link when a stream is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which link.
    pub link: u64,
    /// For which traffic it was made.
    pub class: Class,
    /// Streams open on it.
    pub streams: usize,
    /// The last round trip.
    pub round_trip: Option<Duration>,
    /// Whether it takes no new streams, because it drains or is full.
    pub closed_to_new: bool,
}

/// The links to ask for a stream of `class`, the best first.
pub fn order(class: Class, candidates: &[Candidate]) -> Vec<u64> {
    let mut open: Vec<&Candidate> = candidates.iter().filter(|candidate| !candidate.closed_to_new).collect();
    // The link's number last: equal ones have an order, and it stays the same.
    open.sort_by_key(|candidate| {
        let round_trip = candidate.round_trip.unwrap_or(Duration::MAX);
        (candidate.class != class, candidate.streams, round_trip, candidate.link)
    });
    open.iter().map(|candidate| candidate.link).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (any::<bool>(), 0_usize..4, proptest::option::of(0_u64..4), any::<bool>());
        proptest::collection::vec(one, 0..8).prop_map(|all| {
            let candidate = |(link, (bulk, streams, round_trip, closed_to_new)): (
                usize,
                (bool, usize, Option<u64>, bool),
            )| {
                Candidate {
                    link: link as u64,
                    class: if bulk { Class::Bulk } else { Class::Interactive },
                    streams,
                    round_trip: round_trip.map(Duration::from_millis),
                    closed_to_new,
                }
            };
            all.into_iter().enumerate().map(candidate).collect()
        })
    }

    proptest! {
        #[test]
        fn every_open_link_is_asked_once_and_the_best_first(all in candidates(), bulk in any::<bool>()) {
            let class = if bulk { Class::Bulk } else { Class::Interactive };
            let order = order(class, &all);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let open: Vec<u64> = all.iter().filter(|c| !c.closed_to_new).map(|c| c.link).collect();
            prop_assert_eq!(sorted, open);
            let find = |link: &u64| all.iter().find(|c| c.link == *link).unwrap();
            for pair in order.windows(2) {
                let (a, b) = (find(&pair[0]), find(&pair[1]));
                prop_assert!(a.class == class || b.class != class);
                prop_assert!(a.class != b.class || a.streams <= b.streams);
            }
            let mut reversed = all.clone();
            reversed.reverse();
            prop_assert_eq!(super::order(class, &reversed), order);
        }
    }
}
