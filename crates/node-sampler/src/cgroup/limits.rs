//! Limits that were met, as far as the kernel counts them of each cgroup by itself and does not add them up the tree: throttling in both versions, and of memory
//! in version 1. A pod's are those of its own cgroup and of its containers', which are one beneath it. Containers go and take their
//! counters along, so the sum is of what each gained since it was read
//! last.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::{Hierarchy, Version};
use crate::{file::read_once, history::grown, parse};

/// More containers than this are not looked at: a pod has a few.
const MOST: usize = 256;

/// Enforcement periods, throttled ones, throttled microseconds; `failcnt`, `oom_kill`.
type Counts = [Option<u64>; 5];

/// The cgroups of a pod.
#[derive(Debug)]
pub(super) struct Limits {
    version: Version,
    cpu: PathBuf,
    memory: PathBuf,
    /// By name, what was read last, the pod's own with an empty one; `None` before the first reading.
    known: Option<BTreeMap<OsString, Counts>>,
    total: Counts,
}

impl Limits {
    /// Of the pod whose cgroup is at `path` beneath the tree's root.
    pub(super) fn new(hierarchy: &Hierarchy, path: &Path) -> Self {
        let version = hierarchy.version();
        let folder = |controller| match version {
            Version::V2 => hierarchy.root.join(path),
            Version::V1 => hierarchy.controller(controller).join(path),
        };
        Self { version, cpu: folder("cpu"), memory: folder("memory"), known: None, total: [None; 5] }
    }

    /// Goes on from what was read before a restart.
    pub(super) fn going_on(&mut self, throttling: Option<[u64; 3]>, [max, kills]: [Option<u64>; 2]) {
        let [periods, throttled, us] = throttling.map_or([None; 3], |counts| counts.map(Some));
        self.total = [periods, throttled, us, max, kills];
    }

    /// Throttling, and of memory how often a limit was met and how many were killed: since the pod began, as far as it was seen. It never goes
    /// back.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> (Option<[u64; 3]>, [Option<u64>; 2]) {
        let mut now = BTreeMap::new();
        let mut gained: Counts = [None; 5];
        for name in self.names() {
            let before = self.known.as_ref().and_then(|known| known.get(&name).copied()).unwrap_or_default();
            let mut counts = self.of(&name, buffer);
            for (at, count) in counts.iter_mut().enumerate() {
                match *count {
                    // One that counts less than before is another of its name, all of whose life was since.
                    Some(read) => {
                        let gain = grown(before[at], Some(read)).unwrap_or(read);
                        gained[at] = Some(gained[at].unwrap_or(0).saturating_add(gain));
                    }
                    // What cannot be read for once is not new the next time.
                    None => *count = before[at],
                }
            }
            now.insert(name, counts);
        }
        let is_first = self.known.replace(now).is_none();
        for (total, gained) in self.total.iter_mut().zip(gained) {
            let Some(gained) = gained else { continue };
            let before = total.unwrap_or(0);
            // After a restart all that there is was counted before, or since: what containers had that went meanwhile, nobody knows.
            *total = Some(if is_first { before.max(gained) } else { before.saturating_add(gained) });
        }
        let [periods, throttled, us, max, kills] = self.total;
        (limited(periods, throttled, us), [max, kills])
    }

    /// The pod itself, and its containers.
    fn names(&self) -> Vec<OsString> {
        let mut names = vec![OsString::new()];
        let entries = fs::read_dir(&self.memory).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        names.extend(folders.map(|entry| entry.file_name()).take(MOST));
        names
    }

    fn of(&self, name: &OsString, buffer: &mut Vec<u8>) -> Counts {
        let unit = if self.version == Version::V2 { "throttled_usec" } else { "throttled_time" };
        let of_cpu = read_once(&self.cpu.join(name).join("cpu.stat"), buffer).and_then(|text| {
            let [periods, throttled, time] = parse::keyed(text, ["nr_periods", "nr_throttled", unit]);
            let us = if self.version == Version::V2 { time } else { time.map(|ns| ns / 1_000) };
            // One without a limit has no periods.
            limited(periods.filter(|periods| *periods > 0), throttled, us)
        });
        let [periods, throttled, us] = of_cpu.map_or([None; 3], |counts| counts.map(Some));
        let [max, kills] = match self.version {
            Version::V2 => [None; 2],
            Version::V1 => {
                let folder = self.memory.join(name);
                let max = read_once(&folder.join("memory.failcnt"), buffer).and_then(parse::number);
                let kills = read_once(&folder.join("memory.oom_control"), buffer)
                    .and_then(|text| parse::keyed(text, ["oom_kill"])[0]);
                [max, kills]
            }
        };
        [periods, throttled, us, max, kills]
    }
}

fn limited(periods: Option<u64>, throttled: Option<u64>, us: Option<u64>) -> Option<[u64; 3]> {
    Some([periods?, throttled?, us?])
}
