//! Through which filter each reader was last shown the whole of what it asks for. Kept on the disk, too: a hub that was killed and
//! started again goes on with the watches of clients that would be shown the same.
//!
//! Readers are known by their names ([`reader`]), and several may have one. So a list vouches for nothing older than itself, and where a view has changed it vouches
//! once and for a minute for the version that it was made at: whoever else comes from there may have been shown something else.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube_wire::resource_version::ResourceVersion;
use serde::{Deserialize, Serialize};

use super::{Client, Filter};
use crate::subscriptions::Key;

/// How many readers' last lists are remembered. One that is forgotten lists once more.
const REMEMBERED: usize = 1024;

/// How soon after a list its reader comes for what follows.
const FOLLOWED: Duration = Duration::from_mins(1);

/// Who saw what.
#[derive(Debug, Default)]
pub(super) struct Shown {
    by_reader: HashMap<Box<str>, Seen>,
    /// Of lists whose last page was not asked for yet: by which filter the pages until now were made, and their version.
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
    used: u64,
}

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
}

impl Place {
    /// All of it is shown at once.
    pub const WHOLE: Self = Self { is_first: true, is_last: true };
}

impl Shown {
    /// What an earlier run exported; nothing, if it cannot be read.
    pub(super) fn restore(stored: &[u8]) -> Self {
        let Stored(readers) = serde_json::from_slice(stored).unwrap_or(Stored(Vec::new()));
        let mut shown = Self::default();
        for (reader, fingerprint, since) in readers.into_iter().take(REMEMBERED) {
            shown.uses += 1;
            shown.by_reader.insert(reader, Seen { fingerprint, since, listed: None, used: shown.uses });
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
        let all =
            all.into_iter().map(|(reader, seen)| (reader.clone(), seen.fingerprint.clone(), seen.since));
        serde_json::to_vec(&Stored(all.collect())).ok()
    }

    /// The reader is being shown what there is at that version through `filter`, or a page of it. Pages of one list through two filters are no whole.
    pub(super) fn show(&mut self, reader: &str, filter: Option<&Filter>, at: ResourceVersion, place: Place) {
        let page = (fingerprint(filter).into(), at.get());
        let goes_on = place.is_first || self.pages.remove(reader).is_some_and(|before| before == page);
        match (goes_on, place.is_last) {
            (true, true) => self.show_all(reader, filter, at.get()),
            (false, true) => self.changed |= self.by_reader.remove(reader).is_some(),
            (false, false) => {}
            (true, false) => {
                if self.pages.len() >= REMEMBERED {
                    self.pages.clear();
                }
                self.pages.insert(reader.into(), page);
            }
        }
    }

    fn show_all(&mut self, reader: &str, filter: Option<&Filter>, at: u64) {
        let Some(filter) = filter else {
            self.changed |= self.by_reader.remove(reader).is_some();
            return;
        };
        let Some(seen) = self.by_reader.get_mut(reader) else {
            return self.remember(reader, Some(filter), at, None);
        };
        self.uses += 1;
        seen.used = self.uses;
        let (since, listed) = match seen {
            seen if *seen.fingerprint != *filter.fingerprint() => {
                (at.saturating_add(1), Some((at, Instant::now())))
            }
            seen if seen.since <= at => return,
            // Another of its readers may have that version from before the change.
            seen if seen.since == at.saturating_add(1) => (seen.since, Some((at, Instant::now()))),
            // Of an earlier version, or of versions that began anew.
            _ => (at, None),
        };
        self.remember(reader, Some(filter), since, listed);
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
        let seen = Seen { fingerprint: fingerprint(filter).into(), since, listed, used: self.uses };
        self.by_reader.insert(reader.into(), seen);
        self.changed = true;
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
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::*;
    use crate::{
        filters::{FilterName, Filtered, View},
        subscriptions::Owner,
    };

    fn client(number: usize) -> Client {
        let agent = HeaderValue::from_str(&format!("agent-{number}/1")).unwrap();
        Client::of(&Owner::Node, &HeaderMap::from_iter([(header::USER_AGENT, agent)]))
    }

    fn name(number: usize) -> Box<str> {
        let resource = kube_wire::resource::GroupVersionResource::new("", "v1", "services");
        reader(&client(number), &Key::pooled(&resource), false)
    }

    fn at(version: u64) -> ResourceVersion {
        ResourceVersion::new(version).unwrap()
    }

    fn in_pool(pool: &str) -> Filter {
        let view = View::of_node("n", Some(pool), None);
        Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into())
    }

    #[test]
    fn a_list_after_a_change_lets_one_go_on_from_its_version_and_not_another() {
        let [first, second] = ["a", "b"].map(in_pool);
        let mut shown = Shown::default();
        shown.show("r", Some(&first), at(10), Place::WHOLE);
        for _ in 0..2 {
            assert!(shown.goes_on("r", Some(&first), at(10)), "nothing has changed");
        }
        // One of two with this name lists, by another filter or behind what was told; the other knows that version from before.
        for change in [0, 1] {
            if change == 1 {
                shown.retell("r", Some(&second), Some(&first), at(10));
                shown.retell("r", Some(&first), Some(&second), at(10));
            }
            shown.show("r", Some(&second), at(10), Place::WHOLE);
            let mut again = Shown::restore(&shown.export().unwrap());
            assert!(shown.goes_on("r", Some(&second), at(10)), "who listed");
            for shown in [&mut shown, &mut again] {
                assert!(!shown.goes_on("r", Some(&second), at(10)), "whoever else comes from there");
                assert!(shown.goes_on("r", Some(&second), at(11)));
            }
        }
    }

    #[test]
    fn a_page_is_no_whole_and_pages_are_if_they_are_of_one_list() {
        let [first, second] = ["a", "b"].map(in_pool);
        let page = |is_first, is_last| Place { is_first, is_last };
        let goes_on = |pages: &[(&Filter, u64, Place)]| {
            let mut shown = Shown::default();
            for (filter, version, place) in pages {
                shown.show("r", Some(filter), at(*version), *place);
            }
            shown.goes_on("r", Some(&second), at(10))
        };
        let (begins, goes, ends) = (page(true, false), page(false, false), page(false, true));
        assert!(goes_on(&[(&second, 10, begins), (&second, 10, goes), (&second, 10, ends)]));
        for pages in [
            &[(&second, 10, begins)][..],
            &[(&second, 10, begins), (&second, 10, goes)],
            &[(&first, 10, begins), (&second, 10, ends)],
            &[(&second, 9, begins), (&second, 10, ends)],
            &[(&second, 10, ends)],
        ] {
            assert!(!goes_on(pages), "{} pages", pages.len());
        }
    }

    #[test]
    fn who_was_told_what_differs_goes_on_from_there_and_from_no_earlier_version() {
        let (client, other) = ("client", "other");
        let [first, second, third] = ["a", "b", "c"].map(in_pool);
        let mut shown = Shown::default();
        shown.show(client, Some(&first), at(10), Place::WHOLE);
        shown.retell(client, Some(&first), Some(&second), at(20));
        let mut again = Shown::restore(&shown.export().unwrap());
        for shown in [&mut shown, &mut again] {
            for (version, filter, saw) in
                [(19, &second, false), (20, &second, false), (21, &second, true), (21, &first, false)]
            {
                assert_eq!(shown.goes_on(client, Some(filter), at(version)), saw, "{version}");
            }
        }
        // Another watch of it, which had come further.
        shown.retell(client, Some(&first), Some(&second), at(25));
        assert!(
            !shown.goes_on(client, Some(&second), at(25)) && shown.goes_on(client, Some(&second), at(26))
        );
        // One that went by a filter that it was not shown the whole through says nothing of what the client knows.
        shown.retell(client, Some(&first), Some(&third), at(30));
        assert!(shown.goes_on(client, Some(&second), at(30)));
        shown.retell(other, Some(&first), Some(&third), at(30));
        assert!(!shown.goes_on(other, Some(&third), at(30)), "it never listed");
        // Its list of an earlier version, or of versions that began anew, is whole by itself.
        shown.show(client, Some(&second), at(5), Place::WHOLE);
        assert!(shown.goes_on(client, Some(&second), at(5)));
        // Nothing filters any more, and then something does again.
        shown.retell(client, Some(&second), None, at(40));
        assert!(!shown.goes_on(client, None, at(40)) && shown.goes_on(client, None, at(41)));
        shown.retell(client, None, Some(&first), at(50));
        shown.retell(client, Some(&first), Some(&second), at(50));
        for (version, saw) in [(50, false), (51, true)] {
            assert_eq!(
                shown.goes_on(client, Some(&second), at(version)),
                saw,
                "twice at one version: {version}"
            );
        }
    }

    #[test]
    fn the_oldest_reader_is_forgotten_and_no_other() {
        let view = View::of_node("n", None, None);
        let filter = Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into());
        let mut shown = Shown::default();
        for number in 0..REMEMBERED {
            shown.show(&name(number), Some(&filter), at(1), Place::WHOLE);
        }
        // The first is used again: now the second is the oldest.
        assert!(shown.goes_on(&name(0), Some(&filter), at(1)));
        shown.show(&name(REMEMBERED), Some(&filter), at(1), Place::WHOLE);
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(shown.goes_on(&name(number), Some(&filter), at(1)), "{number}");
        }
        assert!(!shown.goes_on(&name(1), Some(&filter), at(1)));
        let mut again = Shown::restore(&shown.export().unwrap());
        assert!(shown.export().is_none() && again.export().is_none(), "nothing to write");
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(again.goes_on(&name(number), Some(&filter), at(1)), "{number}");
        }
        assert!(!Shown::restore(b"{").goes_on(&name(0), Some(&filter), at(1)));
    }
}
