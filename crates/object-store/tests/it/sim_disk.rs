//! A disk in memory: any operation can fail or be the last, any write can be torn, and a loss of power forgets names that
//! were not synced and bytes whose write failed.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use object_store::Disk;
use parking_lot::Mutex;

#[derive(Clone, Debug, Default)]
struct File {
    /// What a reader sees.
    seen: Vec<u8>,
    /// What is there after a loss of power.
    durable: Vec<u8>,
    /// Writes that nobody waited for: a loss of power takes all of one, its end, its beginning, or nothing.
    loose: Vec<(usize, Vec<u8>)>,
}

impl File {
    /// The disk has all that a reader sees.
    fn settle(&mut self) {
        self.durable.clone_from(&self.seen);
        self.loose.clear();
    }

    /// The power goes; `fate` decides what is left of each loose write.
    fn lose_power(&mut self, fate: u64) {
        for (at, (offset, content)) in self.loose.drain(..).enumerate() {
            let thousandths = match fate >> (2 * at % 64) & 3 {
                0 => continue,
                1 => 1000,
                2 => 500,
                _ => 1500,
            };
            put_part(&mut self.durable, offset, &content, thousandths);
        }
        self.seen.clone_from(&self.durable);
    }
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, usize),
    Remove(PathBuf),
}

/// What happens at an operation. Of a write, the first so many thousandths reach the disk; above a thousand, all but the
/// first so many (less a thousand) do, as when blocks are written in another order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It fails with this error.
    Error(io::ErrorKind, usize),
    /// It and all after it fail.
    Crash(usize),
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    changes: Vec<NameChange>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
}

/// A disk that all clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// Makes the `after`-th operation from now (0 is the next) go wrong.
    pub(crate) fn fail(&self, after: u64, fault: Fault) {
        let mut state = self.0.lock();
        state.fault = Some((state.operations + after, fault));
    }

    /// How many operations there were.
    pub(crate) fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Whether a fault has not happened yet; it is taken away.
    pub(crate) fn calm(&self) -> bool {
        let mut state = self.0.lock();
        state.crashed = false;
        state.fault.take().is_some()
    }

    /// Whether the process is gone.
    pub(crate) fn is_crashed(&self) -> bool {
        self.0.lock().crashed
    }

    /// The process is gone; what it wrote is there.
    pub(crate) fn kill(&self) {
        self.calm();
    }

    /// The power is gone. Of the names that were not synced, those are there whose bit in `kept` is set; what is there of writes
    /// that nobody waited for, other bits say.
    pub(crate) fn lose_power(&self, kept: u64) {
        self.calm();
        let mut state = self.0.lock();
        let State { files, names, durable_names, changes, .. } = &mut *state;
        for (at, change) in changes.drain(..).enumerate() {
            if kept >> (at % 64) & 1 == 1 {
                apply(durable_names, change);
            }
        }
        *names = durable_names.clone();
        for (at, file) in files.iter_mut().enumerate() {
            // Few bits of `kept` are set where all of its values are tried, and files differ.
            file.lose_power(kept.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(u32::try_from(at).unwrap()));
        }
    }

    /// How many names were changed and not synced.
    pub(crate) fn unsynced_names(&self) -> usize {
        self.0.lock().changes.len()
    }

    /// A copy that shares nothing.
    pub(crate) fn copy(&self) -> SimDisk {
        let state = self.0.lock();
        let State { files, names, durable_names, changes, .. } = &*state;
        let (files, names) = (files.clone(), names.clone());
        let (durable_names, changes) = (durable_names.clone(), changes.clone());
        SimDisk(Arc::new(Mutex::new(State { files, names, durable_names, changes, ..State::default() })))
    }

    /// All files and their contents.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.0.lock();
        state.names.iter().map(|(path, file)| (path.clone(), state.files[*file].seen.clone())).collect()
    }

    /// Puts other content into a file, as a bad block would.
    pub(crate) fn spoil(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.0.lock();
        let file = state.names[path];
        state.files[file] = File { seen: content.clone(), durable: content, loose: Vec::new() };
    }

    /// Counts an operation; says how much of it is done before it fails, if it fails.
    fn step(&self) -> (parking_lot::MutexGuard<'_, State>, Option<(io::Error, usize)>) {
        let mut state = self.0.lock();
        let now = state.operations;
        state.operations += 1;
        if state.crashed {
            return (state, Some((io::Error::other("crashed"), 0)));
        }
        let fault = match state.fault {
            Some((at, fault)) if at == now => fault,
            _ => return (state, None),
        };
        state.fault = None;
        let failure = match fault {
            Fault::Error(kind, part) => (kind.into(), part),
            Fault::Crash(part) => {
                state.crashed = true;
                (io::Error::other("crashed"), part)
            }
        };
        (state, Some(failure))
    }

    fn change(&self, change: NameChange) -> io::Result<()> {
        let (mut state, failure) = self.step();
        // A change of a name is done or not done.
        if let Some((error, part)) = failure {
            if part >= 500 {
                apply(&mut state.names, change.clone());
                state.changes.push(change);
            }
            return Err(error);
        }
        apply(&mut state.names, change.clone());
        state.changes.push(change);
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: NameChange) {
    match change {
        NameChange::Set(path, file) => {
            // A rename takes the file's other name away.
            names.retain(|_, other| *other != file);
            names.insert(path, file);
        }
        NameChange::Remove(path) => {
            names.remove(&path);
        }
    }
}

