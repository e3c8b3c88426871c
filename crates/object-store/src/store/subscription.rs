//! One subscription: the log that counts, the one that is being listed, and files that are to go.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    disk::{Disk, remove_if_there},
    error::{Error, failed},
    frame::{Frame, Kind},
    log::{Identity, Log, sync_names},
    record::{Change, Record},
    segment::{Header, Name},
    statistics::Counters,
};

/// Nonce and tag of a sealed body.
const SEAL_LENGTH: usize = 28;

/// A subscription.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// The number of the last list that was begun, or of the last word that all is dropped.
    pub(super) generation: u64,
    /// The log of the last whole list.
    pub(super) current: Option<Log>,
    /// The log of a list that is not whole yet.
    pub(super) building: Option<Log>,
    /// Files that could not be read; they stay until a new list is whole.
    pub(super) kept: Vec<PathBuf>,
    /// One of them, if they are sealed with another key: then they stay until the subscription is dropped.
    pub(super) locked: Option<PathBuf>,
    /// Files to remove once all that was appended is durable.
    pub(super) doomed: Vec<PathBuf>,
    /// Files of lists that were never whole: nothing has to be durable before they are removed.
    pub(super) unfinished: Vec<PathBuf>,
    /// Words that all is dropped, to remove after them.
    pub(super) markers: Vec<Marker>,
    /// How many lists are being written elsewhere, whose files may still come.
    pub(super) away: usize,
}

/// A file that says that all before it is dropped.
#[derive(Debug)]
pub(super) struct Marker {
    pub(super) word: Arc<Word>,
    /// Whether it is, or was, written elsewhere, so that its name may wait for the disk.
    pub(super) is_away: bool,
}

/// Its content, until it is on the disk. Whoever writes it locks that: two would share the file.
#[derive(Debug)]
pub(super) struct Word {
    path: PathBuf,
    content: Mutex<Option<Vec<u8>>>,
}

impl Marker {
    fn new(path: PathBuf, content: Vec<u8>) -> Self {
        let content = Mutex::new(Some(content));
        Self { word: Arc::new(Word { path, content }), is_away: false }
    }

    /// One that is there.
    pub(super) fn found(path: PathBuf) -> Self {
        Self { word: Arc::new(Word { path, content: Mutex::new(None) }), is_away: false }
    }
}

impl Word {
    /// Writes it if it was not written yet, after `begin`.
    pub(super) fn write(
        &self,
        begin: impl FnOnce() -> Result<(), Error>,
        disk: &dyn Disk,
        counters: &Counters,
    ) -> Result<(), Error> {
        let mut unwritten = self.content.lock();
        let Some(content) = unwritten.as_ref() else { return Ok(()) };
        begin()?;
        disk.create(&self.path, content).map_err(failed("write", &self.path))?;
        counters.wrote(content.len());
        *unwritten = None;
        Ok(())
    }
}

/// What a record would be put into.
#[derive(Clone, Copy)]
enum Target {
    Nothing,
    List,
    /// Events after this version.
    Events(u64),
}

impl Subscription {
    /// Refuses records that do not fit what is there, before any of them is taken.
    pub(super) fn check(&self, place: &Identity, records: &[Record]) -> Result<(), Error> {
        let subscription = || place.subscription.clone();
        if let (Some(path), false) = (&self.locked, matches!(records.first(), Some(Record::Drop))) {
            return Err(Error::WrongKey { path: path.clone() });
        }
        let mut target = match (&self.building, &self.current) {
            (Some(_), _) => Target::List,
            (None, Some(log)) => Target::Events(log.version),
            (None, None) => Target::Nothing,
        };
        for record in records {
            let early = |what| Err(Error::NotBegun { subscription: subscription(), what });
            target = match (record, target) {
                (Record::BeginSealed, _) if place.sealer.is_none() => {
                    return Err(Error::NoKey(subscription().to_string()));
                }
                (Record::Begin | Record::BeginSealed, _) => Target::List,
                (Record::Drop, _) => Target::Nothing,
                (Record::Put { .. } | Record::Delete { .. }, Target::Nothing) => return early("an object"),
                (Record::Complete { version }, Target::List) => Target::Events(*version),
                (Record::Complete { .. }, _) => return early("the end of a list"),
                (Record::Bookmark { version }, Target::Events(current)) => {
                    Target::Events(current.max(*version))
                }
                (Record::Bookmark { .. }, _) => return early("a bookmark"),
                (
                    Record::Put { key, version, body, .. } | Record::Delete { key, version, body },
                    Target::List | Target::Events(_),
                ) => {
                    if !Frame::fits(key.len(), body.len() + SEAL_LENGTH) {
                        let (key, body) = (key.len(), body.len());
                        return Err(Error::TooLong { subscription: subscription(), key, body });
                    }
                    match target {
                        Target::Events(current) if *version <= current => {
                            let version = *version;
                            return Err(Error::NotAhead { subscription: subscription(), version, current });
                        }
                        Target::Events(_) => Target::Events(*version),
                        Target::List | Target::Nothing => target,
                    }
                }
            };
        }
        Ok(())
    }

