//! Which files to rewrite into one. Pure.
//!
//! As long as less than half of all bytes is dead, nothing: each byte rewritten is a byte of the flash's life. Then the
//! file with the least life in it, and with it small or half-dead neighbours, as long as one file holds what lives.

use std::ops::Range;

use crate::ledger::Weight;

/// Picks neighbours among `files`, the sealed ones of a log in their order. `target` is the length of a file.
pub(super) fn choose(files: &[Weight], target: u64) -> Option<Range<usize>> {
    let length: u64 = files.iter().map(|file| file.length).sum();
    let live: u64 = files.iter().map(|file| file.live).sum();
    let at = if length > 2 * live + target {
        // In thousandths, as lengths are integers.
        let (at, least) = files.iter().enumerate().min_by_key(|(_, file)| share(file))?;
        (share(least) < 500).then_some(at)?
    } else if files.len() as u64 > 16 + 4 * length / target {
        // Many small files: the two neighbours that are the smallest together.
        let pairs = files.windows(2).enumerate();
        pairs.min_by_key(|(_, pair)| pair.iter().map(|file| file.live).sum::<u64>())?.0
    } else {
        return None;
    };
    Some(extend(files, at, target))
}

/// How much of a file lives, in thousandths.
fn share(file: &Weight) -> u64 {
    file.live * 1000 / file.length.max(1)
}

fn extend(files: &[Weight], at: usize, target: u64) -> Range<usize> {
    let fit = |file: &Weight| file.length < target / 2 || share(file) < 500;
    let (mut run, mut live) = (at..at + 1, files[at].live);
    let mut length = files[at].length;
    loop {
        let after = files.get(run.end).filter(|file| fit(file));
        let before = run.start.checked_sub(1).map(|at| &files[at]).filter(|file| fit(file));
        let (next, range) = match (before, after) {
            (_, Some(after)) => (after, run.start..run.end + 1),
            (Some(before), None) => (before, run.start - 1..run.end),
            (None, None) => return run,
        };
        // What lives must fit one file, and what is read at once is bounded, too.
        if live + next.live > target || length + next.length > 8 * target {
            return run;
        }
        (run, live, length) = (range, live + next.live, length + next.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(u64, u64)]) -> Vec<Weight> {
        of.iter().map(|&(length, live)| Weight { last: 0, length, live, sealed: true }).collect()
    }

    #[test]
    fn it_rewrites_what_is_mostly_dead_when_most_is() {
        type Case = (&'static str, &'static [(u64, u64)], Option<Range<usize>>);
        let cases: [Case; 7] = [
            ("nothing there", &[], None),
            ("all alive", &[(100, 100); 4], None),
            ("half dead", &[(100, 50); 4], None),
            ("one is dead, most is alive", &[(100, 0), (100, 100), (100, 100), (100, 100)], None),
            ("the most dead", &[(100, 60), (100, 10), (100, 60), (100, 30), (100, 20)], Some(1..2)),
            ("neighbours that fit", &[(100, 30), (100, 30), (100, 30), (100, 30)], Some(0..3)),
            ("wholly dead", &[(100, 0), (100, 0), (100, 90)], Some(0..2)),
        ];
        for (name, weights, expected) in cases {
            assert_eq!(choose(&files(weights), 90), expected, "{name}");
        }
    }

    #[test]
    fn small_files_become_one() {
        let many = files(&[(10, 10); 60]);
        assert_eq!(choose(&many, 100), Some(0..10));
    }
}
