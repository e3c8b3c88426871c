//! Through which filter each reader was last shown the whole of what it asks for. Kept on the disk, too: a hub that was killed and
//! started again goes on with the watches of clients that would be shown the same.
//!
//! Readers are known by their names ([`reader`]), and several may have one. So a list vouches for nothing older than itself, and where a view has changed it vouches
//! once and for a minute for the version that it was made at: whoever else comes from there may have been shown something else. So may whoever comes to a list
//! later: up to which version is remembered, too, for as long as one of them may still come ([`Shown::saw_otherwise`]).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube_wire::resource_version::ResourceVersion;
use serde::{Deserialize, Serialize};

use super::{Client, Filter, filter::of_events};
use crate::subscriptions::Key;

/// How many readers' last lists are remembered. One that is forgotten lists once more.
const REMEMBERED: usize = 1024;

/// How soon after a list its reader comes for what follows.
const FOLLOWED: Duration = Duration::from_mins(1);

/// For how long after a change objects are shown to its readers as if they knew them otherwise, in time that the hub runs: whoever was there before comes back within minutes.
/// Who never did would be shown them so with each list, which costs a copy of every object, and might not be handed on.
const LAPSES: Duration = Duration::from_mins(10);

/// Who saw what.
#[derive(Debug, Default)]
pub(super) struct Shown {
    by_reader: HashMap<Box<str>, Seen>,
    /// Of lists whose last page was not asked for yet: by which filter the pages until now were made, and their version; 0 if they are of no one list.
    pages: HashMap<Box<str>, (Box<str>, u64)>,
    /// Counts uses, so that the oldest is known.
    uses: u64,
    /// Whether it is other than when it was last exported.
    changed: bool,
}

#[derive(Debug)]
struct Seen {
    fingerprint: Box<str>,
    /// The first version at which it is so: what the reader knew of an earlier one may be otherwise.
    since: u64,
    /// The version of a list that was made after the change, from which nobody has gone on yet, and when.
    listed: Option<(u64, Instant)>,
    /// Objects of earlier versions than this may have been shown otherwise by events, at the versions that they have; and since when they are shown as they are now.
    /// Stored as [`CHANGED`] alone.
    otherwise: Option<(u64, Instant)>,
    used: u64,
}

/// By which filter pages were made that were made by several, one of which at least is a filter.
const SEVERAL: &str = "several";

/// Ends the stored fingerprint of a reader that saw objects otherwise before the version from which on it is so. A hub that knows no such end takes it for another
/// filter's, and has the reader list.
const CHANGED: &str = "!";

/// As it is stored: the one that was used last comes last.
#[derive(Serialize, Deserialize)]
struct Stored(Vec<(Box<str>, Box<str>, u64)>);

/// Which page of a list is shown.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Whether it is the first.
    pub is_first: bool,
    /// Whether it is the last.
    pub is_last: bool,
    /// The version of what is held, if that is newer than the list.
    pub held: Option<ResourceVersion>,
}

impl Place {
    /// All of what is held is shown at once.
    pub const WHOLE: Self = Self { is_first: true, is_last: true, held: None };
}

impl Shown {
    /// What an earlier run exported; nothing, if it cannot be read.
    pub(super) fn restore(stored: &[u8]) -> Self {
        let Stored(readers) = serde_json::from_slice(stored).unwrap_or(Stored(Vec::new()));
        let mut shown = Self::default();
        let now = Instant::now();
        for (reader, fingerprint, since) in readers.into_iter().take(REMEMBERED) {
            shown.uses += 1;
            // Nobody was shown anything while no hub ran.
            let (fingerprint, otherwise) = match fingerprint.strip_suffix(CHANGED) {
                Some(fingerprint) => (fingerprint.into(), Some((since, now))),
                None => (fingerprint, None),
            };
            let seen = Seen { fingerprint, since, listed: None, otherwise, used: shown.uses };
            shown.by_reader.insert(reader, seen);
        }
        shown
    }

