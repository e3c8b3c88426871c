//! Where the benchmark's own part of what it measures runs: the link, and the watchers that read the time.
//!
//! A node has processors of its own. Here an API server and sixteen writers run on the same two, and what the hub or a reader waits for
//! them would pass for what the hub takes. So the hub, its link and its clients come before everything, and none of them before another: a
//! reader that interrupts the hub after each of a hundred writes doubles what they take. Watchers of the API server's own are read in the
//! same way.

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// chrt(1), sched(7): real time at its lowest. A thread that is ready takes whichever processor has something else to do. By nice values, as
/// before, the hub's two threads and the readers' two stood behind each other on one, 4 ms each, and all of them for 40 ms.
pub(super) const FIRST: [&str; 3] = ["chrt", "--rr", "1"];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(come_first)
        .enable_all()
        .build()
        .expect("threads of the benchmark")
});

/// Puts this thread before everything.
fn come_first() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let [chrt, class, priority] = FIRST;
    // Without the right to it the figures are those of a machine that is busy.
    let _ = Command::new(chrt).args([class, "--pid", priority, &thread]).status();
}

/// Runs it there, with all that it spawns.
pub(super) async fn run<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    RUNTIME.spawn(future).await.expect("the benchmark's own part ends by itself")
}

/// Runs it in a thread of its own that comes as early, and waits.
pub(super) async fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    std::thread::spawn(move || {
        come_first();
        // Nobody waits any more where the benchmark ends.
        let _ = done.send(work());
    });
    result.await.context("a thread of the benchmark")
}

/// Processor time of the calling thread (proc(5), `schedstat`).
pub(super) fn cpu_of_thread() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().context("schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}
