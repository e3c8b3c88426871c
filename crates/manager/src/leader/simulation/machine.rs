//! Machines whose clocks disagree, and the true time that only the simulation knows.

use std::time::Duration;

use jiff::Timestamp;

use crate::leader::clock::Moment;

/// True time, in microseconds since the simulation's start.
pub(super) type Time = u64;

pub(super) const SECOND: Time = 1_000_000;
pub(super) const PPM: i128 = 1_000_000;
/// How long the cluster takes to start a process again.
pub(super) const RESTART: Time = SECOND;

/// A machine's clocks. They survive the processes that run on it.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The steady clock's deviation in parts per million.
    pub(super) drift: i64,
    /// The steady clock at the simulation's start.
    pub(super) uptime: Time,
    /// The time of day, as an offset to true time; jumps change it.
    pub(super) wall_offset: i64,
    /// The time of day stands still.
    pub(super) wall_frozen: bool,
}

impl Machine {
    pub(super) fn steady(&self, time: Time) -> u128 {
        let elapsed = i128::from(time) * (PPM + i128::from(self.drift)) / PPM;
        (i128::from(self.uptime) + elapsed).unsigned_abs()
    }

    pub(super) fn now(&self, time: Time) -> Moment {
        Moment::new(Duration::from_micros(self.steady(time).try_into().unwrap()))
    }

    pub(super) fn wall(&self, time: Time) -> Timestamp {
        let passed = if self.wall_frozen { 0 } else { i64::try_from(time).unwrap() };
        Timestamp::from_microsecond(1_700_000_000_000_000 + self.wall_offset + passed).unwrap()
    }

    /// The first instant of true time at which the steady clock shows `moment`, or more.
    pub(super) fn when(&self, moment: Moment) -> Time {
        let shown = i128::try_from(moment.since(Moment::new(Duration::ZERO)).as_micros()).unwrap();
        let (elapsed, rate) = ((shown - i128::from(self.uptime)).max(0), PPM + i128::from(self.drift));
        Time::try_from((elapsed * PPM + rate - 1) / rate).unwrap()
    }
}
