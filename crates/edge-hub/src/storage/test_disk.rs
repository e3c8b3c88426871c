//! A disk for tests: it can be full, and it can be slow.

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
    is_shut: bool,
    waiting: usize,
}

impl TestDisk {
    /// It takes no more bytes, or does again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
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

    fn room(&self) -> io::Result<()> {
        if self.state.lock().is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
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
        self.room()?;
        RealDisk.create(path, content)
    }
    fn write(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        self.wait();
        self.room()?;
        RealDisk.write(path, offset, content)
    }
    fn write_soon(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        self.room()?;
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
