//! Documents that a restart must find: what the disk does not take now is kept in memory, and written again.

use std::collections::BTreeMap;

use tracing::{info, warn};

use super::Storage;

/// What the disk did not take, by the name of the document.
pub(super) type UnwrittenBlobs = BTreeMap<String, Unwritten>;

/// A document that the disk did not take.
pub(super) struct Unwritten {
    content: Vec<u8>,
    why: String,
}

impl Storage {
    /// Keeps a document, atomically, and again later if the disk does not take it now: that a right was revoked, say, must not be forgotten
    /// because the disk was full for a while. [`Storage::unstored`] tells of it until then. All that is written under the name must go this way.
    pub fn keep_blob(&self, name: &str, content: &[u8]) {
        let mut unwritten = self.unwritten.lock();
        match self.put_blob(name, content) {
            Ok(()) => _ = unwritten.remove(name),
            Err(error) => {
                let kept = Unwritten { content: content.to_vec(), why: error.to_string() };
                if unwritten.insert(name.to_owned(), kept).is_none() {
                    warn!(name, %error, "what a restart should find cannot be stored; it is tried again");
                }
            }
        }
    }

    /// Writes what the disk did not take before. Waits for the disk.
    pub fn write_again(&self) {
        self.unwritten.lock().retain(|name, unwritten| match self.put_blob(name, &unwritten.content) {
            Ok(()) => {
                info!(name, "stored, after the disk did not take it");
                false
            }
            Err(error) => {
                unwritten.why = error.to_string();
                true
            }
        });
    }

    /// Which documents the disk does not take, and why.
    pub(super) fn unwritten_blobs(&self) -> Vec<String> {
        let unwritten = self.unwritten.lock();
        unwritten.iter().map(|(name, Unwritten { why, .. })| format!("{name}: {why}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::test_disk::TestDisk;

    #[test]
    fn what_a_full_disk_did_not_take_is_written_when_it_has_room_and_the_newest_counts() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(TestDisk::default());
        let open = || Storage::open_on(disk.clone(), folder.path(), [7; 32]).unwrap().0;
        let storage = open();
        storage.keep_blob("rights", b"allowed");
        disk.fill(true);
        storage.keep_blob("rights", b"refused");
        storage.keep_blob("other", b"new");
        storage.keep_blob("gone", b"x");
        storage.write_again();
        assert_eq!(storage.unstored().len(), 3, "{:?}", storage.unstored());
        storage.remove_blob("gone").unwrap();
        disk.fill(false);
        storage.keep_blob("other", b"newer");
        storage.write_again();
        assert_eq!(storage.unstored(), Vec::<String>::new());
        drop(storage);
        let storage = open();
        for (name, content) in [("rights", Some(&b"refused"[..])), ("other", Some(b"newer")), ("gone", None)]
        {
            assert_eq!(storage.blob(name).as_deref(), content, "{name}");
        }
    }
}