fn put(into: &mut Vec<u8>, offset: usize, content: &[u8]) {
    into.resize(into.len().max(offset + content.len()), 0);
    into[offset..offset + content.len()].copy_from_slice(content);
}

/// Puts as much of `content` as the fault leaves.
fn put_part(into: &mut Vec<u8>, offset: usize, content: &[u8], thousandths: usize) {
    match thousandths.checked_sub(1000) {
        Some(hole) if hole > 0 => {
            // Of real disks a hole is a block; here it is at least the beginning of a record.
            let start = (content.len() * hole.min(1000) / 1000).max(16).min(content.len());
            put(into, offset + start, &content[start..]);
        }
        _ => put(into, offset, &content[..content.len() * thousandths / 1000]),
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        self.step().1.map_or(Ok(()), |(error, _)| Err(error))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let (state, failure) = self.step();
        if let Some((error, _)) = failure {
            return Err(error);
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn read(&self, path: &Path, content: &mut Vec<u8>) -> io::Result<()> {
        let (state, failure) = self.step();
        if let Some((error, _)) = failure {
            return Err(error);
        }
        let file = state.names.get(path).ok_or_else(missing)?;
        content.clone_from(&state.files[*file].seen);
        Ok(())
    }

    fn create(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (mut state, failure) = self.step();
        let file = state.files.len();
        let mut durable = Vec::new();
        put_part(&mut durable, 0, content, failure.as_ref().map_or(1000, |(_, part)| *part));
        let seen = if failure.is_some() && !state.crashed { content.to_vec() } else { durable.clone() };
        state.files.push(File { seen, durable, loose: Vec::new() });
        let change = NameChange::Set(path.to_owned(), file);
        apply(&mut state.names, change.clone());
        state.changes.push(change);
        failure.map_or(Ok(()), |(error, _)| Err(error))
    }

    fn write(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        let (mut state, failure) = self.step();
        let part = failure.as_ref().map_or(1000, |(_, part)| *part);
        let offset = usize::try_from(offset).unwrap();
        let crashed = state.crashed;
        let Some(file) = state.names.get(path).copied() else { return Err(missing()) };
        let file = &mut state.files[file];
        if failure.is_none() {
            put(&mut file.seen, offset, content);
            file.settle();
            return Ok(());
        }
        put_part(&mut file.durable, offset, content, part);
        put_part(&mut file.seen, offset, content, if crashed { part } else { 1000 });
        failure.map_or(Ok(()), |(error, _)| Err(error))
    }

    fn write_soon(&self, path: &Path, offset: u64, content: &[u8]) -> io::Result<()> {
        let (mut state, failure) = self.step();
        let part = failure.as_ref().map_or(1000, |(_, part)| *part);
        let offset = usize::try_from(offset).unwrap();
        let Some(file) = state.names.get(path).copied() else { return Err(missing()) };
        let file = &mut state.files[file];
        let before = file.seen.clone();
        put_part(&mut file.seen, offset, content, part);
        if file.seen != before {
            let seen = file.seen.get(offset..).unwrap_or_default().to_vec();
            file.loose.push((offset, seen));
        }
        failure.map_or(Ok(()), |(error, _)| Err(error))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let (mut state, failure) = self.step();
        if let Some((error, _)) = failure {
            return Err(error);
        }
        let file = *state.names.get(path).ok_or_else(missing)?;
        state.files[file].settle();
        Ok(())
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let (mut state, failure) = self.step();
        if let Some((error, _)) = failure {
            return Err(error);
        }
        let file = *state.names.get(path).ok_or_else(missing)?;
        let length = usize::try_from(length).unwrap();
        state.files[file].seen.truncate(length);
        state.files[file].settle();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = *self.0.lock().names.get(from).ok_or_else(missing)?;
        self.change(NameChange::Set(to.to_owned(), file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.0.lock().names.contains_key(path) {
            return Err(missing());
        }
        self.change(NameChange::Remove(path.to_owned()))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let (mut state, failure) = self.step();
        if let Some((error, _)) = failure {
            return Err(error);
        }
        let inside = |path: &Path| path.parent() == Some(dir);
        let State { names, durable_names, changes, .. } = &mut *state;
        durable_names.retain(|path, _| !inside(path));
        let now = names.iter().filter(|(path, _)| inside(path));
        durable_names.extend(now.map(|(path, file)| (path.clone(), *file)));
        changes.retain(|change| match change {
            NameChange::Set(path, _) | NameChange::Remove(path) => !inside(path),
        });
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.step().1.map_or(Ok(Box::new(())), |(error, _)| Err(error))
    }
}
