//! Whether the peer of a link is alive. Pure: times since the link began come in, what to do comes out.
//!
//! Both ends ask by PING and count on an answer. TCP would notice a peer that vanished behind a NAT after minutes or hours.

use std::time::Duration;

/// When to ask, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From an answer to the next PING.
    pub interval: Duration,
    /// How late an answer may be.
    pub deadline: Duration,
    /// How late it may be while bulk data comes in: it may stand behind the data on a thin link.
    pub deadline_behind_data: Duration,
    /// So many bytes since the PING are bulk data. A peer's own PINGs are not.
    pub bulk: u64,
}

impl Default for Limits {
    /// Dead peers are found after 14 s. Address translations are forgotten after 30 s or more.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(4),
            deadline: Duration::from_secs(10),
            deadline_behind_data: Duration::from_secs(30),
            bulk: 16 * 1024,
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send a PING, and tell with [`Liveness::pinged`].
    Ping,
    /// Nothing before this moment.
    Wait(Duration),
    /// The peer is gone: close the link.
    Dead,
}

/// What is known of the peer.
#[derive(Debug, Clone)]
pub struct Liveness {
    limits: Limits,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle { next: Duration },
    Asked { at: Duration, received: u64 },
}

impl Liveness {
    /// A link that began at time zero; the first PING is due at once, for its round trip.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Idle { next: Duration::ZERO } }
    }

    /// What to do at `now`, when the link has received `received` bytes in all.
    pub fn poll(&self, now: Duration, received: u64) -> Action {
        match self.state {
            State::Idle { next } if now >= next => Action::Ping,
            State::Idle { next } => Action::Wait(next),
            State::Asked { at, received: before } => {
                let bulk = received.saturating_sub(before) >= self.limits.bulk;
                let late = if bulk { self.limits.deadline_behind_data } else { self.limits.deadline };
                let until = at.saturating_add(late);
                if now >= until {
                    Action::Dead
                } else {
                    // Without bulk data until then it is over at the shorter deadline.
                    let look = at.saturating_add(self.limits.deadline);
                    Action::Wait(if now < look { look } else { until })
                }
            }
        }
    }

    /// A PING was sent.
    pub fn pinged(&mut self, now: Duration, received: u64) {
        self.state = State::Asked { at: now, received };
    }

    /// The answer came. Gives the round trip, if there was a question.
    pub fn answered(&mut self, now: Duration) -> Option<Duration> {
        let State::Asked { at, .. } = self.state else { return None };
        self.state = State::Idle { next: now.saturating_add(self.limits.interval) };
        Some(now.saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_peer_is_dead_in_time_and_a_busy_one_has_longer() {
        let mut liveness = Liveness::new(Limits::default());
        assert_eq!(liveness.poll(s(0), 0), Action::Ping);
        liveness.pinged(s(0), 0);
        assert_eq!(liveness.answered(s(1)), Some(s(1)));
        assert_eq!(liveness.answered(s(1)), None);
        assert_eq!(liveness.poll(s(2), 0), Action::Wait(s(5)));
        assert_eq!(liveness.poll(s(5), 100), Action::Ping);
        liveness.pinged(s(5), 100);
        assert_eq!(liveness.poll(s(14), 200), Action::Wait(s(15)));
        assert_eq!(liveness.poll(s(15), 200), Action::Dead);
        assert_eq!(liveness.poll(s(15), 100 + 16 * 1024), Action::Wait(s(35)));
        assert_eq!(liveness.poll(s(35), 1 << 30), Action::Dead);
    }

    proptest! {
        /// Whenever a peer falls silent, it is found dead within 14 s; and while it answers in time, never.
        #[test]
        fn silence_is_noticed_in_time(
            answers in proptest::collection::vec(0_u64..9_999, 0..20),
        ) {
            let limits = Limits::default();
            let mut liveness = Liveness::new(limits);
            let mut now = Duration::ZERO;
            let mut last = Duration::ZERO;
            for delay in answers.iter().map(|ms| Some(Duration::from_millis(*ms))).chain([None]) {
                while let Action::Wait(until) = liveness.poll(now, 0) {
                    prop_assert!(until > now);
                    now = until;
                }
                prop_assert_eq!(liveness.poll(now, 0), Action::Ping);
                liveness.pinged(now, 0);
                if let Some(delay) = delay {
                    prop_assert_ne!(liveness.poll(now + delay, 0), Action::Dead);
                    now += delay;
                    last = now;
                    liveness.answered(now);
                }
            }
            while let Action::Wait(until) = liveness.poll(now, 0) {
                prop_assert!(until > now);
                now = until;
            }
            prop_assert_eq!(liveness.poll(now, 0), Action::Dead);
            prop_assert!(now.saturating_sub(last) <= Duration::from_secs(14));
        }
    }
}
