//! The node itself: `/proc`, and `/sys/block` to tell disks from their partitions.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use node_report::MemoryPolicy;

use crate::{
    counters::Counters,
    file::Kept,
    parse::{self, IoCounts, PressureLines, RunDelay},
};

/// What is read of the node each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFast {
    /// CPU time since boot, in microseconds.
    pub cpu_us: Option<u64>,
    /// CPUs online.
    pub cpus: Option<u64>,
    /// Memory in use by the policy, in bytes.
    pub memory: Option<u64>,
    /// All memory, in bytes.
    pub memory_total: Option<u64>,
}

/// What is read of the node now and then: counters lose nothing by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSlow {
    /// CPU, memory, IO.
    pub pressure: [PressureLines; 3],
    /// Waiting for a CPU.
    pub run_delay: Option<RunDelay>,
    /// Times that an allocation had to reclaim itself.
    pub alloc_stalls: Option<u64>,
    /// Major page faults.
    pub major_faults: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// All disks.
    pub io: Option<IoCounts>,
}

impl Counters for NodeSlow {
    const COUNT: usize = 15;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        let Self { pressure, run_delay, alloc_stalls, major_faults, oom_kills, io } = *self;
        pressure.write(word);
        run_delay.write(word);
        [alloc_stalls, major_faults, oom_kills].write(word);
        io.write(word);
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        let pressure = Counters::read(word);
        let run_delay = Counters::read(word);
        let [alloc_stalls, major_faults, oom_kills]: [Option<u64>; 3] = Counters::read(word);
        Self { pressure, run_delay, alloc_stalls, major_faults, oom_kills, io: Counters::read(word) }
    }
}

/// The files of a node.
#[derive(Debug)]
pub struct NodeFiles {
    stat: Kept,
    meminfo: Kept,
    pressure: [Kept; 3],
    schedstat: Kept,
    vmstat: Kept,
    diskstats: Kept,
    block: PathBuf,
    /// Whether a name of `diskstats` is a disk of its own.
    disks: HashMap<String, bool>,
    ticks_per_second: u64,
    buffer: Vec<u8>,
}

impl NodeFiles {
    /// Of `/proc` and `/sys` at those places.
    pub fn new(proc: &Path, sys: &Path) -> Self {
        let kept = |name: &str| Kept::new(proc.join(name));
        Self {
            stat: kept("stat"),
            meminfo: kept("meminfo"),
            pressure: ["pressure/cpu", "pressure/memory", "pressure/io"].map(kept),
            schedstat: kept("schedstat"),
            vmstat: kept("vmstat"),
            diskstats: kept("diskstats"),
            block: sys.join("block"),
            disks: HashMap::new(),
            ticks_per_second: rustix::param::clock_ticks_per_second().max(1),
            buffer: Vec::new(),
        }
    }

    /// CPU and memory.
    pub fn fast(&mut self, policy: MemoryPolicy) -> NodeFast {
        let ticks = self.stat.read(&mut self.buffer).and_then(parse::stat);
        let info = self.meminfo.read(&mut self.buffer).map(parse::meminfo).unwrap_or_default();
        let used = |left: Option<u64>| info.total?.checked_sub(left?);
        let memory = match policy {
            MemoryPolicy::WithoutPageCache => used(info.available),
            MemoryPolicy::WithPageCache => used(info.free),
            MemoryPolicy::WithHotPageCache => {
                used(info.free.zip(info.inactive_file).map(|(free, cold)| free.saturating_add(cold)))
            }
        };
        NodeFast {
            cpu_us: ticks
                .and_then(|ticks| ticks.busy.checked_mul(1_000_000))
                .map(|us| us / self.ticks_per_second),
            cpus: ticks.map(|ticks| ticks.cpus).filter(|cpus| *cpus > 0),
            memory,
            memory_total: info.total,
        }
    }

    /// The rest.
    pub fn slow(&mut self) -> NodeSlow {
        let Self { pressure, schedstat, vmstat, diskstats, block, disks, buffer, .. } = self;
        let mut pressure =
            pressure.each_mut().map(|file| file.read(buffer).map(parse::pressure).unwrap_or_default());
        // Of the whole system the kernel prints zeros there, since nothing is defined.
        pressure[0].full = None;
        let run_delay = schedstat.read(buffer).and_then(parse::schedstat);
        let events = vmstat.read(buffer).map(|text| {
            let [major_faults, oom_kills] = parse::keyed(text, ["pgmajfault", "oom_kill"]);
            (parse::sum_of_prefix(text, "allocstall"), major_faults, oom_kills)
        });
        let (alloc_stalls, major_faults, oom_kills) = events.unwrap_or_default();
        let io = diskstats.read(buffer).and_then(|text| {
            parse::diskstats(text, |name| match disks.get(name) {
                Some(known) => *known,
                None => *disks.entry(name.to_owned()).or_insert(is_disk(block, name)),
            })
        });
        NodeSlow { pressure, run_delay, alloc_stalls, major_faults, oom_kills, io }
    }
}

/// A disk has a device beneath it; loops, mappings and memory disks have not, and partitions have no folder here.
fn is_disk(block: &Path, name: &str) -> bool {
    !name.contains('/') && block.join(name).join("device").exists()
}
