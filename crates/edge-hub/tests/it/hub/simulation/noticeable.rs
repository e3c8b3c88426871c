//! Whether a hub can notice by itself that the cluster went back, judged by what it holds and by the cluster's history alone: what it has to compare is
//! what an API server says of any resource, its version, the object that changed last, the first one, and how many there are.

use serde_json::Value;
use testkit::history::{Change, Epoch, Expected, Model, Scope, State, expected, key, version};

/// What the hub holds of a scope.
pub(super) struct Held {
    pub(super) scope: Scope,
    pub(super) version: u64,
    pub(super) items: Vec<Value>,
}

/// When the cluster went back, and how far.
#[derive(Clone, Copy)]
pub(super) struct Restored {
    /// The version that it went back to.
    pub(super) to: u64,
    /// The version that it had come to before.
    pub(super) from: u64,
    /// The version that it has come to since.
    pub(super) now: u64,
}

/// Whether each stream of the resource must notice it before it shows anything of both times: by itself, or as nothing changed in its scope
/// between. Those that are not here, as of other users, are told by those that are.
pub(super) fn is_noticeable(model: &Model, restored: Restored, all: &[Held]) -> bool {
    let [.., before, now] = &model.epochs[..] else { return false };
    let is_untouched = |scope: &Scope| {
        let between =
            |epoch| expected(epoch, scope, restored.to).iter().any(|event| event.rv <= restored.from);
        !between(before) && !between(now)
    };
    let tells = |held: &Held| held.tells(now, restored.now);
    is_untouched(&Scope::default())
        || all.iter().any(tells) && all.iter().all(|held| tells(held) || is_untouched(&held.scope))
}

impl Held {
    /// Whether it shows as soon as the server is asked.
    fn tells(&self, epoch: &Epoch, now: u64) -> bool {
        if now < self.version {
            return true;
        }
        let mut there = epoch.at(now);
        there.retain(|key, object| self.scope.has(key, object));
        let latest = self.items.iter().max_by_key(|item| version(item));
        let first = there.values().next();
        let is_gone = |latest: &&Value| !there.contains_key(&key(latest));
        first.is_some_and(|object| !self.fits(object))
            || latest.and_then(|latest| there.get(&key(latest))).is_some_and(|object| !self.fits(object))
            || latest.filter(is_gone).is_some_and(|latest| !self.is_told_of_its_end(epoch, latest))
            || self.is_another_number(epoch, &there)
    }

    /// Whether the server may have that object beside what is held.
    fn fits(&self, object: &Value) -> bool {
        let held = self.items.iter().find(|item| key(item) == key(object));
        let is_same = held.is_some_and(|held| version(held) == version(object) && uid(held) == uid(object));
        is_same || version(object) > self.version
    }

    fn is_told_of_its_end(&self, epoch: &Epoch, held: &Value) -> bool {
        let is_end = |event: &Expected<'_>| {
            event.change == Change::Deleted && event.key == key(held) && uid(&event.object) == uid(held)
        };
        expected(epoch, &self.scope, self.version).iter().any(is_end)
    }

    /// At once, and whatever has been told so far: as soon as the number is right what was told is shown. With selectors a server does not say how many
    /// there are.
    fn is_another_number(&self, epoch: &Epoch, there: &State) -> bool {
        let is_whole = self.scope == Scope { namespace: self.scope.namespace.clone(), ..Scope::default() };
        // How many more are held than there are.
        let mut more = self.items.len().cast_signed() - there.len().cast_signed();
        let after_each = expected(epoch, &self.scope, self.version).iter().all(|event| {
            more += match event.change {
                Change::Added => 1,
                Change::Modified => 0,
                Change::Deleted => -1,
            };
            more != 0
        });
        is_whole && self.items.len() != there.len() && after_each
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
