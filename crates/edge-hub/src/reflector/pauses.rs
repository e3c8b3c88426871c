//! How long after a failure the next attempt is made.

use std::time::Duration;

/// The first and the longest pause after a failure that is not the link's.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// After a watch that ran this long a failure counts as the first.
const STEADY: Duration = Duration::from_secs(10);

/// What was attempted, and how far it came.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    /// A watch, which ran for so long.
    Watch(Duration),
    /// A list, of which so many pages came that the next attempt goes on from. How long it took says nothing: an API server ends an answer after a minute, and whoever gets none whole is to
    /// ask more and more seldom.
    List(usize),
}

impl Attempt {
    /// Whether a failure after it is the first of a row.
    pub(super) fn came_to_something(self) -> bool {
        match self {
            Self::Watch(lasted) => lasted > STEADY,
            Self::List(pages) => pages > 0,
        }
    }
}

/// The pauses of one subscription.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    /// Whether an answer broke off over a link that stayed, and nothing has come to anything since.
    broke_off: bool,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { next: PAUSE.0, broke_off: false }
    }

    /// Takes note of an attempt that has ended.
    pub(super) fn ended(&mut self, attempt: Attempt) {
        if attempt.came_to_something() {
            *self = Self::new();
        }
    }

    /// An answer broke off over a link that stayed: whether that is the first of a row, after which there is no pause.
    pub(super) fn first_that_broke_off(&mut self) -> bool {
        !std::mem::replace(&mut self.broke_off, true)
    }

    /// The pause to make now.
    pub(super) fn now(&self) -> Duration {
        self.next
    }

    /// Whether it is the first of a row.
    pub(super) fn is_first(&self) -> bool {
        self.next == PAUSE.0
    }

    /// It was made: the next is twice as long.
    pub(super) fn made(&mut self) {
        self.next = (self.next * 2).min(PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each attempt breaks off over a link that stays: the pauses after them, in milliseconds.
    fn pauses(attempts: &[Attempt]) -> Vec<u128> {
        let mut pauses = Pauses::new();
        let pause = |attempt: &Attempt| {
            pauses.ended(*attempt);
            if pauses.first_that_broke_off() {
                return 0;
            }
            let pause = pauses.now();
            pauses.made();
            pause.as_millis()
        };
        attempts.iter().map(pause).collect()
    }

    #[test]
    fn pauses_grow_until_something_comes() {
        let watch = |seconds| Attempt::Watch(Duration::from_secs(seconds));
        let list = Attempt::List;
        let cases: [(&[Attempt], &[u128]); 5] = [
            (&[watch(1), watch(1), watch(1)], &[0, 500, 1000]),
            (&[watch(1), watch(1), watch(11), watch(1)], &[0, 500, 0, 500]),
            // However long each took.
            (&[list(0), list(0), list(0), list(0)], &[0, 500, 1000, 2000]),
            // Each brings it on.
            (&[list(0), list(1), list(1), list(0)], &[0, 0, 0, 500]),
            (&[list(0); 9], &[0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]),
        ];
        for (attempts, expected) in cases {
            assert_eq!(pauses(attempts), expected, "{attempts:?}");
        }
    }
}
