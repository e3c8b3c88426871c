//! Whether upstream is still in the time that this subscription knows.
//!
//! A watch from a version that the server has not come to is silent: a server whose etcd was restored from a backup, or another
//! cluster behind the same name, would be watched without an event until its versions pass ours, and all that it wrote before
//! would be missed. So once a watch is open, before it is read, the most recent version is asked for: one page of one object's
//! metadata. A version below ours, or below that of any other stream of the resource, means a new epoch, and only a whole list helps.
//!
//! A server that went back and has passed our version already cannot be told by its version. What it can be told by:
//! - an object that it has at a version that we have passed, and we do not have at that version, or with another UID. Of the object that changed last it is asked, and
//!   it shows one more;
//! - at the version that it was at then, to which the watch comes: that object is still held though the server said that it has none
//!   of that name, or there are not as many objects as it said. Until all that is known fits, what the watch tells is [held back].
//!
//! [held back]: super::watch
//!
//! What is left are restores by which the object that changed last was not touched, or was changed again beyond our version, and that took away as
//! many objects as were made since: then what was changed between the backup and our version is not noticed until it changes again.

use axum::body::Body;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube_wire::{frame::read::WatchEvent, resource::ObjectKey, resource_version::ResourceVersion};
use serde::Deserialize;
use watch_cache::{Cache, Snapshot};

use super::{Ended, Undone, list};
use crate::{
    subscriptions::Subscription,
    upstream::{Credential, USER_AGENT, Upstream, UpstreamError},
};

/// One object's metadata is far smaller.
const LARGEST: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    metadata: Head,
    /// `null` if there are none.
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
    remaining_item_count: Option<usize>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    resource_version: String,
}

/// What is believed of upstream, as long as nothing speaks against it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Believed {
    /// How many objects there are: Kubernetes promises only an estimate.
    pub(super) counts: bool,
    /// That the versions of all streams of the resource are of one etcd: an API may have some of its own for each caller.
    pub(super) others: bool,
}

impl Default for Believed {
    fn default() -> Self {
        Self { counts: true, others: true }
    }
}

/// What must hold once the watch has come to the version that the server was at.
#[derive(Debug, Default)]
pub(super) struct Expected {
    at: Option<ResourceVersion>,
    /// How many objects there are, if it is known.
    count: Option<i64>,
    /// An object that is held and that the server did not have: an event has told of its end by then.
    gone: Option<(ObjectKey, String)>,
    /// How many objects are held, with what was told since: fewer than none where the end of one is told that was never held.
    held: i64,
}

impl Expected {
    /// The version that the server was at, if it said so.
    pub(super) fn at(&self) -> Option<ResourceVersion> {
        self.at
    }

    /// Why what is held, with what was told since, may not be what the server had; nothing if all that is known of it fits. Of an outage
    /// in which something changed it is said until that was told, which the server does at once.
    pub(super) fn doubt(&self) -> Option<String> {
        let at = self.at?;
        if let Some((key, _)) = &self.gone {
            return Some(format!("{key} is held and was not there at version {at}"));
        }
        let count = self.count.filter(|count| *count != self.held)?;
        Some(format!("{} are held, and at version {at} there were {count}", self.held))
    }

    /// Takes note of what is told. Fails with [`Ended::Diverged`] if there is a doubt and it can no longer be taken away.
    pub(super) fn note(&mut self, event: &WatchEvent) -> Result<(), Ended> {
        let version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                object.resource_version()
            }
            WatchEvent::Bookmark { resource_version, .. } => *resource_version,
            WatchEvent::Error(_) => return Ok(()),
        };
        // All up to the version that the server was at was told before this one.
        if self.at.is_some_and(|at| at < version) {
            self.judge()?;
        }
        match event {
            WatchEvent::Added(_) => self.held += 1,
            WatchEvent::Deleted(object) => {
                self.held -= 1;
                let is_told = |(key, uid): &mut _| object.key() == key && object.uid() == uid;
                drop(self.gone.take_if(is_told));
            }
            _ => {}
        }
        // No two changes of one resource have a version.
        if self.at.is_some_and(|at| at == version) { self.judge() } else { Ok(()) }
    }

    /// Judges, once.
    fn judge(&mut self) -> Result<(), Ended> {
        let doubt = self.doubt();
        *self = Self::default();
        doubt.map_or(Ok(()), |reason| Err(Ended::Diverged { reason, is_certain: false }))
    }

    /// With what the server says now; what was told so far was told.
    pub(super) fn again(self, now: Self) -> Self {
        Self { count: self.count.and(now.count), gone: self.gone.and(now.gone), held: self.held, ..now }
    }
}

