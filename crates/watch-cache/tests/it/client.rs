//! One client of a watch: what it was told, and the guarantees that must hold of it.
//!
//! The guarantees are those that etcd's robustness tests check, by the same names. Each is checked by itself, so a
//! violation says which; `Reliable` then compares the whole stream with the expected one.

use crate::model::{Kind, Pick, Revision, Told, Version, expected, listed};

/// One watch session: from a list or an initial state on, over any number of resumptions.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) pick: Pick,
    /// The version that the session began with.
    pub(crate) start: Version,
    /// Whether it was told the state at `start` first.
    pub(crate) initial: bool,
    /// Whether it asked for a bookmark at the end of that.
    pub(crate) end_bookmark: bool,
    pub(crate) told: Vec<Told>,
    /// After how many events each bookmark came. The first may be the end of the initial state.
    pub(crate) bookmarks: Vec<(usize, Version)>,
    pub(crate) ended: Option<(usize, Version)>,
}

impl Session {
    fn initial_block(&self, history: &[Revision]) -> Vec<Told> {
        if self.initial { listed(history, &self.pick, self.start) } else { Vec::new() }
    }

    /// How many events the initial state takes.
    fn initial_len(&self, history: &[Revision]) -> usize {
        self.initial_block(history).len()
    }

    /// Whether all of the initial state was told.
    pub(crate) fn is_begun(&self, history: &[Revision]) -> bool {
        self.told.len() >= self.initial_len(history)
            && (!self.initial || !self.end_bookmark || self.ended.is_some())
    }

    /// The version from which the client resumes; after the initial state only.
    pub(crate) fn last_seen(&self, history: &[Revision]) -> Version {
        let told = self.told.iter().skip(self.initial_len(history)).map(|told| told.version).max();
        let bookmark = self.bookmarks.iter().map(|(_, version)| *version).max();
        [Some(self.start), told, bookmark].into_iter().flatten().max().unwrap_or_default()
    }

    /// Checks all guarantees. `applied` is how far the cache has come, `caught_up` whether it had no more to tell.
    pub(crate) fn check(
        &self,
        history: &[Revision],
        applied: Version,
        caught_up: bool,
    ) -> Result<(), String> {
        let begun = self.initial_len(history).min(self.told.len());
        let (initial, events) = self.told.split_at(begun);
        let fail = |guarantee: &str, what: String| Err(format!("{guarantee}: {what}; {self:?}"));

        if let Some(told) = self.told.iter().find(|told| !self.pick.picks(told.key, told.facts)) {
            return fail("Filter", format!("{told:?} is not picked"));
        }
        if let Some(pair) = events.windows(2).find(|pair| pair[0].version >= pair[1].version) {
            return fail("Ordered", format!("{pair:?}"));
        }
        if let Some(told) = events.iter().find(|told| told.version <= self.start) {
            return fail("NoRewind", format!("{told:?} is not after the start"));
        }
        for (index, told) in self.told.iter().enumerate() {
            if self.told[..index]
                .iter()
                .any(|before| (before.key, before.version) == (told.key, told.version))
            {
                return fail("Unique", format!("{told:?} was told before"));
            }
        }
        if let Some(told) = self.told.iter().find(|told| told.version > applied) {
            return fail("NoRewind", format!("{told:?} is not applied yet"));
        }

        let mut highest = 0;
        for &(count, version) in self.ended.iter().chain(&self.bookmarks) {
            let before = self.told[..count].iter().map(|told| told.version).max().unwrap_or_default();
            let after = self.told[count..].iter().map(|told| told.version).min().unwrap_or(Version::MAX);
            if version > applied || version < before || version >= after || version < highest {
                return fail("Bookmarkable", format!("bookmark {version}, applied {applied}"));
            }
            highest = version;
        }
        if let Some((count, version)) = self.ended
            && (count != initial.len() || version != self.start || !self.end_bookmark)
        {
            return fail("Bookmarkable", format!("end of the initial state at {version} after {count}"));
        }

        let mut seen: Vec<Told> = self.seen_at_start(history);
        for told in events {
            let known = seen.iter().position(|seen| seen.key == told.key);
            if (told.kind == Kind::Added) != known.is_none() {
                return fail("IsCreate", format!("{told:?}"));
            }
            if let Some(known) = known {
                let before = seen.swap_remove(known);
                let last = (before.written, before.facts);
                if told.kind == Kind::Deleted && (told.written, told.facts) != last {
                    return fail("PrevKV", format!("{told:?}, last seen was {last:?}"));
                }
            }
            if told.kind != Kind::Deleted {
                seen.push(*told);
            }
        }

        let mut whole = self.initial_block(history);
        whole.extend(expected(history, &self.pick, self.start, applied));
        if !whole.starts_with(&self.told) {
            return fail("Reliable", format!("expected {whole:?}"));
        }
        if caught_up {
            if whole.len() != self.told.len() {
                return fail("Reliable", format!("expected also {:?}", &whole[self.told.len()..]));
            }
            if self.initial && self.end_bookmark && self.ended.is_none() {
                return fail("Bookmarkable", "no end of the initial state".to_owned());
            }
            if applied >= self.start {
                let mut now: Vec<_> = seen.iter().map(|told| (told.key, told.version, told.facts)).collect();
                let listed = listed(history, &self.pick, applied);
                let mut there: Vec<_> =
                    listed.iter().map(|told| (told.key, told.version, told.facts)).collect();
                now.sort_by_key(|object| object.0);
                there.sort_by_key(|object| object.0);
                if now != there {
                    return fail("Convergence", format!("has {now:?}, upstream {there:?}"));
                }
            }
        }
        Ok(())
    }

    /// What the client knew when its events began.
    fn seen_at_start(&self, history: &[Revision]) -> Vec<Told> {
        listed(history, &self.pick, self.start)
    }
}
