//! Whether the peer of a link is alive. Pure: times since the link began come in, what to do comes out.
//!
//! Both ends ask by PING and count on an answer. TCP would notice a peer that vanished behind a NAT after minutes or hours.

use std::time::Duration;

/// When to ask, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From an answer to the next PING.
    pub interval: Duration,
    /// How late an answer may be; behind bulk data, so long after the last byte.
    pub deadline: Duration,
    /// How late it may be as long as bulk data comes in: it may stand behind the data on a thin link.
    pub deadline_behind_data: Duration,
    /// So many bytes since the PING are bulk data. A peer's own PINGs are not.
    pub bulk: u64,
}

impl Default for Limits {
    /// Dead peers are found after 11 s, or 8 s after the last byte of bulk data. An answer that is lost has been sent five times over by then,
    /// as TCP does it at first. Address translations are forgotten after 30 s or more.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(4),
            deadline: Duration::from_secs(7),
            deadline_behind_data: Duration::from_secs(30),
            bulk: 16 * 1024,
        }
    }
}

/// How often within the deadline an answer that is awaited is looked for: that much longer a peer may seem alive.
const LOOKS: u32 = 10;

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
    Idle {
        next: Duration,
    },
    /// `newest`: how much there was when it last grew, and when that was seen. `looked`: when it was last looked for.
    Asked {
        at: Duration,
        received: u64,
        newest: (u64, Duration),
        looked: Duration,
    },
}

impl Liveness {
    /// A link that began at time zero; the first PING is due at once, for its round trip.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Idle { next: Duration::ZERO } }
    }

    /// What to do at `now`, when the link has received `received` bytes in all.
    pub fn poll(&mut self, now: Duration, received: u64) -> Action {
        let Limits { deadline, deadline_behind_data, bulk, .. } = self.limits;
        match &mut self.state {
            State::Idle { next } if now >= *next => Action::Ping,
            State::Idle { next } => Action::Wait(*next),
            State::Asked { at, received: before, newest, looked } => {
                if received > newest.0 {
                    *newest = (received, now);
                }
                let (silent, latest) =
                    (at.saturating_add(deadline), at.saturating_add(deadline.max(deadline_behind_data)));
                let behind_data = received.saturating_sub(*before) >= bulk;
                let until = if behind_data { newest.1.saturating_add(deadline).min(latest) } else { silent };
                // Looks often enough to know when the last byte came. Who was held up itself looks once more: what came meanwhile is
                // read only now.
                let look = deadline / LOOKS;
                let held_up = now.saturating_sub(*looked) > 2 * look;
                *looked = now;
                let until = if held_up && now >= until { latest } else { until };
                if now >= until { Action::Dead } else { Action::Wait(until.min(now.saturating_add(look))) }
            }
        }
    }

    /// A PING was sent.
    pub fn pinged(&mut self, now: Duration, received: u64) {
        self.state = State::Asked { at: now, received, newest: (received, now), looked: now };
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
        let look = Duration::from_millis(700);
        assert_eq!(liveness.poll(s(6), 100), Action::Wait(s(6) + look));
        assert_eq!(liveness.poll(s(11), 200), Action::Wait(s(11) + look));
        assert_eq!(liveness.clone().poll(s(12).saturating_sub(look / 2), 200), Action::Wait(s(12)));
        assert_eq!(liveness.clone().poll(s(12), 200), Action::Dead);
        // As long as data comes in it has time.
        let mut busy = liveness.clone();
        for second in 12..35 {
            assert_eq!(busy.poll(s(second), second * 16 * 1024), Action::Wait(s(second) + look));
        }
        assert_eq!(busy.poll(s(35), 1 << 30), Action::Dead);
        // Not once that has ended.
        let all = 100 + 16 * 1024;
        assert_eq!(liveness.poll(s(12), all), Action::Wait(s(12) + look));
        assert_eq!(liveness.poll(s(18), all), Action::Wait(s(18) + look));
        assert_eq!(liveness.poll(s(19), all), Action::Dead);
    }

    #[test]
    fn who_was_held_up_itself_looks_once_more() {
        let mut liveness = Liveness::new(Limits::default());
        liveness.pinged(s(0), 0);
        let look = Duration::from_millis(700);
        assert_eq!(liveness.poll(s(1), 0), Action::Wait(s(1) + look));
        assert_eq!(liveness.poll(s(12), 0), Action::Wait(s(12) + look));
        assert_eq!(liveness.clone().poll(s(13), 0), Action::Dead);
        assert_eq!(liveness.poll(s(13), 1 << 20), Action::Wait(s(13) + look));
        assert_eq!(liveness.poll(s(40), 1 << 20), Action::Dead, "30 s in all");
    }

    proptest! {
        /// Whenever a peer falls silent, it is found dead within 11 s; and while it answers in time, never.
        #[test]
        fn silence_is_noticed_in_time(
            answers in proptest::collection::vec(0_u64..6_999, 0..20),
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
            prop_assert!(now.saturating_sub(last) <= Duration::from_secs(11));
        }

        /// Whenever a peer that sends a great deal falls silent, it is found dead within 12 s of its last byte, and within 30 s
        /// of the question whatever it sends.
        #[test]
        fn silence_after_much_data_is_noticed_in_time(rate in 1_u64..10_000, silent_after in 0_u64..60_000) {
            let mut liveness = Liveness::new(Limits::default());
            let (mut now, mut asked, end) = (Duration::ZERO, None, Duration::from_millis(silent_after));
            loop {
                let received = u64::try_from(now.min(end).as_millis()).unwrap() * rate;
                match liveness.poll(now, received) {
                    Action::Wait(until) => {
                        prop_assert!(until > now);
                        now = until;
                    }
                    Action::Ping => {
                        liveness.pinged(now, received);
                        asked = Some(now);
                    }
                    Action::Dead => break,
                }
            }
            let asked = asked.unwrap();
            prop_assert!(now.saturating_sub(asked) <= Duration::from_secs(30));
            prop_assert!(now.saturating_sub(end.max(asked)) <= Duration::from_secs(12));
        }
    }
}
