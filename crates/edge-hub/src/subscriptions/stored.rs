//! When a version that came without a change is stored, so that a restart can go on from there.

use std::time::Duration;

use kube_wire::resource_version::ResourceVersion;
use tokio::time::Instant;

use super::Key;
use crate::upstream::{Connection, Source};

/// How long after what was stored last a bookmark of a part of a resource is. Events of other parts drive the last one of this out of the API server's history, of which it
/// promises 75 s; its bookmarks come once a minute, and none of them is to be missed for coming early. Not of one object by its name, of which a node has some hundred, each
/// Secret and ConfigMap of its pods: to list that one anew costs less than a page of the disk each minute. Nor of a whole resource: all that leaves the API server's history of
/// it is told, and stored with its version, so what was told last is as good as any, as long as it is the same server; of another see [`Stored::is_accepted_over`].
const PART: Duration = Duration::from_secs(45);

/// The API server's history of a resource has room for this many events at least, whose versions are all different: one that is no more
/// behind is in it.
const HISTORY: u64 = 100;

/// Which version of a stream is stored, and since when.
#[derive(Debug)]
pub struct Stored {
    /// `None` where the store does not have what is held: it has nothing of it, or is being given another list.
    version: Option<ResourceVersion>,
    at: Instant,
    /// The connection over which the last upstream watch was opened.
    over: Option<Connection>,
}

impl Stored {
    /// `version` was stored just now, or a while ago: it counts from now on.
    pub fn new(version: Option<ResourceVersion>) -> Self {
        Self { version, at: Instant::now(), over: None }
    }

    /// `version` was stored just now, or nothing is stored any more.
    pub fn is_at(&mut self, version: Option<ResourceVersion>) {
        (self.version, self.at) = (version, Instant::now());
    }

    /// Whether a bookmark is to be stored, as what is stored would be too old soon.
    pub fn is_due(&self, key: &Key, bookmark: ResourceVersion) -> bool {
        let is_part = !key.is_whole() && !key.is_of_one_name();
        is_part && self.at.elapsed() >= PART && self.behind(bookmark) >= HISTORY
    }

    /// An upstream watch was opened from `version` on. Whether that is to be stored: what is stored is older, and may be from before another server
    /// began, which accepted this one.
    pub fn is_accepted_over(&mut self, source: &Source, key: &Key, version: ResourceVersion) -> bool {
        let is_same = self.over.as_ref().is_some_and(|over| over.is_that_of(source));
        self.over = Some(source.connection());
        !is_same && !key.is_of_one_name() && self.behind(version) > 0
    }

    /// How far what is stored is behind; not at all where it is something else.
    pub fn behind(&self, version: ResourceVersion) -> u64 {
        self.version.map_or(0, |stored| version.get().saturating_sub(stored.get()))
    }
}

#[cfg(test)]
mod tests {
    use kube_wire::resource::GroupVersionResource;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_is_stored_before_the_api_server_forgets_it() {
        let whole = Key::pooled(&GroupVersionResource::new("", "v1", "pods"));
        let part = Key { namespace: "a".into(), ..whole.clone() };
        let fields = Key { fields: "spec.nodeName=n".into(), ..whole.clone() };
        let one = Key { fields: "metadata.name=n,spec.x=y".into(), ..part.clone() };
        // (which, after so many seconds, so much further, whether it is due).
        let table = [
            (&part, 44, 5000, false),
            (&part, 45, 5000, true),
            (&fields, 60, 100, true),
            (&fields, 6000, 99, false),
            (&one, 6000, 5000, false),
            (&whole, 60, 5000, false),
            (&whole, 6000, 5000, false),
        ];
        let version = |number| ResourceVersion::new(number).unwrap();
        for (key, seconds, further, due) in table {
            let stored = Stored::new(Some(version(1000)));
            advance(Duration::from_secs(seconds)).await;
            assert_eq!(stored.is_due(key, version(1000 + further)), due, "{key} {seconds} {further}");
        }
        let relisted = Stored::new(None);
        advance(Duration::from_mins(100)).await;
        assert!(!relisted.is_due(&part, version(5000)) && relisted.behind(version(5000)) == 0);
    }
}
