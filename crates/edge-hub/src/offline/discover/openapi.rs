//! The documents of `OpenAPI`, by which `kubectl explain` and the checks of `kubectl apply` go: fetched by the hub itself, so that a node where
//! nobody asked while there was a link has them without one.
//!
//! Those of version 3 are megabytes, which API servers compress for nobody. So they come one at a time and take no more than half of a
//! slow line, and each comes once: the `hash` by which the list names a document is its `ETag`, which is kept with it. Version 2 is asked for as
//! protobuf, as kubectl and client-go do; as JSON it would be as many megabytes on the disk again, which nobody but programs without client-go reads.
//!
//! Of version 3 come those that are followed: of a thousand nodes each would else fetch megabytes after each upgrade of the API server that nobody
//! there reads.
//!
//! What does not come, because the line is too thin for it or never up for long enough, or what cannot be kept, is not tried at each link: that
//! would be the same megabyte each time, and nothing after it. Others go on, and it has its next try hours later.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter::once,
    mem,
    time::Duration,
};

use kube_wire::resource::GroupVersionResource;
use serde::Deserialize;
use tls::digest::Sha256Digest;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{AGAIN, OLD, OPENAPI, ask, followed::Followed};
use crate::{
    hub::Hub,
    offline::documents::{
        Documents,
        forms::{JSON, OPENAPI_V2},
        naming,
    },
};

/// All in one document, as older clients have it.
const V2: (&str, &str) = ("/openapi/v2", OPENAPI_V2);

/// How long the line is left alone before each of them, unless the one before took longer.
const PAUSE: Duration = Duration::from_secs(2);

/// How long one of them may take. The API server resets an answer that it has not handed over within a minute (`--request-timeout`), and hands over no
/// more than the 512 KiB of a stream's window before they are read: so the largest, 1.6 MB, comes over no line below some 150 kbit/s. What is on its
/// way after that minute takes four and a half more at 16 kbit/s.
const DEADLINE: Duration = Duration::from_mins(6);

/// By how much the age of the list may be wrong: it is known to the second.
pub(super) const GRAIN: Duration = Duration::from_secs(2);

/// The list, as the API server writes it.
#[derive(Deserialize)]
struct List {
    paths: BTreeMap<String, Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

/// A document that the list names, and what is kept of it.
#[derive(Debug, Clone)]
struct Document {
    path: String,
    accept: &'static str,
    /// What it is now. Version 2 has no hash in the list, and changes with the others: it has the list's digest.
    hash: String,
    /// The `ETag` of what is kept.
    tag: Option<String>,
    /// Whether it is to be fetched, if it is not kept as it is now.
    is_followed: bool,
}

impl Document {
    fn is_v2(&self) -> bool {
        self.accept == V2.1
    }

    /// Whether what is kept is what the list names.
    fn is_kept(&self) -> bool {
        self.tag.as_deref().is_some_and(|tag| is_of(tag, &self.hash))
    }
}

/// A try at a document. It counts from its beginning: a cut in the midst of it does not repeat it.
#[derive(Debug, Clone)]
struct Try {
    hash: String,
    begun: Instant,
    /// Whether the API server said that what was kept is still it.
    is_confirmed: bool,
}

/// A list that was looked at, and for the sake of what.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Looked {
    list: Sha256Digest,
    followed: Followed,
}

/// What is remembered from link to link: tries at documents that the list names, and no others.
#[derive(Default)]
pub(super) struct Tries {
    by_path: HashMap<String, Try>,
    /// The list of which every document that is followed is kept or was tried.
    done: Option<Looked>,
    /// What is followed and the last list does not name, each since it was first missed: its group may be newer than the list.
    missed: BTreeMap<String, Instant>,
    /// Whether a document was renewed since version 2 was tried, which changes with each: of the list's documents that one no longer shows it.
    is_renewed: bool,
}

impl Tries {
    /// What need not be looked at again, as long as no try is so old that it might be repeated.
    fn done(&self, now: Instant) -> Option<&Looked> {
        let is_over = |tried: &Try| tried.is_confirmed || is_recent(tried, now);
        self.done.as_ref().filter(|_| self.by_path.values().all(is_over))
    }

    /// Whether the last list was looked at for the sake of these.
    pub(super) fn are_done(&self, followed: &Followed) -> bool {
        self.done.as_ref().is_some_and(|done| done.followed == *followed)
    }