/// Fails if upstream is not, or no longer, in the time that is known: of this subscription, and of any of the resource if they are believed.
/// What cannot be read says nothing.
pub(super) async fn check(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
    (undone, believed): (&Undone, Believed),
) -> Result<Expected, Ended> {
    let (ours, key) = (subscription.version().ok_or(Ended::Expired)?, subscription.key());
    // Nobody else changes it.
    let held = subscription.read(Cache::snapshot).ok_or(Ended::Expired)?;
    let latest = held.iter().max_by_key(|object| object.resource_version());
    let mut gone = None;
    if let Some(latest) = latest.filter(|_| !key.fields.contains("metadata.name=")) {
        let path = list::by_name(key, latest.key());
        if let Some(found) = ask(upstream, credential, &path).await? {
            let items = found.items.unwrap_or_default();
            compare(&held, ours, &items)?;
            gone = items.is_empty().then(|| (latest.key().clone(), latest.uid().to_owned()));
        }
    }
    // Before it is asked for: others go on meanwhile.
    let furthest = believed.others.then(|| undone.furthest(&key.resource)).flatten();
    // After the one above: what was gone before that version is known by then.
    let Some(first) = ask(upstream, credential, &key.path_with("limit=1")).await? else {
        return Ok(Expected::default());
    };
    let Some(theirs) = parsed(&first.metadata.resource_version) else { return Ok(Expected::default()) };
    let known = furthest.map_or(ours, |furthest| furthest.max(ours));
    if theirs < known {
        return Err(Ended::Rewound { known, theirs });
    }
    undone.come(&key.resource, undone.listed_after(&key.to_string()), theirs);
    let items = first.items.unwrap_or_default();
    compare(&held, ours, &items)?;
    let whole = key.labels.is_empty() && key.fields.is_empty();
    let more = if first.metadata.next.is_empty() { Some(0) } else { first.metadata.remaining_item_count };
    let count =
        more.filter(|_| whole && believed.counts).and_then(|more| i64::try_from(items.len() + more).ok());
    let held = i64::try_from(held.len()).unwrap_or(i64::MAX);
    Ok(Expected { at: Some(theirs), count, gone, held })
}

/// No two objects have one version, and up to our version nothing was changed that is not held as it was then.
fn compare(held: &Snapshot, ours: ResourceVersion, items: &[Item]) -> Result<(), Ended> {
    for Item { metadata } in items {
        let key = ObjectKey::new(&metadata.namespace, &metadata.name);
        let Some(version) = parsed(&metadata.resource_version) else { continue };
        let known = held.get(&key);
        let fits = match known {
            Some(known) if known.resource_version() == version => known.uid() == metadata.uid,
            Some(_) | None => ours < version,
        };
        if !fits {
            let known = known.map_or("not held".to_owned(), |known| known.resource_version().to_string());
            let reason = format!("{key}: {known} at {ours}, and upstream has it at {version}");
            return Err(Ended::Diverged { reason, is_certain: true });
        }
    }
    Ok(())
}

fn parsed(version: &str) -> Option<ResourceVersion> {
    version.parse().ok()
}

/// The server's most recent version; `None` if it does not say.
pub(super) async fn most_recent(
    upstream: &Upstream,
    subscription: &Subscription,
    credential: &Credential,
) -> Option<ResourceVersion> {
    let listed = ask(upstream, credential, &subscription.key().path_with("limit=1")).await.ok()??;
    parsed(&listed.metadata.resource_version)
}

/// A page of metadata at the server's most recent version: without `resourceVersion` even a server that lags behind others gives it.
async fn ask(upstream: &Upstream, credential: &Credential, path: &str) -> Result<Option<Listed>, Ended> {
    let request = Request::get(path)
        .header(header::ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Body::empty())
        .map_err(|error| Ended::Unreadable(error.to_string()))?;
    let response = upstream.send(credential, request).await?;
    if response.status() != StatusCode::OK {
        return Err(list::refused(response).await);
    }
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| Ended::Link(UpstreamError::Broken(error)))?.to_bytes();
    Ok(serde_json::from_slice(&body).ok())
}

#[cfg(test)]
mod tests {
    use kube_wire::object::Object;
    use serde_json::json;

    use super::*;

