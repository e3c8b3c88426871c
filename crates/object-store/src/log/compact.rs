//! Rewrites neighbouring files of a log into one that stands at their place, so that the order of records stays.
//!
//! The new file is whole on the disk before it takes a name that counts; the files it replaces go only after that name
//! is on the disk, and are passed over while they are there.

use std::path::Path;

use super::{Log, plan, sync_names};
use crate::{
    disk::Disk,
    error::{Error, failed},
    frame::{Frame, Kind, Parsed},
    ledger::{KeyHash, Verdict, Weight},
    segment::Header,
    statistics::Counters,
};

/// What a step did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compacted {
    /// Bytes read and written.
    pub(crate) moved: u64,
}

/// A file being put together.
struct Rewriting {
    content: Vec<u8>,
    seed: u32,
    frames: u64,
    live: u64,
    left: Vec<KeyHash>,
    forgotten: Vec<KeyHash>,
}

impl Log {
    /// Rewrites once, if it is worth it: reads at most eight files' lengths and writes one. Says in `names` that the
    /// folder must be synced before [`Log::replaced`] is removed.
    pub(crate) fn compact(
        &mut self,
        disk: &dyn Disk,
        counters: &Counters,
        names: &mut bool,
    ) -> Result<Option<Compacted>, Error> {
        if !self.listed || self.unsure.is_some() {
            return Ok(None);
        }
        let sealed: Vec<(u32, Weight)> = self
            .ledger
            .segments()
            .iter()
            .map(|(first, segment)| (*first, *segment))
            .take_while(|(_, segment)| segment.sealed)
            .collect();
        let weights: Vec<Weight> = sealed.iter().map(|(_, weight)| *weight).collect();
        let Some(run) = plan::choose(&weights, self.target()) else { return Ok(None) };
        let run = &sealed[run];
        let (Some((first, _)), Some((_, Weight { last, .. }))) = (run.first(), run.last()) else {
            return Ok(None);
        };
        let (first, last) = (*first, *last);
        let mut moved = 0;
        let rewriting = self.gather(disk, run, &mut moved)?;
        let path = self.path(first, last);
        let temporary = path.with_extension("new");
        // What is left out must not be gone before what replaces it is there.
        sync_names(disk, &self.identity.dir, names)?;
        disk.create(&temporary, &rewriting.content).map_err(failed("write", &temporary))?;
        disk.rename(&temporary, &path).map_err(failed("rename", &temporary))?;
        *names = true;
        counters.wrote(rewriting.content.len());
        moved += rewriting.content.len() as u64;
        let old = run.iter().map(|(first, weight)| self.path(*first, weight.last));
        let old: Vec<_> = old.filter(|old| *old != path).collect();
        self.replaced.extend(old);
        let length = rewriting.content.len() as u64;
        let weight = Weight { last, length, live: rewriting.live, sealed: true };
        self.ledger.rewritten(first, weight, &rewriting.left, &rewriting.forgotten);
        Ok(Some(Compacted { moved }))
    }

    /// Reads the files of a run and puts what lives into one.
    fn gather(&self, disk: &dyn Disk, run: &[(u32, Weight)], moved: &mut u64) -> Result<Rewriting, Error> {
        let mut files = Vec::new();
        for (first, weight) in run {
            let path = self.path(*first, weight.last);
            let mut content = Vec::new();
            disk.read(&path, &mut content).map_err(failed("read", &path))?;
            *moved += content.len() as u64;
            files.push((path, content));
        }
        let (mut version, mut complete, mut sequence) = (0, false, 0);
        for (path, content) in &files {
            each(path, content, |header, frame| match frame {
                None => {
                    version = version.max(header.version);
                    complete |= header.complete;
                }
                Some(frame) => {
                    sequence = frame.sequence;
                    match frame.kind {
                        Kind::Complete => (version, complete) = (frame.version, true),
                        Kind::Added | Kind::Modified | Kind::Deleted | Kind::Bookmark => {
                            version = version.max(frame.version);
                        }
                        _ => {}
                    }
                }
            })?;
        }
        let first = run.first().map_or(0, |(first, _)| *first);
        let last = run.last().map_or(0, |(_, weight)| weight.last);
        let mut content = Vec::new();
        let header = Header { complete, version, rewritten: true, ..self.header(first, last) };
        let (length, seed) = header.encode(&mut content);
        let (left, forgotten) = (Vec::new(), Vec::new());
        let mut to = Rewriting { content, seed, frames: 0, live: length as u64, left, forgotten };
        for (path, content) in &files {
            each(path, content, |_, frame| {
                if let Some(frame) = frame.filter(|frame| frame.kind.is_of_object()) {
                    self.rewrite(&frame, &mut to);
                }
            })?;
        }
        let Rewriting { content, seed, frames, .. } = &mut to;
        let seal = Frame { kind: Kind::Seal, sequence, version: *frames, key: &[], body: &[] };
        seal.encode(*seed, content);
        Ok(to)
    }

    fn rewrite(&self, frame: &Frame<'_>, to: &mut Rewriting) {
        let key = self.keys.hash(frame.key);
        let kept = match self.ledger.verdict(key, frame.sequence, frame.kind) {
            Verdict::Keep => *frame,
            Verdict::KeepGone => Frame { kind: Kind::Gone, body: &[], ..*frame },
            Verdict::Leave => return to.left.push(key),
            Verdict::Forget => return to.forgotten.push(key),
        };
        to.live += kept.encode(to.seed, &mut to.content) as u64;
        to.frames += 1;
    }
}

/// Calls `f` with the header, and with each frame, of a sealed file.
fn each(path: &Path, content: &[u8], mut f: impl FnMut(&Header, Option<Frame<'_>>)) -> Result<(), Error> {
    let damaged = || Error::Damaged { path: path.to_owned() };
    let (header, mut at, seed) = Header::parse(content).map_err(|_| damaged())?;
    f(&header, None);
    let mut frames = 0;
    loop {
        match Frame::parse(seed, content.get(at..).unwrap_or_default()) {
            Parsed::Frame(frame, length) if frame.kind == Kind::Seal => {
                let whole = at + length == content.len() && frame.version == frames;
                f(&header, Some(frame));
                return if whole { Ok(()) } else { Err(damaged()) };
            }
            Parsed::Frame(frame, length) => {
                f(&header, Some(frame));
                (at, frames) = (at + length, frames + 1);
            }
            Parsed::End | Parsed::Torn | Parsed::Garbled => return Err(damaged()),
        }
    }
}
