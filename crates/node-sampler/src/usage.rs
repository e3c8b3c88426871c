//! Two readings of counters, as the quantities of a report. Pure.

use node_report::report::{Aggregate, Io, Pressure, PressureData, PressureStats, Resources, RunQueue};

use crate::{
    history::{grown, rate},
    parse::{IoCounts, PressureLine, PressureLines, RunDelay},
    ring::{Figures, Ring},
};

/// Pressure now, and over the `passed` milliseconds since `before`.
pub(crate) fn pressure(
    before: Option<[PressureLines; 3]>,
    now: [PressureLines; 3],
    passed: u64,
) -> Option<Pressure> {
    let [cpu, memory, io] = std::array::from_fn(|at| stats(before.map(|before| before[at]), now[at], passed));
    (cpu.is_some() || memory.is_some() || io.is_some()).then_some(Pressure { cpu, memory, io })
}

fn stats(before: Option<PressureLines>, now: PressureLines, passed: u64) -> Option<PressureStats> {
    let some = now.some.map(|line| data(before.and_then(|before| before.some), line, passed));
    let full = now.full.map(|line| data(before.and_then(|before| before.full), line, passed));
    (some.is_some() || full.is_some()).then_some(PressureStats { some, full })
}

fn data(before: Option<PressureLine>, now: PressureLine, passed: u64) -> PressureData {
    let [avg10, avg60, avg300] = now.averages_ppm;
    let lost = grown(before.map(|before| before.total_us), Some(now.total_us));
    let window =
        lost.and_then(|us| rate(us, 1_000, passed)).map(|ppm| u32::try_from(ppm.min(1_000_000)).unwrap_or(0));
    PressureData {
        avg10_ppm: Some(avg10),
        avg60_ppm: Some(avg60),
        avg300_ppm: Some(avg300),
        window_ppm: window,
        total_us: Some(now.total_us),
    }
}

/// Waiting for a CPU over `passed` milliseconds.
pub(crate) fn run_queue(before: Option<RunDelay>, now: Option<RunDelay>, passed: u64) -> Option<RunQueue> {
    let (before, now) = before.zip(now)?;
    let waited = now.waited_ns.checked_sub(before.waited_ns)?;
    let slices = now.slices.checked_sub(before.slices)?;
    Some(RunQueue {
        delay_ns: waited.checked_div(slices),
        waiting_milli: rate(waited, 1_000, passed.saturating_mul(1_000_000)),
    })
}

/// Block IO over `passed` milliseconds.
pub(crate) fn io(before: Option<IoCounts>, now: Option<IoCounts>, passed: u64) -> Option<Io> {
    let (before, now) = before.zip(now)?;
    let per_second = |before: u64, now: u64, scale| rate(now.checked_sub(before)?, scale, passed);
    Some(Io {
        read_bytes_per_s: per_second(before.bytes[0], now.bytes[0], 1_000),
        write_bytes_per_s: per_second(before.bytes[1], now.bytes[1], 1_000),
        reads_milli_per_s: per_second(before.operations[0], now.operations[0], 1_000_000),
        writes_milli_per_s: per_second(before.operations[1], now.operations[1], 1_000_000),
    })
}

/// CPU and memory of node or system, second by second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) cpu_milli: Ring,
    pub(crate) memory: Ring,
}

impl Series {
    pub(crate) fn push(&mut self, cpu_milli: Option<u64>, memory: Option<u64>) {
        self.cpu_milli.push(cpu_milli);
        self.memory.push(memory);
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.cpu_milli.pass(seconds);
        self.memory.pass(seconds);
    }

    pub(crate) fn mean(&self, seconds: u32) -> Option<Resources> {
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX);
        resources(self.cpu_milli.mean(seconds), self.memory.mean(seconds))
    }

    /// One for each window of which at least half is known.
    pub(crate) fn aggregates(&self, durations: &[u32], scratch: &mut Vec<u64>) -> Vec<Aggregate> {
        let mut found = Vec::new();
        for &duration_s in durations {
            let seconds = usize::try_from(duration_s).unwrap_or(usize::MAX);
            let cpu = self.cpu_milli.figures(seconds, scratch);
            let memory = self.memory.figures(seconds, scratch);
            let of = |value: fn(Figures) -> u64| resources(cpu.map(value), memory.map(value));
            if cpu.is_some() || memory.is_some() {
                found.push(Aggregate {
                    duration_s,
                    avg: of(|figures| figures.avg),
                    p50: of(|figures| figures.p50),
                    p90: of(|figures| figures.p90),
                    p95: of(|figures| figures.p95),
                    p99: of(|figures| figures.p99),
                });
            }
        }
        found
    }
}

/// `None` if nothing is known.
pub(crate) fn resources(cpu_milli: Option<u64>, memory_bytes: Option<u64>) -> Option<Resources> {
    (cpu_milli.is_some() || memory_bytes.is_some()).then_some(Resources { cpu_milli, memory_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_window_is_exact() {
        let line = |total_us| PressureLine { averages_ppm: [1, 2, 3], total_us };
        let lines = |total_us| PressureLines { some: Some(line(total_us)), full: None };
        let none = PressureLines::default();
        let read = pressure(Some([lines(1_000), none, none]), [lines(501_000), none, none], 10_000).unwrap();
        let some = read.cpu.unwrap().some.unwrap();
        assert_eq!((some.window_ppm, some.avg10_ppm, some.total_us), (Some(50_000), Some(1), Some(501_000)));
        assert_eq!((read.memory, read.cpu.unwrap().full), (None, None));
        // The counter began anew: no share.
        let read = pressure(Some([lines(9), none, none]), [lines(5), none, none], 10_000).unwrap();
        assert_eq!(read.cpu.unwrap().some.unwrap().window_ppm, None);
        assert_eq!(pressure(None, [none; 3], 1), None);
    }

    #[test]
    fn delay_is_a_mean_and_no_slices_have_none() {
        let delay = |waited_ns, slices| Some(RunDelay { waited_ns, slices });
        let expected = RunQueue { delay_ns: Some(50_000), waiting_milli: Some(500) };
        assert_eq!(run_queue(delay(0, 0), delay(5_000_000_000, 100_000), 10_000), Some(expected));
        assert_eq!(run_queue(delay(5, 5), delay(5, 5), 10_000).unwrap().delay_ns, None);
        assert_eq!(run_queue(None, delay(5, 5), 10_000), None);
    }

    #[test]
    fn io_is_by_the_second() {
        let counts = |n: u64| Some(IoCounts { bytes: [n * 1_000, 0], operations: [n, n] });
        let read = io(counts(0), counts(20), 10_000).unwrap();
        assert_eq!((read.read_bytes_per_s, read.write_bytes_per_s), (Some(2_000), Some(0)));
        assert_eq!((read.reads_milli_per_s, read.writes_milli_per_s), (Some(2_000), Some(2_000)));
        assert_eq!(io(counts(0), None, 10_000), None);
    }
}
