//! Where the benchmark's own part of what it measures runs: the link, and the watchers that read the time.
//!
//! A node has processors of its own. Here an API server and sixteen writers run on the same two, and what the hub or a reader waits for
//! them would pass for what the hub takes. So the hub, its link and its clients come before everything, and none of them before another: a
//! reader that interrupts the hub after each of a hundred writes doubles what they take. Watchers of the API server's own are read in the
//! same way.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

/// setpriority(2): before all that root has not raised itself.
pub(super) const NICE: i32 = -20;

/// How much this session, with the hub in it, comes before others where the kernel weighs sessions: sched(7), autogroup.
const SESSION_NICE: &str = "-10";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // Without autogroups there is no such file, and the threads' own priority counts.
    let _ = std::fs::write("/proc/self/autogroup", SESSION_NICE);
    Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(|| {
            // Without the right to it the figures are those of a machine that is busy.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        })
        .enable_all()
        .build()
        .expect("threads of the benchmark")
});

/// Runs it there, with all that it spawns.
pub(super) async fn run<F>(future: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    RUNTIME.spawn(future).await.expect("the benchmark's own part ends by itself")
}
