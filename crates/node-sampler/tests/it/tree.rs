//! Quantities as they come out of a tree of files.

use node_report::{MemoryPolicy, Policy, Resources, Sample, report::Priority};
use node_sampler::{Facts, Moment, Roots, Sampler};

use crate::{
    fixture::{Layout, Tree, at, facts, uid},
    sampled::sampled,
};

fn resources(cpu_milli: u64, memory_bytes: u64) -> Resources {
    Resources { cpu_milli: Some(cpu_milli), memory_bytes: Some(memory_bytes) }
}

/// A node with two pods, of which one is known by name, for `seconds`.
fn run(layout: Layout, seconds: u64, policy: MemoryPolicy, is_modern: bool) -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), layout);
    let mut sampler = Sampler::new(&tree.roots());
    sampler.set_policy(Policy { memory: policy.into(), ..Policy::default() });
    for second in 0..=seconds {
        tree.node(second);
        (0..2).for_each(|pod| tree.pod(pod, second));
        if is_modern {
            tree.node_features(second);
            (0..2).for_each(|pod| tree.pod_features(pod, second));
        }
        sampler.tick(at(second), &facts(1));
    }
    sampler.sample(at(seconds), &facts(1), 10_000, Some(4)).unwrap()
}

#[test]
fn quantities_are_the_same_in_every_layout() {
    for layout in [Layout::V1, Layout::V2Cgroupfs, Layout::V2Systemd] {
        let sample = run(layout, 150, MemoryPolicy::WithoutPageCache, true);
        let node = &sample.usage;
        assert_eq!(node.usage, Some(resources(1_500, 3 << 30)), "{layout:?}");
        assert_eq!(
            node.system,
            Some(resources(1_300, (3 << 30) - (128 << 20))),
            "{layout:?}: both pods are no system"
        );
        assert_eq!(node.capacity, Some(resources(4_000, 8 << 30)), "{layout:?}");
        let durations: Vec<u32> = node.aggregates.iter().map(|one| one.duration_s).collect();
        assert_eq!(durations, [300], "{layout:?}: half of 10 and of 30 minutes is not there");
        assert_eq!(node.aggregates[0].p99, Some(resources(1_500, 3 << 30)), "{layout:?}");
        assert_eq!(node.system_aggregates[0].p50, node.system, "{layout:?}");
        let [pod] = &sample.pods[..] else { panic!("{layout:?}: {:?}", sample.pods) };
        assert_eq!((pod.uid.as_str(), pod.name.as_str()), (uid(0).as_str(), "pod-0"));
        assert_eq!(pod.usage, Some(resources(100, 64 << 20)), "{layout:?}");
        let throttling = pod.throttling.unwrap();
        assert_eq!(
            (throttling.periods, throttling.throttled_periods, throttling.throttled_us),
            (Some(1_500), Some(300), Some(450_000)),
            "{layout:?}"
        );
        assert_eq!(pod.io.unwrap().read_bytes_per_s, Some(4_096), "{layout:?}");
        let events = pod.memory_events.map(|events| (events.max, events.oom_kills));
        let expected = (layout != Layout::V1).then_some((Some(0), Some(0)));
        assert_eq!(events, expected, "{layout:?}: none in the window, as far as a kernel can tell");
        assert_eq!((sample.policy_hash, sample.interval_ms), (Some(4), 10_000));
    }
}

#[test]
fn pressure_delay_and_events_are_there_where_the_kernel_has_them() {
    let sample = run(Layout::V2Systemd, 100, MemoryPolicy::WithoutPageCache, true);
    let pressure = sample.usage.pressure.unwrap();
    let cpu = pressure.cpu.unwrap();
    assert_eq!(cpu.full, None, "not defined for the whole system, whatever the file says");
    let some = cpu.some.unwrap();
    assert_eq!(
        (some.window_ppm, some.avg10_ppm, some.total_us),
        (Some(100_000), Some(125_000), Some(10_000_000))
    );
    assert_eq!(pressure.memory.unwrap().full.unwrap().window_ppm, Some(10_000));
    let delay = sample.usage.run_queue.unwrap();
    assert_eq!((delay.delay_ns, delay.waiting_milli), (Some(10_000), Some(1)));
    let events = sample.usage.memory_events.unwrap();
    assert_eq!((events.alloc_stalls, events.major_faults, events.oom_kills), (Some(100), Some(100), Some(0)));
    assert_eq!(sample.usage.io.unwrap().read_bytes_per_s, Some(4_096), "of the disk alone");
    let of_pod = sample.pods[0].pressure.unwrap().io.unwrap();
    assert_eq!(of_pod.some.unwrap().window_ppm, Some(10_000));
    assert_eq!(of_pod.full.unwrap().window_ppm, Some(5_000));
}

