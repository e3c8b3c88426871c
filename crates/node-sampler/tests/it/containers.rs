//! What the kernel counts of each container by itself and does not add up.

use node_report::report::{PodMemoryEvents, Throttling};
use node_sampler::{Sampler, checkpoint::Checkpoint};

use crate::{
    fixture::{Layout, Tree, at, facts},
    sampled::sampled,
};

const LAYOUTS: [Layout; 3] = [Layout::V1, Layout::V2Cgroupfs, Layout::V2Systemd];

fn throttled(periods: u64, throttled_periods: u64, us: u64) -> Throttling {
    Throttling { periods: Some(periods), throttled_periods: Some(throttled_periods), throttled_us: Some(us) }
}

#[test]
fn a_container_with_a_limit_in_a_pod_without_one_is_seen_to_be_throttled() {
    for layout in LAYOUTS {
        let sample = sampled(layout, 1, 150, |tree, second| {
            tree.node(second);
            tree.pod(0, second);
            // The pod's own cgroup has no limit, as one container has none.
            let unlimited = "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
            tree.write(&format!("{}/cpu.stat", tree.pod_folder(0, "cpu")), unlimited);
            tree.container(0, "limited", second);
            tree.write(&format!("{}/sandbox/cpu.stat", tree.pod_folder(0, "cpu")), unlimited);
        });
        assert_eq!(sample.pods[0].throttling, Some(throttled(750, 150, 150_000)), "{layout:?}");
    }
}

#[test]
fn a_container_that_goes_takes_nothing_back() {
    for layout in LAYOUTS {
        let sample = sampled(layout, 1, 150, |tree, second| {
            tree.node(second);
            tree.pod(0, second);
            tree.pod_features(0, 0);
            let unlimited = "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
            tree.write(&format!("{}/cpu.stat", tree.pod_folder(0, "cpu")), unlimited);
            // Another container comes in its place, whose counters begin anew.
            if second <= 100 {
                tree.container(0, "first", second);
            } else {
                tree.without_container(0, "first");
                tree.container(0, "second", second - 100);
            }
        });
        assert_eq!(sample.pods[0].throttling, Some(throttled(750, 150, 150_000)), "{layout:?}");
        let events = sample.pods[0].memory_events.unwrap();
        let expected = match layout {
            // The first was there when reading began, so the process that it lost then is of before.
            Layout::V1 => {
                PodMemoryEvents { max: Some(150), oom_kills: Some(2), ..PodMemoryEvents::default() }
            }
            _ => PodMemoryEvents { high: Some(0), max: Some(0), oom: Some(0), oom_kills: Some(0) },
        };
        assert_eq!(events, expected, "{layout:?}");
    }
}

#[test]
fn in_version_1_nobody_says_that_there_were_no_kills() {
    let sample = sampled(Layout::V1, 1, 60, |tree, second| {
        tree.node(second);
        tree.pod(0, second);
        tree.pod_features(0, second);
    });
    assert_eq!(sample.pods[0].memory_events, None, "absent, not zero");
}

#[test]
fn throttling_goes_on_over_a_restart() {
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path(), layout);
        let grow = |second: u64| {
            tree.node(second);
            tree.pod(0, 0);
            tree.container(0, "limited", second);
        };
        let mut before = Sampler::new(&tree.roots());
        for second in 0..=100 {
            grow(second);
            before.tick(at(second), &facts(1));
        }
        let kept = Checkpoint::read(&before.checkpoint(at(100), "boot", 1)).unwrap();
        let mut sampler = Sampler::new(&tree.roots());
        sampler.restore(&kept, at(110), "boot");
        for second in 110..=160 {
            grow(second);
            sampler.tick(at(second), &facts(1));
        }
        let sample = sampler.sample(at(160), &facts(1), 1, None).unwrap();
        let throttling = sample.pods[0].throttling.unwrap();
        assert_eq!(throttling.throttled_periods, Some(160), "{layout:?}: {throttling:?}");
    }
}
