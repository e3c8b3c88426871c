//! When a node reports: all at the same interval, each at a moment of its own, so that the leader's load is even. Pure.

use std::time::Duration;

use node_report::Answer;

/// Over how long nodes spread that connect at once after a takeover: most of what that may take, of which the election takes the rest.
const SPREAD_MS: u64 = 500;

/// The shortest interval that a leader may ask for, in milliseconds: samples are no closer.
const SHORTEST_MS: u32 = 1_000;

/// The interval to use when the leader asks for this one; 0: as before.
pub(super) fn interval_ms(asked: u32, before: u32) -> u32 {
    let longest = u32::try_from(Answer::LONGEST_INTERVAL.as_millis()).unwrap_or(u32::MAX);
    if asked == 0 { before } else { asked.clamp(SHORTEST_MS, longest) }
}

/// How long after `now_ms` the next report is due: when the clock stands at the node's own place in the interval. Not sooner than half
/// an interval, since one was just sent.
pub(super) fn until_next(now_ms: i64, interval_ms: u32, node_uid: &str) -> Duration {
    let interval = u64::from(interval_ms.max(1));
    let place = hash(node_uid) % interval;
    let now = now_ms.rem_euclid(i64::from(interval_ms.max(1))).unsigned_abs();
    let wait = (place + interval - now) % interval;
    Duration::from_millis(if wait < interval / 2 { wait + interval } else { wait })
}

/// How long to wait before connecting where all nodes lost their leader.
pub(super) fn spread(node_uid: &str) -> Duration {
    Duration::from_millis(hash(node_uid) % SPREAD_MS)
}

/// FNV-1a, with its high bits folded in: UIDs differ in few places.
fn hash(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::{interval_ms, spread, until_next};

    #[test]
    fn a_node_keeps_its_place_in_the_interval() {
        let (interval, uid) = (10_000, "6f1c");
        let first = 1_790_000_000_123;
        let mut now = first + i64::try_from(until_next(first, interval, uid).as_millis()).unwrap();
        let place = now % 10_000;
        for late in [3, 40, 0, 900] {
            now += late;
            let wait = until_next(now, interval, uid);
            assert!((5_000..15_000).contains(&wait.as_millis()), "{wait:?}");
            now += i64::try_from(wait.as_millis()).unwrap();
            assert_eq!(now % 10_000, place);
        }
        assert!(until_next(-5, 0, uid).as_millis() <= 1, "no panic");
    }

    #[test]
    fn nodes_are_spread_evenly() {
        let mut tenths = [0; 10];
        for node in 0..5_000 {
            let wait =
                until_next(0, 10_000, &format!("0f5d3c1e-0000-4000-8000-{node:012}")).as_millis() % 10_000;
            tenths[usize::try_from(wait / 1_000).unwrap()] += 1;
            assert!(spread(&node.to_string()).as_millis() < 500);
        }
        assert!(tenths.iter().all(|count| (400..=600).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_leader_may_ask_for_another_interval() {
        for (asked, expected) in [(0, 10_000), (1, 1_000), (20_000, 20_000), (u32::MAX, 600_000)] {
            assert_eq!(interval_ms(asked, 10_000), expected);
        }
    }
}
