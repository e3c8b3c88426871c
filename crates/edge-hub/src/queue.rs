//! Who waits for something that takes a thread: a few have their turn at once, while no more than so many wait, so that many cost time, and
//! neither threads nor memory.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

/// Turns, and places to wait for one.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _held: [OwnedSemaphorePermit; 2],
}

impl Queue {
    /// So many have their turn at once, and so many more may wait.
    pub(crate) fn new(turns: usize, waiting: usize) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { turns: semaphore(turns), places: semaphore(turns + waiting) }
    }

    /// A turn, when it comes; nothing if there is no place. Who waits no longer gives its place back.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        Some(Turn { _held: [place, turn] })
    }

    /// Does it when its turn comes; nothing if there is no place, or that takes longer than `patience`.
    pub(crate) async fn take_turn<T: Send + 'static>(
        &self,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = timeout(patience, self.turn()).await.ok()??;
        // Until it is done, also if the caller is gone by then.
        let looked = spawn_blocking(move || {
            let found = look();
            drop(turn);
            found
        });
        looked.await.ok()
    }

    /// The same, and nobody waits for it any longer than `patience`: what has its turn by then is done all the same.
    pub(crate) async fn take_turn_within<T: Send + 'static>(
        &self,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        timeout(patience, self.take_turn(patience, look)).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_or_waits_too_long_is_not_known() {
        const PATIENCE: Duration = Duration::from_secs(5);
        let queue = Queue::new(1, 2);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let mut begun = Box::pin(queue.take_turn(PATIENCE, move || ended.recv().is_err()));
        assert!((&mut begun).now_or_never().is_none());
        // Its caller is gone; it takes a thread all the same.
        drop(begun);
        let mut waiting = Box::pin(queue.take_turn(PATIENCE, || ()));
        let mut next = Box::pin(queue.take_turn(PATIENCE, || ()));
        assert!((&mut waiting).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        assert_eq!(queue.take_turn(PATIENCE, || ()).now_or_never(), Some(None), "there is no place");
        // By hand: the clock does not go on by itself while a thread is busy.
        tokio::time::advance(PATIENCE / 2).await;
        assert!((&mut waiting).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        tokio::time::advance(PATIENCE).await;
        assert_eq!((waiting.now_or_never(), next.now_or_never()), (Some(None), Some(None)));
        drop(end);
        let _done = queue.turns.acquire().await.unwrap();
        assert_eq!(queue.places.available_permits(), 3, "and no place is lost");
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_for_a_disk_that_stands_still_one_takes_a_thread() {
        const PATIENCE: Duration = Duration::from_secs(1);
        let queue = Queue::new(1, 100);
        let begun = Arc::new(AtomicUsize::new(0));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let mut first = Box::pin(queue.take_turn_within(PATIENCE, move || ended.recv().is_err()));
        assert!((&mut first).now_or_never().is_none());
        for _ in 0..3 {
            let store = || {
                let begun = begun.clone();
                Box::pin(queue.take_turn_within(PATIENCE, move || begun.fetch_add(1, Relaxed)))
            };
            let mut waiting: Vec<_> = (0..30).map(|_| store()).collect();
            assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
            tokio::time::advance(PATIENCE * 2).await;
            assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never() == Some(None)), "it goes on");
        }
        assert_eq!(first.now_or_never(), Some(None), "and so does who has its turn");
        assert_eq!(begun.load(Relaxed), 0);
        drop(end);
        assert_eq!(queue.take_turn_within(PATIENCE, || ()).await, Some(()), "it goes on when the disk does");
    }
}
