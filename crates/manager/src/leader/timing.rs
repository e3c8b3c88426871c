//! The three durations of leader election, and the proof that they fit together.

use std::time::Duration;

/// By how much one steady clock may run faster or slower than true time. Real clocks stay within 0.05 %, and the
/// kernel slews by at most as much; this is a hundredfold.
pub const MAX_CLOCK_DRIFT: f64 = 0.05;

// The largest ratio that `Timing::new` accepts, against the two clocks that differ most.
const _: () = assert!(0.9 / (1.0 - MAX_CLOCK_DRIFT) < 1.0 / (1.0 + MAX_CLOCK_DRIFT));

/// When a lease expires, when its holder gives up, and how often either tries. Made by [`Timing::new`], so that a
/// value in hand keeps the promise that at most one leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Why three durations cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// The lease duration is stored in an `int32` as seconds, and beside them in milliseconds.
    #[error("lease duration {0:?} must be a whole number of milliseconds, from 1s to 2147483647s")]
    LeaseDuration(Duration),
    /// The leader would still believe in itself when another may take over.
    #[error(
        "renew deadline {renew_deadline:?} must be below nine tenths of the lease duration {lease_duration:?}, \
         or two could lead at once when their clocks do not run alike"
    )]
    RenewDeadline {
        /// What was asked for.
        renew_deadline: Duration,
        /// What it has to be shorter than.
        lease_duration: Duration,
    },
    /// A single lost request would end the leadership.
    #[error(
        "retry period {retry_period:?} must be above 0s and at most half the renew deadline {renew_deadline:?}"
    )]
    RetryPeriod {
        /// What was asked for.
        retry_period: Duration,
        /// What it has to fit into twice.
        renew_deadline: Duration,
    },
}

impl Timing {
    /// Checks and keeps three durations.
    ///
    /// A leadership of `renew_deadline` on a slow clock, `renew_deadline / (1 - drift)` of true time, must be over
    /// before `lease_duration` on a fast one, `lease_duration / (1 + drift)`. With [`MAX_CLOCK_DRIFT`] the ratio is
    /// 0.904.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        let in_range =
            lease_duration >= Duration::from_secs(1) && i32::try_from(ceil(lease_duration)).is_ok();
        if !lease_duration.subsec_nanos().is_multiple_of(1_000_000) || !in_range {
            return Err(TimingError::LeaseDuration(lease_duration));
        }
        if renew_deadline >= lease_duration * 9 / 10 {
            return Err(TimingError::RenewDeadline { renew_deadline, lease_duration });
        }
        if retry_period.is_zero() || retry_period > renew_deadline / 2 {
            return Err(TimingError::RetryPeriod { retry_period, renew_deadline });
        }
        Ok(Self { lease_duration, renew_deadline, retry_period })
    }

    /// The others as the lease duration has them: as far below it as the proof needs, and three attempts within.
    pub fn within(lease_duration: Duration) -> Result<Self, TimingError> {
        Self::new(lease_duration, lease_duration * 17 / 20, lease_duration * 5 / 20)
    }

    /// As [`within`](Self::within), but bent on keeping a leadership that is dear: it stands a server that stands still for seven tenths of
    /// the lease duration, at the price of more renewals. Others see one at least each quarter of the duration, unless the server is slow.
    pub fn enduring(lease_duration: Duration) -> Result<Self, TimingError> {
        Self::new(lease_duration, lease_duration * 22 / 25, lease_duration * 4 / 25)
    }

    /// How long others leave an unchanged lease alone.
    pub const fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// The lease duration as others read it: no shorter than it is.
    pub fn whole_seconds(&self) -> u64 {
        ceil(self.lease_duration)
    }

    /// How long a leadership lasts from the moment its last successful renewal was sent.
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// The time between two renewals of a leader, and between two looks of a standby.
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// How long one request may take: a third of the deadline, so that a lost one leaves time for others.
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline / 3
    }

    #[cfg(test)]
    pub(super) const fn unchecked(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Self {
        Self { lease_duration, renew_deadline, retry_period }
    }
}

fn ceil(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

impl Default for Timing {
    /// What Kubernetes' own components use: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_default_passes_its_own_check() {
        let Timing { lease_duration, renew_deadline, retry_period } = Timing::default();
        assert_eq!(Timing::new(lease_duration, renew_deadline, retry_period), Ok(Timing::default()));
    }

    #[test]
    fn durations_that_do_not_fit_are_refused() {
        use TimingError::{LeaseDuration, RenewDeadline, RetryPeriod};
        let lease = |d| LeaseDuration(d);
        let renew = |renew_deadline, lease_duration| RenewDeadline { renew_deadline, lease_duration };
        let retry = |retry_period, renew_deadline| RetryPeriod { retry_period, renew_deadline };
        let year_100 = ms(3_155_760_000_000);
        let table = [
            (ms(0), ms(0), ms(0), lease(ms(0))),
            (ms(999), ms(800), ms(200), lease(ms(999))),
            (Duration::from_micros(1_500_500), ms(1_000), ms(500), lease(Duration::from_micros(1_500_500))),
            (year_100, ms(10_000), ms(2_000), lease(year_100)),
            (ms(15_000), ms(15_000), ms(2_000), renew(ms(15_000), ms(15_000))),
            (ms(15_000), ms(20_000), ms(2_000), renew(ms(20_000), ms(15_000))),
            (ms(10_000), ms(9_000), ms(2_000), renew(ms(9_000), ms(10_000))),
            (ms(15_000), ms(10_000), ms(0), retry(ms(0), ms(10_000))),
            (ms(15_000), ms(10_000), ms(5_001), retry(ms(5_001), ms(10_000))),
            (ms(15_000), ms(0), ms(1), retry(ms(1), ms(0))),
        ];
        for (lease_duration, renew_deadline, retry_period, expected) in table {
            assert_eq!(Timing::new(lease_duration, renew_deadline, retry_period), Err(expected));
        }
        assert!(Timing::new(ms(10_000), ms(8_999), ms(2_000)).is_ok());
        for lease in [1_000, 1_001, 3_500, 15_000, 2_147_483_647_000].map(ms) {
            let (within, enduring) = (Timing::within(lease).unwrap(), Timing::enduring(lease).unwrap());
            let stands = |timing: Timing| timing.renew_deadline.saturating_sub(timing.retry_period);
            assert!(stands(enduring) >= lease * 7 / 10 && stands(enduring) > stands(within), "{lease:?}");
        }
        let seconds = |lease| Timing::new(lease, ms(900), ms(300)).map(|timing| timing.whole_seconds());
        assert_eq!([ms(1_001), ms(1_500), ms(2_000)].map(seconds), [Ok(2), Ok(2), Ok(2)]);
    }
}
