//! Documents: files of their own, for each of which the disk is waited for. Those that a restart must find, and the disk does not take now, are kept in
//! memory, are read from there, and are written again.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::Error;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::Storage;
use crate::offline::documents::unix_seconds;

/// What the disk did not take.
#[derive(Default)]
pub(super) struct Unwritten {
    by_name: Mutex<BTreeMap<String, Blob>>,
    /// Whose turn it is to write or remove: what was tried before must not come after what is newer. Who reads waits for no disk.
    pub(super) turn: Mutex<()>,
}

/// A document that the disk did not take.
struct Blob {
    content: Bytes,
    why: String,
}

impl Unwritten {
    /// Which, and why.
    pub(super) fn list(&self) -> Vec<String> {
        self.by_name.lock().iter().map(|(name, Blob { why, .. })| format!("{name}: {why}")).collect()
    }
}

impl Storage {
    /// Keeps a document, atomically.
    pub fn put_blob(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.blobs.put(name, content)?;
        self.forget_problem(name);
        Ok(())
    }

    /// Keeps a document that holds a secret, encrypted.
    pub fn put_sealed_blob(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.blobs.put_sealed(name, content)?;
        self.forget_problem(name);
        Ok(())
    }

    /// Keeps a document, atomically, and again later if the disk does not take it now: that a right was revoked, say, must not be forgotten
    /// because the disk was full for a while. [`Storage::unstored`] tells of it until then. All that is written under the name must go this way.
    pub fn keep_blob(&self, name: &str, content: &[u8]) {
        let _turn = self.unwritten.turn.lock();
        let written = self.put_blob(name, content);
        let mut unwritten = self.unwritten.by_name.lock();
        match written {
            Ok(()) => _ = unwritten.remove(name),
            Err(error) => {
                let blob = Blob { content: Bytes::copy_from_slice(content), why: error.to_string() };
                if unwritten.insert(name.to_owned(), blob).is_none() {
                    warn!(name, %error, "what a restart should find cannot be stored; it is tried again");
                }
            }
        }
    }

    /// Writes what the disk did not take before. Waits for the disk.
    pub fn write_again(&self) {
        let names: Vec<String> = self.unwritten.by_name.lock().keys().cloned().collect();
        for name in names {
            // Who keeps it anew or removes it meanwhile has had his turn before, or has it after.
            let _turn = self.unwritten.turn.lock();
            let content = self.unwritten.by_name.lock().get(&name).map(|blob| blob.content.clone());
            let Some(content) = content else { continue };
            let written = self.put_blob(&name, &content);
            let mut unwritten = self.unwritten.by_name.lock();
            match written {
                Ok(()) => {
                    info!(name, "stored, after the disk did not take it");
                    unwritten.remove(&name);
                }
                Err(error) => {
                    if let Some(blob) = unwritten.get_mut(&name) {
                        blob.why = error.to_string();
                    }
                }
            }
        }
    }

    /// Lets nobody else in who reads a document, changes it and writes it again.
    pub fn exclusively<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        let _turn = self.turn.lock();
        change(self)
    }

    /// Removes a document.
    pub fn remove_blob(&self, name: &str) -> Result<(), Error> {
        let _turn = self.unwritten.turn.lock();
        self.unwritten.by_name.lock().remove(name);
        self.blobs.remove(name)?;
        self.forget_problem(name);
        Ok(())
    }

    /// Removes all documents whose name is meant. Reads all that there are.
    pub fn remove_blobs(&self, is_meant: impl Fn(&str) -> bool) -> Result<(), Error> {
        let meant = self.blob_names(is_meant)?;
        if meant.is_empty() { Ok(()) } else { self.blobs.remove_all(meant.iter().map(String::as_str)) }
    }

    /// The names of all documents that are meant, but of those whose files do not say it any more. Reads all that there are.
    pub fn blob_names(&self, is_meant: impl Fn(&str) -> bool) -> Result<Vec<String>, Error> {
        let mut names = self.blobs.names()?;
        names.retain(|name| is_meant(name));
        Ok(names)
    }

    /// A document that was kept; `None` if there is none, or it cannot be read.
    pub fn blob(&self, name: &str) -> Option<Bytes> {
        if let Some(Blob { content, .. }) = self.unwritten.by_name.lock().get(name) {
            return Some(content.clone());
        }
        match self.blobs.get(name) {
            Ok(found) => {
                self.forget_problem(name);
                found
            }
            Err(error) => {
                if self.unreadable.lock().note(name, error.to_string(), unix_seconds()) {
                    warn!(name, %error, "a document cannot be read");
                }
                None
            }
        }
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
        assert_eq!(storage.blob("rights").as_deref(), Some(&b"refused"[..]), "what is kept is there");
        storage.remove_blob("gone").unwrap();
        assert_eq!(storage.blob("gone"), None);
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
