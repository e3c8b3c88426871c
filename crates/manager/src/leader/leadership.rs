//! The value that says "this process leads", and the check at the place where it is used.

use std::time::Duration;

use tokio::sync::watch;

use super::clock::{Clock, Moment};

/// The right to act as the leader until an instant. It ends by itself: holding the value proves nothing, asking
/// [`Leadership::is_current`] does.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Counts leaderships: a renewal that comes in time goes on with the one before.
    term: u64,
    expires_at: Moment,
    clock: Clock,
}

/// This process does not lead, or its leadership ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct NotLeading;

impl Leadership {
    /// Whether this process leads at this instant, as far as this value tells.
    pub fn is_current(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// When the leadership ends, unless a newer value has been published since.
    pub const fn expires_at(&self) -> Moment {
        self.expires_at
    }

    /// How long the leadership lasts from now on; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.expires_at.since(self.clock.now())
    }
}

/// Where the election says for how long this process leads.
#[derive(Debug)]
pub(super) struct Publisher {
    newest: watch::Sender<Option<Leadership>>,
    term: u64,
    clock: Clock,
}

impl Publisher {
    /// Of a process that does not lead yet.
    pub(super) fn new(clock: Clock) -> Self {
        Self { newest: watch::Sender::new(None), term: 0, clock }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Leadership>> {
        self.newest.subscribe()
    }

    /// This process leads until then. What was withdrawn or had run out is won anew by that, and not prolonged: others may have led meanwhile.
    pub(super) fn lead_until(&mut self, expires_at: Moment) {
        if !self.newest.borrow().as_ref().is_some_and(Leadership::is_current) {
            self.term += 1;
        }
        let next = Leadership { term: self.term, expires_at, clock: self.clock.clone() };
        self.newest.send_replace(Some(next));
    }

    /// From here on this process does not lead.
    pub(super) fn withdraw(&self) {
        self.newest.send_replace(None);
    }
}

/// The newest [`Leadership`], for code that writes.
#[derive(Clone, Debug)]
pub struct LeadershipGuard(watch::Receiver<Option<Leadership>>);

impl LeadershipGuard {
    /// Of a process that does not lead, and will not by this guard.
    pub fn of_nobody() -> Self {
        Self(watch::channel(None).1)
    }

    /// Checks the leadership. Call it before each write; the answer is how long the write may take at most.
    pub fn check(&self) -> Result<Duration, NotLeading> {
        let remaining = self.0.borrow().as_ref().map(Leadership::remaining);
        remaining.filter(|remaining| !remaining.is_zero()).ok_or(NotLeading)
    }

    /// Runs `write` if this process leads, and for no longer than it does. A request that was already sent when the
    /// time ran out may still be carried out.
    pub async fn run<F: Future>(&self, write: F) -> Result<F::Output, NotLeading> {
        let remaining = self.check()?;
        tokio::time::timeout(remaining, write).await.map_err(|_| NotLeading)
    }

    /// Waits until this process leads.
    ///
    /// # Errors
    /// The election has ended without that.
    pub async fn elected(&mut self) -> Result<Leadership, NotLeading> {
        let is_current = |value: &Option<Leadership>| value.as_ref().is_some_and(Leadership::is_current);
        let current = self.0.wait_for(is_current).await.map_err(|_| NotLeading)?;
        current.clone().ok_or(NotLeading)
    }

    /// Waits until this process leads, and `prepare` has made what it then needs, which is tried until that is so. What outlasted its leadership
    /// counts for nothing, be it that this process has won another since, and is made anew under the next.
    ///
    /// # Errors
    /// The election has ended without that.
    pub async fn prepared<T, F: Future<Output = Option<T>>>(
        &mut self,
        mut prepare: impl FnMut() -> F,
    ) -> Result<T, NotLeading> {
        loop {
            let Leadership { term, .. } = self.elected().await?;
            if let Some(made) = prepare().await
                && self.is_in(term)
            {
                return Ok(made);
            }
        }
    }

