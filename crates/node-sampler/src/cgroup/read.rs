//! The files of one pod's cgroup.

use std::path::{Path, PathBuf};

use node_report::MemoryPolicy;

use super::{Hierarchy, PodFast, PodSlow, Version, limits::Limits};
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
    /// Folders of the controllers memory and block IO: one and the same in version 2.
    folders: [PathBuf; 2],
    /// Where kernels with pressure in version 1 have it.
    pressure: PathBuf,
    /// Of a pod, which is several cgroups.
    limits: Option<Limits>,
}

impl PodFiles {
    /// Of the pod whose cgroup is at `path` beneath the tree's root.
    pub fn of_pod(hierarchy: &Hierarchy, path: &Path) -> Self {
        Self { limits: Some(Limits::new(hierarchy, path)), ..Self::new(hierarchy, path) }
    }

    /// Of a program beside pods, whose cgroup comes back as soon as it is started anew.
    pub fn of_program(hierarchy: &Hierarchy, path: &Path) -> Self {
        let files = Self::new(hierarchy, path);
        Self { cpu: files.cpu.soon(), memory_stat: files.memory_stat.soon(), ..files }
    }

    /// Of another cgroup, of which throttling is not read.
    pub fn new(hierarchy: &Hierarchy, path: &Path) -> Self {
        match hierarchy.version() {
            Version::V2 => {
                let folder = hierarchy.root.join(path);
                Self {
                    version: Version::V2,
                    cpu: Kept::new(folder.join("cpu.stat")),
                    memory_stat: Kept::new(folder.join("memory.stat")),
                    folders: [folder.clone(), folder.clone()],
                    pressure: folder,
                    limits: None,
                }
            }
            Version::V1 => {
                let folder = |controller| hierarchy.controller(controller).join(path);
                Self {
                    version: Version::V1,
                    cpu: Kept::new(folder("cpuacct").join("cpuacct.usage")),
                    memory_stat: Kept::new(folder("memory").join("memory.stat")),
                    folders: [folder("memory"), folder("blkio")],
                    pressure: folder("cpuacct"),
                    limits: None,
                }
            }
        }
    }

    /// CPU and memory.
    pub fn fast(&mut self, policy: MemoryPolicy, buffer: &mut Vec<u8>) -> PodFast {
        let cpu_us = self.cpu.read(buffer).and_then(|text| match self.version {
            Version::V1 => parse::number(text).map(|ns| ns / 1_000),
            Version::V2 => parse::keyed(text, ["usage_usec"])[0],
        });
        let stat = self.memory_stat.read(buffer).and_then(|text| self.of_stat(policy, text));
        let memory = match policy {
            MemoryPolicy::WithPageCache | MemoryPolicy::WithHotPageCache => {
                let name =
                    if self.version == Version::V2 { "memory.current" } else { "memory.usage_in_bytes" };
                let all = read_once(&self.folders[0].join(name), buffer).and_then(parse::number);
                let cold = if policy == MemoryPolicy::WithPageCache { Some(0) } else { stat };
                all.zip(cold).map(|(all, cold)| all.saturating_sub(cold))
            }
            MemoryPolicy::WithoutPageCache => stat,
        };
        PodFast { cpu_us, memory }
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

    /// Goes on from what was read before a restart, as far as it is added up here.
    pub fn going_on(&mut self, last: &PodSlow) {
        if let Some(limits) = &mut self.limits {
            let [_, max, _, kills] = last.memory_events;
            limits.going_on(last.throttling, [max, kills]);
        }
    }

    /// Everything else.
    pub fn slow(&mut self, buffer: &mut Vec<u8>) -> PodSlow {
        let pressure = ["cpu.pressure", "memory.pressure", "io.pressure"].map(|name| {
            read_once(&self.pressure.join(name), buffer).map(parse::pressure).unwrap_or_default()
        });
        let (throttling, [max, kills]) =
            self.limits.as_mut().map(|limits| limits.read(buffer)).unwrap_or_default();
        let [memory, block] = &self.folders;
        match self.version {
            Version::V2 => {
                let memory_events = read_once(&memory.join("memory.events"), buffer)
                    .map_or([None; 4], |text| parse::keyed(text, ["high", "max", "oom", "oom_kill"]));
                let io = read_once(&block.join("io.stat"), buffer).map(parse::io_stat);
                PodSlow { pressure, memory_events, io, throttling }
            }
            Version::V1 => PodSlow {
                pressure,
                memory_events: [None, max, None, kills],
                io: block_io(block, buffer),
                throttling,
            },
        }
    }

    /// Whether events of memory may be missed: where the kernel does not add them up, those of a container go with it, and a container of which the
    /// first process is killed is gone at once.
    pub fn misses_memory_events(&self) -> bool {
        self.version == Version::V1
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
