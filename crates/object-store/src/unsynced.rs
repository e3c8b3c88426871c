//! Waiting for the disk without the store: what the system was given, taken out of the store, waited for, and told to it again.

use std::{path::Path, sync::Arc};

use crate::{disk::Disk, log::Waiting};

/// Files of which the system has more than the disk.
#[derive(Debug)]
pub struct Unsynced {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    pub(crate) logs: Vec<UnsyncedLog>,
    /// How many changes of names there were, if the disk does not have them all.
    pub(crate) names: Option<u64>,
}

/// Those of one log.
#[derive(Debug)]
pub(crate) struct UnsyncedLog {
    /// What stands for the subscription in the names of files.
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) files: Vec<Waiting>,
}

/// What the disk has of what was waited for; for [`Store::synced`](crate::Store::synced).
#[derive(Debug)]
pub struct Synced {
    pub(crate) unsynced: Unsynced,
    /// For each log, how many of its files; one that failed says nothing of those behind it.
    pub(crate) counts: Vec<usize>,
    pub(crate) names: bool,
}

impl Unsynced {
    /// Waits until the disk has what these files hold now.
    pub fn wait(self) -> Synced {
        let synced = |log: &UnsyncedLog| {
            log.files.iter().take_while(|waiting| self.disk.sync(&waiting.path).is_ok()).count()
        };
        let counts: Vec<usize> = self.logs.iter().map(synced).collect();
        let names = self.names.is_some() && self.disk.sync_dir(&self.dir).is_ok();
        Synced { unsynced: self, counts, names }
    }
}
