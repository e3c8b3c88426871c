//! A tree of files as the kernel shows them, with counters that grow as the caller says.

use std::{
    fs,
    path::{Path, PathBuf},
};

use node_sampler::{Facts, Moment, PodFacts, Roots};

/// How pods' cgroups are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Version 2, driver systemd.
    V2Systemd,
    /// Version 2, driver cgroupfs.
    V2Cgroupfs,
    /// Version 1, driver cgroupfs, `cpu,cpuacct` together.
    V1,
}

/// The tree.
pub(crate) struct Tree {
    root: PathBuf,
    layout: Layout,
}

impl Tree {
    /// An empty one beneath `root`.
    pub(crate) fn new(root: &Path, layout: Layout) -> Self {
        let tree = Self { root: root.to_owned(), layout };
        if layout != Layout::V1 {
            tree.write("cgroup/cgroup.controllers", "cpu io memory");
        }
        tree.write("sys/block/sda/device/model", "disk");
        tree
    }

    pub(crate) fn roots(&self) -> Roots {
        let place = |name: &str| self.root.join(name);
        Roots { proc: place("proc"), sys: place("sys"), cgroup: place("cgroup"), kubelet: String::new() }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Removes a file, which a kernel does not have.
    pub(crate) fn without(&self, path: &str) {
        fs::remove_file(self.root.join(path)).unwrap();
    }

    /// The node after `seconds`: 1.5 of 4 CPUs busy, 3 of 8 GiB in use.
    pub(crate) fn node(&self, seconds: u64) {
        let ticks = seconds * 150;
        self.write(
            "proc/stat",
            &format!("cpu  {ticks} 0 0 99 7 0 0 5 0 0\ncpu0 1 0\ncpu1 1 0\ncpu2 1 0\ncpu3 1 0\nintr 1\n"),
        );
        let info = format!(
            "MemTotal: {} kB\nMemFree: {} kB\nMemAvailable: {} kB\nInactive(file): {} kB\n",
            8 << 20,
            2 << 20,
            5 << 20,
            1 << 20
        );
        self.write("proc/meminfo", &info);
    }

    /// What newer kernels have on top: pressure, scheduling delay, events, disks.
    pub(crate) fn node_features(&self, seconds: u64) {
        for (name, us) in [("cpu", 100_000), ("memory", 20_000), ("io", 50_000)] {
            self.write(&format!("proc/pressure/{name}"), &pressure(seconds * us));
        }
        self.write(
            "proc/schedstat",
            &format!(
                "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 9 {} {}\n",
                seconds * 1_000_000,
                seconds * 100
            ),
        );
        self.write(
            "proc/vmstat",
            &format!("allocstall_normal {seconds}\nallocstall_movable 0\npgmajfault {seconds}\noom_kill 0\n"),
        );
        self.write(
            "proc/diskstats",
            &format!("8 0 sda {seconds} 0 {} 0 0 0 0 0 0 0 0\n7 0 loop0 9 9 9 9 9 9 9\n", seconds * 8),
        );
    }

    /// Two NUMA nodes of two CPUs each: CPU 0 busy by half, CPU 3 by a quarter; 1 and 2 of 4 GiB in use without page cache, which is 1 GiB.
    pub(crate) fn numa(&self, seconds: u64) {
        let (first, last) = (seconds * 50, seconds * 25);
        let line = |number: u64, ticks: u64| format!("cpu{number} {ticks} 0 0 9 0 0 0 0 0 0\n");
        let text = format!("cpu  {} 0 0 99 7 0 0 5 0 0\n", first + last)
            + &line(0, first)
            + &line(1, 0)
            + &line(2, 0)
            + &line(3, last)
            + "intr 1\n";
        self.write("proc/stat", &text);
        for (number, cpus, used) in [(0_u64, "0-1", 1_u64), (1, "2,3", 2)] {
            let folder = format!("sys/devices/system/node/node{number}");
            self.write(&format!("{folder}/cpulist"), cpus);
            let lines = [
                ("MemTotal", 4 << 20),
                ("MemFree", (3 - used) << 20),
                ("Active(file)", 1 << 19),
                ("Inactive(file)", 1 << 18),
                ("SReclaimable", 1 << 18),
            ];
            let lines = lines.map(|(key, kib)| format!("Node {number} {key}:  {kib} kB\n"));
            self.write(&format!("{folder}/meminfo"), &lines.concat());
        }
    }

    /// The threads of a pod: `numbers` in a container's cgroup. Each waits 2 ms in 20 slices a second.
    pub(crate) fn threads(&self, pod: usize, numbers: &[u32], seconds: u64) {
        self.threads_of(&self.pod_folder(pod, "cpuacct"), "container", numbers, seconds);
    }

    /// A daemon beside pods, as systemd runs it: its threads as those of a pod, and pressure where cgroups have it.
    pub(crate) fn system(&self, numbers: &[u32], seconds: u64) {
        let folder = match self.layout {
            Layout::V1 => "cgroup/cpu,cpuacct/system.slice",
            Layout::V2Systemd | Layout::V2Cgroupfs => "cgroup/system.slice",
        };
        self.threads_of(folder, "daemon.service", numbers, seconds);
        if self.layout != Layout::V1 {
            self.pressure_of(folder, seconds);
        }
    }

    fn threads_of(&self, folder: &str, within: &str, numbers: &[u32], seconds: u64) {
        let list = if self.layout == Layout::V1 { "tasks" } else { "cgroup.threads" };
        let lines: Vec<_> = numbers.iter().map(|number| format!("{number}\n")).collect();
        self.write(&format!("{folder}/{list}"), "");
        self.write(&format!("{folder}/{within}/{list}"), &lines.concat());
        for number in numbers {
            let text = format!("{} {} {}\n", seconds * 9, seconds * 2_000_000, seconds * 20);
            self.write(&format!("proc/{number}/schedstat"), &text);
        }
    }

    /// A program beside pods after `seconds`: 0.2 CPU and 32 MiB.
    pub(crate) fn program(&self, path: &str, seconds: u64) {
        let us = seconds * 200_000;
        if self.layout == Layout::V1 {
            self.write(&format!("cgroup/cpu,cpuacct/{path}/cpuacct.usage"), &format!("{}\n", us * 1_000));
            self.write(
                &format!("cgroup/memory/{path}/memory.stat"),
                &format!("total_inactive_anon 0\ntotal_active_anon {}\ntotal_unevictable 0\n", 32 << 20),
            );
        } else {
            self.write(&format!("cgroup/{path}/cpu.stat"), &format!("usage_usec {us}\n"));
            self.write(
                &format!("cgroup/{path}/memory.stat"),
                &format!("inactive_anon 0\nactive_anon {}\nunevictable 0\n", 32 << 20),
            );
        }
    }

    /// The folder of a pod's files of a controller, beneath the root.
    pub(crate) fn pod_folder(&self, number: usize, controller: &str) -> String {
        let uid = uid(number);
        match self.layout {
            Layout::V1 if controller == "cpu" || controller == "cpuacct" => {
                format!("cgroup/cpu,cpuacct/kubepods/burstable/pod{uid}")
            }
            Layout::V1 => format!("cgroup/{controller}/kubepods/burstable/pod{uid}"),
            Layout::V2Cgroupfs => format!("cgroup/kubepods/besteffort/pod{uid}"),
            Layout::V2Systemd => format!(
                "cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
                uid.replace('-', "_")
            ),
        }
    }

    /// A pod after `seconds`: 0.1 CPU, 64 MiB anonymous of 96 MiB; throttled in a period of five.
    pub(crate) fn pod(&self, number: usize, seconds: u64) {
        let us = seconds * 100_000;
        if self.layout == Layout::V1 {
            self.write(
                &format!("{}/cpuacct.usage", self.pod_folder(number, "cpuacct")),
                &format!("{}\n", us * 1_000),
            );
            self.write(
                &format!("{}/memory.stat", self.pod_folder(number, "memory")),
                &format!("cache 5\ntotal_inactive_anon 0\ntotal_active_anon {}\ntotal_unevictable 0\ntotal_inactive_file {}\n", 64 << 20, 32 << 20),
            );
        } else {
            let folder = self.pod_folder(number, "cpu");
            self.write(&format!("{folder}/cpu.stat"), &format!("usage_usec {us}\nuser_usec 1\nsystem_usec 1\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n", seconds * 10, seconds * 2, seconds * 3_000));
            self.write(
                &format!("{folder}/memory.stat"),
                &format!(
                    "anon 1\ninactive_anon 0\nactive_anon {}\nunevictable 0\ninactive_file {}\n",
                    64 << 20,
                    32 << 20
                ),
            );
        }
    }

    /// What is read of a pod now and then.
    pub(crate) fn pod_features(&self, number: usize, seconds: u64) {
        let folder = |controller| self.pod_folder(number, controller);
        if self.layout == Layout::V1 {
            self.write(
                &format!("{}/cpu.stat", folder("cpu")),
                &format!(
                    "nr_periods {}\nnr_throttled {}\nthrottled_time {}\n",
                    seconds * 10,
                    seconds * 2,
                    seconds * 3_000_000
                ),
            );
            self.write(&format!("{}/memory.usage_in_bytes", folder("memory")), &format!("{}\n", 96 << 20));
            self.write(&format!("{}/memory.failcnt", folder("memory")), "3\n");
            self.write(
                &format!("{}/memory.oom_control", folder("memory")),
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            );
            self.write(
                &format!("{}/blkio.throttle.io_service_bytes_recursive", folder("blkio")),
                &format!("8:0 Read {}\n8:0 Write 0\nTotal 1\n", seconds * 4_096),
            );
            self.write(
                &format!("{}/blkio.throttle.io_serviced_recursive", folder("blkio")),
                &format!("8:0 Read {seconds}\n8:0 Write 0\nTotal 1\n"),
            );
        } else {
            let folder = folder("cpu");
            self.write(&format!("{folder}/memory.current"), &format!("{}\n", 96 << 20));
            self.write(&format!("{folder}/memory.events"), "low 0\nhigh 2\nmax 3\noom 1\noom_kill 1\n");
            self.write(
                &format!("{folder}/io.stat"),
                &format!("8:0 rbytes={} wbytes=0 rios={seconds} wios=0 dbytes=0 dios=0\n", seconds * 4_096),
            );
            self.pod_pressure(number, seconds);
        }
    }

    /// A container of a pod `seconds` after it began: throttled in a period of five; in version 1 it met its limit of memory each second, and lost a process.
    pub(crate) fn container(&self, number: usize, name: &str, seconds: u64) {
        let (unit, scale) =
            if self.layout == Layout::V1 { ("throttled_time", 1_000_000) } else { ("throttled_usec", 1_000) };
        let (periods, time) = (seconds * 5, seconds * scale);
        self.write(
            &format!("{}/{name}/cpu.stat", self.pod_folder(number, "cpu")),
            &format!("nr_periods {periods}\nnr_throttled {seconds}\n{unit} {time}\n"),
        );
        if self.layout == Layout::V1 {
            let folder = format!("{}/{name}", self.pod_folder(number, "memory"));
            self.write(&format!("{folder}/memory.failcnt"), &format!("{seconds}\n"));
            let kills = u64::from(seconds > 5);
            self.write(&format!("{folder}/memory.oom_control"), &format!("under_oom 0\noom_kill {kills}\n"));
        }
    }

    /// It is gone, with its counters.
    pub(crate) fn without_container(&self, number: usize, name: &str) {
        for controller in ["cpu", "memory"] {
            let folder = self.root.join(self.pod_folder(number, controller)).join(name);
            // In version 2 it is the same folder.
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// In version 1 some kernels have it where they count CPU time.
    pub(crate) fn pod_pressure(&self, number: usize, seconds: u64) {
        self.pressure_of(&self.pod_folder(number, "cpuacct"), seconds);
    }

    fn pressure_of(&self, folder: &str, seconds: u64) {
        for name in ["cpu", "memory", "io"] {
            self.write(&format!("{folder}/{name}.pressure"), &pressure(seconds * 10_000));
        }
    }
}

/// Both lines, `full` half of `some`.
fn pressure(total_us: u64) -> String {
    let line = |name, total| format!("{name} avg10=12.50 avg60=1.00 avg300=0.10 total={total}\n");
    line("some", total_us) + &line("full", total_us / 2)
}

/// UID of a pod.
pub(crate) fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// The pods' names; each asks for one CPU and 1 GiB.
pub(crate) fn facts(pods: usize) -> Facts {
    let requests = node_report::Resources { cpu_milli: Some(1_000), memory_bytes: Some(1 << 30) };
    let pod = |number: usize| PodFacts {
        namespace: "default".into(),
        name: format!("pod-{number}"),
        requests,
        ..PodFacts::default()
    };
    let allocatable = node_report::Resources { cpu_milli: Some(4_000), memory_bytes: Some(8 << 30) };
    Facts { pods: (0..pods).map(|number| (uid(number), pod(number))).collect(), allocatable }
}

/// That many seconds after a boot in 2026.
pub(crate) fn at(seconds: u64) -> Moment {
    Moment {
        boot_ms: 1_000_000 + seconds * 1_000,
        wall_ms: 1_790_000_000_000 + i64::try_from(seconds).unwrap() * 1_000,
    }
}
