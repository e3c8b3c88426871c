//! Tasks that outlive the request that began them, all of them counted and ended with the process.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Spawns tasks and waits for them at the end.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl Tasks {
    /// Tasks that end when `shutdown` does.
    pub fn new(shutdown: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), shutdown }
    }

    /// Runs `task` until it is done or the process ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Runs `task` on a thread of its own; the end of the process waits for it.
    pub fn spawn_blocking(&self, task: impl FnOnce() + Send + 'static) {
        self.tracker.spawn_blocking(task);
    }

    /// Whether the process is ending.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Waits until all tasks are done; to be called once the shutdown is on its way.
    pub async fn wait(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
