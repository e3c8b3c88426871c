//! Events reach the system at once, and the disk later: what was handed over is waited for without the log, which then takes note.

use std::path::PathBuf;

use super::{Chunk, Log};
use crate::{
    disk::Disk,
    error::{Error, failed},
    names::Names,
    statistics::Counters,
};

/// A file of which the disk may not have all that the system has.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) path: PathBuf,
    /// Its first number.
    pub(crate) first: u32,
    /// How much of it the system has.
    pub(crate) length: u64,
}

impl Log {
    /// Whether all that was appended is events, and the system has them.
    pub(crate) fn is_handed_over(&self) -> bool {
        let handed_over = |chunk: &Chunk| chunk.handed_over == chunk.bytes.len();
        self.listed && !self.is_unsettled() && self.pending.iter().all(handed_over)
    }

    /// Gives the system what waits, so that whoever opens the log after this process finds it; the disk has it after [`Log::flush`] or
    /// [`Log::synced`]. Waits for the disk only until a list is whole there: with an event comes its file if need be, and should the
    /// power take the end of the file before, the log ends there.
    pub(crate) fn hand_over(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut Names,
    ) -> Result<(), Error> {
        if !self.listed || self.is_unsettled() {
            return self.flush(disk, counters, names);
        }
        for at in 0..self.pending.len() {
            let Chunk { first, last, offset, bytes, handed_over, created, .. } = &self.pending[at];
            let (path, length, new) = (self.path(*first, *last), bytes.len(), &bytes[*handed_over..]);
            if new.is_empty() {
                continue;
            }
            if *created {
                disk.write_soon(&path, offset + *handed_over as u64, new)
            } else {
                names.changed();
                disk.create_soon(&path, new)
            }
            .map_err(failed("write", &path))?;
            counters.wrote(new.len());
            self.pending[at].handed_over = length;
            self.pending[at].created = true;
        }
        Ok(())
    }

    /// What the disk is to be waited for, after [`Log::hand_over`]: a file that is long enough is sealed before, so that with it all in
    /// it counts as durable.
    pub(crate) fn unsynced(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut Names,
    ) -> Result<Vec<Waiting>, Error> {
        if !self.is_handed_over() {
            return Ok(Vec::new());
        }
        self.roll_if_long(1);
        self.hand_over(disk, counters, names)?;
        let waiting = self.pending.iter().map(|chunk| Waiting {
            path: self.path(chunk.first, chunk.last),
            first: chunk.first,
            length: chunk.offset + chunk.bytes.len() as u64,
        });
        Ok(waiting.collect())
    }

    /// The disk has so much of a file, or it is not known what it has: the system may have forgotten what it was given, and all of it is
    /// written again.
    pub(crate) fn synced(&mut self, first: u32, length: Option<u64>) {
        let Some(chunk) = self.pending.iter_mut().find(|chunk| chunk.first == first) else { return };
        let Some(length) = length else {
            chunk.handed_over = 0;
            return;
        };
        // Files count in their order only: one behind a gap is waited for again.
        let Some(chunk) = self.pending.front_mut().filter(|chunk| chunk.first == first) else { return };
        let done = usize::try_from(length.saturating_sub(chunk.offset)).unwrap_or_default();
        let done = done.min(chunk.handed_over);
        if done == chunk.bytes.len() {
            self.first_is_durable();
        } else {
            chunk.bytes.drain(..done);
            chunk.offset += done as u64;
            chunk.handed_over -= done;
        }
        self.settle_history();
    }
}
