//! When a silent connection is asked for a sign of life: soon while somebody asks for something, now and then while nobody does.
//!
//! hyper sends the PING and gives up the connection that does not answer it, but has one interval for both times. [`Pace`] is the
//! timer that it waits by: hyper asks for the short interval, and waits for the long one while nobody asks. The first request after
//! that ends the waiting at once, so a PING goes with it over a connection that was silent. Nor has it more than one time for all answers;
//! it is told one that never ends, and this timer gives an answer the time that its path takes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant as StdInstant},
};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::{Timing, counted::Heard, path::LOOK};

/// A timer that fires later than this finds a process that stood still itself: what came meanwhile is read first.
const LATE: Duration = Duration::from_millis(250);

/// The time for an answer, as hyper has it: by that it is known which of its two times it waits for.
pub(super) const ANSWER: Duration = Duration::from_hours(24 * 365);

/// Whether anybody asks for something, over whichever connection.
#[derive(Debug)]
pub(super) struct Asking {
    now: Mutex<Asked>,
    begun: Notify,
}

/// What there was of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// When the last request began, or had its answer.
    last: Instant,
    /// How many wait for theirs.
    waiting: usize,
}

/// A request that waits for its answer as long as this lives.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Asking>);

impl Asking {
    pub(super) fn new() -> Arc<Self> {
        let now = Mutex::new(Asked { last: Instant::now(), waiting: 0 });
        Arc::new(Self { now, begun: Notify::new() })
    }

    /// Somebody asks, and waits until what this returns is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Waiting {
        {
            let mut now = self.now.lock();
            *now = Asked { last: Instant::now(), waiting: now.waiting + 1 };
        }
        self.begun.notify_waiters();
        Waiting(self.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut now = self.0.now.lock();
        *now = Asked { last: Instant::now(), waiting: now.waiting - 1 };
    }
}

/// When hyper may do what it wants to do at `at`: send a PING, or give up a connection that did not answer one. Never before the
/// connection was silent for as long as it may be.
///
/// It may be silent for long once something came over it with nobody asking any more. So a question that was asked while somebody
/// did is answered, or the connection given up, by the short time. `alive` is when something came, or was taken of an upload.
fn due(at: Instant, heard: Instant, alive: Instant, asked: Asked, timing: &Timing) -> Instant {
    let quiet = asked.waiting == 0 && heard >= asked.last + timing.asked_within;
    at.max(alive + if quiet { timing.ping_after } else { timing.ping_after_asked })
}

/// What hyper waits for.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// That it is time for a PING, at this moment by its own reckoning.
    Question(Instant),
    /// That the answer to the one which it sent at this moment is late.
    Late(Instant),
}

/// The timer of one connection.
#[derive(Clone)]
pub(super) struct Pace {
    pub(super) timing: Timing,
    pub(super) heard: Arc<Heard>,
    pub(super) asking: Arc<Asking>,
}

impl Timer for Pace {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn Sleep>> {
        let (deadline, now) = (Instant::from_std(deadline), Instant::now());
        let late = deadline > now + ANSWER / 2;
        let until = if late { Until::Late(now) } else { Until::Question(deadline) };
        Box::pin(Paced(Some(Box::pin(self.clone().wait(until)))))
    }

    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }
}

impl Pace {
    async fn wait(self, until: Until) {
        let Self { timing, heard, asking } = self;
        let path = &heard.path;
        loop {
            let begun = asking.begun.notified();
            let asked = *asking.now.lock();
            // Somebody waits in vain, or has the server asked: what the kernel knows is worth its while.
            let watched = asked.waiting > 0 || matches!(until, Until::Late(_));
            if watched && heard.ago() >= LOOK {
                path.look();
            }
            let at = match until {
                Until::Question(at) => at,
                Until::Late(sent) => sent + path.patience(timing.ping_timeout),
            };
            let due = due(at, heard.at(), heard.at().max(path.taken()), asked, &timing);
            let now = Instant::now();
            if now >= due {
                break;
            }
            let next = if watched { due.min(now + LOOK) } else { due };
            tokio::select! {
                () = sleep_until(next) => if due.elapsed() > LATE {
                    sleep(LATE).await;
                },
                () = begun => {}
            }
        }
        match until {
            Until::Question(_) => path.asked(),
            Until::Late(_) => heard.give_up(),
        }
    }
}

/// [`Pace::wait`], as hyper takes it; it may be asked again afterwards.
struct Paced(Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>);

impl Sleep for Paced {}

impl Future for Paced {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(waiting) = &mut self.0 else { return Poll::Ready(()) };
        let polled = waiting.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timing() -> Timing {
        Timing {
            ping_after: seconds(20),
            ping_after_asked: seconds(2),
            asked_within: seconds(15),
            ..Timing::default()
        }
    }

    #[test]
    fn a_silent_connection_is_asked_soon_while_somebody_asks() {
        let began = Instant::now();
        let at = |second| began + seconds(second);
        // Heard last, asked last, waiting; when hyper wants to go on, when it may.
        let cases = [
            (10, 9, 0, 12, 12, "asked a moment ago"),
            (10, 1, 0, 12, 12, "within the time after it"),
            (20, 1, 0, 22, 40, "nobody asks, and something came since"),
            (20, 1, 1, 22, 22, "nobody began to, and somebody waits"),
            (20, 21, 0, 22, 22, "somebody begins to"),
            (10, 1, 0, 40, 40, "silent since, so a question is answered soon or never"),
            (39, 36, 0, 38, 41, "something came after the question: it is no black hole"),
            (20, 1, 0, 42, 42, "asked though nobody asks, the answer has no longer time"),
        ];
        for (heard, last, waiting, wanted, expected, case) in cases {
            let asked = Asked { last: at(last), waiting };
            let due = due(at(wanted), at(heard), at(heard), asked, &timing());
            assert_eq!(due, at(expected), "{case}");
        }
    }

    #[tokio::test]
    async fn who_begins_to_ask_ends_a_long_wait() {
        let step = Duration::from_millis(200);
        let timing = Timing {
            ping_after: Duration::from_hours(1),
            ping_after_asked: step,
            asked_within: Duration::ZERO,
            ..Timing::default()
        };
        let (asking, heard) = (Asking::new(), Heard::now());
        let pace = Pace { timing, heard: heard.clone(), asking: asking.clone() };
        heard.note();
        let mut long = pace.sleep(step);
        assert!(tokio::time::timeout(3 * step, &mut long).await.is_err(), "nobody asks");
        let waiting = asking.begin();
        let began = Instant::now();
        long.await;
        assert!(began.elapsed() < 10 * step, "at once: {:?}", began.elapsed());
        pace.sleep(step).await;
        drop(waiting);
        pace.sleep(step).await;
        heard.note();
        assert!(tokio::time::timeout(3 * step, pace.sleep(step)).await.is_err(), "answered, and nobody asks");
    }
}
