//! When those who wait are told that the cache has changed.
//!
//! Most of what an event costs with many watchers is a write to each of their sockets, whatever its length. So a change that comes
//! by itself is told at once, and one that comes soon after another waits a moment for the next.

use std::time::{Duration, Instant};

use super::timer::Timer;
use crate::subscriptions::Subscription;

/// How long a change waits for others. At 400 changes a second, which a real API server gives, two go out at once: a write to each of 100
/// watchers is most of what an event costs. It is to be with the last of them within 5 ms; to write to them, and for them to read, takes 1 to
/// 2 of these.
const PAUSE: Duration = Duration::from_micros(2500);

/// So many are told at once whatever comes: it costs little.
const FEW: usize = 8;

/// Tells the readers of a subscription of its changes; the last is told when this is dropped.
pub(super) struct Telling<'a> {
    subscription: &'a Subscription,
    pause: Pause,
    /// Made when it is first needed: most subscriptions have few watchers.
    timer: Option<Timer>,
}

impl<'a> Telling<'a> {
    pub(super) fn new(subscription: &'a Subscription) -> Self {
        Self { subscription, pause: Pause::default(), timer: None }
    }

    /// The cache was changed: tells of it, unless that waits until [`Telling::is_due`].
    pub(super) fn changed(&mut self) {
        let few = self.subscription.watchers() <= FEW;
        match self.pause.changed(Instant::now(), few) {
            When::Now => self.tell(),
            // Without a timer there is nothing to wait for.
            When::Later if !self.set() => self.tell(),
            When::Later | When::WithOthers => {}
        }
    }

    fn set(&mut self) -> bool {
        if self.timer.is_none() {
            self.timer = Timer::new().ok();
        }
        self.timer.as_ref().is_some_and(|timer| timer.set(PAUSE).is_ok())
    }

    /// Comes to pass when something was to wait and has waited.
    pub(super) async fn is_due(&self) {
        match self.timer.as_ref().filter(|_| self.pause.untold > 0) {
            // One that fails has waited long enough.
            Some(timer) => drop(timer.gone_off().await),
            None => std::future::pending().await,
        }
    }

    /// Tells of what has changed so far.
    pub(super) fn tell(&mut self) {
        self.subscription.wake();
        self.pause.told(Instant::now());
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if self.pause.untold > 0 {
            self.tell();
        }
    }
}

/// When to tell of a change.
#[derive(Debug, PartialEq, Eq)]
enum When {
    Now,
    /// After [`PAUSE`].
    Later,
    /// One before it waits already.
    WithOthers,
}

/// Whether to wait pays.
#[derive(Default)]
struct Pause {
    /// When the last change came.
    came: Option<Instant>,
    /// When was told last, and whether of several changes.
    told: Option<(Instant, bool)>,
    /// How many changes were not told yet.
    untold: usize,
}

impl Pause {
    /// A change waits if one came just before it, or if to wait has paid just before: the next will come meanwhile, too.
    fn changed(&mut self, now: Instant, few: bool) -> When {
        let came = self.came.replace(now);
        self.untold += 1;
        let within = |pause, at: Instant| now.duration_since(at) < pause;
        let follows = came.is_some_and(|came| within(PAUSE, came));
        let has_paid = self.told.is_some_and(|(told, several)| several && within(2 * PAUSE, told));
        match self.untold {
            2.. => When::WithOthers,
            _ if !few && (follows || has_paid) => When::Later,
            _ => When::Now,
        }
    }

    fn told(&mut self, now: Instant) {
        self.told = Some((now, self.untold > 1));
        self.untold = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When is told, and of how many changes each time; all times in halves of a millisecond.
    fn told(changes: &[u64], few: bool) -> Vec<(u64, usize)> {
        const HALF: Duration = Duration::from_micros(500);
        let (began, mut pause, mut told) = (Instant::now(), Pause::default(), Vec::new());
        let at = |halves: u64| began + Duration::from_micros(500 * halves);
        let mut due = None;
        for change in changes.iter().copied().chain([1_000_000]) {
            if let Some(halves) = due.take_if(|due| *due <= change) {
                told.push((halves, pause.untold));
                pause.told(at(halves));
            }
            match pause.changed(at(change), few) {
                When::Now => {
                    told.push((change, pause.untold));
                    pause.told(at(change));
                }
                When::Later => {
                    due = Some(change + u64::try_from(PAUSE.as_nanos() / HALF.as_nanos()).unwrap());
                }
                When::WithOthers => {}
            }
        }
        told.pop();
        told
    }

    #[test]
    fn changes_by_themselves_are_told_at_once() {
        assert_eq!(told(&[0, 7, 14, 100], false), [(0, 1), (7, 1), (14, 1), (100, 1)]);
    }

    #[test]
    fn changes_that_follow_each_other_are_told_in_bunches_and_none_waits_longer_than_the_pause() {
        let each_two = [0, 4, 8, 12, 16, 20, 24, 28];
        assert_eq!(told(&each_two, false), [(0, 1), (9, 2), (17, 2), (25, 2), (33, 1)]);
        let bunches = [0, 0, 0, 10, 10, 10, 20, 20, 20];
        assert_eq!(told(&bunches, false), [(0, 1), (5, 2), (15, 3), (25, 3)]);
    }

    #[test]
    fn what_few_wait_for_does_not_wait() {
        assert_eq!(told(&[0, 1, 2], true), [(0, 1), (1, 1), (2, 1)]);
    }
}
