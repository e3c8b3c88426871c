//! Small files by name, each replaced as a whole: discovery, tokens, answers of reviews.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    disk::{Disk, FolderLock, remove_if_there},
    error::{Error, failed},
    frame::{Frame, Kind, Parsed},
    seal::{KeyId, Sealer, binding},
    segment::hex,
    statistics::Counters,
};

/// Blobs are bound to this in the place of a subscription.
const BOUND_TO: &str = "blob";

/// The store's blobs. They are files of their own, so whoever waits for the disk to have one keeps no record from the store.
pub struct Blobs {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    sealer: Option<Arc<Sealer>>,
    counters: Arc<Counters>,
    /// Held by who writes: two that write the same blob would share its temporary file.
    writing: Mutex<()>,
    _lock: FolderLock,
}

/// What [`Blobs::check`] found.
#[derive(Debug, Default)]
pub struct Checked {
    /// How many files were looked at.
    pub count: usize,
    /// What is wrong with which, in the order of their names; none where the file does not say it any more.
    pub problems: Vec<(Option<String>, Error)>,
}

impl Blobs {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        sealer: Option<Arc<Sealer>>,
        counters: Arc<Counters>,
        lock: FolderLock,
    ) -> Self {
        Blobs { disk, dir, sealer, counters, writing: Mutex::new(()), _lock: lock }
    }

    /// Stores `content` as `name`. When it returns, the content is on the disk; after a crash before that, it is the old
    /// content or the new.
    pub fn put(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.store(Kind::Blob, name, content.len(), content)
    }

    /// As [`Blobs::put`], encrypted.
    pub fn put_sealed(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let sealer = self.sealer.as_ref().ok_or_else(|| Error::NoKey(name.to_owned()))?;
        let bound = binding(BOUND_TO, name.as_bytes(), 0);
        let mut body = sealer.id().to_vec();
        body.extend(sealer.seal(&bound, content).ok_or(Error::Seal)?);
        self.store(Kind::SealedBlob, name, content.len(), &body)
    }

    /// What is stored as `name`.
    pub fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let path = self.path(name);
        let mut file = Vec::new();
        match self.disk.read(&path, &mut file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(failed("read", &path))?,
        }
        match whole(&file) {
            Some(frame) if frame.key == name.as_bytes() => self.content(name, &path, &frame).map(Some),
            _ => Err(Error::Damaged { path }),
        }
    }

    /// Reads all that is stored, and opens what is sealed: how many there are, and those that cannot be read or are not as they were written. Each
    /// with its name, where the file still says it.
    pub fn check(&self) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let mut file = Vec::new();
        for name in self.disk.list(&self.dir).map_err(failed("list", &self.dir))? {
            let path = self.dir.join(&name);
            // What an interrupted write left is nobody's.
            if path.extension().is_some_and(|extension| extension == "new") {
                continue;
            }
            match self.disk.read(&path, &mut file) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => checked.problems.push((None, failed("read", &path)(error).into())),
                Ok(()) => {
                    let frame = whole(&file);
                    let named = frame.as_ref().and_then(|frame| {
                        let name = std::str::from_utf8(frame.key).ok()?;
                        (self.path(name) == path).then_some((name, frame))
                    });
                    match named {
                        Some((name, frame)) => {
                            let problem = self.content(name, &path, frame).err();
                            checked.problems.extend(problem.map(|problem| (Some(name.to_owned()), problem)));
                        }
                        None => checked.problems.push((None, Error::Damaged { path })),
                    }
                }
            }
            checked.count += 1;
        }
        checked.problems.sort_by_cached_key(|(name, problem)| (name.clone(), problem.to_string()));
        Ok(checked)
    }

    /// The names of all that is stored, but of what cannot be read. All of it is read for that.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let mut file = Vec::new();
        for path in self
            .disk
            .list(&self.dir)
            .map_err(failed("list", &self.dir))?
            .iter()
            .map(|name| self.dir.join(name))
        {
            if self.disk.read(&path, &mut file).is_err() {
                continue;
            }
            if let Parsed::Frame(frame, _) = Frame::parse(0, &file)
                && let Ok(name) = std::str::from_utf8(frame.key)
                && self.path(name) == path
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Removes what is stored as `name`.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.remove_all([name])
    }

    /// Removes what is stored under these names; the disk is waited for once.
    pub fn remove_all<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let _writing = self.writing.lock();
        for name in names {
            let path = self.path(name);
            remove_if_there(self.disk.as_ref(), &path).map_err(failed("remove", &path))?;
        }
        self.disk.sync_dir(&self.dir).map_err(failed("sync", &self.dir))?;
        Ok(())
    }

    fn content(&self, name: &str, path: &Path, frame: &Frame<'_>) -> Result<Bytes, Error> {
        match frame.kind {
            Kind::Blob => Ok(Bytes::copy_from_slice(frame.body)),
            Kind::SealedBlob => self.open(name, path, frame.body),
            _ => Err(Error::Damaged { path: path.to_owned() }),
        }
    }

    fn open(&self, name: &str, path: &Path, body: &[u8]) -> Result<Bytes, Error> {
        let damaged = || Error::Damaged { path: path.to_owned() };
        let (id, content) = body.split_first_chunk::<{ size_of::<KeyId>() }>().ok_or_else(damaged)?;
        let sealer = self.sealer.as_ref().filter(|sealer| sealer.id() == *id);
        let sealer = sealer.ok_or_else(|| Error::WrongKey { path: path.to_owned() })?;
        let bound = binding(BOUND_TO, name.as_bytes(), 0);
        sealer.open(&bound, content).map(Bytes::from).ok_or_else(damaged)
    }

    fn store(&self, kind: Kind, name: &str, given: usize, body: &[u8]) -> Result<(), Error> {
        if !Frame::fits(name.len(), body.len()) {
            return Err(Error::TooLong { subscription: name.into(), key: name.len(), body: body.len() });
        }
        let mut file = Vec::new();
        Frame { kind, sequence: 0, version: 0, key: name.as_bytes(), body }.encode(0, &mut file);
        let path = self.path(name);
        let temporary = path.with_extension("new");
        let _writing = self.writing.lock();
        self.disk.create(&temporary, &file).map_err(failed("write", &temporary))?;
        self.disk.rename(&temporary, &path).map_err(failed("rename", &temporary))?;
        self.disk.sync_dir(&self.dir).map_err(failed("sync", &self.dir))?;
        self.counters.given(name.len() + given);
        self.counters.wrote(file.len());
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(hex(name.as_bytes())).with_extension("blob")
    }
}

/// The one frame that a file is.
fn whole(file: &[u8]) -> Option<Frame<'_>> {
    match Frame::parse(0, file) {
        Parsed::Frame(frame, length) if length == file.len() => Some(frame),
        _ => None,
    }
}

impl std::fmt::Debug for Blobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blobs").field("dir", &self.dir).finish_non_exhaustive()
    }
}
