//! Documents about the API itself: discovery, `OpenAPI`, version, health. Handed on while there is a link, and kept as they came;
//! answered from what was kept while there is none.
//!
//! Every authenticated user may read them (the role `system:discovery`), so they are kept once for all.

mod asked;
pub mod forms;
mod groups;
mod index;
mod paths;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use axum::body::{Body, Bytes};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tls::digest::Sha256Digest;
use tracing::{debug, warn};

pub use self::{
    groups::naming,
    index::KeptOpenApi,
    paths::{is_document, is_of_health},
};
use self::{
    index::{Entry, Index},
    paths::subject,
};
use super::{
    coding::{Coding, LARGEST},
    collected::Collected,
    tee,
};
use crate::{
    storage::{Storage, StorageError},
    tasks::Tasks,
};

/// How long what was answered again is not written again, in seconds: only how old it is would be another.
const WRITTEN_AGAIN: u64 = 3600;

/// Of how many documents it is known when they were answered last.
const CONFIRMED: usize = 1024;

/// The index of what is kept.
const INDEX: &str = "documents";

/// Headers that a client needs to read or to revalidate the document.
const KEPT_HEADERS: [header::HeaderName; 4] =
    [header::CONTENT_TYPE, header::ETAG, header::VARY, header::CACHE_CONTROL];

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    headers: Vec<(String, String)>,
    digest: String,
    /// When it was answered, in Unix seconds.
    #[serde(default)]
    at: u64,
}

/// Keeps documents and gives them back.
#[derive(Clone)]
pub struct Documents {
    storage: Storage,
    tasks: Tasks,
    /// When those were answered again that did not change, in Unix seconds.
    confirmed: Arc<Mutex<HashMap<String, u64>>>,
    /// What is on its way to the disk, by its name: it is answered as if it were there. Until then it counts as collected.
    passed: Arc<Mutex<HashMap<String, Bytes>>>,
    /// What was read from the disk and is being answered: however many read it slowly, it is in memory once. Held while it is read, and
    /// forgotten once another is written: none of before is answered after.
    lent: Arc<Mutex<HashMap<String, Weak<Bytes>>>>,
    /// Held by who writes.
    index: Arc<Mutex<Index>>,
    /// What of `OpenAPI` is in the index; nobody holds it while the disk is waited for.
    openapi: Arc<Mutex<KeptOpenApi>>,
    /// The paths of documents of `OpenAPI` that clients asked for.
    asked: Arc<Mutex<BTreeSet<String>>>,
}

