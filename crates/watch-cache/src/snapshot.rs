//! The objects at one version, ordered by the bytes of their keys.
//!
//! Objects stand in sorted chunks behind shared pointers. Cloning a snapshot counts one reference; a change copies the
//! directory and one chunk, and only if somebody still holds the snapshot before it. What was handed out never changes.

use std::{ops::Range, sync::Arc};

use kube_wire::{object::Object, resource::ObjectKey, resource_version::ResourceVersion};

use crate::{event::Event, selection::Scope};

/// The most objects a chunk holds. At 20,000 objects a directory has some 300 entries: copying it costs as much as copying
/// a chunk.
const CHUNK: usize = 128;

/// How full chunks are when a whole list is taken in: room for objects that come later.
const FILL: usize = CHUNK * 3 / 4;

type Chunk = Arc<Vec<Arc<Object>>>;

/// The objects at one version. Immutable, ordered by the bytes of the keys, and cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    version: ResourceVersion,
    /// None is empty; neither within a chunk nor from one to the next do keys descend or repeat.
    chunks: Arc<Vec<Chunk>>,
    len: usize,
    /// What the objects take in memory.
    bytes: usize,
}

/// What an object takes: its body, its key, and what belongs to it.
fn bytes_of(object: &Object) -> usize {
    object.body().len() + object.key().as_str().len() + size_of::<Object>()
}

/// Where an object stands in one snapshot; the end is one chunk past the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    chunk: usize,
    offset: usize,
}

/// The objects of a scope at one version, in the order of their keys.
#[derive(Debug)]
pub struct Objects {
    snapshot: Snapshot,
    rest: Range<Place>,
}

impl Objects {
    pub(crate) fn of(snapshot: &Snapshot, scope: &Scope) -> Self {
        Self { rest: scope.range(snapshot), snapshot: snapshot.clone() }
    }

    /// The version at which they are so.
    pub fn resource_version(&self) -> ResourceVersion {
        self.snapshot.resource_version()
    }
}

impl Iterator for Objects {
    type Item = Arc<Object>;

    fn next(&mut self) -> Option<Arc<Object>> {
        self.snapshot.next_in(&mut self.rest).cloned()
    }
}

impl Snapshot {
    /// Takes in a whole list, in any order; of two objects under one key the later stays.
    pub(crate) fn collect(version: ResourceVersion, mut objects: Vec<Arc<Object>>) -> Self {
        objects.sort_by(|a, b| a.key().cmp(b.key()));
        // `dedup_by` drops its first argument, which is the later of the two: keep that one's value in the earlier's place.
        objects.dedup_by(|later, kept| {
            let same = later.key() == kept.key();
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        let len = objects.len();
        let bytes = objects.iter().map(|object| bytes_of(object)).sum();
        let mut chunks = Vec::with_capacity(len.div_ceil(FILL));
        let mut objects = objects.into_iter();
        loop {
            let chunk: Vec<_> = objects.by_ref().take(FILL).collect();
            if chunk.is_empty() {
                break;
            }
            chunks.push(Arc::new(chunk));
        }
        Self { version, chunks: Arc::new(chunks), len, bytes }
    }

    /// The version at which the objects were so.
    pub fn resource_version(&self) -> ResourceVersion {
        self.version
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the objects take in memory, with their keys.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The object under `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        let place = self.seek(key.as_str());
        self.chunks.get(place.chunk)?.get(place.offset).filter(|object| object.key() == key)
    }

    /// All objects in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The place of the first object whose key is not below `key`, byte by byte.
    pub(crate) fn seek(&self, key: &str) -> Place {
        let chunk = self.chunk_of(key);
        let below = |object: &Arc<Object>| object.key().as_str() < key;
        Place { chunk, offset: self.chunks.get(chunk).map_or(0, |objects| objects.partition_point(below)) }
    }

    /// The place past the last object.
    pub(crate) fn end(&self) -> Place {
        Place { chunk: self.chunks.len(), offset: 0 }
    }

    /// The object at `range.start`, which moves on by one; `None` at the end of the range.
    pub(crate) fn next_in(&self, range: &mut Range<Place>) -> Option<&Arc<Object>> {
        if range.start >= range.end {
            return None;
        }
        let chunk = self.chunks.get(range.start.chunk)?;
        let object = chunk.get(range.start.offset)?;
        range.start.offset += 1;
        if range.start.offset == chunk.len() {
            range.start = Place { chunk: range.start.chunk + 1, offset: 0 };
        }
        Some(object)
    }

    /// How many objects stand in `range`; the cost grows with chunks, not objects.
    pub(crate) fn count(&self, range: &Range<Place>) -> usize {
        let Range { start, end } = range;
        if start >= end {
            return 0;
        }
        let whole: usize =
            self.chunks.get(start.chunk..end.chunk).unwrap_or_default().iter().map(|c| c.len()).sum();
        whole + end.offset - start.offset
    }

    /// Says that the objects are so at a later version, too.
    pub(crate) fn set_version(&mut self, version: ResourceVersion) {
        self.version = version;
    }

    /// Stores an object; returns the one that was there.
    pub(crate) fn put(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.bytes += bytes_of(&object);
        let at = self.chunk_of(object.key().as_str()).min(self.chunks.len().saturating_sub(1));
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![object]));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|stored| stored.key().cmp(object.key())) {
            Ok(offset) => {
                let previous = std::mem::replace(&mut chunk[offset], object);
                self.bytes -= bytes_of(&previous);
                Some(previous)
            }
            Err(offset) => {
                chunk.insert(offset, object);
                self.len += 1;
                if chunk.len() > CHUNK {
                    let upper = chunk.split_off(CHUNK / 2);
                    chunks.insert(at + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes the object under `key`; returns it.
    pub(crate) fn take(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let Place { chunk: at, offset } = self.seek(key.as_str());
        // Looked up before anything is copied: a deletion of what is not there costs nothing.
        if self.chunks.get(at)?.get(offset)?.key() != key {
            return None;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let taken = Arc::make_mut(&mut chunks[at]).remove(offset);
        self.len -= 1;
        self.bytes -= bytes_of(&taken);
        if chunks[at].is_empty() {
            chunks.remove(at);
        } else {
            // Neighbours that fit into half a chunk become one, or a directory would outlive its objects.
            let lower = at.min(chunks.len().saturating_sub(2));
            if lower + 1 < chunks.len() && chunks[lower].len() + chunks[lower + 1].len() <= CHUNK / 2 {
                let upper = chunks.remove(lower + 1);
                Arc::make_mut(&mut chunks[lower]).extend(upper.iter().cloned());
            }
        }
        Some(taken)
    }

    /// Takes back one event, the newest that these objects know of; the version is the caller's to set.
    pub(crate) fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => self.put(Arc::clone(previous)),
            None => self.take(event.object.key()),
        };
    }

    /// The chunk that holds `key`, or would: the first whose last key is not below it.
    fn chunk_of(&self, key: &str) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|object| object.key().as_str() < key))
    }
}

#[cfg(test)]
mod tests;
