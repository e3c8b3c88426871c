//! Reads a log back: the files of one generation become one whole state, or a word why not.
//!
//! Only the last file may end early: what is behind the first frame of it that does not read is as if it had never been
//! written, and if records are there it is told. Anything amiss in another file, or in one from which records were left out, makes the whole log damaged.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use bytes::Bytes;

use crate::{
    disk::Disk,
    frame::{Frame, Kind, Parsed},
    ledger::{ByKey, Entry, KeyHash},
    log::{Active, Identity, Log},
    record::{Change, ProblemKind, Restored, Stored, StoredEvent, SubscriptionId},
    seal::{Sealer, binding},
    segment::{Floor, Header, Name, Unread},
};

/// What the files of a generation are.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// A whole state; it is an earlier one if records of a file are lost behind one that is damaged. Else the file that ends in bytes that are no whole
    /// record, and how many.
    Whole(Box<Log>, Restored, Option<PathBuf>, Option<(PathBuf, usize)>),
    /// A list that was never whole: nothing. Whose it is, if a file says it; and whether all that is there reads, but for a last record that was not
    /// written to its end: else it may have been whole.
    Incomplete(Option<SubscriptionId>, bool),
    /// The word that all generations before are dropped.
    Dropped,
    /// Something is wrong.
    Problem(PathBuf, Option<SubscriptionId>, ProblemKind),
}

/// A problem on the way, and in which file.
struct Stop(PathBuf, Option<SubscriptionId>, ProblemKind);

/// The state while the files are read.
struct Reading<'a> {
    log: Log,
    sealer: Option<&'a Sealer>,
    /// Where in `objects` a key is.
    places: ByKey<usize>,
    objects: Vec<Option<Stored>>,
    history: VecDeque<(u64, StoredEvent)>,
    /// The greatest sequence that something was left out for.
    relied_on: u64,
    /// Where records are behind one that does not read.
    shortened: Option<PathBuf>,
    /// Where no records are behind it: how many bytes do not read.
    torn: Option<(PathBuf, usize)>,
    /// Whether what is there reads to its end, or to a record that the end of a process left half written.
    is_read: bool,
}

/// Reads the files `names` of one generation, in the order of their numbers and without left-overs. `buffer` is only
/// there to be used again.
pub(crate) fn load(
    disk: &dyn Disk,
    place: &Identity,
    sealer: Option<&Arc<Sealer>>,
    names: &[Name],
    buffer: &mut Vec<u8>,
) -> Loaded {
    match read(disk, place, sealer, names, buffer) {
        Ok(loaded) => loaded,
        Err(Stop(path, subscription, kind)) => Loaded::Problem(path, subscription, kind),
    }
}

fn read(
    disk: &dyn Disk,
    place: &Identity,
    sealer: Option<&Arc<Sealer>>,
    names: &[Name],
    buffer: &mut Vec<u8>,
) -> Result<Loaded, Stop> {
    let mut reading: Option<Reading<'_>> = None;
    let (mut next, mut last) = (0, None);
    for (at, name) in names.iter().enumerate() {
        let is_last = at + 1 == names.len();
        let path = name.path(&place.dir);
        let whose = reading.as_ref().map(|reading| reading.log.identity.subscription.clone());
        let damaged = |why| Stop(path.clone(), whose.clone(), ProblemKind::Damaged(why));
        disk.read(&path, buffer)
            .map_err(|error| Stop(path.clone(), whose.clone(), ProblemKind::Unreadable(error)))?;
        let (header, length, seed) = match Header::parse(buffer) {
            Ok(read) => read,
            // It was being created; what was before it is whole.
            Err(_) if is_last && at > 0 && name.first == name.last => {
                if let Some(reading) = &mut reading {
                    reading.is_read &= buffer.is_empty();
                    reading.torn = Some((path.clone(), buffer.len()));
                }
                break;
            }
            // Whoever is killed while it creates a file leaves none of the header: it is short.
            Err(Unread::Torn) if is_last => return Ok(Loaded::Incomplete(None, buffer.is_empty())),
            Err(_) => return Err(damaged("it has no header")),
        };
        if !header.belongs_to(name) {
            return Err(damaged("it is another file"));
        }
        if header.dropped {
            return Ok(Loaded::Dropped);
        }
        if header.sealed.is_some() && header.sealed != sealer.map(|sealer| sealer.id()) {
            return Err(Stop(path, Some(header.subscription), ProblemKind::WrongKey));
        }
        if name.first != next {
            // What is left of a list that was given up before it was whole is no damage.
            let was_whole = names[at..].iter().any(|name| tells_of_completeness(disk, name, place, buffer));
            return if was_whole {
                Err(damaged("a file before it is missing"))
            } else {
                Ok(Loaded::Incomplete(Some(header.subscription), false))
            };
        }
        next = name.last + 1;
        let reading = reading.get_or_insert_with(|| Reading::new(place, &header, sealer));
        if let Err(why) = reading.file(&header, length, seed, buffer, is_last, &path) {
            let whose = Some(reading.log.identity.subscription.clone());
            return Err(Stop(path, whose, ProblemKind::Damaged(why)));
        }
        (reading.log.next, last) = (next, Some(path));
    }
    let (Some(reading), Some(last)) = (reading, last) else { return Ok(Loaded::Incomplete(None, false)) };
    reading.finish(last)
}