    /// Whether this process leads, and has since that term began.
    fn is_in(&self, term: u64) -> bool {
        self.0.borrow().as_ref().is_some_and(|newest| newest.term == term && newest.is_current())
    }
}

impl From<watch::Receiver<Option<Leadership>>> for LeadershipGuard {
    fn from(receiver: watch::Receiver<Option<Leadership>>) -> Self {
        Self(receiver)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    fn hand() -> (Arc<AtomicU64>, Clock) {
        let hand = Arc::new(AtomicU64::new(100));
        let seconds = Arc::clone(&hand);
        (hand, Clock::from_fn(move || Duration::from_secs(seconds.load(Ordering::Relaxed))))
    }

    #[test]
    fn a_leadership_ends_by_itself() {
        let (hand, clock) = hand();
        let mut publisher = Publisher::new(clock.clone());
        publisher.lead_until(clock.now().after(Duration::from_secs(10)));
        let receiver = publisher.subscribe();
        let value = receiver.borrow().clone().unwrap();
        let guard = LeadershipGuard::from(receiver);

        hand.store(109, Ordering::Relaxed);
        assert!(value.is_current());
        assert_eq!(guard.check(), Ok(Duration::from_secs(1)));

        hand.store(110, Ordering::Relaxed);
        assert!(!value.is_current(), "it ends at its expiry, not after it");
        assert_eq!(guard.check(), Err(NotLeading));
    }

    #[test]
    fn the_guard_follows_renewals_and_withdrawal() {
        let (_hand, clock) = hand();
        let mut publisher = Publisher::new(clock.clone());
        let guard = LeadershipGuard::from(publisher.subscribe());
        assert_eq!(guard.check(), Err(NotLeading));
        for seconds in [3, 7] {
            publisher.lead_until(clock.now().after(Duration::from_secs(seconds)));
            assert_eq!(guard.check(), Ok(Duration::from_secs(seconds)));
        }
        publisher.withdraw();
        assert_eq!(guard.check(), Err(NotLeading));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guarded_write_ends_with_the_leadership() {
        let start = tokio::time::Instant::now();
        let clock = Clock::from_fn(move || start.elapsed());
        let mut publisher = Publisher::new(clock.clone());
        publisher.lead_until(clock.now().after(Duration::from_secs(10)));
        let guard = LeadershipGuard::from(publisher.subscribe());
        assert_eq!(guard.run(async { 7 }).await, Ok(7));
        assert_eq!(guard.run(std::future::pending::<()>()).await, Err(NotLeading));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(guard.run(async { unreachable!("it must not start") }).await, Err::<(), _>(NotLeading));
    }

    /// What is published while something is prepared for the first time, and whether that counts.
    async fn counts(meanwhile: impl Fn(&mut Publisher, &AtomicU64, &Clock)) -> bool {
        let (hand, clock) = hand();
        let mut publisher = Publisher::new(clock.clone());
        publisher.lead_until(clock.now().after(Duration::from_secs(10)));
        let mut guard = LeadershipGuard::from(publisher.subscribe());
        let (publisher, attempts) = (parking_lot::Mutex::new(publisher), AtomicU64::new(0));
        let prepared = guard.prepared(|| async {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            if attempt == 0 {
                meanwhile(&mut publisher.lock(), &hand, &clock);
            }
            Some(attempt)
        });
        let prepared = prepared.await.unwrap();
        assert_eq!(prepared + 1, attempts.load(Ordering::Relaxed), "what was made last counts");
        prepared == 0
    }

    #[tokio::test]
    async fn what_was_prepared_under_one_leadership_does_not_count_under_the_next() {
        let renew = |publisher: &mut Publisher, clock: &Clock| {
            publisher.lead_until(clock.now().after(Duration::from_secs(10)));
        };
        let lost_and_won_back = counts(|publisher, _, clock| {
            publisher.withdraw();
            renew(publisher, clock);
        });
        assert!(!lost_and_won_back.await, "somebody else may have led");
        let ran_out = counts(|publisher, hand, clock| {
            hand.store(110, Ordering::Relaxed);
            renew(publisher, clock);
        });
        assert!(!ran_out.await, "it had run out when it was renewed");
        let renewed = counts(|publisher, hand, clock| {
            for seconds in [109, 118] {
                hand.store(seconds, Ordering::Relaxed);
                renew(publisher, clock);
            }
        });
        assert!(renewed.await, "renewals in time go on with it");
    }

    #[tokio::test]
    async fn what_outlasts_a_leadership_is_prepared_anew() {
        let (hand, clock) = hand();
        let lead_for = |publisher: &mut Publisher, seconds| {
            publisher.lead_until(clock.now().after(Duration::from_secs(seconds)));
        };
        let mut publisher = Publisher::new(clock.clone());
        lead_for(&mut publisher, 10);
        let receiver = publisher.subscribe();
        let mut guard = LeadershipGuard::from(receiver.clone());
        let publisher = parking_lot::Mutex::new(publisher);
        let mut attempts = 0;
        let prepared = guard.prepared(|| {
            attempts += 1;
            let (attempt, hand, publisher, receiver) = (attempts, &hand, &publisher, &receiver);
            async move {
                // The first fails, the second comes too late, and then this process leads once more.
                if attempt == 2 {
                    hand.store(110, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    publisher.lock().withdraw();
                } else if attempt == 3 {
                    assert!(receiver.borrow().is_some());
                }
                (attempt > 1).then_some(attempt)
            }
        });
        let again = async {
            while receiver.borrow().is_some() {
                tokio::task::yield_now().await;
            }
            lead_for(&mut publisher.lock(), 100);
        };
        let (prepared, ()) = tokio::join!(prepared, again);
        assert_eq!(prepared, Ok(3));
        drop(publisher);
        hand.store(1_000, Ordering::Relaxed);
        assert_eq!(guard.prepared(|| async { Some(()) }).await, Err(NotLeading));
    }
}