    /// Whether it changed since it was last exported.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// All of it, if it changed since the last call.
    pub(super) fn export(&mut self) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut all: Vec<_> = self.by_reader.iter().collect();
        all.sort_by_key(|(_, seen)| seen.used);
        let now = Instant::now();
        let all = all.into_iter().map(|(reader, seen)| {
            let changed = if seen.otherwise_before(now) > 0 { CHANGED } else { "" };
            (reader.clone(), Box::from([&*seen.fingerprint, changed].concat()), seen.since)
        });
        serde_json::to_vec(&Stored(all.collect())).ok()
    }

    /// The reader is being shown what there is at that version through `filter`, or a page of it. Pages of one list through two filters are no whole.
    pub(super) fn show(&mut self, reader: &str, filter: Option<&Filter>, at: ResourceVersion, place: Place) {
        let page: (Box<str>, u64) = (fingerprint(filter).into(), at.get());
        let before = if place.is_first { None } else { self.pages.remove(reader) };
        let goes_on = place.is_first || before.as_ref() == Some(&page);
        let is_filtered = before.iter().chain([&page]).any(|(fingerprint, _)| !fingerprint.is_empty());
        let held = place.held.unwrap_or(at).max(at).get();
        match (goes_on, place.is_last) {
            (true, true) => self.show_all(reader, filter, at.get(), held),
            (true, false) => self.go_on_with(reader, page),
            (false, false) if is_filtered => self.go_on_with(reader, (SEVERAL.into(), 0)),
            // Who never saw a filter needs not be remembered.
            (false, true) if is_filtered || self.by_reader.contains_key(reader) => {
                self.show_no_whole(reader, filter, held);
            }
            (false, _) => {}
        }
    }

    /// More pages follow those that were made so until now.
    fn go_on_with(&mut self, reader: &str, pages: (Box<str>, u64)) {
        if self.pages.len() >= REMEMBERED {
            self.pages.clear();
        }
        self.pages.insert(reader.into(), pages);
    }

    /// Whoever knows anything that is held may know it otherwise.
    fn show_no_whole(&mut self, reader: &str, filter: Option<&Filter>, held: u64) {
        let (mut since, by) = (held.saturating_add(1), fingerprint(filter));
        if let Some(seen) = self.by_reader.get_mut(reader) {
            seen.turns_to(by, held);
            since = since.max(seen.since);
        }
        self.remember(reader, filter, since, None);
    }

    fn show_all(&mut self, reader: &str, filter: Option<&Filter>, at: u64, held: u64) {
        let Some(seen) = self.by_reader.get_mut(reader) else {
            // Who never saw a filter needs not be remembered.
            if filter.is_some() {
                self.remember(reader, filter, at, None);
            }
            return;
        };
        self.uses += 1;
        seen.used = self.uses;
        let (next, listed) = (held.saturating_add(1), Some((at, Instant::now())));
        let (since, listed) = match seen.since {
            _ if *seen.fingerprint != *fingerprint(filter) => {
                seen.turns_to(fingerprint(filter), held);
                (next, listed)
            }
            since if since <= at => return,
            // Another of its readers may have that version from before the change.
            since if since <= next => (since, listed),
            // Versions began anew, or the hub is behind those that it told.
            _ => (at, None),
        };
        self.remember(reader, filter, since, listed);
    }

    /// Before which version objects may have been shown to the reader by events otherwise than `filter` shows them, at the versions that they have; 0: none were.
    /// Its informers would take them for unchanged if they came at those versions once more. Forgotten when one of the name has been shown them by this filter for [`LAPSES`].
    pub(super) fn saw_otherwise(&self, reader: &str, filter: Option<&Filter>, now: Instant) -> u64 {
        let Some(seen) = self.by_reader.get(reader) else { return 0 };
        if of_events(&seen.fingerprint) == of_events(fingerprint(filter)) {
            seen.otherwise_before(now)
        } else {
            u64::MAX
        }
    }

    /// By an event of up to that version `before` showed the reader what `now` shows otherwise at the same version.
    pub(super) fn see_otherwise(
        &mut self,
        reader: &str,
        before: Option<&Filter>,
        now: Option<&Filter>,
        at: ResourceVersion,
    ) {
        if of_events(fingerprint(before)) != of_events(fingerprint(now))
            && let Some(seen) = self.by_reader.get_mut(reader)
        {
            seen.see_otherwise(at.get());
            self.changed = true;
        }
    }

    /// Whether what the reader saw at that version is what it would see through `filter`: it goes on from there.
    pub(super) fn goes_on(&mut self, reader: &str, filter: Option<&Filter>, at: ResourceVersion) -> bool {
        self.uses += 1;
        let Some(seen) = self.by_reader.get_mut(reader) else { return filter.is_none() };
        seen.used = self.uses;
        if *seen.fingerprint != *fingerprint(filter) {
            return false;
        }
        if seen.since <= at.get() {
            return true;
        }
        let listed = seen.listed.take_if(|(version, _)| *version == at.get());
        listed.is_some_and(|(_, made)| made.elapsed() < FOLLOWED)
    }

    /// The reader, if it saw the whole through `before`, is being told what `now` shows otherwise at that version. Whether it hears it nobody knows: it goes on
    /// from later versions only. Nor does anybody know which of its watches comes back, so that is so where nothing was told as well.
    pub(super) fn retell(
        &mut self,
        reader: &str,
        before: Option<&Filter>,
        now: Option<&Filter>,
        at: ResourceVersion,
    ) {
        if fingerprint(before) == fingerprint(now) {
            return;
        }
        let seen = self.by_reader.get(reader);
        let (seen, since) = seen.map_or(("", 0), |seen| (&*seen.fingerprint, seen.since));
        // By the other filter if another watch of it was told before.
        if [fingerprint(before), fingerprint(now)].contains(&seen) {
            self.remember(reader, now, since.max(at.get().saturating_add(1)), None);
        }
    }

    fn remember(
        &mut self,
        reader: &str,
        filter: Option<&Filter>,
        since: u64,
        listed: Option<(u64, Instant)>,
    ) {
        if !self.by_reader.contains_key(reader) && self.by_reader.len() >= REMEMBERED {
            let oldest = self.by_reader.iter().min_by_key(|(_, seen)| seen.used);
            if let Some(oldest) = oldest.map(|(reader, _)| reader.clone()) {
                self.by_reader.remove(&oldest);
            }
        }
        self.uses += 1;
        let otherwise = self.by_reader.get(reader).and_then(|seen| seen.otherwise);
        let fingerprint = fingerprint(filter).into();
        let seen = Seen { fingerprint, since, listed, otherwise, used: self.uses };
        self.by_reader.insert(reader.into(), seen);
        self.changed = true;
    }
}