/// Whether a file says that the list before it or in it is whole; one that cannot be read may.
fn tells_of_completeness(disk: &dyn Disk, name: &Name, place: &Identity, buffer: &mut Vec<u8>) -> bool {
    if disk.read(&name.path(&place.dir), buffer).is_err() {
        return true;
    }
    let (header, mut at, seed) = match Header::parse(buffer) {
        Ok(read) => read,
        Err(unread) => return unread == Unread::Garbled,
    };
    let mut complete = header.complete;
    while let Parsed::Frame(frame, length) = Frame::parse(seed, buffer.get(at..).unwrap_or_default()) {
        complete |= frame.kind == Kind::Complete;
        at += length;
    }
    complete
}

impl<'a> Reading<'a> {
    fn new(place: &Identity, header: &Header, sealer: Option<&'a Arc<Sealer>>) -> Self {
        let sealer = sealer.filter(|_| header.sealed.is_some());
        let identity = Identity {
            subscription: header.subscription.clone(),
            generation: header.generation,
            sealer: sealer.cloned(),
            ..place.clone()
        };
        Reading {
            log: Log::new(identity),
            sealer: sealer.map(AsRef::as_ref),
            places: ByKey::default(),
            objects: Vec::new(),
            history: VecDeque::new(),
            relied_on: 0,
            shortened: None,
            torn: None,
            is_read: true,
        }
    }

