//! What a sampler keeps over a restart: the last half hour, second by second, counters over the policy's window, and the histograms. Bytes
//! in, bytes out; no file.

use node_report::Policy;
use prost::Message;

use crate::{
    histogram::{CPU, Histogram, MEMORY, Shape},
    peak::{Model, Peaks},
    ring::{Ring, SECONDS},
    sampler::Moment,
    usage::Series,
};

/// The form on disk.
#[derive(Clone, PartialEq, Message)]
pub struct Checkpoint {
    /// Boot in which it was written.
    #[prost(string, tag = "1")]
    pub boot_id: String,
    /// When: since that boot.
    #[prost(uint64, tag = "2")]
    pub boot_ms: u64,
    /// When: by the node's clock.
    #[prost(int64, tag = "3")]
    pub wall_ms: i64,
    /// The reporter's incarnation.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    /// CPU and memory of the node, then of the system, as [`Ring::store`] gives them.
    #[prost(message, repeated, tag = "5")]
    pub rings: Vec<Slots>,
    /// Time on the clock of the histograms.
    #[prost(uint64, tag = "6")]
    pub model_ms: u64,
    /// Histograms.
    #[prost(message, repeated, tag = "7")]
    pub models: Vec<StoredModel>,
    /// By which policy it was measured.
    #[prost(message, optional, tag = "9")]
    pub policy: Option<Policy>,
    /// Counters of the node, as its history stores them; of use in the same boot only.
    #[prost(uint64, repeated, tag = "10")]
    pub node: Vec<u64>,
    /// Counters of pods, and of what is of none.
    #[prost(message, repeated, tag = "11")]
    pub pods: Vec<StoredPod>,
}

/// Counters of a pod over the window.
#[derive(Clone, PartialEq, Message)]
pub struct StoredPod {
    /// As in the name of its cgroup.
    #[prost(string, tag = "1")]
    pub uid: String,
    /// As its history stores them; of tag 2 other readings were.
    #[prost(uint64, repeated, tag = "4")]
    pub readings: Vec<u64>,
    /// Its threads' waits, the same.
    #[prost(uint64, repeated, tag = "3")]
    pub delays: Vec<u64>,
}

/// A ring.
#[derive(Clone, PartialEq, Message)]
pub struct Slots {
    /// As [`Ring::store`] gives them.
    #[prost(uint64, repeated, tag = "1")]
    pub slots: Vec<u64>,
}

/// A subject's past.
#[derive(Clone, PartialEq, Message)]
pub struct StoredModel {
    /// UID, or name of what is no pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// When it was first seen.
    #[prost(uint64, tag = "2")]
    pub first_ms: u64,
    /// And last.
    #[prost(uint64, tag = "3")]
    pub last_ms: u64,
    /// CPU.
    #[prost(message, optional, tag = "4")]
    pub cpu: Option<StoredHistogram>,
    /// Memory.
    #[prost(message, optional, tag = "5")]
    pub memory: Option<StoredHistogram>,
}

/// Buckets that have a weight.
#[derive(Clone, PartialEq, Message)]
pub struct StoredHistogram {
    /// See [`Histogram::store`].
    #[prost(uint64, tag = "1")]
    pub reference_ms: u64,
    /// Their places.
    #[prost(uint32, repeated, tag = "2")]
    pub buckets: Vec<u32>,
    /// Their weights.
    #[prost(float, repeated, tag = "3")]
    pub weights: Vec<f32>,
}

impl Checkpoint {
    /// Reads one; `None` if these bytes are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// How long ago it was written, in milliseconds: exactly within one boot, by the node's clock across a reboot, and 0 if that went back.
    pub fn age_ms(&self, boot_id: &str, now: Moment) -> u64 {
        let since_boot = self.since_boot(boot_id, now);
        since_boot.unwrap_or_else(|| u64::try_from(now.wall_ms.saturating_sub(self.wall_ms)).unwrap_or(0))
    }

    /// The same, if it is of this boot: only then the kernel's counters have gone on.
    pub fn since_boot(&self, boot_id: &str, now: Moment) -> Option<u64> {
        let same_boot = !boot_id.is_empty() && self.boot_id == boot_id;
        now.boot_ms.checked_sub(self.boot_ms).filter(|_| same_boot)
    }
}

pub(crate) fn store_series(series: [&Series; 2]) -> Vec<Slots> {
    let rings = series.into_iter().flat_map(|series| [&series.cpu_milli, &series.memory]);
    rings.map(|ring| Slots { slots: ring.store() }).collect()
}

pub(crate) fn restore_series(stored: &[Slots], passed_s: u64) -> [Series; 2] {
    let ring = |at: usize| {
        let slots = stored.get(at).map_or(&[][..], |slots| &slots.slots);
        let mut ring = Ring::restore(&slots[slots.len().saturating_sub(SECONDS)..]);
        ring.pass(passed_s);
        ring
    };
    [Series { cpu_milli: ring(0), memory: ring(1) }, Series { cpu_milli: ring(2), memory: ring(3) }]
}

pub(crate) fn store_peaks(peaks: &Peaks) -> Vec<StoredModel> {
    let stored = |histogram: &Histogram| {
        let (reference_ms, buckets, weights) = histogram.store();
        Some(StoredHistogram { reference_ms, buckets, weights })
    };
    let model = |(name, model): (&String, &Model)| StoredModel {
        name: name.clone(),
        first_ms: model.first_ms,
        last_ms: model.last_ms,
        cpu: stored(&model.cpu),
        memory: stored(&model.memory),
    };
    peaks.models.iter().map(model).collect()
}

pub(crate) fn restore_peaks(stored: &[StoredModel]) -> Peaks {
    let histogram = |shape: Shape, stored: &Option<StoredHistogram>| match stored {
        Some(stored) => Histogram::restore(shape, stored.reference_ms, &stored.buckets, &stored.weights),
        None => Histogram::new(shape, 0),
    };
    let model = |stored: &StoredModel| {
        let StoredModel { name, first_ms, last_ms, cpu, memory } = stored;
        let (cpu, memory) = (histogram(CPU, cpu), histogram(MEMORY, memory));
        (name.clone(), Model { first_ms: *first_ms, last_ms: *last_ms, cpu, memory })
    };
    Peaks { models: stored.iter().map(model).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_age_is_of_the_boot_or_of_the_clock() {
        let stored =
            Checkpoint { boot_id: "a".into(), boot_ms: 50_000, wall_ms: 1_000_000, ..Checkpoint::default() };
        for (name, boot_id, boot_ms, wall_ms, expected) in [
            ("restarted, clock set 5 minutes on", "a", 60_000, 1_310_000, 10_000),
            ("rebooted", "b", 3_000, 1_060_000, 60_000),
            ("rebooted without a clock", "b", 3_000, 0, 0),
            ("boot unknown", "", 60_000, 1_060_000, 60_000),
            ("boot clock went back", "a", 40_000, 1_060_000, 60_000),
        ] {
            assert_eq!(stored.age_ms(boot_id, Moment { boot_ms, wall_ms }), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_is_none() {
        assert_eq!(Checkpoint::read(&[0xff; 40]), None);
        assert!(Checkpoint::read(&[]).is_some_and(|read| read.rings.is_empty()));
        assert_eq!(restore_series(&[], 5)[0].cpu_milli.mean(10), None);
    }
}
