//! Which subscription answers what is asked for: that very one, or a wider one.

use std::collections::BTreeMap;

use super::{Entry, Key, Owner, Subscriptions};

impl Subscriptions {
    /// Whether the store had it, and nothing that a restore has undone since: that is not shown again, link or not.
    pub(super) fn is_stored(&self, key: &Key) -> bool {
        self.restored.lock().has(&key.to_string()) && !self.reflector.is_undone(key)
    }

    /// Whether all that `wanted` asks for is held, under its own owner, or was stored.
    pub fn holds(&self, wanted: &Key) -> bool {
        let open = self.open.lock();
        let whole = |(key, entry): (&Key, &Entry)| key.covers(wanted) && entry.subscription.is_whole();
        if open.iter().any(whole) {
            return true;
        }
        self.is_stored(wanted) || wanted.wider().any(|wider| self.is_stored(&wider))
    }

    /// What covers `wanted` and is wider, and is held or was stored, if this user cannot read `wanted` from anything else yet: the narrowest
    /// first.
    pub fn wider_held(&self, wanted: &Key, user: &Owner) -> Vec<Key> {
        let mut open = self.open.lock();
        let is_read =
            covering(&mut open, wanted, user).is_some_and(|(_, entry)| entry.subscription.is_whole());
        if is_read || self.is_stored(wanted) {
            return Vec::new();
        }
        let is_held = |wider: &Key| open.get(wider).is_some_and(|entry| entry.subscription.is_whole());
        wanted.wider().filter(|wider| is_held(wider) || self.is_stored(wider)).collect()
    }
}

/// The subscription that answers `wanted` for this user. A wider one that all users share does for those only who may carry it: another's
/// right to all of it may end, and what it holds of theirs with it.
pub(super) fn covering<'a>(
    open: &'a mut BTreeMap<Key, Entry>,
    wanted: &Key,
    user: &Owner,
) -> Option<(&'a Key, &'a mut Entry)> {
    let covers = |key: &Key, entry: &Entry| {
        let goes_on = || !entry.subscription.progress().borrow().is_gone();
        key.covers(wanted)
            && (key.owner != Owner::Users || entry.subscription.is_carried_by(user) && goes_on())
    };
    let is_whole = |entry: &Entry| entry.subscription.is_whole();
    // The exact one first: it is the one whose version the client knows.
    if open.get(wanted).is_some_and(is_whole) {
        return open.range_mut(wanted..=wanted).next();
    }
    // While it has nothing yet a wider one that has all of it does.
    let mut wider = open.iter().filter(|(key, entry)| *key != wanted && covers(key, entry));
    let whole = wider.clone().find(|(_, entry)| is_whole(entry)).map(|(key, _)| key);
    let exact = open.contains_key(wanted).then_some(wanted);
    let found = whole.or(exact).or_else(|| wider.next().map(|(key, _)| key)).cloned()?;
    open.range_mut(&found..=&found).next()
}
