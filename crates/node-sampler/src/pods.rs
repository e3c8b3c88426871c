//! The pods of the node: who they are by their cgroups, what they used in the last second, and over the policy's window.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use node_report::{
    MemoryPolicy, PodUsage,
    report::{PodMemoryEvents, Pressure, Resources, RunQueue, Throttling},
};

use crate::{
    cgroup::{Hierarchy, PodFast, PodFiles, PodSlow},
    checkpoint::StoredPod,
    counters::Counters,
    facts::{Facts, PodFacts},
    history::{History, grown, rate},
    parse::RunDelay,
    ring::nearest_rank,
    threads::Threads,
    usage::{io, pressure, resources, run_queue},
};

/// How often the threads of pods are looked at: their counters lose nothing by it but what threads that end did since.
const THREADS_MS: u64 = 30_000;

/// Where systemd puts what is no pod: of its processes together the kernel tells what it tells of a pod's.
const SYSTEM: &str = "system.slice";

/// All pods of the node.
#[derive(Debug)]
pub(crate) struct Pods {
    hierarchy: Hierarchy,
    proc: PathBuf,
    by_uid: BTreeMap<String, Pod>,
    system: Pod,
    /// What was kept over a restart, until it is seen which pods are there.
    kept: BTreeMap<String, Past>,
    threads_at_ms: Option<u64>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Pod {
    files: PodFiles,
    threads: Threads,
    /// Waiting for a CPU of its threads, at the moments that they were looked at.
    delays: History<RunDelay>,
    delay: Option<(u64, RunDelay)>,
    /// When it was read last.
    at_ms: u64,
    now: Reading,
    /// Usage of the last second.
    second: Resources,
    history: History<Reading>,
    minute: Minute,
}

/// What a checkpoint says of a pod.
#[derive(Debug, Default)]
struct Past {
    history: History<Reading>,
    delays: History<RunDelay>,
}

/// Counters of a pod; of memory the sum of what was read, and how often.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    fast: PodFast,
    slow: PodSlow,
    memory_sum: u128,
    memory_count: u64,
}

impl Counters for Reading {
    const COUNT: usize = 20;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        let Self { fast, slow, memory_sum, memory_count } = *self;
        word(fast.cpu_us);
        word(u64::try_from(memory_sum).ok());
        word(Some(memory_count));
        slow.pressure.write(word);
        slow.memory_events.write(word);
        slow.io.write(word);
        slow.throttling.write(word);
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        let [cpu_us, memory_sum, memory_count]: [Option<u64>; 3] = Counters::read(word);
        let fast = PodFast { cpu_us, memory: None };
        let slow = PodSlow {
            pressure: Counters::read(word),
            memory_events: Counters::read(word),
            io: Counters::read(word),
            throttling: Counters::read(word),
        };
        let (memory_sum, memory_count) = (memory_sum.unwrap_or(0).into(), memory_count.unwrap_or(0));
        Self { fast, slow, memory_sum, memory_count }
    }
}

/// Seconds of the minute that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minute {
    cpu: Vec<u64>,
    memory: Vec<u64>,
}

impl Minute {
    pub(crate) fn push(&mut self, usage: Resources) {
        self.cpu.extend(usage.cpu_milli);
        self.memory.extend(usage.memory_bytes);
    }

    /// Its 90th percentile; the next one begins.
    pub(crate) fn take(&mut self) -> Resources {
        let usage = Resources {
            cpu_milli: nearest_rank(&mut self.cpu, 90),
            memory_bytes: nearest_rank(&mut self.memory, 90),
        };
        self.cpu.clear();
        self.memory.clear();
        usage
    }
}

/// Usage of the last second of all pods, and of those that are prod; by default nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) all: Resources,
    pub(crate) prod: Resources,
}

impl Pods {
    pub(crate) fn new(hierarchy: Hierarchy, proc: &Path) -> Self {
        let (proc, by_uid) = (proc.to_owned(), BTreeMap::new());
        let system = Pod::of_system(&hierarchy);
        let kept = BTreeMap::new();
        Self { hierarchy, proc, by_uid, system, kept, threads_at_ms: None, buffer: Vec::new() }
    }

