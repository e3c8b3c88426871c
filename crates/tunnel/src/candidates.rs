//! In which order links are asked for a stream. Pure.
//!
//! Those of the stream's class first, of them those with the fewest streams, of them the nearest; then the others. All are
//! in the order, so a stream fails only when every link has failed it.
//!
//! The class is what a stream is taken for before anything passed, and a copy or a forwarded port is taken for interactive. So an
//! interactive stream avoids the links of a peer that carry much, whatever their class: a shell does not wait behind a copy.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::protocol::Class;

/// What a link may carry, in bytes a second, and still count as quiet: a terminal does not fill it, and a copy over a thin link does.
const QUIET: u64 = 16 * 1024;

/// What is known of a link when a stream is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Which link.
    pub link: u64,
    /// The node at the other end.
    pub peer: &'a str,
    /// For which traffic it was made.
    pub class: Class,
    /// Streams open on it.
    pub streams: usize,
    /// The last round trip.
    pub round_trip: Option<Duration>,
    /// Bytes a second that it carried of late, both ways.
    pub load: u64,
    /// Whether it takes no new streams, because it drains or is full.
    pub closed_to_new: bool,
}

impl Candidate<'_> {
    /// How busy it is. A step is a factor of two: links that carry about the same are alike, and what distinguishes them is the rest.
    fn busy(&self) -> u32 {
        (self.load / QUIET).checked_ilog2().map_or(0, |steps| steps + 1)
    }
}

/// The links to ask for a stream of `class`, the best first.
pub fn order(class: Class, candidates: &[Candidate<'_>]) -> Vec<u64> {
    let mut open: Vec<&Candidate<'_>> =
        candidates.iter().filter(|candidate| !candidate.closed_to_new).collect();
    // The link's number last: equal ones have an order, and it stays the same.
    open.sort_by_key(|candidate| {
        let round_trip = candidate.round_trip.unwrap_or(Duration::MAX);
        (candidate.class != class, candidate.streams, round_trip, candidate.link)
    });
    match class {
        Class::Bulk => open.iter().map(|candidate| candidate.link).collect(),
        Class::Interactive => quiet_first(&open),
    }
}

/// Leaves each peer the places that it has, and takes its quietest links for them first.
fn quiet_first(ordered: &[&Candidate<'_>]) -> Vec<u64> {
    let mut of_peers: BTreeMap<&str, VecDeque<&Candidate<'_>>> = BTreeMap::new();
    for candidate in ordered {
        of_peers.entry(candidate.peer).or_default().push_back(candidate);
    }
    for links in of_peers.values_mut() {
        // Stable: those that are alike stay as they were.
        links.make_contiguous().sort_by_key(|candidate| candidate.busy());
    }
    let next = |candidate: &&Candidate<'_>| Some(of_peers.get_mut(candidate.peer)?.pop_front()?.link);
    ordered.iter().filter_map(next).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate<'static>>> {
        let load = prop_oneof![Just(0), Just(QUIET - 1), Just(QUIET), Just(100 * QUIET), any::<u64>()];
        let peer = proptest::sample::select(vec!["a1", "a2"]);
        let one = (peer, any::<bool>(), 0_usize..4, proptest::option::of(0_u64..4), load, any::<bool>());
        proptest::collection::vec(one, 0..8).prop_map(|all| {
            let numbered = (0..).zip(all);
            numbered
                .map(|(link, (peer, bulk, streams, round_trip, load, closed_to_new))| Candidate {
                    link,
                    peer,
                    class: if bulk { Class::Bulk } else { Class::Interactive },
                    streams,
                    round_trip: round_trip.map(Duration::from_millis),
                    load,
                    closed_to_new,
                })
                .collect()
        })
    }

    fn find<'a>(all: &[Candidate<'a>], link: u64) -> Candidate<'a> {
        *all.iter().find(|candidate| candidate.link == link).unwrap()
    }

    proptest! {
        #[test]
        fn every_open_link_is_asked_once_and_always_in_the_same_order(all in candidates(), bulk in any::<bool>()) {
            let class = if bulk { Class::Bulk } else { Class::Interactive };
            let order = order(class, &all);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let open: Vec<u64> = all.iter().filter(|c| !c.closed_to_new).map(|c| c.link).collect();
            prop_assert_eq!(sorted, open);
            let mut reversed = all.clone();
            reversed.reverse();
            prop_assert_eq!(super::order(class, &reversed), order);
        }

        /// Bulk goes where bulk belongs; and in a quiet time everything does.
        #[test]
        fn the_class_is_first_then_the_fewest_streams(mut all in candidates(), bulk in any::<bool>()) {
            let class = if bulk { Class::Bulk } else { Class::Interactive };
            if !bulk {
                for candidate in &mut all {
                    candidate.load %= QUIET;
                }
            }
            for pair in order(class, &all).windows(2) {
                let (a, b) = (find(&all, pair[0]), find(&all, pair[1]));
                prop_assert!(a.class == class || b.class != class);
                prop_assert!(a.class != b.class || a.streams <= b.streams);
            }
        }

        /// The peers are asked in the order of a quiet time, each by its quietest link first.
        #[test]
        fn an_interactive_stream_avoids_what_is_busy(all in candidates()) {
            let busy = order(Class::Interactive, &all);
            let mut quiet = all.clone();
            for candidate in &mut quiet {
                candidate.load = 0;
            }
            let peers = |order: &[u64]| order.iter().map(|link| find(&all, *link).peer).collect::<Vec<_>>();
            prop_assert_eq!(peers(&busy), peers(&order(Class::Interactive, &quiet)));
            for peer in ["a1", "a2"] {
                let of_peer = busy.iter().map(|link| find(&all, *link)).filter(|candidate| candidate.peer == peer);
                prop_assert!(of_peer.map(|candidate| candidate.busy()).is_sorted());
            }
        }
    }

    /// Link 1 is of the class, 2 is not; what they carry, and which is asked first.
    #[test]
    fn a_shell_goes_beside_a_copy_and_not_behind_it() {
        for (loads, expected) in [
            ([0, 0], [1, 2]),
            ([QUIET - 1, 0], [1, 2]),
            ([QUIET, 0], [2, 1]),
            ([100 << 20, 1 << 20], [2, 1]),
            ([1 << 20, 100 << 20], [1, 2]),
            // About the same.
            ([101 << 20, 100 << 20], [1, 2]),
        ] {
            let candidate = |link, class, load| Candidate {
                link,
                peer: "a1",
                class,
                streams: 1,
                round_trip: None,
                load,
                closed_to_new: false,
            };
            let links = [candidate(1, Class::Interactive, loads[0]), candidate(2, Class::Bulk, loads[1])];
            assert_eq!(order(Class::Interactive, &links), expected, "{loads:?}");
        }
    }
}
