//! Which documents are kept, and which goes when there is no room: a client that asks in ever other words costs no more disk, and drives
//! out none but its own answers. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use serde::{Deserialize, Serialize};

use super::paths::is_of_openapi;

/// How many forms of one document are kept.
const FORMS: usize = 8;

/// How many documents are kept. A cluster with a hundred groups of custom resources has some four hundred.
const KEPT: usize = 1024;

/// How many bytes all of them may have.
const BYTES: usize = 64 << 20;

/// A document that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Of its blob.
    pub(super) name: String,
    /// What was asked for, of which it is one form.
    pub(super) path: String,
    /// Whether it is in a form that many clients take: such go last.
    pub(super) common: bool,
    pub(super) bytes: usize,
    /// When it was answered last, in Unix seconds.
    pub(super) at: u64,
}

/// What is kept of `OpenAPI`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptOpenApi {
    /// How many documents, each once in however many forms it is kept.
    pub documents: usize,
    /// Bytes of all their forms on the disk.
    pub bytes: u64,
}

/// All documents that are kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    documents: Vec<Entry>,
}

impl Index {
    /// Takes in a document; the names of those that have to go for it.
    pub(super) fn put(&mut self, new: &Entry) -> Vec<String> {
        self.documents.retain(|entry| entry.name != new.name);
        self.documents.push(new.clone());
        let mut gone = Vec::new();
        while let Some(at) = self.surplus(new) {
            gone.push(self.documents.remove(at).name);
        }
        gone
    }

    /// A document was answered again. So much is not written down: a restart forgets it.
    pub(super) fn touch(&mut self, name: &str, at: u64) {
        if let Some(place) = self.documents.iter().position(|entry| entry.name == name) {
            let entry = self.documents.remove(place);
            self.documents.push(Entry { at, ..entry });
        }
    }

    /// Those of `OpenAPI` among them.
    pub(super) fn openapi(&self) -> KeptOpenApi {
        let of_openapi = || self.documents.iter().filter(|entry| is_of_openapi(&entry.path));
        let paths: BTreeSet<&str> = of_openapi().map(|entry| entry.path.as_str()).collect();
        KeptOpenApi { documents: paths.len(), bytes: of_openapi().map(|entry| entry.bytes as u64).sum() }
    }

    /// What goes next, if anything has to: the oldest form of this document if it has too many, and otherwise the oldest of the document that
    /// has most bytes in all its forms. Never the new one.
    fn surplus(&self, new: &Entry) -> Option<usize> {
        let of_path = |path: &str| self.documents.iter().filter(|entry| entry.path == path).count();
        let too_many_forms = of_path(&new.path) > FORMS;
        let bytes: usize = self.documents.iter().map(|entry| entry.bytes).sum();
        if !too_many_forms && self.documents.len() <= KEPT && bytes <= BYTES {
            return None;
        }
        let mut of_document = HashMap::<&str, usize>::new();
        for entry in &self.documents {
            *of_document.entry(&entry.path).or_default() += entry.bytes;
        }
        let others = self.documents.iter().enumerate().filter(|(_, entry)| entry.name != new.name);
        let candidates = others.filter(|(_, entry)| !too_many_forms || entry.path == new.path);
        let next = candidates.min_by_key(|(_, entry)| {
            (entry.common, Reverse(of_document.get(&*entry.path).copied()), entry.at)
        });
        next.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, form: usize, bytes: usize) -> Entry {
        Entry { name: format!("{path} {form}"), path: path.to_owned(), common: false, bytes, at: form as u64 }
    }

    #[test]
    fn a_document_has_no_more_than_so_many_forms() {
        let mut index = Index::default();
        assert!(index.put(&entry("/version", 0, 1)).is_empty());
        for form in 0..FORMS {
            assert!(index.put(&entry("/openapi/v2", form, 5 << 20)).is_empty());
            assert!(index.put(&entry("/openapi/v2", form, 5 << 20)).is_empty(), "the same again");
        }
        assert_eq!(index.put(&entry("/openapi/v2", FORMS, 5 << 20)), ["/openapi/v2 0"]);
        assert_eq!(index.documents.len(), FORMS + 1);
        index.touch("/openapi/v2 1", FORMS as u64);
        assert_eq!(index.put(&entry("/openapi/v2", FORMS + 1, 5 << 20)), ["/openapi/v2 2"]);
    }

    #[test]
    fn the_document_with_most_bytes_makes_room_and_small_ones_stay() {
        let mut index = Index::default();
        assert!(index.put(&entry("/version", 0, 300)).is_empty());
        for form in 1..=4 {
            assert!(index.put(&entry("/openapi/v2", form, 15 << 20)).is_empty());
        }
        assert_eq!(index.put(&entry("/openapi/v3", 9, 15 << 20)), ["/openapi/v2 1"]);
        assert_eq!(index.put(&entry("/openapi/v3", 10, 16 << 20)), ["/openapi/v2 2"]);
        assert_eq!(index.documents[0].path, "/version");
    }

    #[test]
    fn a_document_of_openapi_counts_once_with_the_bytes_of_all_its_forms() {
        let mut index = Index::default();
        assert_eq!(index.openapi(), KeptOpenApi::default());
        for (path, form, bytes) in [
            ("/version", 0, 300),
            ("/apis", 0, 500),
            ("/openapi/v2", 0, 7),
            ("/openapi/v2", 1, 20),
            ("/openapi/v2", 1, 10),
            ("/openapi/v3", 0, 2),
            ("/openapi/v3/api/v1", 0, 100),
        ] {
            assert!(index.put(&entry(path, form, bytes)).is_empty());
        }
        assert_eq!(index.openapi(), KeptOpenApi { documents: 3, bytes: 119 });
    }

    #[test]
    fn forms_that_many_clients_take_go_last() {
        let mut index = Index::default();
        assert!(index.put(&Entry { common: true, ..entry("/apis", 0, 1) }).is_empty());
        for form in 1..FORMS {
            assert!(index.put(&entry("/apis", form, 1)).is_empty());
        }
        assert_eq!(index.put(&entry("/apis", FORMS, 1)), ["/apis 1"]);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut index = Index::default();
        for n in 0..KEPT {
            assert!(index.put(&Entry { at: 7 + n as u64, ..entry(&format!("/apis/{n}"), 0, 10) }).is_empty());
        }
        assert_eq!(index.put(&entry("/apis/new", 0, 10)), ["/apis/0 0"]);
        assert_eq!(index.documents.len(), KEPT);
    }
}
