//! The node's disk as it is: what is there can be read, and no change reaches it. Whoever opens a store on it believes that each was done.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use object_store::{Disk, RealDisk};
use parking_lot::Mutex;

/// That disk. What is put into files is forgotten, since a store reads none again that it wrote while it was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Untouched {
    removed: Arc<Mutex<Vec<PathBuf>>>,
}

impl Untouched {
    /// What would have been removed.
    pub(super) fn removed(&self) -> Vec<PathBuf> {
        self.removed.lock().clone()
    }
}

impl Disk for Untouched {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match RealDisk.list(dir) {
            // It would have been made before.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }
    fn read(&self, path: &Path, content: &mut Vec<u8>) -> io::Result<()> {
        RealDisk.read(path, content)
    }
    fn create(&self, _path: &Path, _content: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, _path: &Path, _offset: u64, _content: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn write_soon(&self, _path: &Path, _offset: u64, _content: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn truncate(&self, _path: &Path, _length: u64) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.removed.lock().push(path.to_owned());
        Ok(())
    }
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        // A running hub has it, and keeps it.
        Ok(Box::new(()))
    }
}
