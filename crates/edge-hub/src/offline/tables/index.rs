//! Which tables are kept, and which goes when there is no room: of whoever has most, the one that was asked for longest ago. Pure.

use serde::{Deserialize, Serialize};

use crate::make_room::lowest_of_most;

/// How many tables are kept.
const KEPT: usize = 256;

/// How many bytes all of them may have.
const BYTES: usize = 32 << 20;

/// A table that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Of its blob.
    pub(super) name: String,
    /// Whose it is, as a digest.
    pub(super) owner: String,
    pub(super) bytes: usize,
    /// When it was asked for last, in Unix seconds.
    pub(super) at: u64,
}

/// All tables that are kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    tables: Vec<Entry>,
    /// Whether there are no tables but these. There was no index once, and one that cannot be read is as none.
    #[serde(default)]
    pub(super) is_all: bool,
}

impl Index {
    pub(super) fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|entry| entry.name == name)
    }

    /// Takes in a table; the names of those that have to go for it.
    pub(super) fn put(&mut self, new: Entry) -> Vec<String> {
        self.tables.retain(|entry| entry.name != new.name);
        let mut gone = Vec::new();
        while self.tables.len() >= KEPT || self.bytes() + new.bytes > BYTES {
            let all = self.tables.iter().enumerate().map(|(at, entry)| (at, &entry.owner, (entry.at, at)));
            let Some(next) = lowest_of_most(all) else { break };
            gone.push(self.tables.remove(next).name);
        }
        self.tables.push(new);
        gone
    }

    /// A table was asked for. So much is not written down: a restart forgets it.
    pub(super) fn touch(&mut self, name: &str, at: u64) {
        if let Some(entry) = self.tables.iter_mut().find(|entry| entry.name == name) {
            entry.at = at;
        }
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(|entry| entry.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(owner: &str, number: usize, bytes: usize) -> Entry {
        Entry { name: format!("{owner} {number}"), owner: owner.to_owned(), bytes, at: number as u64 }
    }

    #[test]
    fn whoever_has_most_loses_what_was_asked_for_longest_ago() {
        let mut index = Index::default();
        assert!(index.put(entry("few", 0, 1)).is_empty());
        for number in 1..KEPT {
            assert!(index.put(entry("many", number, 1)).is_empty());
        }
        assert!(index.put(entry("many", 1, 2)).is_empty(), "the same again");
        index.touch("many 1", 1000);
        assert_eq!(index.put(entry("new", 0, 1)), ["many 2"]);
        assert_eq!(index.put(entry("new", 1, 1)), ["many 3"]);
        assert_eq!(index.tables.len(), KEPT);
    }

    #[test]
    fn all_have_no_more_than_so_many_bytes() {
        let mut index = Index::default();
        assert!(index.put(entry("few", 0, BYTES / 4)).is_empty());
        for number in 1..4 {
            assert!(index.put(entry("many", number, BYTES / 4)).is_empty());
        }
        assert_eq!(index.put(entry("new", 0, BYTES / 2)), ["many 1", "many 2"]);
        assert!(index.bytes() <= BYTES);
    }
}
