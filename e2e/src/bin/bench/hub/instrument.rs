//! Where the benchmark's own part of what it measures runs: the link, and the watchers that read the time.
//!
//! On a node neither competes with an API server and sixteen writers for two processors. Here they would, and what they wait for one
//! would pass for what the hub takes, or the API server beside it; so they come before everything else that runs.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

/// setpriority(2): before all that root has not raised itself.
const NICE: i32 = -15;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
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
