//! What a restart leaves, and what time does to it.

use node_report::{
    Policy, Sample,
    report::{Pressure, RunQueue},
};
use node_sampler::{Sampler, checkpoint::Checkpoint};

use crate::fixture::{Layout, Tree, at, facts};

/// A node that was sampled for some time, and what was kept at the end of it.
struct Node {
    tree: Tree,
    end: u64,
    before: Sample,
    kept: Checkpoint,
    _folder: tempfile::TempDir,
}

impl Node {
    fn after(end: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path(), Layout::V2Systemd);
        let mut sampler = Sampler::new(&tree.roots());
        sampler.set_policy(Policy { durations_s: vec![20, 1_800], ..Policy::default() });
        for second in 0..=end {
            tree.node(second);
            tree.pod(0, second);
            if second.is_multiple_of(10) {
                grow_what_is_read_seldom(&tree, second);
            }
            sampler.tick(at(second), &facts(1));
        }
        let before = sampler.sample(at(end), &facts(1), 1, None).unwrap();
        let kept = Checkpoint::read(&sampler.checkpoint(at(end), "boot", 77)).unwrap();
        assert_eq!(kept.incarnation, 77);
        Self { tree, end, before, kept, _folder: folder }
    }

    /// The first sample of a sampler that begins `gap` seconds later.
    fn restarted(&self, gap: u64, boot: &str) -> Sample {
        let second = self.end + gap;
        let mut next = Sampler::new(&self.tree.roots());
        next.restore(&self.kept, at(second), boot);
        self.tree.node(second);
        self.tree.pod(0, second);
        grow_what_is_read_seldom(&self.tree, second);
        next.tick(at(second), &facts(1));
        next.sample(at(second), &facts(1), 1, None).unwrap()
    }
}

fn grow_what_is_read_seldom(tree: &Tree, second: u64) {
    tree.node_features(second);
    tree.pod_features(0, second);
    tree.threads(0, &[11], second);
    tree.system(&[21], second);
}

#[test]
fn percentiles_are_there_at_once() {
    let node = Node::after(1_800);
    let (before, after) = (&node.before, node.restarted(5, "boot"));
    assert_eq!(after.usage.aggregates, before.usage.aggregates);
    let windows: Vec<u32> = after.usage.aggregates.iter().map(|one| one.duration_s).collect();
    assert_eq!(windows, [20, 1_800], "those of the policy, before a leader told it again");
    assert_eq!(after.usage.usage, before.usage.usage);
    assert!(before.usage.prod_peak.is_some());
    assert_eq!(after.usage.prod_peak, before.usage.prod_peak);
    // A long stop leaves what is still young.
    let of = |gap| {
        let aggregates = node.restarted(gap, "boot").usage.aggregates;
        aggregates.iter().map(|one| one.duration_s).collect::<Vec<_>>()
    };
    assert_eq!(of(8), [20, 1_800]);
    assert_eq!(of(800), [1_800]);
    assert_eq!(of(3_600), [0_u32; 0]);
}

/// What is told of counters: share of the window without memory, waits, of pod, system and node.
fn windows(sample: &Sample) -> [Option<u64>; 6] {
    let (usage, pod) = (&sample.usage, &sample.pods[0]);
    let share = |pressure: Option<Pressure>| pressure?.memory?.some?.window_ppm.map(u64::from);
    let waiting = |run_queue: Option<RunQueue>| run_queue?.waiting_milli;
    [
        share(pod.pressure),
        waiting(pod.run_queue),
        share(usage.system_pressure),
        waiting(usage.system_run_queue),
        share(usage.pressure),
        waiting(usage.run_queue),
    ]
}

#[test]
fn what_counters_tell_of_pods_system_and_node_goes_on() {
    let node = Node::after(420);
    let before = &node.before;
    assert_eq!(windows(before), [10_000, 2, 10_000, 2, 20_000, 1].map(Some));
    for gap in [1, 5, 100] {
        let after = node.restarted(gap, "boot");
        assert_eq!(after.pods[0].usage, before.pods[0].usage);
        assert_eq!(windows(&after), windows(before), "{gap} s");
        let throttling = after.pods[0].throttling.unwrap();
        assert_eq!(throttling.periods, throttling.throttled_periods.map(|throttled| throttled * 5));
        assert!(throttling.periods.is_some_and(|periods| (2_000..=3_000).contains(&periods)));
    }
    // A stop that is longer than the window leaves nothing; another boot counts from nothing.
    for (gap, boot) in [(400, "boot"), (5, "another")] {
        assert_eq!(windows(&node.restarted(gap, boot)), [None; 6], "{gap} s, {boot}");
    }
}