/// What was read, until the last who is answered with it has it.
struct Lent(Arc<Bytes>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// How a document in one of its forms is called.
struct Name {
    blob: String,
    /// What it is about, whatever its form.
    path: String,
    /// Whether many clients take that form.
    common: bool,
}

impl Documents {
    /// Documents in `storage`.
    pub fn new(storage: Storage, tasks: Tasks) -> Self {
        let (index, asked) = (stored::<Index>(&storage, INDEX), stored(&storage, asked::ASKED));
        let openapi = Arc::new(Mutex::new(index.lock().openapi()));
        Self {
            storage,
            tasks,
            confirmed: Arc::default(),
            passed: Arc::default(),
            lent: Arc::default(),
            index,
            openapi,
            asked,
        }
    }

    /// What is kept of `OpenAPI`, asked for or not.
    pub fn openapi(&self) -> KeptOpenApi {
        *self.openapi.lock()
    }

    /// How long ago the API server gave the document to whoever accepts exactly that; nothing if it is not kept.
    pub fn age(&self, path_and_query: &str, accept: &str) -> Option<Duration> {
        let name = named(path_and_query, accept).blob;
        let (head, _) = self.head(&name)?;
        Some(since(self.last(&name, &head)))
    }

    /// The `ETag` of the document that is kept for whoever accepts exactly that.
    pub fn tag(&self, path_and_query: &str, accept: &str) -> Option<String> {
        let (head, _) = self.head(&named(path_and_query, accept).blob)?;
        head.headers.into_iter().find(|(name, _)| name == header::ETAG.as_str()).map(|(_, tag)| tag)
    }

    /// The document that is kept for whoever accepts exactly that.
    pub fn body(&self, path_and_query: &str, accept: &str) -> Option<Bytes> {
        let (_, body) = self.head(&named(path_and_query, accept).blob)?;
        Some(body)
    }

    /// The API server says that the document that is kept is still the one.
    pub fn confirm(&self, path_and_query: &str, accept: &str) {
        let (name, at) = (named(path_and_query, accept).blob, unix_seconds());
        self.note(&name, at);
        let index = self.index.clone();
        self.tasks.spawn_blocking(move || index.lock().touch(&name, at));
    }

    /// Keeps the answer of upstream as its body passes, if it is a whole document.
    pub fn keep(&self, path_and_query: &str, accept: &HeaderMap, response: Response<Body>) -> Response<Body> {
        self.keep_and(path_and_query, accept, response, |_| {})
    }

    /// The same, and then does something.
    fn keep_and(
        &self,
        path_and_query: &str,
        accept: &HeaderMap,
        response: Response<Body>,
        then: impl FnOnce(&Self) + Send + Unpin + 'static,
    ) -> Response<Body> {
        let coding = Coding::of(response.headers()).filter(|_| response.status() == StatusCode::OK);
        let Some(coding) = coding else { return response };
        let name = name(path_and_query, accept);
        let headers = kept(response.headers());
        let documents = self.clone();
        tee::collect(response, LARGEST, move |collected: Collected| {
            if let Some(plain) = collected.plain(coding) {
                documents.store(name, headers, plain);
                then(&documents);
            }
        })
    }

    /// Keeps `body` as what whoever accepts exactly `accept` would have been answered: for what came in another form.
    pub fn keep_as(&self, path_and_query: &str, accept: &'static str, headers: &HeaderMap, body: &[u8]) {
        let mut headers = headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(accept));
        self.store(named(path_and_query, accept), kept(&headers), Collected::own(body));
    }

    /// Whoever asks from now on finds it. The disk has it later: it may be slow, and no thread of the runtime waits for it.
    fn store(&self, name: Name, headers: Vec<(String, String)>, mut body: Collected) {
        let (digest, at) = (Sha256Digest::of(&body).to_string(), unix_seconds());
        let Ok(mut head) = serde_json::to_vec(&Head { headers, digest, at }) else { return };
        head.push(b'\n');
        if !body.put_before(&head) {
            return;
        }
        self.passed.lock().insert(name.blob.clone(), Bytes::from_owner(body));
        let documents = self.clone();
        self.tasks.spawn_blocking(move || documents.write(&name));
    }

    /// Writes what has passed as `name`, if that is anything new.
    fn write(&self, name: &Name) {
        let mut index = self.index.lock();
        let Some(blob) = self.passed.lock().get(&name.blob).cloned() else { return };
        if let Some((new, _)) = parse(&blob) {
            let is_recent = |head: &Head| head.at.saturating_add(WRITTEN_AGAIN) > new.at;
            let stored = self.storage.blob(&name.blob).and_then(|blob| parse(&blob));
            let is_known = stored.is_some_and(|(head, _)| head.digest == new.digest && is_recent(&head));
            if is_known {
                self.note(&name.blob, new.at);
                index.touch(&name.blob, new.at);
            } else if let Err(error) = self.put(&mut index, name, &blob, new.at) {
                warn!(path = name.path, %error, "a document about the API cannot be kept");
            }
        }
        let mut passed = self.passed.lock();
        // Another answer may have passed meanwhile; its writer waits for this one.
        if passed.get(&name.blob).is_some_and(|latest| latest.as_ptr() == blob.as_ptr()) {
            passed.remove(&name.blob);
        }
    }

    /// The index first: what it names and is not there costs nothing, and what is there and it does not name would stay for ever.
    fn put(&self, index: &mut Index, name: &Name, blob: &[u8], at: u64) -> Result<(), StorageError> {
        let Name { blob: name, path, common } = name;
        let entry = Entry { name: name.clone(), path: path.clone(), common: *common, bytes: blob.len(), at };
        for gone in index.put(&entry) {
            debug!(name = gone, "a document about the API makes room");
            self.confirmed.lock().remove(&gone);
            self.storage.remove_blob(&gone)?;
            self.lent.lock().remove(&gone);
        }
        self.storage.put_blob(INDEX, &serde_json::to_vec(&*index).unwrap_or_default())?;
        self.storage.put_blob(name, blob)?;
        *self.openapi.lock() = index.openapi();
        self.lent.lock().remove(name);
        Ok(())
    }

    /// Notes that a document was answered then.
    fn note(&self, name: &str, at: u64) {
        let mut confirmed = self.confirmed.lock();
        if confirmed.len() < CONFIRMED || confirmed.contains_key(name) {
            confirmed.insert(name.to_owned(), at);
        }
    }

    fn head(&self, name: &str) -> Option<(Head, Bytes)> {
        let passed = self.passed.lock().get(name).cloned();
        parse(&passed.or_else(|| self.read(name))?)
    }

    /// What is on the disk.
    fn read(&self, name: &str) -> Option<Bytes> {
        let mut lent = self.lent.lock();
        if let Some(blob) = lent.get(name).and_then(Weak::upgrade) {
            return Some(Bytes::from_owner(Lent(blob)));
        }
        lent.retain(|_, blob| blob.strong_count() > 0);
        let blob = Arc::new(self.storage.blob(name)?);
        lent.insert(name.to_owned(), Arc::downgrade(&blob));
        Some(Bytes::from_owner(Lent(blob)))
    }

    /// When a document that is kept was last answered.
    fn last(&self, name: &str, head: &Head) -> u64 {
        self.confirmed.lock().get(name).copied().unwrap_or(0).max(head.at)
    }

    /// The document as it was kept, with its age, or `None`. If the client's own form of it is not there, or an older one than that of
    /// all clients, it gets that.
    pub fn answer(&self, path_and_query: &str, request: &HeaderMap, linked: bool) -> Option<Response<Body>> {
        let found = |name: String| {
            let (head, body) = self.head(&name)?;
            Some((self.last(&name, &head), head, body))
        };
        let newer = |one: Option<(u64, Head, Bytes)>, other: Option<(u64, Head, Bytes)>| match (one, other) {
            (Some(one), Some(other)) => Some(if other.0 > one.0 { other } else { one }),
            (one, other) => one.or(other),
        };
        // What is asked of one group or version is in discovery of all of them.
        let part = || {
            let path = path_and_query.split('?').next().unwrap_or_default();
            let (at, head, body) = found(named(groups::source(path)?, forms::AGGREGATED).blob)?;
            let plain = groups::plain(path, &body)?;
            let headers = vec![(header::CONTENT_TYPE.to_string(), forms::JSON.to_owned())];
            Some((at, Head { headers, ..head }, plain.into()))
        };
        let common = forms::accepted(request).into_iter().find_map(|form| {
            let part = if form == forms::JSON { part() } else { None };
            newer(found(named(path_and_query, form).blob), part)
        });
        let newer = newer(found(name(path_and_query, request).blob), common);
        let (at, head, body) = newer?;
        let mut response = Response::new(Body::empty());
        for (header, value) in &head.headers {
            if let (Ok(header), Ok(value)) =
                (header.parse::<header::HeaderName>(), HeaderValue::from_str(value))
            {
                response.headers_mut().insert(header, value);
            }
        }
        let known = request.get(header::IF_NONE_MATCH);
        if known.is_some() && known == response.headers().get(header::ETAG) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *response.body_mut() = Body::from(body);
        }
        let warning = warning(Some(subject(path_and_query)), since(at), linked, None);
        response.headers_mut().insert(header::WARNING, warning);
        // kubectl keeps what has an `ETag`, its warning included, and would show that one when there is a link again.
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        debug!(path_and_query, "answered from what was kept");
        Some(response)
    }
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = KEPT_HEADERS.iter().filter_map(|header| {
        let value = headers.get(header)?.to_str().ok()?;
        Some((header.to_string(), value.to_owned()))
    });
    kept.collect()
}