#[test]
fn a_kernel_that_has_pressure_in_version_1_tells_it_of_pods() {
    let sample = sampled(Layout::V1, 1, 60, |tree, second| {
        tree.node(second);
        tree.pod(0, second);
        tree.pod_pressure(0, second);
    });
    let pressure = sample.pods[0].pressure.unwrap();
    for stats in [pressure.cpu, pressure.memory, pressure.io] {
        let some = stats.unwrap().some.unwrap();
        assert_eq!((some.window_ppm, some.avg10_ppm), (Some(10_000), Some(125_000)));
    }
}

#[test]
fn what_a_kernel_has_not_is_absent() {
    for layout in [Layout::V1, Layout::V2Systemd] {
        let sample = run(layout, 20, MemoryPolicy::WithoutPageCache, false);
        let node = &sample.usage;
        assert_eq!((node.pressure, node.run_queue, node.memory_events, node.io), (None, None, None, None));
        let pod = &sample.pods[0];
        assert_eq!(pod.usage, Some(resources(100, 64 << 20)));
        assert_eq!((pod.pressure, pod.memory_events, pod.io, pod.run_queue), (None, None, None, None));
    }
    // Nothing at all: no node, no pods, no panic.
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V1);
    let mut sampler = Sampler::new(&tree.roots());
    assert!(sampler.sample(at(0), &Facts::default(), 1, None).is_none(), "before the first tick");
    (0..20).for_each(|second| sampler.tick(at(second), &Facts::default()));
    let usage = sampler.sample(at(20), &Facts::default(), 1, None).unwrap().usage;
    assert_eq!((usage.usage, usage.system, usage.capacity, usage.prod_peak), (None, None, None, None));
    assert_eq!(usage.aggregates, []);
}

#[test]
fn the_page_cache_counts_as_the_policy_says() {
    for (policy, node, pod) in [
        (MemoryPolicy::WithoutPageCache, 3 << 30, 64 << 20),
        (MemoryPolicy::WithHotPageCache, 5 << 30, 64 << 20),
        (MemoryPolicy::WithPageCache, 6 << 30, 96 << 20),
    ] {
        for layout in [Layout::V1, Layout::V2Systemd] {
            let sample = run(layout, 3, policy, true);
            assert_eq!(sample.usage.usage.unwrap().memory_bytes, Some(node), "{policy:?}");
            assert_eq!(sample.pods[0].usage.unwrap().memory_bytes, Some(pod), "{policy:?}");
        }
    }
}

#[test]
fn odd_files_make_quantities_absent_for_as_long_as_they_are_odd() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V2Systemd);
    let mut sampler = Sampler::new(&tree.roots());
    let cpu_stat = format!("{}/cpu.stat", tree.pod_folder(0, "cpu"));
    for second in 0..40 {
        tree.node(second);
        tree.pod(0, second);
        if (10..20).contains(&second) {
            tree.write("proc/stat", "cpu \u{fffd} -1 99999999999999999999999 0 0 0 0");
            tree.write("proc/meminfo", "MemTotal: -5 kB\nMemAvailable");
            tree.write(&cpu_stat, "usage_usec\nnr_periods 18446744073709551616\n");
        }
        sampler.tick(at(second), &facts(1));
    }
    let sample = sampler.sample(at(40), &facts(1), 1, None).unwrap();
    assert_eq!(
        sample.usage.usage,
        Some(resources(1_500, 3 << 30)),
        "what is unknown is left out of the mean"
    );
    assert_eq!(sample.pods[0].usage.unwrap().cpu_milli, Some(100));
}

