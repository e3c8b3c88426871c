//! How long those may stay at the HTTPS listener, which anybody reaches, of whom nothing is known: a connection is a stranger's until it has shown a certificate
//! of the cluster, or a request over it was answered as only a good credential is. How many of them there may be the [`super::seats`] say.

use std::{
    future::pending,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::seats::Seat;

/// How long a stranger may stay while the hub owes it no answer, and at most.
const STAY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(2);

/// How often it is looked whether a stranger still waits for an answer.
const LOOK: Duration = Duration::from_secs(1);

/// One connection, as long as it lasts.
pub(super) struct Guest {
    seat: Seat,
    waiting: AtomicUsize,
}

impl Guest {
    /// Whoever has that seat.
    pub(super) fn at(seat: Seat) -> Self {
        Self { seat, waiting: AtomicUsize::new(0) }
    }

    /// One of its requests waits for an answer as long as what this gives is kept.
    pub(super) fn waits(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(&self.waiting)
    }

    /// Comes to pass when the connection has been a stranger's for too long. Of an answer that the hub has begun something may be on its way then.
    pub(super) async fn outstays(&self) {
        let (begun, mut pause) = (Instant::now(), STAY);
        loop {
            sleep(pause).await;
            if self.seat.is_known() {
                pending::<()>().await;
            }
            if self.waiting.load(Relaxed) == 0 || begun.elapsed() >= LONGEST {
                return;
            }
            pause = LOOK;
        }
    }
}

/// A request whose answer has not begun.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{super::seats::Seats, *};

    fn guest() -> Guest {
        Guest::at(Seats::outward(64).take(IpAddr::from([10, 0, 0, 1]).into()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_known_may_stay() {
        for (is_known, begins) in [(false, "a stranger"), (true, "somebody")] {
            let guest = guest();
            if is_known {
                guest.seat.is_of_somebody();
            }
            let begun = Instant::now();
            let leaves = tokio::time::timeout(2 * LONGEST, guest.outstays()).await.is_ok();
            assert_eq!(leaves, !is_known, "{begins}");
            assert_eq!(begun.elapsed(), if is_known { 2 * LONGEST } else { STAY }, "{begins}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_may_stay_and_not_for_ever() {
        let guest = guest();
        let waiting = guest.waits();
        assert!(tokio::time::timeout(LONGEST / 2, guest.outstays()).await.is_err());
        let begun = Instant::now();
        guest.outstays().await;
        assert!(begun.elapsed() <= LONGEST);
        drop(waiting);
        let begun = Instant::now();
        guest.outstays().await;
        assert_eq!(begun.elapsed(), STAY);
    }
}
