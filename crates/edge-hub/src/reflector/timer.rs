//! A timer that goes off when it should. The runtime's go off up to two milliseconds late, which is as long as what is waited for here.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

/// The kernel's timer, as a file that becomes readable.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(
        deprecated,
        reason = "what takes its place is unsafe; the file is owned, and closed after the runtime has let go of it"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// Goes off once, after less than a second and more than nothing.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec { tv_nsec: after.subsec_nanos().max(1).into(), ..nothing };
        let once = Itimerspec { it_interval: nothing, it_value: after };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Waits until it goes off. What is not waited for to the end is not lost.
    pub(super) async fn gone_off(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if let Ok(read) = read {
                return read.map(|_| ());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_timer_goes_off_once_each_time_it_is_set() {
        let timer = Timer::new().unwrap();
        for _ in 0..3 {
            let began = Instant::now();
            timer.set(Duration::from_millis(2)).unwrap();
            assert!(timer.gone_off().now_or_never().is_none());
            timer.gone_off().await.unwrap();
            assert!(began.elapsed() >= Duration::from_millis(2), "{:?}", began.elapsed());
            assert!(timer.gone_off().now_or_never().is_none(), "it was not set again");
        }
    }
}
