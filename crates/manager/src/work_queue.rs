//! A work queue by key: a key that is asked for many times is worked on once, never twice at a time, and again later
//! when its work asks for it.

use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use kube::runtime::scheduler::{ScheduleRequest, debounced_scheduler};
use std::collections::HashSet;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Works on the keys that arrive in `keys`, at most `concurrency` of them at a time, each no sooner than `settle` after
/// it was last asked for, so that a burst of changes is worked on once. `work` returns after how long it wants the same
/// key again, if at all. Ends when `shutdown` is cancelled and what was under way is done.
pub(crate) async fn run<K, W, F>(
    mut keys: mpsc::UnboundedReceiver<K>,
    concurrency: usize,
    settle: Duration,
    shutdown: CancellationToken,
    work: W,
) where
    K: Clone + Eq + Hash,
    W: Fn(K) -> F,
    F: Future<Output = Option<Duration>>,
{
    let (again, mut repeats) = mpsc::unbounded_channel();
    let asked = stream::poll_fn(move |cx| keys.poll_recv(cx))
        .map(|key| ScheduleRequest { message: key, run_at: Instant::now() });
    let repeated = stream::poll_fn(move |cx| repeats.poll_recv(cx));
    let mut scheduler = std::pin::pin!(debounced_scheduler(stream::select(asked, repeated), settle));
    let mut running = HashSet::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        let has_room = running.len() < concurrency && !shutdown.is_cancelled();
        if shutdown.is_cancelled() && under_way.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some((key, delay)) = under_way.next() => {
                running.remove(&key);
                if let Some(delay) = delay {
                    let request = ScheduleRequest { message: key, run_at: Instant::now() + delay };
                    // The receiver lives as long as this function.
                    let _ = again.send(request);
                }
            }
            () = shutdown.cancelled(), if has_room => {}
            next = async { scheduler.as_mut().hold_unless(|key| !running.contains(key)).next().await }, if has_room => {
                let Some(key) = next else { return };
                running.insert(key.clone());
                let work = work(key.clone());
                under_way.push(async move { (key, work.await) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_worked_on_once_and_never_twice_at_a_time() {
        let (send, keys) = mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let done: Arc<Mutex<BTreeMap<&str, usize>>> = Arc::default();
        let running: Arc<Mutex<HashSet<&str>>> = Arc::default();
        let queue = tokio::spawn({
            let (done, shutdown) = (Arc::clone(&done), shutdown.clone());
            run(keys, 4, Duration::from_millis(20), shutdown, move |key| {
                let (done, running) = (Arc::clone(&done), Arc::clone(&running));
                async move {
                    assert!(running.lock().insert(key), "{key} is worked on twice at a time");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    running.lock().remove(key);
                    *done.lock().entry(key).or_default() += 1;
                    None
                }
            })
        });
        for _ in 0..50 {
            send.send("a").unwrap();
            send.send("b").unwrap();
        }
        tokio::time::sleep(Duration::from_millis(70)).await;
        send.send("a").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        shutdown.cancel();
        queue.await.unwrap();
        assert_eq!(*done.lock(), BTreeMap::from([("a", 2), ("b", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_asks_for_it_is_done_again_after_its_delay() {
        let (send, keys) = mpsc::unbounded_channel();
        let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let shutdown = CancellationToken::new();
        let queue = tokio::spawn({
            let (times, shutdown) = (Arc::clone(&times), shutdown.clone());
            run(keys, 1, Duration::ZERO, shutdown, move |()| {
                let mut times = times.lock();
                times.push(Instant::now());
                std::future::ready((times.len() < 3).then_some(Duration::from_secs(5)))
            })
        });
        send.send(()).unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        shutdown.cancel();
        queue.await.unwrap();
        let times = times.lock();
        assert_eq!(times.len(), 3);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_what_is_under_way() {
        let (send, keys) = mpsc::unbounded_channel();
        let finished: Arc<Mutex<bool>> = Arc::default();
        let shutdown = CancellationToken::new();
        let queue = tokio::spawn({
            let (finished, shutdown) = (Arc::clone(&finished), shutdown.clone());
            run(keys, 1, Duration::ZERO, shutdown, move |()| {
                let finished = Arc::clone(&finished);
                async move {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    *finished.lock() = true;
                    None
                }
            })
        });
        send.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        shutdown.cancel();
        queue.await.unwrap();
        assert!(*finished.lock());
    }
}
