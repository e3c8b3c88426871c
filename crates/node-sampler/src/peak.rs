//! The peak that is expected of pods and system, and what prod pods asked for and will not need. Pure.
//!
//! Every minute each subject's 90th percentile of that minute goes into its histogram. A subject's peak is the 95th percentile of CPU and
//! the 98th of memory, and a tenth more. A pod that has been watched for less than a day counts with its request. Both the sum of the prod
//! pods and the prod pods together are predicted; the greater peak counts, and the lesser reclaimable.

use std::collections::BTreeMap;

use node_report::report::Resources;

use crate::{
    facts::Facts,
    histogram::{CPU, Histogram, MEMORY},
};

/// How long a pod is watched before its own peak counts.
const COLD_MS: u64 = 24 * 3_600_000;

/// How long a subject is remembered that is not seen.
const FORGET_MS: u64 = 30 * 60_000;

/// Margin, in percent of the peak.
const MARGIN: u64 = 110;

/// Name of the system among the subjects.
const SYSTEM: &str = "system";

/// Name of all prod pods together.
const PROD: &str = "prod";

/// One subject's past.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// When it was first seen.
    pub first_ms: u64,
    /// And last.
    pub last_ms: u64,
    /// Milli-CPU.
    pub cpu: Histogram,
    /// Bytes.
    pub memory: Histogram,
}

impl Model {
    fn new(now_ms: u64) -> Self {
        Self {
            first_ms: now_ms,
            last_ms: now_ms,
            cpu: Histogram::new(CPU, now_ms),
            memory: Histogram::new(MEMORY, now_ms),
        }
    }

    /// What it used; of which nothing is known is as if it was not seen.
    fn add(&mut self, usage: Resources, now_ms: u64) {
        if usage != Resources::default() {
            self.last_ms = now_ms;
        }
        if let Some(cpu) = usage.cpu_milli {
            self.cpu.add(cpu, now_ms);
        }
        if let Some(memory) = usage.memory_bytes {
            self.memory.add(memory, now_ms);
        }
    }

    fn peak(&self) -> Resources {
        let margin = |peak: u64| peak.saturating_mul(MARGIN) / 100;
        Resources {
            cpu_milli: self.cpu.percentile(0.95).map(margin),
            memory_bytes: self.memory.percentile(0.98).map(margin),
        }
    }
}

/// All subjects: pods by UID, the prod pods together, and the system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    /// By UID, or name of what is no pod.
    pub models: BTreeMap<String, Model>,
}

/// What is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// What prod pods asked for and will not need.
    pub reclaimable: Option<Resources>,
    /// What prod pods and the system will need.
    pub peak: Option<Resources>,
}

impl Peaks {
    /// A minute has gone by; what each used in it.
    pub fn minute<'a>(
        &mut self,
        pods: impl Iterator<Item = (&'a str, Resources)>,
        prod: Resources,
        system: Resources,
        now_ms: u64,
    ) {
        let others = [(PROD, prod), (SYSTEM, system)].into_iter();
        for (name, usage) in pods.chain(others) {
            self.models.entry(name.to_owned()).or_insert_with(|| Model::new(now_ms)).add(usage, now_ms);
        }
        self.models.retain(|_, model| now_ms.saturating_sub(model.last_ms) <= FORGET_MS);
    }

    /// What is predicted for the prod pods among `facts`.
    pub fn predict(&self, facts: &Facts, now_ms: u64) -> Prediction {
        let of = |read: fn(&Resources) -> Option<u64>| self.of_resource(facts, now_ms, read);
        let (cpu, memory) = (of(|usage| usage.cpu_milli), of(|usage| usage.memory_bytes));
        let both = |at: fn((u64, u64)) -> u64| crate::usage::resources(cpu.map(at), memory.map(at));
        Prediction { reclaimable: both(|(reclaimable, _)| reclaimable), peak: both(|(_, peak)| peak) }
    }

