//! Through which filter each client was last shown the whole of a subscription. Kept on the disk, too: a hub that was killed and
//! started again goes on with the watches of clients that would be shown the same.
//!
//! What is kept may be some seconds old, and then is about an earlier view. The view of a new run is read from the same disk and is not
//! that one: such a client lists once more than it had to, unless the view is again the earlier one before it comes back.

use std::collections::HashMap;

use kube_wire::resource_version::ResourceVersion;
use serde::{Deserialize, Serialize};

use super::{Client, Filter};
use crate::subscriptions::Key;

/// How many clients' last lists are remembered. One that is forgotten lists once more.
const REMEMBERED: usize = 1024;

/// Who saw what.
#[derive(Debug, Default)]
pub(super) struct Shown {
    by_reader: HashMap<Box<str>, Seen>,
    /// Counts uses, so that the oldest is known.
    uses: u64,
    /// Whether it is other than when it was last exported.
    changed: bool,
}

#[derive(Debug)]
struct Seen {
    fingerprint: Box<str>,
    /// The first version at which it is so: what the client knew of an earlier one is otherwise.
    since: u64,
    used: u64,
}

/// As it is stored: the one that was used last comes last.
#[derive(Serialize, Deserialize)]
struct Stored(Vec<(Box<str>, Box<str>, u64)>);