#[test]
fn counters_that_go_back_and_pods_that_go_are_taken_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V2Cgroupfs);
    let mut sampler = Sampler::new(&tree.roots());
    for second in 0..60 {
        tree.node(second);
        // After 30 s a new cgroup of the same name.
        tree.pod(0, second % 30);
        tree.pod_features(0, second % 30);
        if second < 50 {
            tree.pod(1, second);
        } else if second == 50 {
            std::fs::remove_dir_all(folder.path().join(tree.pod_folder(1, "cpu"))).unwrap();
        }
        sampler.tick(at(second), &facts(2));
    }
    let sample = sampler.sample(at(59), &facts(2), 1, None).unwrap();
    let names: Vec<&str> = sample.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["pod-0"]);
    assert_eq!(sample.pods[0].usage, Some(resources(100, 64 << 20)));
}

#[test]
fn where_pods_cannot_be_found_the_system_is_unknown_and_not_all_of_the_node() {
    for layout in [Layout::V1, Layout::V2Cgroupfs, Layout::V2Systemd] {
        let used = resources(1_500, 3 << 30);
        for (pods, is_there, stranger, expected) in [
            // The kubelet has another `--cgroup-root`; with nothing to be named, too.
            (2, false, false, None),
            (0, false, false, None),
            // A folder of another kubelet, or of an earlier one, empty and not.
            (2, true, false, None),
            (2, true, true, None),
            // It makes its folder before the first pod.
            (0, true, false, Some(used)),
        ] {
            let usage = sampled(layout, pods, 130, |tree, second| {
                tree.node(second);
                if stranger {
                    tree.pod(7, second);
                } else if is_there {
                    let of_a_pod = tree.pod_folder(7, "memory");
                    let (class, _) = of_a_pod.rsplit_once('/').unwrap();
                    tree.write(&format!("{class}/memory.stat"), "");
                }
            })
            .usage;
            let case = format!("{layout:?}, {pods}, {is_there}, {stranger}");
            assert_eq!((usage.usage, usage.system), (Some(used), expected), "{case}");
            // Minutes in which nothing is known are no minutes of rest.
            assert_eq!(usage.prod_peak.is_some(), expected.is_some(), "{case}");
        }
    }
}

#[test]
fn a_node_whose_pods_are_none_of_prod_spends_nothing_on_those() {
    let peak = |facts: &Facts| {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path(), Layout::V2Cgroupfs);
        let mut sampler = Sampler::new(&tree.roots());
        for second in 0..=130 {
            tree.node(second);
            tree.pod(0, second);
            sampler.tick(at(second), facts);
        }
        sampler.sample(at(130), facts, 1, None).unwrap().usage.prod_peak
    };
    let mut batch = facts(1);
    batch.pods.values_mut().for_each(|pod| pod.priority = Some(Priority::Batch));
    let system = peak(&batch).unwrap();
    let prod = peak(&facts(1)).unwrap();
    assert!(system.cpu_milli > Some(0) && system.cpu_milli < prod.cpu_milli, "{system:?}, {prod:?}");
    assert!(system.memory_bytes > Some(0) && system.memory_bytes < prod.memory_bytes, "{system:?}, {prod:?}");
    assert_eq!(peak(&facts(0)), None, "nobody says what pods those are");
}

#[test]
fn this_machines_own_kernel_is_understood() {
    let mut sampler = Sampler::new(&Roots::default());
    let moment = |second: u64| Moment { boot_ms: 1_000 * second, wall_ms: 0 };
    sampler.tick(moment(1), &Facts::default());
    sampler.tick(moment(2), &Facts::default());
    let usage = sampler.sample(moment(2), &Facts::default(), 1, None).unwrap().usage;
    let info = node_sampler::parse::meminfo(&std::fs::read_to_string("/proc/meminfo").unwrap());
    assert_eq!(usage.capacity.unwrap().memory_bytes, info.total);
    let used = usage.usage.unwrap();
    assert!(used.cpu_milli.is_some());
    assert!(used.memory_bytes.is_some_and(|used| used > 0 && Some(used) < info.total));
    let has_pressure = std::fs::read_to_string("/proc/pressure/memory").is_ok();
    assert_eq!(usage.pressure.is_some_and(|pressure| pressure.memory.is_some()), has_pressure);
    let has_schedstat = std::fs::metadata("/proc/schedstat").is_ok();
    assert!(usage.run_queue.is_none() || has_schedstat, "absent where the kernel has none");
}