    /// Reclaimable and peak of one resource; `None` before the first minute, and without the kernel's figures.
    fn of_resource(
        &self,
        facts: &Facts,
        now_ms: u64,
        read: fn(&Resources) -> Option<u64>,
    ) -> Option<(u64, u64)> {
        let peak = |name: &str| self.models.get(name).and_then(|model| read(&model.peak()));
        let (prod, system) = (peak(PROD)?, peak(SYSTEM)?);
        let (mut requested, mut pods_peak, mut unneeded) = (0_u64, 0_u64, 0_u64);
        for (uid, pod) in facts.pods.iter().filter(|(_, pod)| pod.is_prod()) {
            let request = read(&pod.requests).unwrap_or(0);
            let known = self.models.get(uid).filter(|model| now_ms.saturating_sub(model.first_ms) >= COLD_MS);
            let peak = known.and_then(|model| read(&model.peak())).unwrap_or(request);
            requested = requested.saturating_add(request);
            pods_peak = pods_peak.saturating_add(peak);
            unneeded = unneeded.saturating_add(request.saturating_sub(peak));
        }
        let peak = pods_peak.max(prod).saturating_add(system);
        let reclaimable = unneeded.min(requested.saturating_sub(prod));
        let room = read(&facts.allocatable).map_or(u64::MAX, |allocatable| allocatable.saturating_sub(peak));
        Some((reclaimable.min(room), peak))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::PodFacts;
    use node_report::report::Priority;

    const MINUTE: u64 = 60_000;

    fn cpu(milli: u64) -> Resources {
        Resources { cpu_milli: Some(milli), memory_bytes: None }
    }

    fn facts(pods: &[(&str, u64, Option<Priority>)], allocatable: u64) -> Facts {
        let pods = pods.iter().map(|(uid, request, priority)| {
            (
                (*uid).to_owned(),
                PodFacts { requests: cpu(*request), priority: *priority, ..PodFacts::default() },
            )
        });
        Facts { pods: pods.collect(), allocatable: cpu(allocatable) }
    }

    fn after(hours: u64) -> (Peaks, u64) {
        let mut peaks = Peaks::default();
        for minute in 0..=hours * 60 {
            let pods = [("a", cpu(200)), ("b", cpu(100))].into_iter();
            peaks.minute(pods, cpu(200), cpu(300), minute * MINUTE);
        }
        (peaks, hours * 60 * MINUTE)
    }

    /// The end of the bucket, and the margin: 12 % more at most, never less than a tenth more.
    fn is_peak_of(found: u64, usage: u64) -> bool {
        (usage * 110 / 100..=usage * 110 / 100 * 125 / 100 + 30).contains(&found)
    }

    #[test]
    fn a_young_pod_needs_what_it_asked_for() {
        let (peaks, now) = after(1);
        let of = peaks.predict(&facts(&[("a", 1_000, None)], 8_000), now);
        assert_eq!(of.reclaimable, Some(cpu(0)));
        let peak = of.peak.unwrap().cpu_milli.unwrap();
        assert!(is_peak_of(peak - 1_000, 300), "request and system: {peak}");
    }

    #[test]
    fn what_an_old_pod_does_not_need_is_reclaimable() {
        let (peaks, now) = after(24);
        let of = peaks.predict(
            &facts(&[("a", 1_000, Some(Priority::Prod)), ("b", 900, Some(Priority::Batch))], 8_000),
            now,
        );
        let reclaimable = of.reclaimable.unwrap().cpu_milli.unwrap();
        assert!(is_peak_of(1_000 - reclaimable, 200), "batch pods asked for nothing here: {reclaimable}");
        // No more than the node has left.
        let of = peaks.predict(&facts(&[("a", 1_000, None)], 700), now);
        let (reclaimable, peak) =
            (of.reclaimable.unwrap().cpu_milli.unwrap(), of.peak.unwrap().cpu_milli.unwrap());
        assert_eq!(reclaimable, 700 - peak);
    }

    #[test]
    fn nothing_is_said_of_what_is_not_measured() {
        let (peaks, now) = after(24);
        let of = peaks.predict(&facts(&[("a", 1_000, None)], 8_000), now);
        assert_eq!(of.reclaimable.unwrap().memory_bytes, None);
        assert_eq!(
            Peaks::default().predict(&facts(&[("a", 1_000, None)], 8_000), now),
            Prediction::default()
        );
    }

    #[test]
    fn the_peak_of_prod_pods_that_are_not_measured_any_more_is_forgotten() {
        let (mut peaks, now) = after(1);
        let pods = facts(&[], 8_000);
        assert!(peaks.predict(&pods, now).peak.is_some());
        let unknown = Resources::default();
        for minute in 1..=31 {
            peaks.minute([].into_iter(), unknown, cpu(300), now + minute * MINUTE);
        }
        assert_eq!(peaks.predict(&pods, now + 31 * MINUTE), Prediction::default());
    }

    #[test]
    fn the_peak_of_prod_pods_goes_with_the_last_of_them() {
        let (mut peaks, now) = after(24);
        let none = facts(&[("b", 900, Some(Priority::Batch))], 8_000);
        let peak = |peaks: &Peaks, now| peaks.predict(&none, now).peak.unwrap().cpu_milli.unwrap();
        assert!(is_peak_of(peak(&peaks, now), 500));
        let days = 5 * 24 * 60;
        for minute in 1..=days {
            peaks.minute([("b", cpu(100))].into_iter(), cpu(0), cpu(300), now + minute * MINUTE);
        }
        assert!(is_peak_of(peak(&peaks, now + days * MINUTE), 300));
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let (mut peaks, now) = after(1);
        assert!(peaks.models.contains_key("a"));
        peaks.minute([].into_iter(), cpu(0), cpu(0), now + 31 * MINUTE);
        assert!(!peaks.models.contains_key("a") && peaks.models.contains_key(SYSTEM));
    }
}