    /// For the checkpoint: each pod, and under the name of its cgroup what is of none.
    pub(crate) fn store(&self) -> Vec<StoredPod> {
        let stored = |(uid, pod): (&str, &Pod)| StoredPod {
            uid: uid.to_owned(),
            readings: pod.history.store(),
            delays: pod.delays.store(),
        };
        let pods = self.by_uid.iter().map(|(uid, pod)| (uid.as_str(), pod));
        pods.chain([(SYSTEM, &self.system)]).map(stored).collect()
    }

    /// Goes on from what was kept in this boot, `age_ms` ago, as far as it is `within` the window. Waits of threads are added up here and
    /// not by the kernel, so nobody did meanwhile, and that time is left out.
    pub(crate) fn restore(&mut self, kept: &[StoredPod], age_ms: u64, within: &RangeInclusive<u64>) {
        let past = |stored: &StoredPod| Past {
            history: History::restore(&stored.readings, 0, within),
            delays: History::restore(&stored.delays, age_ms, within),
        };
        self.kept = kept.iter().map(|stored| (stored.uid.clone(), past(stored))).collect();
        if let Some(past) = self.kept.remove(SYSTEM) {
            self.system = Pod::of_system(&self.hierarchy).going_on(past);
        }
    }

    /// Where their cgroups are.
    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Reads CPU and memory of each pod that there is now.
    pub(crate) fn fast(&mut self, now_ms: u64, policy: MemoryPolicy, facts: &Facts) -> Totals {
        let found = self.hierarchy.pods();
        self.by_uid.retain(|uid, _| found.binary_search_by(|(known, _)| known.cmp(uid)).is_ok());
        for (uid, path) in found {
            let (hierarchy, kept) = (&self.hierarchy, &mut self.kept);
            let past = kept.remove(&uid);
            self.by_uid
                .entry(uid)
                .or_insert_with(|| Pod::of_pod(hierarchy, &path).going_on(past.unwrap_or_default()));
        }
        // Those that have gone meanwhile are not waited for.
        self.kept.clear();
        let are_found = self.are_found(facts);
        // A node without pods spends nothing on them; of pods of which nothing can be read nothing is known.
        let none = self.by_uid.is_empty().then_some(0);
        let nothing = Resources { cpu_milli: none, memory_bytes: none };
        let is_prod = |uid: &String| facts.pods.get(uid).is_some_and(PodFacts::is_prod);
        // Nor does one on prod pods of whose pods none is prod; of one that nobody has told of yet nobody knows that.
        let is_other = |uid: &String| facts.pods.get(uid).is_some_and(|pod| !pod.is_prod());
        let no_prod = self.by_uid.keys().all(is_other).then_some(0);
        let no_prod = Resources { cpu_milli: no_prod, memory_bytes: no_prod };
        let mut totals = Totals { all: nothing, prod: no_prod };
        for (uid, pod) in &mut self.by_uid {
            pod.fast(now_ms, policy, &mut self.buffer);
            add(&mut totals.all, pod.second);
            if is_prod(uid) {
                add(&mut totals.prod, pod.second);
            }
        }
        if are_found { totals } else { Totals::default() }
    }

    /// Whether the pods' cgroups are where they are looked for. They are not where the kubelet has another `--cgroup-root` than is known here: then
    /// there is no folder of theirs, or one in which none is of a pod that runs here, and nothing can be said of what they use together.
    fn are_found(&self, facts: &Facts) -> bool {
        let is_known = facts.pods.is_empty() || facts.pods.keys().any(|uid| self.by_uid.contains_key(uid));
        is_known && (!self.by_uid.is_empty() || self.hierarchy.has_kubepods())
    }