/// What was stored so; nothing, if it was not or cannot be read.
fn stored<T: Default + DeserializeOwned>(storage: &Storage, name: &str) -> Arc<Mutex<T>> {
    let blob = storage.blob(name).and_then(|blob| serde_json::from_slice(&blob).ok());
    Arc::new(Mutex::new(blob.unwrap_or_default()))
}

fn parse(blob: &Bytes) -> Option<(Head, Bytes)> {
    let end = blob.iter().position(|byte| *byte == b'\n')?;
    let head = serde_json::from_slice(&blob[..end]).ok()?;
    Some((head, blob.slice(end + 1..)))
}

/// One document has several forms; the `Accept` header chooses.
fn name(path_and_query: &str, headers: &HeaderMap) -> Name {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named(path_and_query, accept)
}

fn named(path_and_query: &str, accept: &str) -> Name {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let asked = asked(path, query);
    let digest = Sha256Digest::of(format!("{asked}\n{accept}").as_bytes());
    Name { blob: format!("document-{digest}"), path: path.to_owned(), common: forms::is_common(accept) }
}

/// The path, and what of the query makes it another document: how much is told of health. The API server looks at nothing else but the `hash` of
/// an `OpenAPI` document, of which it has one version: who asks for another is sent to that. So it is here, and `no-store` keeps its readers from
/// taking it for what they named.
fn asked(path: &str, query: &str) -> String {
    let is_verbose = query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"));
    if is_of_health(path) && is_verbose { format!("{path}?verbose") } else { path.to_owned() }
}

