//! The pods' cgroups: found by the tree that the kubelet makes, with either driver, in version 1 or 2.
//!
//! CPU and memory are read each second from files that stay open (two a pod); everything else is counters and moving averages, read
//! every ten seconds from files that are opened for it, so that 110 pods hold 220 descriptors and not a thousand.

mod limits;
mod read;
pub mod tree;

use std::path::{Path, PathBuf};

use crate::parse::{IoCounts, PressureLines};

pub use self::read::PodFiles;

/// Which tree there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A folder a controller.
    V1,
    /// One tree; also where v1 is mounted for nothing but systemd's names.
    V2,
}

/// What is read of a pod each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodFast {
    /// CPU time of its life, in microseconds.
    pub cpu_us: Option<u64>,
    /// Memory in use by the policy, in bytes.
    pub memory: Option<u64>,
}

/// What is read of a pod now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSlow {
    /// CPU, memory, IO.
    pub pressure: [PressureLines; 3],
    /// `high`, `max`, `oom`, `oom_kill`. In version 1 as far as they were seen of the pod's cgroups.
    pub memory_events: [Option<u64>; 4],
    /// Block IO.
    pub io: Option<IoCounts>,
    /// Enforcement periods, throttled ones, throttled microseconds, as far as they were seen of the pod's cgroups.
    pub throttling: Option<[u64; 3]>,
}

/// The place of the pods' cgroups.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    version: Version,
    root: PathBuf,
    /// Where the kubelet's tree begins (its `--cgroup-root`), relative; empty for the root.
    parent: PathBuf,
}

impl Hierarchy {
    /// Looks which version is mounted at `root`; `parent` is the kubelet's `--cgroup-root`.
    pub fn find(root: &Path, parent: &str) -> Self {
        let version = if root.join("cgroup.controllers").exists() { Version::V2 } else { Version::V1 };
        Self { version, root: root.to_owned(), parent: PathBuf::from(parent.trim_matches('/')) }
    }

    /// Which version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The pods that have a cgroup, by UID, with the cgroup's path beneath the tree's root.
    pub fn pods(&self) -> Vec<(String, PathBuf)> {
        tree::pods(&self.listed(), &self.parent)
    }

    /// The folder of all pods, or of those of a class, beneath the tree's root: of the driver that made one.
    pub(crate) fn kubepods(&self, class: &str) -> PathBuf {
        tree::kubepods(&self.listed(), &self.parent, class)
    }

    /// Whether the folder of all pods is there: the kubelet makes it before any pod.
    pub(crate) fn has_kubepods(&self) -> bool {
        let listed = self.listed();
        listed.join(tree::kubepods(&listed, &self.parent, "")).is_dir()
    }

    /// The tree in which pods are listed.
    fn listed(&self) -> PathBuf {
        match self.version {
            Version::V2 => self.root.clone(),
            // Any controller that the kubelet uses has all pods.
            Version::V1 => self.controller("memory"),
        }
    }

    /// The folder of the pods' processes: of the tree, or of the controller that counts CPU time.
    pub(crate) fn tasks(&self, path: &Path) -> (PathBuf, &'static str) {
        match self.version {
            Version::V2 => (self.root.join(path), "cgroup.threads"),
            Version::V1 => (self.controller("cpuacct").join(path), "tasks"),
        }
    }

    /// The folder of a controller of version 1, also where it is mounted together with another.
    fn controller(&self, name: &str) -> PathBuf {
        let together = match name {
            "cpu" | "cpuacct" => "cpu,cpuacct",
            other => other,
        };
        let alone = self.root.join(name);
        if alone.exists() { alone } else { self.root.join(together) }
    }
}
