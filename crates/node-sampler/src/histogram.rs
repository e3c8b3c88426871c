//! A histogram that forgets: weights halve with age, as in the vertical pod autoscaler and Koordinator's peak prediction. Pure.
//!
//! Buckets grow by 5 %. Instead of making old weights smaller, newer ones are made larger, and everything is scaled down now and then.

/// By how much a bucket is longer than the one before.
const GROWTH: f64 = 1.05;

/// Half lives after which the weights are scaled down.
const RESCALE: f64 = 100.0;

/// Weights beneath this, of all, are nothing.
const EPSILON: f64 = 1e-4;

/// What a histogram is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Length of the first bucket.
    pub first: f64,
    /// How many there are; the last has no end.
    pub buckets: usize,
    /// Half life in milliseconds.
    pub half_life_ms: f64,
}

/// Milli-CPU, to 1,024 CPUs, 12 hours.
pub const CPU: Shape = Shape { first: 25.0, buckets: 158, half_life_ms: 12.0 * 3_600e3 };

/// Bytes, to 2 TiB, 24 hours.
pub const MEMORY: Shape = Shape { first: 5_242_880.0, buckets: 205, half_life_ms: 24.0 * 3_600e3 };

/// Weights by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    shape: Shape,
    weights: Vec<f32>,
    /// The time at which a sample weighs 1, in milliseconds.
    reference_ms: u64,
}

impl Histogram {
    /// Without samples; `now` on the clock of all calls.
    pub fn new(shape: Shape, now_ms: u64) -> Self {
        Self { shape, weights: vec![0.0; shape.buckets], reference_ms: now_ms }
    }

    /// A sample.
    pub fn add(&mut self, value: u64, now_ms: u64) {
        let mut age = self.half_lives(now_ms);
        if age > RESCALE {
            let scale = exp2(-age);
            self.weights.iter_mut().for_each(|weight| *weight *= scale);
            self.reference_ms = now_ms;
            age = 0.0;
        }
        let bucket = self.bucket(value);
        self.weights[bucket] += exp2(age);
    }

    /// The end of the bucket in which that share of the weights is reached: never less than the true value, and 5 % more at most.
    /// `None` without samples.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let total: f64 = self.weights.iter().copied().map(f64::from).sum();
        if total <= 0.0 {
            return None;
        }
        let wanted = share * total;
        let mut sum = 0.0;
        for (bucket, weight) in self.weights.iter().enumerate() {
            sum += f64::from(*weight);
            if sum >= wanted - total * EPSILON {
                return Some(self.end(bucket));
            }
        }
        Some(self.end(self.shape.buckets - 1))
    }

    /// Buckets that have a weight, and the reference: for the checkpoint.
    pub fn store(&self) -> (u64, Vec<u32>, Vec<f32>) {
        let filled = self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        let (buckets, weights) =
            filled.map(|(bucket, weight)| (u32::try_from(bucket).unwrap_or(u32::MAX), *weight)).unzip();
        (self.reference_ms, buckets, weights)
    }

    /// What [`Histogram::store`] gave; what does not fit is left out.
    pub fn restore(shape: Shape, reference_ms: u64, buckets: &[u32], weights: &[f32]) -> Self {
        let mut histogram = Self::new(shape, reference_ms);
        for (bucket, weight) in buckets.iter().zip(weights) {
            let slot = usize::try_from(*bucket).ok().and_then(|bucket| histogram.weights.get_mut(bucket));
            if let Some(slot) = slot
                && weight.is_finite()
                && *weight > 0.0
            {
                *slot = *weight;
            }
        }
        histogram
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds of years are beneath 2^52")]
    fn half_lives(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.reference_ms) as f64 / self.shape.half_life_ms
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a bucket is a rough place, and a cast of floating point stays within its type"
    )]
    fn bucket(&self, value: u64) -> usize {
        let place = (value as f64 * (GROWTH - 1.0) / self.shape.first + 1.0).ln() / GROWTH.ln();
        (place as usize).min(self.shape.buckets - 1)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and a cast of floating point stays within its type"
    )]
    fn end(&self, bucket: usize) -> u64 {
        let bucket = i32::try_from(bucket + 1).unwrap_or(i32::MAX);
        (self.shape.first * (GROWTH.powi(bucket) - 1.0) / (GROWTH - 1.0)).ceil() as u64
    }
}

/// Not more than 2^100, which f32 holds.
#[expect(clippy::cast_possible_truncation, reason = "a weight needs no more digits")]
fn exp2(power: f64) -> f32 {
    power.exp2() as f32
}

#[cfg(test)]
mod tests {
    use super::{CPU, Histogram, MEMORY};
    use proptest::prelude::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn the_shapes_reach_as_far_as_koordinators() {
        assert!(Histogram::new(CPU, 0).end(CPU.buckets - 2) >= 1_024_000);
        assert!(Histogram::new(MEMORY, 0).end(MEMORY.buckets - 2) >= 2 << 40);
    }

    #[test]
    fn what_is_old_counts_less() {
        let mut histogram = Histogram::new(CPU, 0);
        (0..100).for_each(|_| histogram.add(4_000, 0));
        (0..10).for_each(|_| histogram.add(100, HOUR));
        assert!(histogram.percentile(0.95).unwrap() >= 4_000);
        // Ten half lives later the hundred weigh a tenth of one.
        (0..10).for_each(|_| histogram.add(100, 120 * HOUR));
        let peak = histogram.percentile(0.95).unwrap();
        assert!((100..=130).contains(&peak), "{peak}");
    }

    #[test]
    fn years_do_not_overflow() {
        let mut histogram = Histogram::new(CPU, 0);
        for hour in (0..10 * 365 * 24).step_by(100) {
            histogram.add(1_000, hour * HOUR);
        }
        let peak = histogram.percentile(0.95).unwrap();
        assert!((1_000..=1_075).contains(&peak), "{peak}");
        // A clock that went back takes nothing away.
        histogram.add(1_000, 0);
        assert!(histogram.percentile(0.5).is_some());
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_a_sort_within_a_bucket(
            values in prop::collection::vec(0_u64..100_000, 1..400), percent in prop::sample::select(vec![50_usize, 90, 95, 98])
        ) {
            let mut histogram = Histogram::new(CPU, 0);
            for value in &values {
                histogram.add(*value, 0);
            }
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
            let share = f64::from(u32::try_from(percent).unwrap()) / 100.0;
            let found = histogram.percentile(share).unwrap();
            // A ten thousandth of the weight may be missing: EPSILON.
            let least = sorted[(sorted.len() * (percent * 100 - 1) - 1) / 10_000];
            prop_assert!(found >= least, "{} < {}", found, least);
            prop_assert!(found <= exact + exact / 20 + 27, "{} is far beyond {}", found, exact);
            let (reference, buckets, weights) = histogram.store();
            prop_assert_eq!(Histogram::restore(CPU, reference, &buckets, &weights), histogram);
        }
    }
}
