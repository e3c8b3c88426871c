//! How long a client waits before it asks again.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// The pause doubles up to so many times the first.
const DOUBLED: u32 = 16;

/// While nothing happens, one who is refused asks at every so manieth of its moments at last.
const SELDOM: u32 = 8;

/// The pauses of a client.
#[derive(Debug)]
pub(super) struct Pauses {
    first: Duration,
    next: Duration,
    /// How many of its longest pauses are one, for who is refused.
    times: u32,
    happens: Option<watch::Receiver<()>>,
}

impl Pauses {
    pub(super) fn new(first: Duration, happens: Option<watch::Receiver<()>>) -> Self {
        Self { first, next: first, times: 1, happens }
    }

    /// It had an answer: the next pause is the first.
    pub(super) fn reset(&mut self) {
        (self.next, self.times) = (self.first, 1);
    }

    /// Waits. Who is refused and is told when something happens leaves out moments at which it would ask again, more and more of them; once
    /// something happens it leaves out none.
    pub(super) async fn wait(&mut self, is_refused: bool) {
        let longest = self.first * DOUBLED;
        match &mut self.happens {
            Some(happens) if is_refused && self.next == longest => {
                let began = Instant::now();
                let happened = async {
                    if happens.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = sleep(longest * self.times) => self.times = (self.times * 2).min(SELDOM),
                    () = happened => {
                        self.times = 1;
                        let since = began.elapsed();
                        let over = u32::try_from(since.as_nanos() / longest.as_nanos()).unwrap_or(0);
                        sleep((longest * (over + 1)).saturating_sub(since)).await;
                    }
                }
            }
            _ => {
                sleep(self.next).await;
                (self.next, self.times) = ((self.next * 2).min(longest), 1);
            }
        }
        // What has happened so far it is about to see.
        if let Some(happens) = &mut self.happens {
            happens.borrow_and_update();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(50);

    /// When it asks, in hundreds of milliseconds.
    async fn asks(pauses: &mut Pauses, is_refused: bool, count: usize) -> Vec<u128> {
        let began = Instant::now();
        let mut asked = Vec::new();
        for _ in 0..count {
            pauses.wait(is_refused).await;
            asked.push(began.elapsed().as_millis() / 100);
        }
        asked
    }

    async fn longest(happens: Option<watch::Receiver<()>>) -> Pauses {
        let mut pauses = Pauses::new(FIRST, happens);
        assert_eq!(asks(&mut pauses, true, 4).await, [0, 1, 3, 7], "it doubles");
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_leaves_out_moments_until_something_happens() {
        let (happen, happens) = watch::channel(());
        assert_eq!(asks(&mut longest(None).await, true, 3).await, [8, 16, 24]);
        let pauses = &mut longest(Some(happens)).await;
        assert_eq!(asks(pauses, false, 2).await, [8, 16], "it is not refused");
        assert_eq!(asks(pauses, true, 6).await, [8, 24, 56, 120, 184, 248]);
        let later = async {
            sleep(Duration::from_millis(2500)).await;
            happen.send(()).unwrap();
        };
        let (asked, ()) = tokio::join!(asks(pauses, true, 3), later);
        assert_eq!(asked, [32, 40, 56], "at the next of its moments");
        happen.send(()).unwrap();
        assert_eq!(asks(pauses, true, 2).await, [8, 16], "while it asked");
        pauses.reset();
        assert_eq!(asks(pauses, true, 2).await, [0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn that_nobody_is_left_to_tell_does_not_wake_it() {
        let (happen, happens) = watch::channel(());
        let pauses = &mut longest(Some(happens)).await;
        drop(happen);
        assert_eq!(asks(pauses, true, 2).await, [8, 24]);
    }
}
