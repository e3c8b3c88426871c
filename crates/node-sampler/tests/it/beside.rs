//! What newer parts measure: NUMA nodes, pods' waits for a CPU, programs beside pods.

use node_report::{CgroupBase, HostApplication, Policy, Priority, Resources};
use node_sampler::Sampler;

use crate::{
    fixture::{Layout, Tree, at, facts},
    sampled::sampled,
};

const LAYOUTS: [Layout; 3] = [Layout::V1, Layout::V2Cgroupfs, Layout::V2Systemd];

#[test]
fn numa_nodes_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V2Systemd);
    tree.node(0);
    tree.numa(0);
    let mut sampler = Sampler::new(&tree.roots());
    for second in 0..=60 {
        tree.node(second);
        tree.numa(second);
        sampler.tick(at(second), &facts(0));
    }
    let numa = sampler.sample(at(60), &facts(0), 1, None).unwrap().usage.numa;
    let used: Vec<_> = numa.iter().map(|one| (one.id, one.usage.unwrap(), one.system)).collect();
    let of = |cpu, gib: u64| Resources { cpu_milli: Some(cpu), memory_bytes: Some(gib << 30) };
    assert_eq!(used, [(0, of(500, 1), None), (1, of(250, 2), None)]);
}

#[test]
fn a_machine_that_is_one_numa_node_says_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path(), Layout::V2Systemd);
    tree.write("sys/devices/system/node/node0/cpulist", "0-3");
    let mut sampler = Sampler::new(&tree.roots());
    for second in 0..=30 {
        tree.node(second);
        sampler.tick(at(second), &facts(0));
    }
    assert_eq!(sampler.sample(at(30), &facts(0), 1, None).unwrap().usage.numa, []);
}

#[test]
fn a_pods_threads_wait_for_a_cpu() {
    for layout in LAYOUTS {
        let sample = sampled(layout, 1, 120, |tree, second| {
            tree.node(second);
            tree.pod(0, second);
            // A thread ends in the middle, and its number comes back with counters that begin anew.
            tree.threads(0, if second < 60 { &[11, 12] } else { &[11] }, second);
            if second == 90 {
                tree.write("proc/11/schedstat", "1 1 1");
            }
        });
        let delay = sample.pods[0].run_queue.unwrap();
        assert_eq!(delay.delay_ns, Some(100_000), "{layout:?}: 2 ms in 20 slices");
        let waiting = delay.waiting_milli.unwrap();
        assert!((2..=4).contains(&waiting), "{layout:?}: one or two threads of 2 ms a second: {waiting}");
    }
}

#[test]
fn a_kernel_that_does_not_count_waits_has_none() {
    // No file, or one of nothing but zeros: schedstats built in and switched off.
    for text in [None, Some("0 0 0\n")] {
        let sample = sampled(Layout::V2Systemd, 1, 60, |tree, second| {
            tree.node(second);
            tree.pod(0, second);
            tree.threads(0, &[11], second);
            match text {
                Some(text) => tree.write("proc/11/schedstat", text),
                None => tree.without("proc/11/schedstat"),
            }
        });
        assert_eq!(sample.pods[0].run_queue, None, "{text:?}");
    }
}

#[test]
fn what_is_of_no_pod_suffers_too() {
    for layout in LAYOUTS {
        let sample = sampled(layout, 0, 120, |tree, second| {
            tree.node(second);
            tree.system(&[21, 22], second);
        });
        let usage = sample.usage;
        let delay = usage.system_run_queue.unwrap();
        assert_eq!((delay.delay_ns, delay.waiting_milli), (Some(100_000), Some(4)), "{layout:?}");
        if layout == Layout::V1 {
            assert_eq!(usage.system_pressure, None, "absent, not zero");
        } else {
            let some = usage.system_pressure.unwrap().io.unwrap().some.unwrap();
            assert_eq!((some.window_ppm, some.avg10_ppm), (Some(10_000), Some(125_000)), "{layout:?}");
        }
    }
    // Without systemd nothing is said.
    let usage = sampled(Layout::V2Cgroupfs, 0, 60, Tree::node).usage;
    assert_eq!((usage.system_pressure, usage.system_run_queue), (None, None));
}

#[test]
fn programs_beside_pods_are_no_system() {
    let program = |name: &str, base: CgroupBase, path: &str| HostApplication {
        name: name.to_owned(),
        priority: Some(Priority::Prod.into()),
        qos: None,
        base: base.into(),
        path: path.to_owned(),
    };
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path(), layout);
        tree.pod(0, 0);
        let besteffort = match layout {
            Layout::V2Systemd => "kubepods.slice/kubepods-besteffort.slice/batch",
            _ => "kubepods/besteffort/batch",
        };
        let mut sampler = Sampler::new(&tree.roots());
        sampler.set_policy(Policy {
            host_applications: vec![
                program("plc", CgroupBase::Root, "system.slice/plc.service"),
                program("batch", CgroupBase::BestEffort, "batch"),
                program("absent", CgroupBase::Root, "nowhere"),
                program("evil", CgroupBase::Root, "../../etc"),
            ],
            ..Policy::default()
        });
        for second in 0..=60 {
            tree.node(second);
            tree.pod(0, second);
            tree.program("system.slice/plc.service", second);
            tree.program(besteffort, second);
            sampler.tick(at(second), &facts(1));
        }
        let usage = sampler.sample(at(60), &facts(1), 1, None).unwrap().usage;
        let used: Vec<_> =
            usage.host_applications.iter().map(|one| (one.name.as_str(), one.usage.unwrap())).collect();
        let each = Resources { cpu_milli: Some(200), memory_bytes: Some(32 << 20) };
        assert_eq!(used, [("plc", each), ("batch", each)], "{layout:?}");
        assert_eq!(usage.host_applications[0].priority, Some(Priority::Prod.into()));
        let system = usage.system.unwrap();
        assert_eq!(system.cpu_milli, Some(1_500 - 100 - 400), "{layout:?}");
        assert_eq!(system.memory_bytes, Some((3 << 30) - (128 << 20)), "{layout:?}");
    }
}
