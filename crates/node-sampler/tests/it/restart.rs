//! What a restart leaves, and what time does to it.

use node_sampler::{Sampler, checkpoint::Checkpoint};

use crate::fixture::{Layout, Tree, at, facts};

/// Half an hour of a node, its checkpoint, and a sampler that begins `gap` seconds later.
fn restarted(gap: u64) -> (node_report::Sample, node_report::Sample) {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V2Systemd);
    let mut sampler = Sampler::new(&tree.roots());
    for second in 0..=1_800 {
        tree.node(second);
        tree.pod(0, second);
        sampler.tick(at(second), &facts(1));
    }
    let before = sampler.sample(at(1_800), &facts(1), 1, None).unwrap();
    let kept = Checkpoint::read(&sampler.checkpoint(at(1_800), "boot", 77)).unwrap();
    assert_eq!(kept.incarnation, 77);
    let mut next = Sampler::new(&tree.roots());
    next.restore(&kept, at(1_800 + gap), "boot");
    next.tick(at(1_800 + gap), &facts(1));
    (before, next.sample(at(1_800 + gap), &facts(1), 1, None).unwrap())
}

#[test]
fn percentiles_are_there_at_once() {
    let (before, after) = restarted(5);
    assert_eq!(after.usage.aggregates, before.usage.aggregates);
    assert_eq!(after.usage.aggregates.len(), 3);
    assert_eq!(after.usage.usage, before.usage.usage);
    assert!(before.usage.prod_peak.is_some());
    assert_eq!(after.usage.prod_peak, before.usage.prod_peak);
}

#[test]
fn a_long_stop_leaves_what_is_still_young() {
    let of = |gap| restarted(gap).1.usage.aggregates.iter().map(|one| one.duration_s).collect::<Vec<_>>();
    assert_eq!(of(200), [600, 1_800]);
    assert_eq!(of(800), [1_800]);
    assert_eq!(of(3_600), [0_u32; 0]);
}