    /// Reads everything else, and puts it into the window's history.
    pub(crate) fn slow(&mut self, now_ms: u64, window_ms: u64) {
        for pod in self.by_uid.values_mut().chain([&mut self.system]) {
            pod.now.slow = pod.files.slow(&mut self.buffer);
            pod.keep(now_ms, window_ms);
        }
        if self.threads_at_ms.is_none_or(|at| now_ms.saturating_sub(at) >= THREADS_MS) {
            self.threads_at_ms = Some(now_ms);
            for pod in self.by_uid.values_mut().chain([&mut self.system]) {
                pod.look_at_threads(&self.proc, now_ms, window_ms, &mut self.buffer);
            }
        }
    }

    /// What the memory of pods is has changed: nothing before counts.
    pub(crate) fn forget_memory(&mut self) {
        self.by_uid.values_mut().for_each(Pod::forget_memory);
    }

    /// What each used in the minute that is over.
    pub(crate) fn minute(&mut self) -> Vec<(&str, Resources)> {
        self.by_uid.iter_mut().map(|(uid, pod)| (uid.as_str(), pod.minute.take())).collect()
    }

    /// Pressure of what is of no pod, and its waiting for a CPU, as of `now_ms`.
    pub(crate) fn system(&self, now_ms: u64) -> (Option<Pressure>, Option<RunQueue>) {
        (self.system.pressure(now_ms), self.system.waiting())
    }

    /// The pods whose names are known, as of `now_ms`.
    pub(crate) fn usage(&self, now_ms: u64, facts: &Facts) -> Vec<PodUsage> {
        let named = self.by_uid.iter().filter_map(|(uid, pod)| Some((uid, pod, facts.pods.get(uid)?)));
        named.map(|(uid, pod, facts)| pod.usage(uid, facts, now_ms)).collect()
    }
}

pub(crate) fn add(sum: &mut Resources, one: Resources) {
    let plus = |sum: &mut Option<u64>, one: Option<u64>| {
        if let Some(one) = one {
            *sum = Some(sum.unwrap_or(0).saturating_add(one));
        }
    };
    plus(&mut sum.cpu_milli, one.cpu_milli);
    plus(&mut sum.memory_bytes, one.memory_bytes);
}

impl Pod {
    pub(crate) fn new(files: PodFiles) -> Self {
        Self {
            files,
            threads: Threads::default(),
            delays: History::default(),
            delay: None,
            at_ms: 0,
            now: Reading::default(),
            second: Resources::default(),
            history: History::default(),
            minute: Minute::default(),
        }
    }

    /// With its threads, for their waiting.
    fn of_pod(hierarchy: &Hierarchy, path: &Path) -> Self {
        Self { threads: Threads::new(hierarchy, path), ..Self::new(PodFiles::of_pod(hierarchy, path)) }
    }

    /// The same of what is of no pod.
    fn of_system(hierarchy: &Hierarchy) -> Self {
        let path = Path::new(SYSTEM);
        Self { threads: Threads::new(hierarchy, path), ..Self::new(PodFiles::new(hierarchy, path)) }
    }

    /// With what was known of it before a restart.
    fn going_on(mut self, past: Past) -> Self {
        let Past { history, delays } = past;
        let (at_ms, now) = history.last().unwrap_or((self.at_ms, self.now));
        self.files.going_on(&now.slow);
        let gained = delays.last().map(|(_, delay)| delay).unwrap_or_default();
        Self { threads: self.threads.going_on(gained), history, delays, at_ms, now, ..self }
    }

    /// Usage of the last second.
    pub(crate) fn second(&self) -> Resources {
        self.second
    }

    /// Puts the last reading into the window's history.
    pub(crate) fn keep(&mut self, now_ms: u64, window_ms: u64) {
        self.history.push(now_ms, window_ms, self.now);
    }

    pub(crate) fn forget_memory(&mut self) {
        self.history.clear();
        (self.now.memory_sum, self.now.memory_count) = (0, 0);
    }

    fn look_at_threads(&mut self, proc: &Path, now_ms: u64, window_ms: u64, buffer: &mut Vec<u8>) {
        self.delay = self.threads.read(proc, buffer).map(|delay| (now_ms, delay));
        match self.delay {
            Some((_, delay)) => self.delays.push(now_ms, window_ms, delay),
            None => self.delays.clear(),
        }
    }

