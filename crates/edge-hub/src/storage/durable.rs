//! What was written is made durable, and files are brought into order.

use std::time::Duration;

use object_store::{Compaction, Error, Statistics, Store};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Storage;

/// How long a change may wait for the disk, as long as in a file system by itself. The last page of each file is written with each sync, however
/// little of it is new: with many streams that change slowly a shorter time would cost more than the changes.
const SYNC: Duration = Duration::from_secs(5);

/// How many times in a row something may be written meanwhile before files are brought into order all the same.
const BUSY: u32 = 2;

/// How many bytes a step of compaction may move between two syncs, while there is not much to do.
const COMPACTION: u64 = 4 << 20;

/// How much more than twice what lives may stand in the files before compaction has to keep up with what is written, whoever waits for it.
pub(super) const SPARE: u64 = 16 << 20;

impl Storage {
    /// Makes what was written durable every five seconds, until `shutdown`, and once more then. Files are brought into order when nothing
    /// is written, and now and then else: whoever writes an event waits for that.
    pub async fn keep_durable(self, shutdown: CancellationToken) {
        let mut ticks = interval(SYNC);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut busy = 0;
        loop {
            let ending = tokio::select! {
                () = shutdown.cancelled() => true,
                _ = ticks.tick() => false,
            };
            let storage = self.clone();
            let patient = busy < BUSY && !ending;
            let synced = tokio::task::spawn_blocking(move || storage.tend(patient, ending)).await;
            match synced {
                Ok(Ok(in_order)) => busy = if in_order { 0 } else { busy + 1 },
                Ok(Err(error)) => warn!(%error, "what changed is not durable yet"),
                Err(error) => debug!(%error, "the sync was cut short"),
            }
            if ending {
                return;
            }
        }
    }

    /// Makes durable what was written, and brings files into order unless something was written meanwhile and that may wait. Says whether it did. At
    /// the `end` they are left nearly as they are.
    pub(super) fn tend(&self, patient: bool, end: bool) -> Result<bool, Error> {
        // Else it is noted by whoever stores what is remembered, which is more often.
        if end {
            self.keep_unreadable();
        }
        // The waiting is done here, while the store takes what comes.
        let unsynced = self.store.lock().unsynced();
        let waited = unsynced.wait();
        let mut unstored = self.unstored.lock();
        let mut store = self.store.lock();
        store.settle(waited)?;
        if patient && !store.is_durable() {
            drop(unstored);
            let excess = excess(&store);
            drop(store);
            self.compact(2 * excess);
            return Ok(false);
        }
        store.sync()?;
        // All that was taken is on the disk.
        unstored.retain(|_, unstored| unstored.hole.is_some());
        drop(unstored);
        let excess = if end { 0 } else { excess(&store) };
        drop(store);
        self.compact(COMPACTION + 2 * excess);
        Ok(true)
    }

    /// Brings files into order, of so many bytes. In small steps: whoever writes an event waits for each. One that fails takes nothing away from what
    /// was stored, and is tried again.
    fn compact(&self, mut budget: u64) {
        while budget > 0 {
            let step = self.store.lock().compact_step(budget.min(COMPACTION));
            match step {
                Ok(Compaction { moved, more: true }) => budget = budget.saturating_sub(moved.max(1)),
                Ok(_) => return,
                Err(error) => {
                    warn!(%error, "files of the store are not brought into order yet");
                    return;
                }
            }
        }
    }
}

/// How many bytes stand in the files beyond what may: what is written under steady changes is as soon dead.
pub(super) fn excess(store: &Store) -> u64 {
    let Statistics { length, live, .. } = store.statistics();
    length.saturating_sub(2 * live + SPARE)
}
