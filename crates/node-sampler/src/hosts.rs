//! Programs beside pods that the policy names, by their cgroups: measured as pods are, and not part of the system.

use std::path::{Path, PathBuf};

use node_report::report::{HostApplicationUsage, Resources};
use node_report::{CgroupBase, HostApplication, MemoryPolicy};

use crate::{
    cgroup::{Hierarchy, PodFiles},
    facts::PodFacts,
    pods::{Pod, add},
};

/// The programs, in the order of the policy.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    programs: Vec<(HostApplication, Pod)>,
}

impl Hosts {
    /// Measures these from now on; what was known of one that stays is kept.
    pub(crate) fn set(&mut self, hierarchy: &Hierarchy, wanted: &[HostApplication]) {
        let mut known = std::mem::take(&mut self.programs);
        for application in wanted {
            let kept = known.iter().position(|(one, _)| one == application).map(|at| known.swap_remove(at).1);
            let pod = kept
                .or_else(|| Some(Pod::new(PodFiles::of_program(hierarchy, &place(hierarchy, application)?))));
            self.programs.extend(pod.map(|pod| (application.clone(), pod)));
        }
    }

    /// CPU and memory of the last second of all that run.
    pub(crate) fn fast(&mut self, now_ms: u64, policy: MemoryPolicy, buffer: &mut Vec<u8>) -> Resources {
        let mut sum = Resources::default();
        for (_, pod) in &mut self.programs {
            pod.fast(now_ms, policy, buffer);
            add(&mut sum, pod.second());
        }
        sum
    }

    /// Puts counters into the window's history.
    pub(crate) fn slow(&mut self, now_ms: u64, window_ms: u64) {
        for (_, pod) in &mut self.programs {
            pod.keep(now_ms, window_ms);
        }
    }

    pub(crate) fn forget_memory(&mut self) {
        for (_, pod) in &mut self.programs {
            pod.forget_memory();
        }
    }

    /// Those that have a cgroup.
    pub(crate) fn usage(&self, now_ms: u64) -> Vec<HostApplicationUsage> {
        let used = |(application, pod): &(HostApplication, Pod)| {
            let usage = pod.usage("", &PodFacts::default(), now_ms).usage?;
            let HostApplication { name, priority, qos, base: _, path: _ } = application.clone();
            Some(HostApplicationUsage { name, usage: Some(usage), priority, qos })
        };
        self.programs.iter().filter_map(used).collect()
    }
}

/// Its cgroup beneath the tree's root; `None` if the path leads elsewhere.
fn place(hierarchy: &Hierarchy, application: &HostApplication) -> Option<PathBuf> {
    let path = Path::new(&application.path);
    let is_plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let class = match application.base() {
        CgroupBase::Root => return (is_plain && !application.path.is_empty()).then(|| path.to_owned()),
        CgroupBase::Kubepods => "",
        CgroupBase::Burstable => "burstable",
        CgroupBase::BestEffort => "besteffort",
    };
    is_plain.then(|| hierarchy.kubepods(class).join(path))
}
