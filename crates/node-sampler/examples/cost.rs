//! What sampling costs: a tree of 110 pods of 20 threads each on disk, read as once a second, with a report every ten. Prints CPU time a second of sampling, and
//! resident memory. `cargo run --profile edge -p node-sampler --example cost`; with a cgroup as argument, of the pods beneath it in
//! this kernel's own files (the kubelet's `--cgroup-root`).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints, and ends where it cannot go on"
)]

#[path = "../tests/it/fixture.rs"]
#[allow(dead_code, reason = "tests write files that a measurement does without")]
mod fixture;

use std::fs;

use fixture::{Layout, Tree, at, facts};
use node_report::{Encoder, Message, Source, Threshold};
use node_sampler::{Facts, PodFacts, Roots, Sampler, cgroup::Hierarchy};

const PODS: usize = 110;

/// Of each pod.
const THREADS: u32 = 20;
const SECONDS: u64 = 1_800;

fn main() {
    if let Some(parent) = std::env::args().nth(1) {
        return own_kernel(&parent);
    }
    println!(
        "| cgroups | CPU a second | resident | full report | delta | checkpoint |\n|---|---|---|---|---|---|"
    );
    // The later ones in the same process: what the first kept resident counts for them, too.
    for layout in [Layout::V2Systemd, Layout::V2Cgroupfs, Layout::V1] {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path(), layout);
        let grow = |second: u64| {
            tree.node(second);
            tree.node_features(second);
            tree.system(&[900_001, 900_002], second);
            for pod in 0..PODS {
                tree.pod(pod, second);
                tree.pod_features(pod, second);
                for name in ["container", "sandbox"] {
                    tree.container(pod, name, second);
                }
                let first = u32::try_from(pod).unwrap() * THREADS;
                tree.threads(pod, &(first..first + THREADS).collect::<Vec<_>>(), second);
            }
        };
        grow(1);
        let facts = facts(PODS);
        let mut sampler = Sampler::new(&tree.roots());
        let source = Source { node: "node".into(), node_uid: fixture::uid(0), boot_id: fixture::uid(1) };
        let mut encoder = Encoder::new(source, 1, Threshold::default());
        let (mut spent, mut sizes) = (0, Vec::new());
        for second in 0..SECONDS {
            // The tree grows in steps: writing 110 pods costs more than reading them, and is not counted.
            if second % 60 == 0 {
                grow(second);
            }
            let before = cpu_us();
            sampler.tick(at(second), &facts);
            if second % 10 == 9 {
                let sample = sampler.sample(at(second), &facts, 10_000, None).unwrap();
                let report = encoder.next(sample);
                let answer = node_report::Answer {
                    epoch: 1,
                    incarnation: 1,
                    acked_seq: report.seq,
                    ..node_report::Answer::default()
                };
                encoder.answered(&answer);
                sizes.push(report.encode_to_vec().len());
            }
            spent += cpu_us() - before;
        }
        let checkpoint = sampler.checkpoint(at(SECONDS), "boot", 1).len();
        let deltas = &sizes[1..];
        println!(
            "| {layout:?} | {} µs | {} MB | {} B | {} B | {checkpoint} B |",
            spent / SECONDS,
            resident_kb() / 1_000,
            sizes[0],
            deltas.iter().sum::<usize>() / deltas.len(),
        );
    }
}

/// Reads this kernel for three minutes, as fast as it goes, on a clock of its own.
fn own_kernel(parent: &str) {
    let roots = Roots { kubelet: parent.to_owned(), ..Roots::default() };
    let pods = Hierarchy::find(&roots.cgroup, parent).pods();
    let facts = Facts {
        pods: pods.iter().map(|(uid, _)| (uid.clone(), PodFacts::default())).collect(),
        ..Facts::default()
    };
    let mut sampler = Sampler::new(&roots);
    let before = cpu_us();
    for second in 0..SECONDS / 10 {
        sampler.tick(at(second), &facts);
        if second % 10 == 9 {
            sampler.sample(at(second), &facts, 10_000, None).unwrap();
        }
    }
    let spent = (cpu_us() - before) / (SECONDS / 10);
    println!("| {} pods of this kernel | {spent} µs | {} MB |", pods.len(), resident_kb() / 1_000);
}

/// CPU time of this process, user and system, in microseconds.
fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap()
}

fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