    /// Whether a list of that age is to be asked for again before its time: it may be older than what it does not name. What a list of after that does not
    /// name, either, has no document, and no other list is asked for its sake.
    pub(super) fn want_list(&self, age: impl FnOnce() -> Option<Duration>, now: Instant) -> bool {
        let Some(since) = self.missed.values().max() else { return false };
        age().is_some_and(|age| age > OLD && age > now.duration_since(*since) + GRAIN)
    }

    /// Takes note of what is followed and not among the list's documents. `now`: the list was told after that, or is an older one.
    fn miss(&mut self, followed: &Followed, documents: &[Document], now: Instant) {
        let before = mem::take(&mut self.missed);
        let Followed::At(paths) = followed else { return };
        let named: BTreeSet<&str> = documents.iter().map(|document| &*document.path).collect();
        let missed = paths.iter().filter(|path| !named.contains(path.as_str()));
        self.missed = missed.map(|path| (path.clone(), before.get(path).copied().unwrap_or(now))).collect();
    }

    /// What of the list's documents there is to ask for: what is followed and is not kept as the list names it, unless that was tried lately, whatever
    /// came of it. Tries at what is not followed any more are remembered: it may be again.
    fn wanted(&mut self, documents: Vec<Document>, now: Instant) -> Vec<Document> {
        let mut before = mem::take(&mut self.by_path);
        // Of those that are not followed, too: any of them may be what makes another list of it, and version 2 is of all.
        let lacks =
            self.is_renewed || documents.iter().any(|document| !document.is_v2() && !document.is_kept());
        let mut wanted = Vec::new();
        for document in documents {
            let tried = before.remove(&document.path).filter(|tried| tried.hash == document.hash);
            let is_missing = if document.is_v2() {
                // Once it was tried, the others may all be there, and it is that of before.
                document.tag.is_none() || tried.as_ref().map_or(lacks, |tried| !tried.is_confirmed)
            } else {
                !document.is_kept()
            };
            let is_recent = tried.as_ref().is_some_and(|tried| is_recent(tried, now));
            if let Some(tried) = tried.filter(|tried| is_missing || is_recent || tried.is_confirmed) {
                self.by_path.insert(document.path.clone(), tried);
            }
            if document.is_followed && is_missing && !is_recent {
                wanted.push(document);
            }
        }
        wanted
    }

    fn begin(&mut self, document: &Document, begun: Instant) {
        let tried = Try { hash: document.hash.clone(), begun, is_confirmed: false };
        self.by_path.insert(document.path.clone(), tried);
        self.is_renewed &= !document.is_v2();
    }

    /// Whether a document is to be asked for before the others of its list, because it is another than is kept. These are looked at later.
    fn renews(&mut self, document: &Document, now: Instant) -> bool {
        (self.done, self.is_renewed) = (None, true);
        let tried = self.by_path.get(&document.path).filter(|tried| tried.hash == document.hash);
        !tried.is_some_and(|tried| is_recent(tried, now))
    }

    fn confirm(&mut self, path: &str) {
        if let Some(tried) = self.by_path.get_mut(path) {
            tried.is_confirmed = true;
        }
    }
}

fn is_recent(tried: &Try, now: Instant) -> bool {
    now.duration_since(tried.begun) < AGAIN
}

/// Fetches what the list that is kept names, is followed, and is not kept as it names it. Once all was tried there is nothing to do, and nothing is read but
/// the list, until the list is another, or others are followed, or the tries are old: only then is it known what of it was kept. `now`: when it was seen what
/// is followed.
pub(super) async fn fetch(hub: &Hub, tries: &mut Tries, followed: Followed, now: Instant) {
    let (documents, done) = (hub.documents.clone(), tries.done(Instant::now()).cloned());
    // All that is kept of them is read.
    let listed = spawn_blocking(move || listed(&documents, followed, done.as_ref())).await;
    let Ok(Some((looked, documents))) = listed else { return };
    tries.done = None;
    tries.miss(&looked.followed, &documents, now);
    let mut pause = PAUSE;
    for document in tries.wanted(documents, Instant::now()) {
        sleep(pause).await;
        let begun = Instant::now();
        tries.begin(&document, begun);
        // It is asked for without its hash: if it changed since the list was told, what there is now is as good.
        let Document { path, accept, tag, .. } = document;
        if ask(hub, &path, accept, tag, DEADLINE).await {
            tries.confirm(&path);
        }
        pause = PAUSE.max(begun.elapsed());
    }
    tries.done = Some(looked);
}