    pub(crate) fn fast(&mut self, now_ms: u64, policy: MemoryPolicy, buffer: &mut Vec<u8>) {
        let before = self.now.fast;
        let fast = self.files.fast(policy, buffer);
        let passed = now_ms.saturating_sub(self.at_ms);
        // Microseconds of CPU by milliseconds of time are thousandths of a CPU.
        let cpu_milli = grown(before.cpu_us, fast.cpu_us).and_then(|us| rate(us, 1, passed));
        if before.cpu_us > fast.cpu_us {
            // Another cgroup of the same name.
            self.history.clear();
        }
        self.second = Resources { cpu_milli, memory_bytes: fast.memory };
        self.minute.push(self.second);
        (self.now.fast, self.at_ms) = (fast, now_ms);
        if let Some(memory) = fast.memory {
            self.now.memory_sum += u128::from(memory);
            self.now.memory_count += 1;
        }
    }

    pub(crate) fn usage(&self, uid: &str, facts: &PodFacts, now_ms: u64) -> PodUsage {
        let PodFacts { namespace, name, priority, qos, requests: _ } = facts;
        let Reading { fast, slow, memory_sum, memory_count } = self.now;
        let begun = self.history.begin(now_ms);
        let (passed, before) = begun.unwrap_or((0, self.now));
        let cpu_milli = grown(before.fast.cpu_us, fast.cpu_us).and_then(|us| rate(us, 1, passed));
        let count = memory_count.saturating_sub(before.memory_count);
        let sum = memory_sum.saturating_sub(before.memory_sum);
        let memory =
            sum.checked_div(u128::from(count)).and_then(|mean| u64::try_from(mean).ok()).or(fast.memory);
        PodUsage {
            uid: uid.to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            usage: resources(cpu_milli.or(self.second.cpu_milli), memory),
            priority: priority.map(i32::from),
            qos: qos.map(i32::from),
            pressure: self.pressure(now_ms).map(Pressure::of_pod),
            throttling: throttling(begun.map(|_| &before.slow), &slow),
            memory_events: memory_events(begun.map(|_| &before.slow), &slow, &self.files),
            io: io(begun.and(before.slow.io), slow.io, passed),
            run_queue: self.waiting(),
        }
    }
}

impl Pod {
    /// Pressure now and over the window.
    fn pressure(&self, now_ms: u64) -> Option<Pressure> {
        let begun = self.history.begin(now_ms);
        let (passed, before) = begun.unwrap_or((0, self.now));
        pressure(begun.map(|_| before.slow.pressure), self.now.slow.pressure, passed)
    }

    /// Waiting for a CPU over the window.
    fn waiting(&self) -> Option<RunQueue> {
        let (at_ms, now) = self.delay?;
        let (passed, before) = self.delays.begin(at_ms)?;
        run_queue(Some(before), Some(now), passed)
    }
}

fn throttling(before: Option<&PodSlow>, now: &PodSlow) -> Option<Throttling> {
    let now = now.throttling?;
    // Without periods before there was no limit yet, or no reading.
    let before = before?.throttling.unwrap_or_default();
    let grown = |at: usize| now[at].checked_sub(before[at]);
    Some(Throttling { periods: grown(0), throttled_periods: grown(1), throttled_us: grown(2) })
}

fn memory_events(before: Option<&PodSlow>, now: &PodSlow, files: &PodFiles) -> Option<PodMemoryEvents> {
    let before = before?;
    // Where some are missed nobody can tell that there were none.
    let is_sure = |count: &u64| *count > 0 || !files.misses_memory_events();
    let [high, max, oom, oom_kills] =
        std::array::from_fn(|at| grown(before.memory_events[at], now.memory_events[at]).filter(is_sure));
    let is_known = [high, max, oom, oom_kills].iter().any(Option::is_some);
    is_known.then_some(PodMemoryEvents { high, max, oom, oom_kills })
}