    fn file(
        &mut self,
        header: &Header,
        header_length: usize,
        seed: u32,
        content: &[u8],
        is_last: bool,
        path: &std::path::Path,
    ) -> Result<(), &'static str> {
        let first = header.first;
        self.log.ledger.begin(first, header.last, header_length as u64);
        self.log.complete |= header.complete;
        self.log.version = self.log.version.max(header.version);
        self.raise(header.floor);
        self.relied_on = self.relied_on.max(header.floor.sequence);
        let (mut at, mut frames) = (header_length, 0);
        let end = loop {
            match Frame::parse(seed, content.get(at..).unwrap_or_default()) {
                Parsed::Frame(frame, _) if frame.sequence <= self.log.sequence => break "its order is wrong",
                Parsed::Frame(frame, length) => {
                    self.frame(&frame, length, first)?;
                    at += length;
                    if frame.kind == Kind::Seal {
                        if frame.version != frames {
                            break "records are missing";
                        }
                        self.log.ledger.seal(first);
                        if at == content.len() {
                            return Ok(());
                        }
                        break "bytes follow its seal";
                    }
                    frames += 1;
                }
                Parsed::End => break "it has no seal",
                Parsed::Torn => break "it was cut short",
                Parsed::Garbled => break "a checksum is wrong",
            }
        };
        let rest = content.get(at..).unwrap_or_default();
        // A list that was cut short never was whole, and nobody misses it; one that says behind this place that it is was damaged here. Unless the power
        // went before the block at this place was written, and after the one that says so was: nobody was told then that it is whole.
        let was_whole = || !self.log.complete && !Frame::is_unwritten(rest) && Frame::completes(seed, rest);
        if !is_last || header.rewritten || was_whole() {
            return Err(end);
        }
        let sealed = self.log.ledger.segments().get(&first).is_some_and(|segment| segment.sealed);
        if at < content.len() {
            self.log.cut = Some((path.to_owned(), at as u64));
            let follows = Frame::follows(seed, rest, self.log.sequence);
            if follows {
                self.shortened = Some(path.to_owned());
            } else {
                self.torn = Some((path.to_owned(), content.len() - at));
            }
            self.is_read = !follows && !sealed && Frame::parse(seed, rest) == Parsed::Torn;
        }
        if !sealed {
            self.log.active = Some(Active { first, last: header.last, seed, frames });
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>, length: usize, segment: u32) -> Result<(), &'static str> {
        let Frame { kind, sequence, version, key, body } = *frame;
        self.log.sequence = sequence;
        if !kind.is_of_object() {
            self.log.ledger.grow(segment, length);
        }
        match kind {
            Kind::Complete => {
                (self.log.complete, self.log.version) = (true, version);
                self.raise(Floor { sequence, version });
                return Ok(());
            }
            Kind::Bookmark => {
                self.log.version = self.log.version.max(version);
                return Ok(());
            }
            Kind::Listed | Kind::Added | Kind::Modified | Kind::Deleted | Kind::Gone => {}
            Kind::Seal => return Ok(()),
            Kind::Header | Kind::Blob | Kind::SealedBlob => return Err("it holds what no log holds"),
        }
        let hash = self.log.keys.hash(key);
        let weight = u32::try_from(length).unwrap_or(u32::MAX);
        let without_body = weight.saturating_sub(u32::try_from(body.len()).unwrap_or(weight));
        let gone = matches!(kind, Kind::Deleted | Kind::Gone).then_some(without_body);
        let entry = Entry { key: hash, sequence, version, segment, weight, gone };
        if kind.is_event() {
            self.log.ledger.event(entry);
            self.log.version = self.log.version.max(version);
        } else {
            self.log.ledger.list(entry);
        }
        let place = self.places.get(&hash).copied();
        let previous = place.and_then(|place| self.objects.get_mut(place)).and_then(Option::take);
        if kind == Kind::Gone {
            return Ok(());
        }
        let body = self.body(key, version, body).ok_or("a body does not open with the right key")?;
        let change = match kind {
            Kind::Added => Change::Added,
            Kind::Modified => Change::Modified,
            Kind::Deleted => Change::Deleted,
            _ => {
                self.state(hash, place, previous, key, version, body);
                return Ok(());
            }
        };
        if sequence <= self.log.ledger.floor().sequence {
            if kind != Kind::Deleted {
                self.state(hash, place, previous, key, version, body);
            }
            return Ok(());
        }
        // Objects share keys and bodies with events; to share costs memory, so only these do.
        let known = previous.as_ref().map(|previous| previous.key.clone());
        let key = known.unwrap_or_else(|| Bytes::copy_from_slice(key));
        let object = Stored { key, version, body };
        if kind != Kind::Deleted {
            self.keep(hash, place, object.clone());
        }
        self.history.push_back((sequence, StoredEvent { change, object, previous }));
        Ok(())
    }

    /// An object that no event of the history tells of.
    fn state(
        &mut self,
        hash: KeyHash,
        place: Option<usize>,
        previous: Option<Stored>,
        key: &[u8],
        version: u64,
        body: Bytes,
    ) {
        let key = previous.map_or_else(|| Bytes::copy_from_slice(key), |previous| previous.key);
        self.keep(hash, place, Stored { key, version, body });
    }

    fn keep(&mut self, hash: KeyHash, place: Option<usize>, object: Stored) {
        if let Some(place) = place.and_then(|place| self.objects.get_mut(place)) {
            *place = Some(object);
        } else {
            self.places.insert(hash, self.objects.len());
            self.objects.push(Some(object));
        }
    }

    fn body(&self, key: &[u8], version: u64, body: &[u8]) -> Option<Bytes> {
        match self.sealer {
            None => Some(Bytes::copy_from_slice(body)),
            Some(sealer) => {
                let bound = binding(&self.log.identity.subscription.0, key, version);
                sealer.open(&bound, body).map(Bytes::from)
            }
        }
    }

    /// Events up to `floor` are history no more.
    fn raise(&mut self, floor: Floor) {
        self.log.ledger.settle_to(floor);
        let floor = self.log.ledger.floor();
        while self.history.front().is_some_and(|(sequence, _)| *sequence <= floor.sequence) {
            self.history.pop_front();
        }
    }

    fn finish(self, last: PathBuf) -> Result<Loaded, Stop> {
        let Reading { mut log, objects, history, relied_on, shortened, torn, is_read, .. } = self;
        let subscription = log.identity.subscription.clone();
        if relied_on > log.sequence {
            let why = "records are missing that others were left out for";
            return Err(Stop(last, Some(subscription), ProblemKind::Damaged(why)));
        }
        if !log.complete {
            return Ok(Loaded::Incomplete(Some(subscription), is_read));
        }
        log.listed = true;
        log.unsure = Some(last);
        let restored = Restored {
            subscription,
            version: log.version,
            sealed: log.identity.sealer.is_some(),
            objects: objects.into_iter().flatten().collect(),
            history_after: log.ledger.floor().version,
            history: history.into_iter().map(|(_, event)| event).collect(),
        };
        Ok(Loaded::Whole(Box::new(log), restored, shortened, torn))
    }
}
