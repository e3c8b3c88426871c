//! A disk for tests: it can be full or small, it can be slow, and it can refuse to put files in order.

use std::{io, path::Path, time::Duration};

use object_store::{Disk, RealDisk};
use parking_lot::{Condvar, Mutex};

/// A real disk, but for that.
#[derive(Debug, Default)]
pub(crate) struct TestDisk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_full: bool,
    /// How many bytes there are for all files of a folder.
    size: Option<u64>,
    /// Files that are written anew, from others or in the place of one, are not taken.
    keeps_files: bool,
    is_shut: bool,
    waiting: usize,
}

impl TestDisk {
    /// It takes no more bytes, or does again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    /// All files of a folder have so many bytes at most.
    pub(crate) fn limit(&self, size: u64) {
        self.state.lock().size = Some(size);
    }

    /// No file takes the place of others from now on.
    pub(crate) fn keep_files(&self) {
        self.state.lock().keeps_files = true;
    }

    /// Who waits for the disk does so from now on, or no longer.
    pub(crate) fn shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.changed.notify_all();
    }

    /// Waits until so many wait for the disk.
    pub(crate) fn until_waiting(&self, count: usize) {
        let mut state = self.state.lock();
        let late = Duration::from_secs(30);
        let waited = self.changed.wait_while_for(&mut state, |state| state.waiting < count, late);
        assert!(!waited.timed_out(), "only {} wait for the disk", state.waiting);
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_shut);
        state.waiting -= 1;
    }

    /// Whether there is room for a file that ends there.
    fn room(&self, path: &Path, end: u64) -> io::Result<()> {
        let State { is_full, size, keeps_files, .. } = *self.state.lock();
        let is_too_much = size.is_some_and(|size| {
            let others = std::fs::read_dir(path.parent().unwrap()).unwrap().filter_map(|entry| {
                let entry = entry.unwrap();
                (entry.path() != path).then(|| entry.metadata().unwrap().len())
            });
            others.sum::<u64>() + end > size
        });
        let is_anew = path.extension().is_some_and(|extension| extension == "new");
        let is_refused = is_full || is_too_much || keeps_files && is_anew;
        if is_refused { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for TestDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }
    fn read(&self, path: &Path, content: &mut Vec<u8>) -> io::Result<()> {
        RealDisk.read(path, content)
    }
    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.wait();
        self.room(path, content.len() as u64)?;
        RealDisk.create(path, content)
    }
    fn write(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        self.wait();
        self.room(path, offset + content.len() as u64)?;
        RealDisk.write(path, offset, content)
    }
    fn write_soon(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        self.room(path, offset + content.len() as u64)?;
        RealDisk.write_soon(path, offset, content)
    }
    fn sync(&self, path: &Path) -> io::Result<()> {
        self.wait();
        RealDisk.sync(path)
    }
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.wait();
        RealDisk.truncate(path, length)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.wait();
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.wait();
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.wait();
        RealDisk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealDisk.lock(path)
    }
}
