//! Through which filter each client was last shown the whole of a subscription. Kept on the disk, too: a hub that was killed and
//! started again goes on with the watches of clients that would be shown the same.
//!
//! What is kept may be some seconds old, and then is about an earlier view. The view of a new run is read from the same disk and is not
//! that one: such a client lists once more than it had to, unless the view is again the earlier one before it comes back.

use std::collections::HashMap;

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
    used: u64,
}

/// As it is stored: the one that was used last comes last.
#[derive(Serialize, Deserialize)]
struct Stored(Vec<(Box<str>, Box<str>)>);

impl Shown {
    /// What an earlier run exported; nothing, if it cannot be read.
    pub(super) fn restore(stored: &[u8]) -> Self {
        let Stored(readers) = serde_json::from_slice(stored).unwrap_or(Stored(Vec::new()));
        let mut shown = Self::default();
        for (reader, fingerprint) in readers.into_iter().take(REMEMBERED) {
            shown.uses += 1;
            shown.by_reader.insert(reader, Seen { fingerprint, used: shown.uses });
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
        let all = all.into_iter().map(|(reader, seen)| (reader.clone(), seen.fingerprint.clone()));
        serde_json::to_vec(&Stored(all.collect())).ok()
    }

    /// The client is being shown the whole of what `key` says through `filter`.
    pub(super) fn show(&mut self, client: &Client, key: &Key, filter: Option<&Filter>) {
        let reader = reader(client, key);
        let Some(filter) = filter else {
            self.changed |= self.by_reader.remove(&reader).is_some();
            return;
        };
        self.uses += 1;
        if let Some(seen) = self.by_reader.get_mut(&reader) {
            seen.used = self.uses;
            if *seen.fingerprint != *filter.fingerprint() {
                seen.fingerprint = filter.fingerprint().into();
                self.changed = true;
            }
            return;
        }
        if self.by_reader.len() >= REMEMBERED {
            let oldest = self.by_reader.iter().min_by_key(|(_, seen)| seen.used);
            if let Some(oldest) = oldest.map(|(reader, _)| reader.clone()) {
                self.by_reader.remove(&oldest);
            }
        }
        self.by_reader.insert(reader, Seen { fingerprint: filter.fingerprint().into(), used: self.uses });
        self.changed = true;
    }

    /// Whether what the client saw of `key` is what it would see through `filter`.
    pub(super) fn saw(&mut self, client: &Client, key: &Key, filter: Option<&Filter>) -> bool {
        self.uses += 1;
        let seen = self.by_reader.get_mut(&reader(client, key)).map(|seen| {
            seen.used = self.uses;
            &*seen.fingerprint
        });
        seen == filter.map(Filter::fingerprint)
    }
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

    #[test]
    fn the_oldest_reader_is_forgotten_and_no_other() {
        let resource = kube_wire::resource::GroupVersionResource::new("", "v1", "services");
        let key = Key::pooled(&resource);
        let view = View::of_node("n", None, None);
        let filter = Filter::new(Filtered::Services, [FilterName::NodePortIsolation].into(), view.into());
        let mut shown = Shown::default();
        for number in 0..REMEMBERED {
            shown.show(&client(number), &key, Some(&filter));
        }
        // The first is used again: now the second is the oldest.
        assert!(shown.saw(&client(0), &key, Some(&filter)));
        shown.show(&client(REMEMBERED), &key, Some(&filter));
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(shown.saw(&client(number), &key, Some(&filter)), "{number}");
        }
        assert!(!shown.saw(&client(1), &key, Some(&filter)));
        let mut again = Shown::restore(&shown.export().unwrap());
        assert!(shown.export().is_none() && again.export().is_none(), "nothing to write");
        for number in (0..=REMEMBERED).filter(|number| *number != 1) {
            assert!(again.saw(&client(number), &key, Some(&filter)), "{number}");
        }
        assert!(!Shown::restore(b"{").saw(&client(0), &key, Some(&filter)));
    }
}
