//! The sampler: reads once a second, and says what a node is like whenever it is asked. Blocking reads of the kernel's files, nothing else.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use node_report::{
    MemoryPolicy, Message, NodeUsage, Policy, Sample,
    report::{NodeMemoryEvents, Resources},
};

use crate::{
    cgroup::Hierarchy,
    checkpoint::{self, Checkpoint},
    facts::Facts,
    history::{History, grown, rate},
    hosts::Hosts,
    numa::NumaNodes,
    peak::Peaks,
    pods::{Minute, Pods, Totals},
    proc::{NodeFast, NodeFiles, NodeSlow},
    usage::{Series, io, pressure, resources, run_queue},
};

/// How often counters are read that lose nothing by it.
const SLOW_MS: u64 = 10_000;

/// How often the histograms take something in.
const MINUTE_MS: u64 = 60_000;

/// Where the kernel's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
    /// The kubelet's `--cgroup-root`; empty for the root.
    pub kubelet: String,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            cgroup: "/sys/fs/cgroup".into(),
            kubelet: String::new(),
        }
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since boot, sleep included: never goes back.
    pub boot_ms: u64,
    /// Milliseconds since 1970 by the node's clock, which may be set.
    pub wall_ms: i64,
}

/// The sampler of a node.
#[derive(Debug)]
pub struct Sampler {
    files: NodeFiles,
    pods: Pods,
    hosts: Hosts,
    numa: NumaNodes,
    policy: Policy,
    node: Series,
    system: Series,
    /// Of the last tick.
    last: Option<(Moment, NodeFast)>,
    /// First tick, from which seconds are counted.
    origin_ms: u64,
    second: u64,
    slow: NodeSlow,
    slow_at_ms: Option<u64>,
    history: History<NodeSlow>,
    peaks: Peaks,
    minute_at_ms: Option<u64>,
    system_minute: Minute,
    prod_minute: Minute,
    /// What the histograms' clock shows at which time since boot.
    model_clock: (u64, u64),
    scratch: Vec<u64>,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Ready; nothing is read yet.
    pub fn new(roots: &Roots) -> Self {
        Self {
            files: NodeFiles::new(&roots.proc, &roots.sys),
            pods: Pods::new(Hierarchy::find(&roots.cgroup, &roots.kubelet), &roots.proc),
            hosts: Hosts::default(),
            numa: NumaNodes::new(&roots.proc, &roots.sys),
            policy: Policy::default(),
            node: Series::default(),
            system: Series::default(),
            last: None,
            origin_ms: 0,
            second: 0,
            slow: NodeSlow::default(),
            slow_at_ms: None,
            history: History::default(),
            peaks: Peaks::default(),
            minute_at_ms: None,
            system_minute: Minute::default(),
            prod_minute: Minute::default(),
            model_clock: (0, 0),
            scratch: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Measures by `policy` from now on. Where the page cache counts otherwise, memory begins anew.
    pub fn set_policy(&mut self, policy: Policy) {
        if policy.memory != self.policy.memory {
            self.node.memory = crate::ring::Ring::default();
            self.system.memory = crate::ring::Ring::default();
            self.pods.forget_memory();
            self.hosts.forget_memory();
            self.numa.forget();
        }
        self.hosts.set(self.pods.hierarchy(), &policy.host_applications);
        self.policy = policy;
    }

    /// By what is measured; before a leader was heard that is what was restored, or the defaults.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Window of averages, in seconds: that of the policy, within what is kept.
    fn window_s(&self) -> u32 {
        match self.policy.aggregate_duration_s {
            0 => Policy::AGGREGATE_DURATION_S,
            seconds => within(seconds, &Policy::AGGREGATE_DURATIONS_S),
        }
    }

    /// Windows of percentiles, in seconds.
    fn durations_s(&self) -> Vec<u32> {
        match &self.policy.durations_s[..] {
            [] => Policy::DURATIONS_S.to_vec(),
            chosen => {
                let chosen = chosen.iter().take(Policy::MAX_PERCENTILES);
                chosen.map(|seconds| within(*seconds, &Policy::PERCENTILE_DURATIONS_S)).collect()
            }
        }
    }

    /// To be called once a second. Seconds that were left out are unknown.
    pub fn tick(&mut self, now: Moment, facts: &Facts) {
        let memory = MemoryPolicy::try_from(self.policy.memory).unwrap_or(MemoryPolicy::WithoutPageCache);
        if self.last.is_none() {
            self.origin_ms = now.boot_ms;
        }
        // The nearest second, so that a tick that comes a little early or late has a second of its own.
        let second = (now.boot_ms.saturating_sub(self.origin_ms) + 500) / 1_000;
        let passed = second.saturating_sub(self.second);
        if self.last.is_some() && passed == 0 {
            return;
        }
        self.second = second;
        let node = self.files.fast(memory);
        let pods = self.pods.fast(now.boot_ms, memory, facts);
        let hosts = self.hosts.fast(now.boot_ms, memory, &mut self.buffer);
        let usage = self.usage(now, node);
        let system = rest(usage, pods, hosts);
        self.node.pass(passed.saturating_sub(1));
        self.system.pass(passed.saturating_sub(1));
        self.node.push(usage.cpu_milli, usage.memory_bytes);
        self.system.push(system.cpu_milli, system.memory_bytes);
        self.system_minute.push(system);
        self.prod_minute.push(pods.prod);
        self.last = Some((now, node));
        if self.slow_at_ms.is_none_or(|at| now.boot_ms.saturating_sub(at) >= SLOW_MS) {
            self.read_slow(now);
        }
        let begun = *self.minute_at_ms.get_or_insert(now.boot_ms);
        if now.boot_ms.saturating_sub(begun) >= MINUTE_MS {
            self.minute_at_ms = Some(now.boot_ms);
            let model_ms = self.model_ms(now);
            let (prod, system) = (self.prod_minute.take(), self.system_minute.take());
            self.peaks.minute(self.pods.minute().into_iter(), prod, system, model_ms);
        }
    }

    /// Usage of the node since the last tick.
    fn usage(&self, now: Moment, node: NodeFast) -> Resources {
        let cpu_milli = self.last.and_then(|(before, fast)| {
            let passed = now.boot_ms.saturating_sub(before.boot_ms);
            rate(grown(fast.cpu_us, node.cpu_us)?, 1, passed)
        });
        Resources { cpu_milli, memory_bytes: node.memory }
    }

    fn read_slow(&mut self, now: Moment) {
        let window_ms = u64::from(self.window_s()) * 1_000;
        self.slow = self.files.slow();
        self.slow_at_ms = Some(now.boot_ms);
        self.history.push(now.boot_ms, window_ms, self.slow);
        self.pods.slow(now.boot_ms, window_ms);
        self.hosts.slow(now.boot_ms, window_ms);
        let memory = MemoryPolicy::try_from(self.policy.memory).unwrap_or(MemoryPolicy::WithoutPageCache);
        self.numa.read(now.boot_ms, window_ms, memory, &mut self.buffer);
    }

    /// What the node is like; `None` before the first tick.
    pub fn sample(
        &mut self,
        now: Moment,
        facts: &Facts,
        interval_ms: u32,
        policy_hash: Option<u64>,
    ) -> Option<Sample> {
        let (last, fast) = self.last?;
        if self.slow_at_ms != Some(last.boot_ms) {
            self.read_slow(last);
        }
        let window_s = self.window_s();
        let durations = self.durations_s();
        let prediction = self.peaks.predict(facts, self.model_ms(last));
        let begun = self.history.begin(last.boot_ms);
        let (passed, before) = begun.unwrap_or((0, self.slow));
        let events = |read: fn(&NodeSlow) -> Option<u64>| grown(begun.and(read(&before)), read(&self.slow));
        let memory_events = NodeMemoryEvents {
            alloc_stalls: events(|slow| slow.alloc_stalls),
            major_faults: events(|slow| slow.major_faults),
            oom_kills: events(|slow| slow.oom_kills),
        };
        let (system_pressure, system_run_queue) = self.pods.system(last.boot_ms);
        let usage = NodeUsage {
            aggregate_duration_s: window_s,
            usage: self.node.mean(window_s),
            aggregates: self.node.aggregates(&durations, &mut self.scratch),
            system: self.system.mean(window_s),
            system_aggregates: self.system.aggregates(&durations, &mut self.scratch),
            prod_reclaimable: prediction.reclaimable,
            prod_peak: prediction.peak,
            pressure: pressure(begun.map(|_| before.pressure), self.slow.pressure, passed),
            run_queue: run_queue(begun.and(before.run_delay), self.slow.run_delay, passed),
            memory_events: (memory_events != NodeMemoryEvents::default()).then_some(memory_events),
            io: io(begun.and(before.io), self.slow.io, passed),
            capacity: resources(fast.cpus.map(|cpus| cpus * 1_000), fast.memory_total),
            numa: self.numa.usage(last.boot_ms),
            host_applications: self.hosts.usage(last.boot_ms),
            system_pressure,
            system_run_queue,
        };
        let age = i64::try_from(now.boot_ms.saturating_sub(last.boot_ms)).unwrap_or(0);
        Some(Sample {
            sampled_at_ms: now.wall_ms.saturating_sub(age),
            usage,
            pods: self.pods.usage(last.boot_ms, facts),
            policy_hash,
            interval_ms,
        })
    }

    /// What is to be kept over a restart.
    pub fn checkpoint(&self, now: Moment, boot_id: &str, incarnation: u64) -> Vec<u8> {
        Checkpoint {
            boot_id: boot_id.to_owned(),
            boot_ms: now.boot_ms,
            wall_ms: now.wall_ms,
            incarnation,
            rings: checkpoint::store_series([&self.node, &self.system]),
            model_ms: self.model_ms(now),
            models: checkpoint::store_peaks(&self.peaks),
            policy: Some(self.policy.clone()),
            node: self.history.store(),
            pods: self.pods.store(),
        }
        .encode_to_vec()
    }

    /// Takes over what was kept; to be called before the first tick. The time since then is unknown.
    pub fn restore(&mut self, kept: &Checkpoint, now: Moment, boot_id: &str) {
        let age_ms = kept.age_ms(boot_id, now);
        self.set_policy(kept.policy.clone().unwrap_or_default());
        [self.node, self.system] = checkpoint::restore_series(&kept.rings, age_ms / 1_000);
        if let Some(age_ms) = kept.since_boot(boot_id, now) {
            let window_ms = u64::from(self.window_s()) * 1_000;
            let within = now.boot_ms.saturating_sub(window_ms)..=now.boot_ms;
            self.history = History::restore(&kept.node, 0, &within);
            self.pods.restore(&kept.pods, age_ms, &within);
        }
        self.peaks = checkpoint::restore_peaks(&kept.models);
        self.model_clock = (kept.model_ms.saturating_add(age_ms), now.boot_ms);
    }

    /// The histograms' clock goes on over restarts and reboots.
    fn model_ms(&self, now: Moment) -> u64 {
        let (shown, at_boot_ms) = self.model_clock;
        shown.saturating_add(now.boot_ms.saturating_sub(at_boot_ms))
    }
}

/// What is of no pod and of no program that is measured by itself. Counters of ticks and of cgroups differ by a little, so it may come out as nothing.
fn rest(node: Resources, pods: Totals, hosts: Resources) -> Resources {
    // A program that does not run uses nothing.
    let rest = |node: Option<u64>, pods: Option<u64>, hosts: Option<u64>| {
        Some(node?.saturating_sub(pods?).saturating_sub(hosts.unwrap_or(0)))
    };
    Resources {
        cpu_milli: rest(node.cpu_milli, pods.all.cpu_milli, hosts.cpu_milli),
        memory_bytes: rest(node.memory_bytes, pods.all.memory_bytes, hosts.memory_bytes),
    }
}

/// What a policy says, as far as it can be done: leaders refuse what cannot, other servers may not.
fn within(seconds: u32, possible: &RangeInclusive<u32>) -> u32 {
    seconds.clamp(*possible.start(), *possible.end())
}
