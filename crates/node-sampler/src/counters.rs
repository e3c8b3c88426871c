//! Readings of counters as a checkpoint keeps them: rows of numbers of one length, the time first. The kernel counts on while no hub
//! runs, so with what its counters were a window goes on over a restart. Pure.

use std::ops::RangeInclusive;

use crate::{
    history::History,
    parse::{IoCounts, PressureLine, PressureLines, RunDelay},
};

/// So many readings of a history are kept: after a restart its window begins a seventh too late at most, until it has gone on for that
/// long. All of them would be four times as many bytes, which are written every two minutes.
const KEPT: usize = 8;

/// What is read together: a row of numbers, of which each may be absent.
pub(crate) trait Counters: Copy {
    /// How many there are.
    const COUNT: usize;

    /// Hands them out, in their order.
    fn write(&self, word: &mut impl FnMut(Option<u64>));

    /// Takes them in, in the same order.
    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self;
}

impl<T: Counters> History<T> {
    /// Some of the readings, the first and the last among them: 0 is absent, and everything else one more than it is.
    pub(crate) fn store(&self) -> Vec<u64> {
        let last = self.len().saturating_sub(1);
        let mut places: Vec<usize> = (0..KEPT).map(|part| last * part / (KEPT - 1)).collect();
        places.dedup();
        let mut rows = Vec::with_capacity(places.len() * (1 + T::COUNT));
        for (at_ms, reading) in places.into_iter().filter_map(|place| self.get(place)) {
            rows.push(at_ms);
            reading.write(&mut |word| rows.push(word.map_or(0, |word| word.saturating_add(1))));
        }
        rows
    }

    /// What [`History::store`] gave, as far as it is `within` the window; each reading as of `later_ms` later than it was.
    pub(crate) fn restore(rows: &[u64], later_ms: u64, within: &RangeInclusive<u64>) -> Self {
        let mut history = Self::default();
        for row in rows.chunks_exact(1 + T::COUNT) {
            let mut words = row[1..].iter().map(|word| word.checked_sub(1));
            if within.contains(&row[0]) {
                history.put(row[0].saturating_add(later_ms), T::read(&mut || words.next().flatten()));
            }
        }
        history
    }
}

impl Counters for RunDelay {
    const COUNT: usize = 2;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        word(Some(self.waited_ns));
        word(Some(self.slices));
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        Self { waited_ns: word().unwrap_or(0), slices: word().unwrap_or(0) }
    }
}

/// Of the averages nothing is kept: only the counters have a past.
impl Counters for [PressureLines; 3] {
    const COUNT: usize = 6;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        for lines in self {
            word(lines.some.map(|line| line.total_us));
            word(lines.full.map(|line| line.total_us));
        }
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        let mut line = || word().map(|total_us| PressureLine { averages_ppm: [0; 3], total_us });
        std::array::from_fn(|_| PressureLines { some: line(), full: line() })
    }
}

impl Counters for IoCounts {
    const COUNT: usize = 4;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        for at in 0..2 {
            word(Some(self.bytes[at]));
            word(Some(self.operations[at]));
        }
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        let [bytes, operations, more_bytes, more_operations] = Counters::read(word);
        Self { bytes: [bytes, more_bytes], operations: [operations, more_operations] }
    }
}

impl<const N: usize> Counters for [Option<u64>; N] {
    const COUNT: usize = N;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        self.iter().copied().for_each(word);
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        std::array::from_fn(|_| word())
    }
}

impl<const N: usize> Counters for [u64; N] {
    const COUNT: usize = N;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        self.iter().copied().map(Some).for_each(word);
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        std::array::from_fn(|_| word().unwrap_or(0))
    }
}

/// There or absent as a whole: with one of its numbers all are.
impl<T: Counters> Counters for Option<T> {
    const COUNT: usize = T::COUNT;

    fn write(&self, word: &mut impl FnMut(Option<u64>)) {
        match self {
            Some(counters) => counters.write(word),
            None => (0..T::COUNT).for_each(|_| word(None)),
        }
    }

    fn read(word: &mut impl FnMut() -> Option<u64>) -> Self {
        let words: Vec<Option<u64>> = (0..T::COUNT).map(|_| word()).collect();
        let mut there = words.iter().copied();
        words.iter().all(Option::is_some).then(|| T::read(&mut || there.next().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_readings_are_kept_the_first_and_the_last_among_them() {
        let mut history = History::<[Option<u64>; 2]>::default();
        for second in 0..=300_u64 {
            history.push(second * 1_000, 300_000, [Some(second), None]);
        }
        let rows = history.store();
        assert_eq!(rows.len(), KEPT * 3);
        let restore =
            |rows: &[u64], later, within| History::<[Option<u64>; 2]>::restore(rows, later, &within);
        let kept = restore(&rows, 5_000, 0..=305_000);
        assert_eq!(kept.begin(305_000), Some((300_000, [Some(0), None])));
        assert_eq!(kept.last(), Some((305_000, [Some(300), None])));
        assert_eq!(restore(&rows, 0, 5_000..=305_000).len(), KEPT - 1, "the first is too old");
        assert_eq!(restore(&rows, 0, 0..=299_000).len(), KEPT - 1, "what would be of the future");
        assert_eq!(restore(&[7, 1], 0, 0..=299_000).len(), 0, "half a row");
        assert_eq!(History::<[Option<u64>; 2]>::default().store(), [0_u64; 0]);
    }

    #[test]
    fn what_is_absent_stays_absent() {
        let there = |reading: Option<IoCounts>| {
            let mut history = History::default();
            history.put(1, reading);
            History::restore(&history.store(), 0, &(0..=1)).get(0) == Some((1, reading))
        };
        assert!(there(None));
        assert!(there(Some(IoCounts { bytes: [0, 1], operations: [2, u64::MAX - 1] })));
        let mut history = History::default();
        let line = |total_us| Some(PressureLine { averages_ppm: [0; 3], total_us });
        let lines = PressureLines { some: line(0), full: None };
        history.put(1, [lines, PressureLines::default(), PressureLines { some: None, full: line(9) }]);
        let kept = History::<[PressureLines; 3]>::restore(&history.store(), 0, &(0..=1));
        assert_eq!(kept.get(0), history.get(0));
    }
}