/// The path of the document of a resource's group and version.
pub(super) fn path(resource: &GroupVersionResource) -> String {
    format!("/openapi/v3{}/{}", naming(resource), resource.api_version())
}

/// Fetches the document at `path` if the list that is kept names another than is kept; whether it does.
pub(super) async fn renew(hub: &Hub, tries: &mut Tries, path: String) -> bool {
    let documents = hub.documents.clone();
    let document = spawn_blocking(move || {
        let list = documents.body(OPENAPI.0, OPENAPI.1)?;
        let (path, hash) = named(&list).into_iter().find(|(listed, _)| *listed == path)?;
        let tag = documents.tag(&path, JSON);
        Some(Document { path, accept: JSON, hash, tag, is_followed: true })
    });
    let Ok(Some(document)) = document.await else { return false };
    if document.is_kept() {
        return false;
    }
    if tries.renews(&document, Instant::now()) {
        tries.begin(&document, Instant::now());
        let Document { path, accept, tag, .. } = document;
        if ask(hub, &path, accept, tag, DEADLINE).await {
            tries.confirm(&path);
        }
    }
    true
}

/// The list that is kept, if it is not `done` for the sake of what is followed, and its documents. Version 2 comes first: it is all that older clients
/// have.
fn listed(
    documents: &Documents,
    followed: Followed,
    done: Option<&Looked>,
) -> Option<(Looked, Vec<Document>)> {
    let body = documents.body(OPENAPI.0, OPENAPI.1)?;
    let looked = Looked { list: Sha256Digest::of(&body), followed };
    if done == Some(&looked) {
        return None;
    }
    let document = |path: String, accept, hash, is_followed| {
        let tag = documents.tag(&path, accept);
        Document { path, accept, hash, tag, is_followed }
    };
    let v2 = document(V2.0.to_owned(), V2.1, looked.list.to_string(), true);
    let v3 = named(&body).into_iter().map(|(path, hash)| {
        let is_followed = looked.followed.has(&path);
        document(path, JSON, hash, is_followed)
    });
    let all = once(v2).chain(v3).collect();
    Some((looked, all))
}

/// The paths that a list names, and the hash of what there is at each. Nothing but documents: they are asked for in the node's name, and shown to
/// everybody.
fn named(list: &[u8]) -> Vec<(String, String)> {
    let Ok(List { paths }) = serde_json::from_slice(list) else { return Vec::new() };
    let named = paths.into_values().filter_map(|Item { url }| {
        let (path, query) = url.split_once('?')?;
        let hash = query.split('&').find_map(|parameter| parameter.strip_prefix("hash="))?;
        let is_document = path.starts_with("/openapi/v3/") && !path.split('/').any(|part| part == "..");
        is_document.then(|| (path.to_owned(), hash.to_owned()))
    });
    named.collect()
}