impl Shown {
    /// What an earlier run exported; nothing, if it cannot be read.
    pub(super) fn restore(stored: &[u8]) -> Self {
        let Stored(readers) = serde_json::from_slice(stored).unwrap_or(Stored(Vec::new()));
        let mut shown = Self::default();
        for (reader, fingerprint, since) in readers.into_iter().take(REMEMBERED) {
            shown.uses += 1;
            shown.by_reader.insert(reader, Seen { fingerprint, since, used: shown.uses });
        }
        shown
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

    /// The client is being shown the whole of what `key` says at that version through `filter`.
    pub(super) fn show(&mut self, client: &Client, key: &Key, filter: Option<&Filter>, at: ResourceVersion) {
        let reader = reader(client, key);
        let Some(filter) = filter else {
            self.changed |= self.by_reader.remove(&reader).is_some();
            return;
        };
        let fingerprint = filter.fingerprint();
        if let Some(seen) = self.by_reader.get_mut(&reader)
            && *seen.fingerprint == *fingerprint
            && seen.since <= at.get()
        {
            self.uses += 1;
            seen.used = self.uses;
            return;
        }
        // Of the same as before, a list of an earlier version, or versions that began anew.
        self.remember(reader, fingerprint, at.get());
    }

    /// Whether what the client saw of `key` at that version is what it would see through `filter`.
    pub(super) fn saw(
        &mut self,
        client: &Client,
        key: &Key,
        filter: Option<&Filter>,
        at: ResourceVersion,
    ) -> bool {
        self.uses += 1;
        let Some(seen) = self.by_reader.get_mut(&reader(client, key)) else { return filter.is_none() };
        seen.used = self.uses;
        *seen.fingerprint == *fingerprint(filter) && seen.since <= at.get()
    }

    /// The client, if it saw the whole through `before`, is being told what `now` shows otherwise at that version. Whether it hears it nobody knows: it goes on
    /// from later versions only. Nor does anybody know which of its watches comes back, so that is so where nothing was told as well.
    pub(super) fn retell(
        &mut self,
        client: &Client,
        key: &Key,
        before: Option<&Filter>,
        now: Option<&Filter>,
        at: ResourceVersion,
    ) {
        if fingerprint(before) == fingerprint(now) {
            return;
        }
        let reader = reader(client, key);
        let seen = self.by_reader.get(&reader);
        let (seen, since) = seen.map_or(("", 0), |seen| (&*seen.fingerprint, seen.since));
        // By the other filter if another watch of it was told before.
        if [fingerprint(before), fingerprint(now)].contains(&seen) {
            self.remember(reader, fingerprint(now), since.max(at.get().saturating_add(1)));
        }
    }

    fn remember(&mut self, reader: Box<str>, fingerprint: &str, since: u64) {
        if !self.by_reader.contains_key(&reader) && self.by_reader.len() >= REMEMBERED {
            let oldest = self.by_reader.iter().min_by_key(|(_, seen)| seen.used);
            if let Some(oldest) = oldest.map(|(reader, _)| reader.clone()) {
                self.by_reader.remove(&oldest);
            }
        }
        self.uses += 1;
        self.by_reader.insert(reader, Seen { fingerprint: fingerprint.into(), since, used: self.uses });
        self.changed = true;
    }
}

/// No filter has an empty one.
fn fingerprint(filter: Option<&Filter>) -> &str {
    filter.map_or("", Filter::fingerprint)
}

/// The reader's name in every run of the hub. A client has no line break in its name: it is quoted.
fn reader(client: &Client, key: &Key) -> Box<str> {
    format!("{}\n{key}", client.name()).into()
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

    fn at(version: u64) -> ResourceVersion {
        ResourceVersion::new(version).unwrap()
    }

    #[test]
    fn who_was_told_what_differs_goes_on_from_there_and_from_no_earlier_version() {
        let key = Key::pooled(&kube_wire::resource::GroupVersionResource::new("", "v1", "services"));
        let in_pool = |pool: &str| {
            let view = View::of_node("n", Some(pool), None);
            Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into())
        };
        let (client, other) = (client(0), client(1));
        let [first, second, third] = ["a", "b", "c"].map(in_pool);
        let mut shown = Shown::default();
        shown.show(&client, &key, Some(&first), at(10));
        shown.retell(&client, &key, Some(&first), Some(&second), at(20));
        let mut again = Shown::restore(&shown.export().unwrap());
        for shown in [&mut shown, &mut again] {
            for (version, filter, saw) in
                [(19, &second, false), (20, &second, false), (21, &second, true), (21, &first, false)]
            {
                assert_eq!(shown.saw(&client, &key, Some(filter), at(version)), saw, "{version}");
            }
        }
        // Another watch of it, which had come further.
        shown.retell(&client, &key, Some(&first), Some(&second), at(25));
        assert!(
            !shown.saw(&client, &key, Some(&second), at(25))
                && shown.saw(&client, &key, Some(&second), at(26))
        );
        // One that went by a filter that it was not shown the whole through says nothing of what the client knows.
        shown.retell(&client, &key, Some(&first), Some(&third), at(30));
        assert!(shown.saw(&client, &key, Some(&second), at(30)));
        shown.retell(&other, &key, Some(&first), Some(&third), at(30));
        assert!(!shown.saw(&other, &key, Some(&third), at(30)), "it never listed");
        // Its list of an earlier version, or of versions that began anew, is whole by itself.
        shown.show(&client, &key, Some(&second), at(5));
        assert!(shown.saw(&client, &key, Some(&second), at(5)));
        // Nothing filters any more, and then something does again.
        shown.retell(&client, &key, Some(&second), None, at(40));
        assert!(!shown.saw(&client, &key, None, at(40)) && shown.saw(&client, &key, None, at(41)));
        shown.retell(&client, &key, None, Some(&first), at(50));
        shown.retell(&client, &key, Some(&first), Some(&second), at(50));
        for (version, saw) in [(50, false), (51, true)] {
            assert_eq!(
                shown.saw(&client, &key, Some(&second), at(version)),
                saw,
                "twice at one version: {version}"
            );
        }
    }

    #[test]
    fn the_oldest_reader_is_forgotten_and_no_other() {
        let resource = kube_wire::resource::GroupVersionResource::new("", "v1", "services");
        let key = Key::pooled(&resource);
        let view = View::of_node("n", None, None);
        let filter = Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into());
        let mut shown = Shown::default();
        for number in 0..REMEMBERED {
            shown.show(&client(number), &key, Some(&filter), at(1));
        }
        // The first is used again: now the second is the oldest.
        assert!(shown.saw(&client(0), &key, Some(&filter), at(1)));
        shown.show(&client(REMEMBERED), &key, Some(&filter), at(1));
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(shown.saw(&client(number), &key, Some(&filter), at(1)), "{number}");
        }
        assert!(!shown.saw(&client(1), &key, Some(&filter), at(1)));
        let mut again = Shown::restore(&shown.export().unwrap());
        assert!(shown.export().is_none() && again.export().is_none(), "nothing to write");
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(again.saw(&client(number), &key, Some(&filter), at(1)), "{number}");
        }
        assert!(!Shown::restore(b"{").saw(&client(0), &key, Some(&filter), at(1)));
    }
}