    /// Takes a record that [`Subscription::check`] let pass.
    pub(super) fn take(
        &mut self,
        place: &Identity,
        record: &Record,
        counters: &Counters,
    ) -> Result<(), Error> {
        let log = self.building.as_mut().or(self.current.as_mut());
        match record {
            Record::Begin => self.begin(Identity { sealer: None, ..place.clone() }),
            Record::BeginSealed => self.begin(place.clone()),
            Record::Put { key, version, body, change } => {
                let kind = match change {
                    Change::Added => Kind::Added,
                    Change::Modified => Kind::Modified,
                    Change::Deleted => Kind::Deleted,
                };
                counters.given(key.len() + body.len());
                log.map_or(Ok(()), |log| log.put(kind, key, *version, body))?;
            }
            Record::Delete { key, version, body } => {
                counters.given(key.len() + body.len());
                log.map_or(Ok(()), |log| log.put(Kind::Deleted, key, *version, body))?;
            }
            Record::Complete { version } => {
                if let Some(mut log) = self.building.take() {
                    log.complete(*version);
                    let old = self.current.replace(log);
                    self.doomed.extend(old.iter().flat_map(Log::files));
                    self.doomed.append(&mut self.kept);
                }
            }
            Record::Bookmark { version } => {
                if let Some(log) = log {
                    log.bookmark(*version);
                }
            }
            Record::Drop => self.drop_all(place),
        }
        Ok(())
    }

    fn begin(&mut self, identity: Identity) {
        self.generation += 1;
        let log = Log::new(Identity { generation: self.generation, ..identity });
        let unfinished = self.building.replace(log);
        self.unfinished.extend(unfinished.iter().flat_map(Log::files));
    }

    fn drop_all(&mut self, place: &Identity) {
        let logs: Vec<Log> = self.building.take().into_iter().chain(self.current.take()).collect();
        self.doomed.extend(logs.iter().flat_map(Log::files));
        self.doomed.append(&mut self.kept);
        self.locked = None;
        if self.doomed.is_empty() && self.unfinished.is_empty() && self.away == 0 {
            return;
        }
        self.generation += 1;
        let (name, generation) = (place.name.clone(), self.generation);
        let header = Header {
            subscription: place.subscription.clone(),
            generation,
            first: 0,
            last: 0,
            complete: false,
            dropped: true,
            rewritten: false,
            sealed: None,
            version: 0,
            floor: crate::segment::Floor::default(),
        };
        let mut content = Vec::new();
        header.encode(&mut content);
        let path = Name { subscription: name, generation, first: 0, last: 0 }.path(&place.dir);
        self.markers.push(Marker::new(path, content));
    }

    /// Writes what waits.
    pub(super) fn flush(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        counters: &Counters,
        names: &mut bool,
    ) -> Result<(), Error> {
        for marker in &self.markers {
            *names |= marker.is_away;
            let begin = || {
                sync_names(disk, dir, names)?;
                *names = true;
                Ok(())
            };
            marker.word.write(begin, disk, counters)?;
        }
        for log in self.current.iter_mut().chain(self.building.iter_mut()) {
            log.flush(disk, counters, names)?;
        }
        Ok(())
    }

    /// Removes files that nothing needs; what replaces them must be durable. Says in `names` that the folder must be synced
    /// before a file can take the name of one of them.
    pub(super) fn remove_files(&mut self, disk: &dyn Disk, names: &mut bool) -> Result<(), Error> {
        if let Some(log) = &mut self.current {
            remove_all(disk, &mut log.replaced)?;
        }
        *names |= !self.doomed.is_empty();
        remove_all(disk, &mut self.doomed)?;
        self.remove_unfinished(disk, names)
    }

    /// The same of lists that were never whole, which takes no room.
    pub(super) fn remove_unfinished(&mut self, disk: &dyn Disk, names: &mut bool) -> Result<(), Error> {
        *names |= !self.unfinished.is_empty();
        remove_all(disk, &mut self.unfinished)
    }

    /// Removes the words that all is dropped; what they drop must be gone for good, so not while more of it may come.
    pub(super) fn remove_markers(&mut self, disk: &dyn Disk) -> Result<(), Error> {
        if self.away > 0 {
            return Ok(());
        }
        while let Some(marker) = self.markers.last() {
            let path = &marker.word.path;
            remove_if_there(disk, path).map_err(failed("remove", path))?;
            self.markers.pop();
        }
        Ok(())
    }

    /// Whether it has nothing but a log that is whole.
    pub(super) fn is_simple(&self) -> bool {
        self.building.is_none() && self.markers.is_empty()
    }

    pub(super) fn logs(&self) -> impl Iterator<Item = &Log> {
        self.current.iter().chain(self.building.iter())
    }

    /// The log of that list.
    pub(super) fn log_mut(&mut self, generation: u64) -> Option<&mut Log> {
        let mut logs = self.current.iter_mut().chain(self.building.iter_mut());
        logs.find(|log| log.identity.generation == generation)
    }

    pub(super) fn backlog(&self) -> u64 {
        self.logs().map(Log::backlog).sum()
    }

    /// Whether all that was appended to it is on the disk, but for names.
    pub(super) fn is_written(&self) -> bool {
        let said = |marker: &Marker| !marker.is_away && marker.word.content.lock().is_none();
        self.markers.iter().all(said) && self.logs().all(Log::is_durable)
    }

    /// Whether anything waits for the disk.
    pub(super) fn is_busy(&self) -> bool {
        let removes = !self.doomed.is_empty() || !self.unfinished.is_empty();
        removes || !self.markers.is_empty() || self.logs().any(|log| !log.is_durable())
    }

    /// Whether there is nothing to know about it.
    pub(super) fn is_forgotten(&self) -> bool {
        let nothing = self.current.is_none() && self.building.is_none() && self.kept.is_empty();
        let removed = self.doomed.is_empty() && self.unfinished.is_empty();
        nothing && removed && self.markers.is_empty() && self.away == 0
    }
}

/// Removes files, the last first, so that what is left of a log after a crash is the beginning of it. Those that could
/// not be removed stay in the list.
pub(super) fn remove_all(disk: &dyn Disk, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    while let Some(path) = paths.last() {
        remove_if_there(disk, path).map_err(failed("remove", path))?;
        paths.pop();
    }
    Ok(())
}
