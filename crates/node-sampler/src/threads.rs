//! How long the threads of a pod waited for a CPU: `/proc/<thread>/schedstat` of all that are in its cgroups, added up. Threads come and
//! go, so the sum is of what each gained since it was looked at last.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cgroup::Hierarchy,
    file::read_once,
    parse::{self, RunDelay},
};

/// Of a pod with more threads than this nothing is said: reading them would cost more than it tells.
const MOST: usize = 1_024;

/// Cgroups of containers are one beneath the pod's; those that run systemd have more beneath.
const DEPTH: usize = 4;

/// The threads of a pod.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    folder: PathBuf,
    list: &'static str,
    /// By number, what was read last; `None` before the first reading.
    known: Option<HashMap<u32, RunDelay>>,
    gained: RunDelay,
}

impl Threads {
    pub(crate) fn new(hierarchy: &Hierarchy, path: &Path) -> Self {
        let (folder, list) = hierarchy.tasks(path);
        Self { folder, list, ..Self::default() }
    }

    /// Adds to what was gained before a restart.
    pub(crate) fn going_on(self, gained: RunDelay) -> Self {
        Self { gained, ..self }
    }

    /// The sum, which never goes back; `None` if the kernel does not count, or there are too many.
    pub(crate) fn read(&mut self, proc: &Path, buffer: &mut Vec<u8>) -> Option<RunDelay> {
        let mut numbers = Vec::new();
        let is_known = collect(&self.folder, self.list, DEPTH, &mut numbers, buffer);
        if !is_known || numbers.len() > MOST {
            self.known = None;
            return None;
        }
        let mut now = HashMap::with_capacity(numbers.len());
        for number in &numbers {
            // One that has just ended is missing: what it gained since is not known.
            let path = proc.join(number.to_string()).join("schedstat");
            if let Some(delay) = read_once(&path, buffer).and_then(parse::task_schedstat) {
                now.insert(*number, delay);
            }
        }
        if now.is_empty() && !numbers.is_empty() {
            self.known = None;
            return None;
        }
        if let Some(known) = &self.known {
            for (number, delay) in &now {
                // A number that counts less than before is another thread, all of whose life was since.
                let before = known.get(number).filter(|before| before.slices <= delay.slices);
                let before = before.copied().unwrap_or_default();
                self.gained.waited_ns += delay.waited_ns.saturating_sub(before.waited_ns);
                self.gained.slices += delay.slices.saturating_sub(before.slices);
            }
        }
        self.known = Some(now);
        Some(self.gained)
    }
}

/// The numbers of all threads of a cgroup and of those beneath it; false if the cgroup cannot be read.
fn collect(folder: &Path, list: &str, depth: usize, numbers: &mut Vec<u32>, buffer: &mut Vec<u8>) -> bool {
    let Some(text) = read_once(&folder.join(list), buffer) else { return false };
    numbers.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
    if depth == 0 || numbers.len() > MOST {
        return true;
    }
    let Ok(entries) = fs::read_dir(folder) else { return true };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), list, depth - 1, numbers, buffer);
        }
    }
    true
}
