//! NUMA nodes: CPU time of the CPUs of each, and its memory. Read now and then; a machine that is one node has nothing to tell apart.

use std::{
    fs,
    path::{Path, PathBuf},
};

use node_report::{MemoryPolicy, report::Numa};

use crate::{
    file::read_once,
    history::{History, grown, rate},
    parse,
    usage::resources,
};

/// The most nodes that are told apart.
const MOST: usize = 16;

/// Of each node by its place in the list of their numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// CPU time since boot, in microseconds.
    cpu_us: [Option<u64>; MOST],
    /// Sum of what was read of memory, and how often.
    memory: [(u64, u64); MOST],
}

/// The NUMA nodes of a machine.
#[derive(Debug)]
pub(crate) struct NumaNodes {
    stat: PathBuf,
    nodes: Vec<(u32, PathBuf)>,
    ticks_per_second: u64,
    now: Reading,
    history: History<Reading>,
}

impl NumaNodes {
    pub(crate) fn new(proc: &Path, sys: &Path) -> Self {
        let folder = sys.join("devices/system/node");
        let mut nodes: Vec<(u32, PathBuf)> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                Some((entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?, entry.path()))
            })
            .collect();
        nodes.sort_unstable();
        nodes.truncate(MOST);
        // What one node uses is what the machine uses, which is measured already.
        if nodes.len() < 2 {
            nodes.clear();
        }
        Self {
            stat: proc.join("stat"),
            nodes,
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            now: Reading::default(),
            history: History::default(),
        }
    }

    pub(crate) fn read(&mut self, now_ms: u64, window_ms: u64, policy: MemoryPolicy, buffer: &mut Vec<u8>) {
        if self.nodes.is_empty() {
            return;
        }
        let ticks: Vec<(u32, u64)> =
            read_once(&self.stat, buffer).map(|text| parse::stat_by_cpu(text).collect()).unwrap_or_default();
        for (at, (_, folder)) in self.nodes.iter().enumerate() {
            let cpus = read_once(&folder.join("cpulist"), buffer).map(parse::list);
            self.now.cpu_us[at] = cpus.filter(|_| !ticks.is_empty()).and_then(|cpus| {
                let of = |cpu: &u32| ticks.iter().find(|(number, _)| number == cpu).map(|(_, busy)| *busy);
                let busy: u64 = cpus.iter().filter_map(of).try_fold(0_u64, u64::checked_add)?;
                Some(busy.checked_mul(1_000_000)? / self.ticks_per_second)
            });
            let info =
                read_once(&folder.join("meminfo"), buffer).map(parse::numa_meminfo).unwrap_or_default();
            let parts = match policy {
                MemoryPolicy::WithoutPageCache => {
                    vec![info.free, info.active_file, info.inactive_file, info.reclaimable]
                }
                MemoryPolicy::WithHotPageCache => vec![info.free, info.inactive_file],
                MemoryPolicy::WithPageCache => vec![info.free],
            };
            let left = parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?));
            if let Some(used) = info.total.zip(left).and_then(|(total, left)| total.checked_sub(left)) {
                let (sum, count) = &mut self.now.memory[at];
                (*sum, *count) = (sum.saturating_add(used), *count + 1);
            }
        }
        self.history.push(now_ms, window_ms, self.now);
    }

    /// Memory counts otherwise from now on.
    pub(crate) fn forget(&mut self) {
        self.history.clear();
        self.now = Reading::default();
    }

    /// Averages over the window. What pods use of each is not known, and so neither is what the system uses.
    pub(crate) fn usage(&self, now_ms: u64) -> Vec<Numa> {
        let Some((passed, before)) = self.history.begin(now_ms) else { return Vec::new() };
        let of = |(at, (id, _)): (usize, &(u32, PathBuf))| {
            let cpu = grown(before.cpu_us[at], self.now.cpu_us[at]).and_then(|us| rate(us, 1, passed));
            let ((sum_before, count_before), (sum, count)) = (before.memory[at], self.now.memory[at]);
            let memory = (sum - sum_before).checked_div(count - count_before);
            Some(Numa { id: *id, usage: Some(resources(cpu, memory)?), system: None })
        };
        self.nodes.iter().enumerate().filter_map(of).collect()
    }
}