impl Seen {
    /// Its reader is shown by the filter of this fingerprint what it may have been shown by another until then.
    fn turns_to(&mut self, fingerprint: &str, held: u64) {
        if of_events(&self.fingerprint) != of_events(fingerprint) {
            self.see_otherwise(held);
        }
    }

    /// Its reader may have been shown otherwise what is of that version or an earlier one.
    fn see_otherwise(&mut self, at: u64) {
        let now = Instant::now();
        let before = self.otherwise_before(now).max(at.saturating_add(1));
        self.otherwise = Some((before, now));
    }

    /// Before which version its reader may have been shown objects otherwise; 0: it was not, or that was long ago.
    fn otherwise_before(&self, now: Instant) -> u64 {
        match self.otherwise {
            Some((before, since)) if now.saturating_duration_since(since) < LAPSES => before,
            _ => 0,
        }
    }
}

/// No filter has an empty one.
fn fingerprint(filter: Option<&Filter>) -> &str {
    filter.map_or("", Filter::fingerprint)
}

/// The name in every run of the hub of who reads that: objects, or their metadata alone. A client has no line break in its name: it is quoted.
pub fn reader(client: &Client, key: &Key, is_metadata: bool) -> Box<str> {
    let what = if is_metadata { "metadata of " } else { "" };
    format!("{}\n{what}{key}", client.name()).into()
}

#[cfg(test)]
mod tests;
