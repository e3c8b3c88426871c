//! Random histories: whatever upstream, the cache, the store and the clients do, every guarantee holds of every client.

use proptest::{prelude::*, test_runner::TestRunner};
use watch_cache::Limits;

use crate::{
    model::{Facts, Pick},
    world::{Op, World},
};

fn facts() -> impl Strategy<Value = Facts> {
    (0u8..2, 0u8..2).prop_map(|(app, node)| Facts { app, node })
}

fn pick() -> impl Strategy<Value = Pick> {
    let namespace =
        prop_oneof![3 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("a-b")), 1 => Just(Some("b"))];
    let app = proptest::option::of((any::<bool>(), 0u8..2));
    let node = proptest::option::weighted(0.3, 0u8..2);
    (namespace, app, node).prop_map(|(namespace, app, node)| Pick { namespace, app, node })
}

fn op() -> impl Strategy<Value = Op> {
    let back = || prop_oneof![Just(0u64), Just(1), 0u64..12];
    prop_oneof![
        14 => (0usize..6, facts(), 1u64..3).prop_map(|(key, facts, gap)| Op::Put { key, facts, gap }),
        5 => (0usize..6, 1u64..3).prop_map(|(key, gap)| Op::Delete { key, gap }),
        1 => (1u64..4).prop_map(|gap| Op::Tick { gap }),
        14 => (1usize..6).prop_map(|events| Op::Deliver { events }),
        1 => (1usize..6).prop_map(|events| Op::Repeat { events }),
        3 => Just(Op::Bookmark),
        2 => Just(Op::Relist),
        1 => Just(Op::RelistSame),
        1 => (1u64..5).prop_map(|back| Op::RelistOld { back }),
        1 => Just(Op::Reset),
        1 => (0u64..8).prop_map(|back| Op::Rewind { back }),
        1 => (0usize..8).prop_map(|history| Op::Restart { history }),
        4 => (pick(), back(), proptest::bool::weighted(0.2))
            .prop_map(|(pick, back, ahead)| Op::WatchAfter { pick, back, ahead }),
        4 => (pick(), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(pick, end_bookmark, ahead)| Op::WatchInitial { pick, end_bookmark, ahead }),
        1 => pick().prop_map(|pick| Op::WatchLive { pick }),
        12 => (0usize..6, 1usize..4).prop_map(|(client, budget)| Op::Read { client, budget }),
        3 => Just(Op::ReadAll),
        4 => (0usize..6).prop_map(|client| Op::AskBookmark { client }),
        4 => (0usize..6).prop_map(|client| Op::Resume { client }),
        2 => (pick(), back(), 0u64..4).prop_map(|(pick, back, limit)| Op::ListExact { pick, back, limit }),
        2 => (pick(), 1u64..4).prop_map(|(pick, limit)| Op::ListPages { pick, limit }),
        4 => (0usize..4).prop_map(|list| Op::NextPage { list }),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        (1usize..12).prop_map(|history_events| Limits { history_events, history_bytes: usize::MAX }),
        (1usize..6000).prop_map(|history_bytes| Limits { history_events: usize::MAX, history_bytes }),
    ]
}

/// A long run has ten times as many of these as of other properties: 102,400 with the 10,240 of `hack/test --long`. The macro of
/// `proptest` would take the number from the environment whatever is said here.
fn runs() -> ProptestConfig {
    let asked = ProptestConfig::default();
    let cases = if asked.cases >= 10_000 { asked.cases.saturating_mul(10) } else { asked.cases };
    ProptestConfig { cases, source_file: Some(file!()), ..asked }
}

#[test]
fn every_client_sees_what_upstream_did() {
    let histories = (limits(), proptest::collection::vec(op(), 1..80));
    let seen = TestRunner::new(runs()).run(&histories, |(limits, ops)| {
        let mut world = World::new(limits);
        let relist = [Op::Relist];
        let end = [Op::Deliver { events: 1000 }, Op::ReadAll];
        for op in relist.iter().chain(&ops).chain(&end) {
            if let Err(violation) = world.run(op) {
                return Err(TestCaseError::fail(format!("{violation}\n  at {op:?}")));
            }
        }
        Ok(())
    });
    if let Err(failure) = seen {
        panic!("{failure}");
    }
}
