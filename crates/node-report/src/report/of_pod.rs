//! What is told of a pod's pressure: of a hundred pods it was two thirds of all that a watcher of NodeMetrics read. Pure.

use super::{Pressure, PressureData, PressureStats};

impl Pressure {
    /// As it is told of a pod: the kernel's average over 10 s for the moment, and the exact share of the policy's window, beyond which averages
    /// over 60 s and 300 s say little; the node itself has all. Where nothing ever stalled the counter of 0 says all there is to say; that all tasks
    /// stalled is part of it. What a kernel cannot tell is absent, as ever.
    #[must_use]
    pub fn of_pod(self) -> Self {
        let Self { cpu, memory, io } = self;
        Self { cpu: cpu.map(stats), memory: memory.map(stats), io: io.map(stats) }
    }
}

fn stats(PressureStats { some, full }: PressureStats) -> PressureStats {
    let never = some.is_some_and(|some| some.total_us == Some(0));
    PressureStats { some: some.map(data), full: full.filter(|_| !never).map(data) }
}

fn data(PressureData { avg10_ppm, window_ppm, total_us, .. }: PressureData) -> PressureData {
    if total_us == Some(0) {
        return PressureData { total_us, ..PressureData::default() };
    }
    PressureData { avg10_ppm, window_ppm, ..PressureData::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ppm: u32, total_us: u64) -> PressureData {
        PressureData {
            avg10_ppm: Some(ppm),
            avg60_ppm: Some(ppm),
            avg300_ppm: Some(ppm),
            window_ppm: Some(ppm),
            total_us: Some(total_us),
        }
    }

    fn told(some: Option<PressureData>, full: Option<PressureData>) -> PressureStats {
        let stats = Some(PressureStats { some, full });
        let told = Pressure { cpu: stats, memory: None, io: stats }.of_pod();
        assert_eq!((told.cpu, told.memory), (told.io, None), "what a kernel cannot tell stays absent");
        assert_eq!(told.of_pod(), told, "told once more it is the same");
        told.cpu.unwrap()
    }

    #[test]
    fn the_moment_and_the_window_are_told() {
        let shares =
            |ppm| PressureData { avg10_ppm: Some(ppm), window_ppm: Some(ppm), ..PressureData::default() };
        let both = told(Some(line(5, 9)), Some(line(0, 3)));
        assert_eq!(both, PressureStats { some: Some(shares(5)), full: Some(shares(0)) });
        let some = told(Some(line(5, 9)), None);
        assert_eq!(some, PressureStats { some: Some(shares(5)), full: None });
    }

    #[test]
    fn of_what_never_stalled_only_that_is_told() {
        let never = Some(PressureData { total_us: Some(0), ..PressureData::default() });
        for full in [None, Some(line(0, 0))] {
            assert_eq!(told(Some(line(0, 0)), full), PressureStats { some: never, full: None });
        }
        assert_eq!(told(Some(line(5, 9)), Some(line(0, 0))).full, never);
    }
}
