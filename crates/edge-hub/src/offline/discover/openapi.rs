//! The documents of `OpenAPI`, by which `kubectl explain` and the checks of `kubectl apply` go: fetched by the hub itself, so that a node where
//! nobody asked while there was a link has them without one.
//!
//! Those of version 3 are megabytes, which API servers compress for nobody. So they come one at a time and take no more than half of a
//! slow line, and each comes once: the `hash` by which the list names a document is its `ETag`, which is kept with it. Version 2 is asked for as
//! protobuf, as kubectl and client-go do; as JSON it would be as many megabytes on the disk again, which nobody but programs without client-go reads.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use tls::digest::Sha256Digest;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{OPENAPI, ask};
use crate::{
    hub::Hub,
    offline::documents::{
        Documents,
        forms::{JSON, OPENAPI_V2},
    },
};

/// All in one document, as older clients have it.
const V2: (&str, &str) = ("/openapi/v2", OPENAPI_V2);

/// How long the line is left alone before each of them, unless the one before took longer.
const PAUSE: Duration = Duration::from_secs(2);

/// How long one of them may take: the largest, 1.6 MB, takes three and a half minutes of a line of 64 kbit/s that it has for itself.
const DEADLINE: Duration = Duration::from_mins(10);

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

/// Documents to ask for: their paths, and in which form.
type Wanted = Vec<(String, &'static str)>;

/// Fetches what the list that is kept names and is not kept as it names it. Once that is done `fetched` is the list's digest, and there is nothing
/// to do until the list is another: what is too large to be kept is not fetched again and again.
pub(super) async fn fetch(hub: &Hub, fetched: &mut Option<Sha256Digest>) {
    let (documents, before) = (hub.documents.clone(), *fetched);
    // All that is kept of them is read.
    let Ok(Some((list, wanted))) = spawn_blocking(move || wanted(&documents, before)).await else { return };
    let (mut pause, mut is_whole) = (PAUSE, true);
    for (path, accept) in wanted {
        sleep(pause).await;
        let begun = Instant::now();
        // It is asked for without its hash: if it changed since the list was told, what there is now is as good.
        is_whole &= ask(hub, &path, accept, DEADLINE).await;
        pause = PAUSE.max(begun.elapsed());
    }
    if is_whole {
        *fetched = Some(list);
    }
}

/// The digest of the list that is kept, if it is not `before`, and what there is to ask for by it.
fn wanted(documents: &Documents, before: Option<Sha256Digest>) -> Option<(Sha256Digest, Wanted)> {
    let list = documents.body(OPENAPI.0, OPENAPI.1)?;
    let digest = Sha256Digest::of(&list);
    if before == Some(digest) {
        return None;
    }
    let is_kept = |path: &str, hash: &str| documents.tag(path, JSON).is_some_and(|tag| is_of(&tag, hash));
    let others = named(&list).into_iter().filter(|(path, hash)| !is_kept(path, hash));
    let mut wanted: Wanted = others.map(|(path, _)| (path, JSON)).collect();
    // It has no hash in the list, and changes with the others. First, so that it is asked for again if they do not all come.
    if !wanted.is_empty() || documents.age(V2.0, V2.1).is_none() {
        wanted.insert(0, (V2.0.to_owned(), V2.1));
    }
    Some((digest, wanted))
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

    #[test]
    fn a_tag_is_a_hash_in_quotes() {
        assert!(is_of("\"AB\"", "AB") && is_of("W/\"AB\"", "AB"));
        assert!(!is_of("\"AB\"", "ABC") && !is_of("", "AB"));
    }
}