fn since(at: u64) -> Duration {
    Duration::from_secs(unix_seconds().saturating_sub(at))
}

/// How old an answer from what was kept may be, as the `Warning` header tells it (RFC 7234, 5.5.4: 110 is "stale"; Kubernetes
/// clients show 299 only). `of` says what it is, if clients ask for it beside what their user named. What is from before this start has no age that a clock without battery would tell right, so it is said when the `last_link`
/// ended, if that is known.
pub fn warning(of: Option<&str>, age: Duration, linked: bool, last_link: Option<Timestamp>) -> HeaderValue {
    let answered = of.map_or_else(|| "answered".to_owned(), |of| format!("{of} answered"));
    let why = if linked { "not asked of the API server" } else { "no link to the API server" };
    let text = if age > Duration::from_hours(8760) {
        let ended = last_link.map_or_else(String::new, |at| format!("; the last link ended at {at}"));
        format!("299 edge-hub \"{why}: {answered} from what was stored before this start{ended}\"")
    } else {
        format!("299 edge-hub \"{why}: {answered} from what was known {}s ago\"", age.as_secs())
    };
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("299 edge-hub \"stale\""))
}

/// Now, in Unix seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// Now, in Unix milliseconds.
pub fn unix_milliseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn however_many_are_answered_with_a_document_it_is_in_memory_once() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, _) = Storage::open(folder.path(), [7; 32]).unwrap();
        let keep = async |body: &'static str| {
            let tasks = Tasks::new(CancellationToken::new());
            let documents = Documents::new(storage.clone(), tasks.clone());
            documents.keep_as("/version", forms::JSON, &HeaderMap::new(), body.as_bytes());
            tasks.wait().await;
            documents
        };
        let accept = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(forms::JSON))]);
        let body = async |documents: &Documents| {
            let answer = documents.answer("/version", &accept, false).unwrap();
            answer.into_body().collect().await.unwrap().to_bytes()
        };
        let documents = keep("one").await;
        let (first, second) = (body(&documents).await, body(&documents).await);
        assert_eq!((&*first, &*second), (&b"one"[..], &b"one"[..]));
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_eq!(documents.lent.lock().values().filter(|blob| blob.strong_count() > 0).count(), 1);
        // Somebody still reads the one of before.
        let name = named("/version", forms::JSON);
        let other = documents.storage.blob(&name.blob).unwrap();
        let other = Bytes::from(String::from_utf8(other.to_vec()).unwrap().replace("one", "two"));
        documents.put(&mut documents.index.lock(), &name, &other, 1).unwrap();
        assert_eq!((body(&documents).await, &*first), (Bytes::from("two"), &b"one"[..]));
        drop((first, second));
        assert!(
            documents.lent.lock().values().all(|blob| blob.strong_count() == 0),
            "nothing is kept in memory"
        );
    }

    #[test]
    fn a_document_is_called_by_what_it_depends_on() {
        for (path, query, expected) in [
            ("/version", "timeout=32s", "/version"),
            ("/apis", "x=1&hash=2", "/apis"),
            ("/openapi/v2", "timeout=32s", "/openapi/v2"),
            ("/openapi/v3/apis/apps/v1", "x=1&hash=AB", "/openapi/v3/apis/apps/v1"),
            ("/readyz", "verbose&exclude=etcd", "/readyz?verbose"),
            ("/readyz", "exclude=etcd", "/readyz"),
            ("/livez/", "verbose=", "/livez/?verbose"),
        ] {
            assert_eq!(asked(path, query), expected, "{path}?{query}");
        }
    }

    #[test]
    fn a_warning_says_of_which_document_it_is() {
        for (path, of) in [
            ("/api", "discovery "),
            ("/apis?timeout=32s", "discovery "),
            ("/apis/apps/v1", "discovery "),
            ("/openapi/v3/apis/apps/v1?hash=1", "OpenAPI "),
            ("/version?timeout=32s", "version "),
            ("/openid/v1/jwks", "OpenID "),
            ("/readyz?verbose", "health "),
        ] {
            let said = warning(Some(subject(path)), Duration::from_secs(9), false, None);
            let expected = format!(
                "299 edge-hub \"no link to the API server: {of}answered from what was known 9s ago\""
            );
            assert_eq!(said.to_str().unwrap(), expected, "{path}");
        }
        let said = warning(None, Duration::MAX, true, None);
        let expected =
            "299 edge-hub \"not asked of the API server: answered from what was stored before this start\"";
        assert_eq!(said, expected);
    }
}
