//! Which names in the folder of logs wait for the disk.

use std::path::Path;

use crate::{
    disk::Disk,
    error::{Error, failed},
};

/// Counts the changes of names, so that those can be told that came while the disk was waited for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    changes: u64,
    durable: u64,
}

impl Names {
    /// A name was given, replaced, or taken away.
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    /// How many changes there were, if the disk does not have them all.
    pub(crate) fn waiting(&self) -> Option<u64> {
        (self.changes > self.durable).then_some(self.changes)
    }

    /// The folder was synced after so many changes.
    pub(crate) fn synced(&mut self, changes: u64) {
        self.durable = self.durable.max(changes);
    }

    /// Waits until the names in the folder are on the disk, if they are not.
    pub(crate) fn sync(&mut self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        if let Some(changes) = self.waiting() {
            disk.sync_dir(dir).map_err(failed("sync", dir))?;
            self.synced(changes);
        }
        Ok(())
    }
}
