//! When somebody who is told of changes looks for them: at once in a quiet cluster, and at most once in each [`PAUSE`] where hundreds of nodes
//! report a second. There each look finds some, and to send ten events in one go costs much less than ten times one.

use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

/// From a look that found all there was to the next. A small part of what an event may take to come to its watchers.
const PAUSE: Duration = Duration::from_millis(25);

/// The looks of one who is told.
#[derive(Debug)]
pub(crate) struct Turns {
    changed: watch::Receiver<u64>,
    /// Something has changed since the last look, or it did not see all.
    due: bool,
    /// When the next look is at the earliest.
    next: Option<Instant>,
}

impl Turns {
    /// The first comes at once. `changed` is subscribed to before the state is looked at, so that no change falls between them.
    pub(crate) fn new(changed: watch::Receiver<u64>) -> Self {
        Self { changed, due: true, next: None }
    }

    /// Returns when it is time to look. Nothing is lost if the caller goes away meanwhile.
    pub(crate) async fn begin(&mut self) {
        if !self.due {
            // The sender lives as long as what is looked at.
            let _ = self.changed.changed().await;
            self.due = true;
        }
        if let Some(next) = self.next {
            sleep_until(next).await;
            self.next = None;
        }
        self.changed.borrow_and_update();
    }

    /// To be said after each look: whether it saw all there was.
    pub(crate) fn end(&mut self, saw_all: bool) {
        self.due = !saw_all;
        self.next = saw_all.then(|| Instant::now() + PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// A look that sees all, and when it came.
    async fn look(turns: &mut Turns, since: Instant) -> Duration {
        turns.begin().await;
        turns.end(true);
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_cluster_is_told_at_once_and_a_busy_one_in_bunches() {
        let (sender, changed) = watch::channel(0);
        let mut turns = Turns::new(changed);
        let start = Instant::now();
        assert_eq!(look(&mut turns, start).await, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(1)).await;
        let quiet = Instant::now();
        sender.send_replace(1);
        assert_eq!(look(&mut turns, quiet).await, Duration::ZERO, "nothing is waited for");
        let busy = Instant::now();
        let look_on = async {
            let mut looks = 0;
            loop {
                look(&mut turns, busy).await;
                looks += 1;
                if busy.elapsed() > Duration::from_millis(990) {
                    return looks;
                }
            }
        };
        let report = async {
            for version in 2.. {
                tokio::time::sleep(Duration::from_millis(2)).await;
                sender.send_replace(version);
            }
        };
        let looks = tokio::select! { looks = look_on => looks, () = report => 0 };
        assert!((38..=41).contains(&looks), "{looks}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_is_looked_for_at_once_and_nothing_is_lost_by_who_goes_away() {
        let (sender, changed) = watch::channel(0);
        let mut turns = Turns::new(changed);
        turns.begin().await;
        turns.end(false);
        assert!(turns.begin().now_or_never().is_some(), "the last look did not see all");
        turns.end(true);
        assert!(turns.begin().now_or_never().is_none());
        sender.send_replace(1);
        assert!(turns.begin().now_or_never().is_none(), "it waits for more");
        // Nothing changes any more.
        let start = Instant::now();
        assert_eq!(look(&mut turns, start).await, PAUSE);
    }
}