/// Whether an `ETag` is of that hash. What compresses on the way makes it a weak one.
fn is_of(tag: &str, hash: &str) -> bool {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"') == hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_documents_and_nothing_else() {
        let list = br#"{"paths":{
            ".well-known/openid-configuration":{"serverRelativeURL":"/openapi/v3/.well-known/openid-configuration?hash=A"},
            "api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?x=1\u0026hash=B"},
            "no hash":{"serverRelativeURL":"/openapi/v3/apis"},
            "objects":{"serverRelativeURL":"/api/v1/secrets?hash=C"},
            "objects by a way around":{"serverRelativeURL":"/openapi/v3/../../api/v1/secrets?hash=D"},
            "elsewhere":{"serverRelativeURL":"https://example.com/openapi/v3/x?hash=E"}}}"#;
        let expected = [("/openapi/v3/.well-known/openid-configuration", "A"), ("/openapi/v3/api/v1", "B")];
        assert_eq!(named(list), expected.map(|(path, hash)| (path.to_owned(), hash.to_owned())));
        assert_eq!(named(b"404 page not found"), []);
    }

    /// A document of which the list names the hash `B`, and `tag` is kept.
    fn document(path: &str, tag: &str) -> Document {
        let tag = Some(format!("\"{tag}\"")).filter(|_| !tag.is_empty());
        Document { path: path.to_owned(), accept: JSON, hash: "B".to_owned(), tag, is_followed: true }
    }

    /// Version 2 as it was with the list before, of a list of that digest.
    fn v2(list: &str) -> Document {
        Document { accept: V2.1, hash: list.to_owned(), ..document(V2.0, "A") }
    }

    /// What is wanted; all of it is tried.
    fn tried(tries: &mut Tries, documents: &[Document], now: Instant) -> Vec<String> {
        let wanted = tries.wanted(documents.to_vec(), now);
        for document in &wanted {
            tries.begin(document, now);
        }
        wanted.into_iter().map(|document| document.path).collect()
    }

    #[test]
    fn what_is_not_kept_is_wanted_and_if_it_was_tried_not_before_long() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let mut documents = vec![v2("1"), document("kept", "B"), document("other", "A"), document("new", "")];
        assert_eq!(tried(&mut tries, &documents, begun), [V2.0, "other", "new"]);
        // One came and is kept; another was not tried, because it was not named.
        documents[2] = document("other", "B");
        documents.push(document("later", ""));
        let soon = begun + AGAIN - Duration::from_secs(1);
        assert_eq!(tried(&mut tries, &documents, soon), ["later"]);
        assert_eq!(tried(&mut tries, &documents, begun + AGAIN), [V2.0, "new"]);
        // It is another now.
        documents[3].hash = "C".to_owned();
        assert_eq!(tried(&mut tries, &documents, begun + AGAIN), ["new"]);
        assert_eq!(tries.by_path.len(), 3, "what is kept and was not tried lately is forgotten");
        documents.truncate(2);
        assert!(tried(&mut tries, &documents, begun + AGAIN).is_empty());
        assert_eq!(tries.by_path.len(), 1, "and what is not named");
    }

    #[test]
    fn a_list_is_done_until_a_try_may_be_repeated() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let looked = Looked { list: Sha256Digest::of(b""), followed: Followed::All };
        tries.done = Some(looked.clone());
        assert_eq!(tried(&mut tries, &[document("new", "")], begun), ["new"]);
        assert_eq!(tries.done(begun), Some(&looked));
        assert_eq!(tries.done(begun + AGAIN), None);
        assert!(tried(&mut tries, &[document("new", "B")], begun + AGAIN).is_empty());
        assert_eq!(tries.done(begun + 2 * AGAIN), Some(&looked), "it is kept");
        assert!(tries.are_done(&Followed::All));
        assert!(!tries.are_done(&Followed::At([V2.0.to_owned()].into())), "others are followed");
    }

    #[test]
    fn what_is_not_followed_is_not_wanted_and_its_tries_count_once_it_is() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let other = |path| Document { is_followed: false, ..document(path, "A") };
        assert_eq!(tried(&mut tries, &[v2("1"), other("a"), document("b", "")], begun), [V2.0, "b"]);
        // Its group has no stream any more, and has one again: it was tried.
        let soon = begun + AGAIN - Duration::from_secs(1);
        assert!(tried(&mut tries, &[v2("1"), other("a"), other("b")], soon).is_empty());
        assert_eq!(tried(&mut tries, &[v2("1"), document("a", "A"), document("b", "")], soon), ["a"]);
    }

    #[test]
    fn a_list_that_may_be_older_than_what_it_lacks_is_asked_for_once_more() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let minutes = Duration::from_mins;
        let list = [v2("1"), document("/openapi/v3/api/v1", "B")];
        let followed = |paths: &[&str]| Followed::At(paths.iter().map(|path| (*path).to_owned()).collect());
        let core = followed(&["/openapi/v3/api/v1"]);
        tries.miss(&core, &list, begun);
        assert!(!tries.want_list(|| Some(2 * AGAIN), begun), "it lacks nothing");
        // A stream of another group, ten minutes after the list.
        let both = followed(&["/openapi/v3/api/v1", "/openapi/v3/apis/new/v1"]);
        let came = begun + minutes(10);
        tries.miss(&both, &list, came);
        for (after, expected) in [(10, false), (60, false), (61, true), (90, true)] {
            let age = || Some(minutes(after));
            assert_eq!(tries.want_list(age, begun + minutes(after)), expected, "after {after} minutes");
        }
        assert!(!tries.want_list(|| None, begun + minutes(90)), "none is kept");
        // Another list was told, which does not name it, either.
        tries.miss(&both, &list, begun + minutes(61));
        for after in [61, 122, 363] {
            let age = || Some(minutes(after - 61));
            assert!(!tries.want_list(age, begun + minutes(after)), "after {after} minutes");
        }
        // Of one more group there is a stream since then.
        let three = followed(&["/openapi/v3/api/v1", "/openapi/v3/apis/new/v1", "/openapi/v3/apis/newer/v1"]);
        tries.miss(&three, &list, begun + minutes(100));
        assert!(!tries.want_list(|| Some(minutes(39)), begun + minutes(100)), "not within the hour");
        assert!(tries.want_list(|| Some(minutes(61)), begun + minutes(122)));
        // It is named now, or nothing is looked for.
        let named = ["/openapi/v3/apis/new/v1", "/openapi/v3/apis/newer/v1"].map(|path| document(path, ""));
        tries.miss(&three, &[&list[..], &named[..]].concat(), begun + minutes(122));
        assert!(tries.missed.is_empty());
        tries.miss(&both, &list, begun);
        tries.miss(&Followed::All, &list, begun);
        assert!(tries.missed.is_empty(), "all that there is is what the list names");
    }

    #[test]
    fn version_2_is_asked_for_once_for_each_list_of_which_something_is_not_kept() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let list = |list| [v2(list), Document { is_followed: false, ..document("d", "") }];
        assert_eq!(tried(&mut tries, &list("1"), begun), [V2.0]);
        tries.confirm(V2.0);
        for later in 1..4_u32 {
            assert!(tried(&mut tries, &list("1"), begun + later * AGAIN).is_empty());
        }
        assert_eq!(tried(&mut tries, &list("2"), begun + 4 * AGAIN), [V2.0]);
    }

    #[test]
    fn version_2_is_wanted_with_others_until_it_is_known_to_be_that_of_the_list() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        let whole = |list| [v2(list), document("d", "B")];
        let changed = |list| [v2(list), document("d", "A")];
        assert!(tried(&mut tries, &whole("1"), begun).is_empty());
        assert_eq!(tried(&mut tries, &changed("2"), begun), [V2.0, "d"]);
        // Whether it is kept, or what was before, is not known before it is asked for again.
        assert!(tried(&mut tries, &whole("2"), begun).is_empty());
        assert_eq!(tried(&mut tries, &whole("2"), begun + AGAIN), [V2.0]);
        tries.confirm(V2.0);
        assert!(tried(&mut tries, &whole("2"), begun + 2 * AGAIN).is_empty());
        assert_eq!(tried(&mut tries, &changed("3"), begun + 2 * AGAIN), [V2.0, "d"]);
        let none = Document { tag: None, ..v2("3") };
        assert_eq!(tried(&mut tries, &[none], begun + 3 * AGAIN), [V2.0]);
    }

    #[test]
    fn what_is_renewed_is_asked_for_once_and_version_2_after_it() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        tries.done = Some(Looked { list: Sha256Digest::of(b""), followed: Followed::All });
        let other = document("d", "A");
        assert!(tries.renews(&other, begun));
        assert_eq!(tries.done(begun), None, "the others of that list are looked at");
        tries.begin(&other, begun);
        assert!(!tries.renews(&other, begun), "it is tried once");
        assert!(tries.renews(&Document { hash: "C".to_owned(), ..other }, begun), "unless it is another");
        // It came. All that the list names is kept, and is not what it was.
        let list = [v2("2"), document("d", "B")];
        assert_eq!(tried(&mut tries, &list, begun), [V2.0]);
        assert!(tried(&mut tries, &list, begun).is_empty());
    }

    #[test]
    fn a_resource_is_in_the_document_of_its_group_and_version() {
        for (group, expected) in [("", "/openapi/v3/api/v1"), ("apps", "/openapi/v3/apis/apps/v1")] {
            assert_eq!(path(&GroupVersionResource::new(group, "v1", "things")), expected);
        }
    }

    #[test]
    fn a_tag_is_a_hash_in_quotes() {
        assert!(is_of("\"AB\"", "AB") && is_of("W/\"AB\"", "AB"));
        assert!(!is_of("\"AB\"", "ABC") && !is_of("", "AB"));
    }
}
