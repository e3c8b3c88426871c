//! The files of one pod's cgroup.

use std::path::{Path, PathBuf};

use node_report::MemoryPolicy;

use super::{Hierarchy, PodFast, PodSlow, Version};
use crate::{
    file::{Kept, read_once},
    parse::{self, IoCounts},
};

/// The files of one pod.
#[derive(Debug)]
pub struct PodFiles {
    version: Version,
    cpu: Kept,
    memory_stat: Kept,
    /// Folders of the controllers cpu (and pressure), memory, block IO: one and the same in version 2.
    folders: [PathBuf; 3],
    /// Where kernels with pressure in version 1 have it.
    pressure: PathBuf,
}

impl PodFiles {
    /// Of the pod whose cgroup is at `path` beneath the tree's root.
    pub fn new(hierarchy: &Hierarchy, path: &Path) -> Self {
        match hierarchy.version() {
            Version::V2 => {
                let folder = hierarchy.root.join(path);
                Self {
                    version: Version::V2,
                    cpu: Kept::new(folder.join("cpu.stat")),
                    memory_stat: Kept::new(folder.join("memory.stat")),
                    folders: [folder.clone(), folder.clone(), folder.clone()],
                    pressure: folder,
                }
            }
            Version::V1 => {
                let folder = |controller| hierarchy.controller(controller).join(path);
                Self {
                    version: Version::V1,
                    cpu: Kept::new(folder("cpuacct").join("cpuacct.usage")),
                    memory_stat: Kept::new(folder("memory").join("memory.stat")),
                    folders: [folder("cpu"), folder("memory"), folder("blkio")],
                    pressure: folder("cpuacct"),
                }
            }
        }
    }

    /// CPU and memory.
    pub fn fast(&mut self, policy: MemoryPolicy, buffer: &mut Vec<u8>) -> PodFast {
        let (cpu_us, throttling) = match (self.cpu.read(buffer), self.version) {
            (None, _) => (None, None),
            (Some(text), Version::V1) => (parse::number(text).map(|ns| ns / 1_000), None),
            (Some(text), Version::V2) => {
                let [usage, periods, throttled, us] =
                    parse::keyed(text, ["usage_usec", "nr_periods", "nr_throttled", "throttled_usec"]);
                (usage, limited(periods, throttled, us))
            }
        };
        let stat = self.memory_stat.read(buffer).and_then(|text| self.of_stat(policy, text));
        let memory = match policy {
            MemoryPolicy::WithPageCache | MemoryPolicy::WithHotPageCache => {
                let name =
                    if self.version == Version::V2 { "memory.current" } else { "memory.usage_in_bytes" };
                let all = read_once(&self.folders[1].join(name), buffer).and_then(parse::number);
                let cold = if policy == MemoryPolicy::WithPageCache { Some(0) } else { stat };
                all.zip(cold).map(|(all, cold)| all.saturating_sub(cold))
            }
            MemoryPolicy::WithoutPageCache => stat,
        };
        PodFast { cpu_us, memory, throttling }
    }

    /// What of `memory.stat` the policy needs: memory of no file, or cold file pages.
    fn of_stat(&self, policy: MemoryPolicy, text: &str) -> Option<u64> {
        let (anonymous, cold) = match self.version {
            Version::V2 => (["inactive_anon", "active_anon", "unevictable"], "inactive_file"),
            Version::V1 => {
                (["total_inactive_anon", "total_active_anon", "total_unevictable"], "total_inactive_file")
            }
        };
        if policy == MemoryPolicy::WithHotPageCache {
            return parse::keyed(text, [cold])[0];
        }
        parse::keyed(text, anonymous).into_iter().try_fold(0_u64, |sum, part| sum.checked_add(part?))
    }

    /// Everything else.
    pub fn slow(&self, buffer: &mut Vec<u8>) -> PodSlow {
        let [cpu, memory, block] = &self.folders;
        let pressure = ["cpu.pressure", "memory.pressure", "io.pressure"].map(|name| {
            read_once(&self.pressure.join(name), buffer).map(parse::pressure).unwrap_or_default()
        });
        match self.version {
            Version::V2 => {
                let memory_events = read_once(&memory.join("memory.events"), buffer)
                    .map_or([None; 4], |text| parse::keyed(text, ["high", "max", "oom", "oom_kill"]));
                let io = read_once(&block.join("io.stat"), buffer).map(parse::io_stat);
                PodSlow { pressure, memory_events, io, throttling: None }
            }
            Version::V1 => {
                let throttling = read_once(&cpu.join("cpu.stat"), buffer).and_then(|text| {
                    let [periods, throttled, ns] =
                        parse::keyed(text, ["nr_periods", "nr_throttled", "throttled_time"]);
                    limited(periods, throttled, ns.map(|ns| ns / 1_000))
                });
                let max = read_once(&memory.join("memory.failcnt"), buffer).and_then(parse::number);
                let kills = read_once(&memory.join("memory.oom_control"), buffer)
                    .and_then(|text| parse::keyed(text, ["oom_kill"])[0]);
                PodSlow {
                    pressure,
                    memory_events: [None, max, None, kills],
                    io: block_io(block, buffer),
                    throttling,
                }
            }
        }
    }
}

/// Of version 1: from the throttling layer, which sees all of them, else from the schedulers that count.
fn block_io(folder: &Path, buffer: &mut Vec<u8>) -> Option<IoCounts> {
    ["blkio.throttle", "blkio.bfq"].into_iter().find_map(|prefix| {
        let mut read = |what: &str| {
            let path = folder.join(format!("{prefix}.{what}_recursive"));
            read_once(&path, buffer).map(parse::blkio)
        };
        Some(IoCounts { bytes: read("io_service_bytes")?, operations: read("io_serviced")? })
    })
}

/// A pod without a limit has no periods: then nothing can be said.
fn limited(periods: Option<u64>, throttled: Option<u64>, us: Option<u64>) -> Option<[u64; 3]> {
    Some([periods.filter(|periods| *periods > 0)?, throttled?, us?])
}
