//! What waits for the disk, on threads where that holds up nobody else: a whole list, or that all is forgotten.
//!
//! Of one subscription one thing is written after another, in the order in which it was asked for. What was begun is written to its
//! end, also when nobody waits for it any more.

use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use crate::tasks::Tasks;

/// The writes of one subscription.
pub struct Writing {
    tasks: Tasks,
    turn: Arc<Mutex<()>>,
}

impl Writing {
    /// Nothing is written yet. The end of the process waits for what is.
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, turn: Arc::default() }
    }

    /// Writes, after all before it. When this returns it was written, or its thread has failed.
    pub async fn write(&self, write: impl FnOnce() + Send + 'static) {
        let turn = self.turn.clone().lock_owned().await;
        let (written, waiting) = oneshot::channel::<()>();
        self.tasks.spawn_blocking(move || {
            write();
            drop(turn);
            drop(written);
        });
        // Nothing is sent: it ends when the thread does.
        let _ = waiting.await;
    }

    /// Waits for all that was begun.
    pub(super) async fn done(&self) {
        drop(self.turn.lock().await);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::mpsc};

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn one_is_written_after_another_also_when_nobody_waits_for_the_first() {
        let writing = Arc::new(Writing::new(Tasks::default()));
        let (begun, started) = oneshot::channel();
        let (release, gate) = mpsc::channel::<()>();
        let (written, all) = mpsc::channel();
        let (first, second) = (written.clone(), written);
        let writes = writing.clone();
        let cut = tokio::spawn(async move {
            let write = move || {
                begun.send(()).unwrap();
                gate.recv().unwrap();
                first.send(1).unwrap();
            };
            writes.write(write).await;
        });
        started.await.unwrap();
        cut.abort();
        assert!(cut.await.unwrap_err().is_cancelled());
        let mut next = pin!(writing.write(move || second.send(2).unwrap()));
        let mut done = pin!(writing.done());
        assert!(poll!(next.as_mut()).is_pending() && poll!(done.as_mut()).is_pending());
        assert!(writing.turn.try_lock().is_err(), "it is the turn of the first");
        release.send(()).unwrap();
        next.await;
        done.await;
        assert_eq!(all.iter().collect::<Vec<_>>(), [1, 2]);
    }
}
