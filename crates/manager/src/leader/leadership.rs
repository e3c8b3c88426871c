//! The value that says "this process leads", and the check at the place where it is used.

use std::time::Duration;

use tokio::sync::watch;

use super::clock::{Clock, Moment};

/// The right to act as the leader until an instant. It ends by itself: holding the value proves nothing, asking
/// [`Leadership::is_current`] does.
#[derive(Clone, Debug)]
pub struct Leadership {
    expires_at: Moment,
    clock: Clock,
}

/// This process does not lead, or its leadership ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct NotLeading;

impl Leadership {
    pub(super) const fn new(expires_at: Moment, clock: Clock) -> Self {
        Self { expires_at, clock }
    }

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
    /// counts for nothing, and is made anew under the next.
    ///
    /// # Errors
    /// The election has ended without that.
    pub async fn prepared<T, F: Future<Output = Option<T>>>(
        &mut self,
        mut prepare: impl FnMut() -> F,
    ) -> Result<T, NotLeading> {
        loop {
            self.elected().await?;
            if let Some(made) = prepare().await
                && self.check().is_ok()
            {
                return Ok(made);
            }
        }
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
        let value = Leadership::new(clock.now().after(Duration::from_secs(10)), clock);
        let (_publish, receiver) = watch::channel(Some(value.clone()));
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
        let (publish, receiver) = watch::channel(None);
        let guard = LeadershipGuard::from(receiver);
        assert_eq!(guard.check(), Err(NotLeading));
        for seconds in [3, 7] {
            let expires_at = clock.now().after(Duration::from_secs(seconds));
            publish.send_replace(Some(Leadership::new(expires_at, clock.clone())));
            assert_eq!(guard.check(), Ok(Duration::from_secs(seconds)));
        }
        publish.send_replace(None);
        assert_eq!(guard.check(), Err(NotLeading));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guarded_write_ends_with_the_leadership() {
        let start = tokio::time::Instant::now();
        let clock = Clock::from_fn(move || start.elapsed());
        let value = Leadership::new(clock.now().after(Duration::from_secs(10)), clock);
        let (_publish, receiver) = watch::channel(Some(value));
        let guard = LeadershipGuard::from(receiver);
        assert_eq!(guard.run(async { 7 }).await, Ok(7));
        assert_eq!(guard.run(std::future::pending::<()>()).await, Err(NotLeading));
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(guard.run(async { unreachable!("it must not start") }).await, Err::<(), _>(NotLeading));
    }

    #[tokio::test]
    async fn what_outlasts_a_leadership_is_prepared_anew() {
        let (hand, clock) = hand();
        let leads_for =
            |seconds| Some(Leadership::new(clock.now().after(Duration::from_secs(seconds)), clock.clone()));
        let (publish, receiver) = watch::channel(leads_for(10));
        let mut guard = LeadershipGuard::from(receiver);
        let mut attempts = 0;
        let prepared = guard.prepared(|| {
            attempts += 1;
            let (attempt, hand, publish) = (attempts, &hand, &publish);
            async move {
                // The first fails, the second comes too late, and then this process leads once more.
                if attempt == 2 {
                    hand.store(110, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    publish.send_replace(None);
                } else if attempt == 3 {
                    assert!(publish.borrow().is_some());
                }
                (attempt > 1).then_some(attempt)
            }
        });
        let again = async {
            while publish.borrow().is_some() {
                tokio::task::yield_now().await;
            }
            publish.send_replace(leads_for(100));
        };
        let (prepared, ()) = tokio::join!(prepared, again);
        assert_eq!(prepared, Ok(3));
        drop(publish);
        hand.store(1_000, Ordering::Relaxed);
        assert_eq!(guard.prepared(|| async { Some(()) }).await, Err(NotLeading));
    }
}