    /// A node's widgets: `told` is a sign, `+`, `~` or `-`, a name and the version; `@` and a version for a bookmark.
    fn event(told: &str) -> WatchEvent {
        let (change, rest) = told.split_at(1);
        if change == "@" {
            return WatchEvent::Bookmark { resource_version: rest.parse().unwrap(), initial_end: false };
        }
        let (name, version) = rest.split_at(1);
        let metadata = json!({ "name": name, "namespace": "a", "uid": name, "resourceVersion": version });
        let object = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata });
        let object = Object::from_json(object.to_string().into()).unwrap();
        match change {
            "+" => WatchEvent::Added(object),
            "~" => WatchEvent::Modified(object),
            "-" => WatchEvent::Deleted(object),
            _ => panic!("{told}"),
        }
    }

    /// `?` as long as there is a doubt, `.` as long as there is none, after each event; `!` where what is held cannot be.
    fn judged(expected: Expected, told: &[&str]) -> String {
        let mut expected = expected;
        let doubt = |expected: &Expected| if expected.doubt().is_some() { '?' } else { '.' };
        let mut judged = String::from(doubt(&expected));
        for told in told {
            let noted = expected.note(&event(told));
            judged.push(if noted.is_err() { '!' } else { doubt(&expected) });
        }
        judged
    }

    #[test]
    fn what_the_watch_tells_takes_a_doubt_away_or_proves_it() {
        let at = |version: u64| ResourceVersion::new(version);
        let held = |count| Expected { at: at(5), count: Some(count), gone: None, held: 2 };
        let gone = |count| Expected { gone: Some((ObjectKey::new("a", "x"), "x".to_owned())), ..held(count) };
        let none = |count| Expected { held: 0, ..held(count) };
        let cases: [(Expected, &[&str], &str); 14] = [
            // All fits.
            (held(2), &[], "."),
            (held(2), &["~x4", "~x6"], "..."),
            (held(2), &["+z4", "-z5"], ".?."),
            // What changed meanwhile is told.
            (held(3), &["+z4", "@9"], "?.."),
            (held(1), &["-y3"], "?."),
            (gone(1), &["-y3", "-x4", "+y5"], "???."),
            (gone(2), &["-x3", "+x4", "@5"], "??.."),
            // It is not, though the watch has come to where it would have been.
            (held(1), &["~x5"], "?!"),
            (held(1), &["@5"], "?!"),
            (held(1), &["~x4", "~x6"], "??!"),
            (gone(2), &["@7"], "?!"),
            // Too many of the same were told.
            (held(2), &["+z4", "@5"], ".?!"),
            // As many are told as there were, but the end of one as well that was never held.
            (none(1), &["-y3", "+x4", "@5"], "???!"),
            // What comes later says nothing of that time.
            (held(2), &["@5", "+z6", "@7"], "...."),
        ];
        for (expected, told, answer) in cases {
            let what = format!("{expected:?} {told:?}");
            assert_eq!(judged(expected, told), answer, "{what}");
        }
    }

    #[test]
    fn an_object_that_upstream_cannot_have_beside_what_is_held_is_found() {
        let mut cache = Cache::new(watch_cache::Limits::default());
        let WatchEvent::Added(held) = event("+x4") else { unreachable!() };
        cache.replace(vec![std::sync::Arc::new(held)], ResourceVersion::new(5).unwrap()).unwrap();
        let held = cache.snapshot().unwrap();
        for (name, uid, version, fits) in [
            ("x", "x", "4", true),
            ("x", "x", "7", true),
            ("x", "other", "6", true),
            ("x", "x", "3", false),
            ("x", "x", "5", false),
            ("x", "other", "4", false),
            ("y", "y", "6", true),
            ("y", "y", "5", false),
            ("y", "y", "unreadable", true),
        ] {
            let item = json!({ "metadata": { "name": name, "namespace": "a", "uid": uid, "resourceVersion": version } });
            let items = [serde_json::from_value(item).unwrap()];
            assert_eq!(
                compare(&held, ResourceVersion::new(5).unwrap(), &items).is_ok(),
                fits,
                "{name} {uid} {version}"
            );
        }
    }

    #[test]
    fn who_is_asked_again_says_what_there_is_now() {
        let at = |version: u64| ResourceVersion::new(version);
        let gone = || Some((ObjectKey::new("a", "x"), "x".to_owned()));
        let before = || Expected { at: at(5), count: Some(1), gone: gone(), held: 2 };
        let mut told = before();
        told.note(&event("-x4")).unwrap();
        let now = || Expected { at: at(8), count: Some(1), gone: gone(), held: 2 };
        assert_eq!(told.again(now()).doubt(), None, "what was told is no longer held");
        assert!(before().again(now()).doubt().is_some());
        let uncounted = || Expected { count: None, ..before() };
        assert!(uncounted().again(Expected { gone: None, ..now() }).doubt().is_none());
    }
}
