//! Which subscription answers what is asked for: that very one, or a wider one.

use std::collections::BTreeMap;

use kube_wire::resource_version::ResourceVersion;

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

    /// What covers `wanted` and is wider, and is held or was stored, if this user cannot read `wanted` from anything else yet, or only what is behind that for who goes
    /// on from the version `since`: the narrowest first.
    pub fn wider_held(&self, wanted: &Key, user: &Owner, since: Option<ResourceVersion>) -> Vec<Key> {
        if self.found(wanted, user).is_some_and(|found| found.is_whole()) {
            return Vec::new();
        }
        let own = self.stored_reach(wanted);
        let is_ahead = |wider: &Key| {
            let reach = self.reach(wider);
            reach.is_some_and(|reach| own.is_none_or(|own| reach.is_before(own, since)))
        };
        wanted.wider().filter(is_ahead).collect()
    }
}

/// The subscription that answers `wanted` for this user. A wider one that is refused says nothing of a part of it, unless there is no such resource. One that all users
/// share does for those only who may carry it: another's right to all of it may end, and what it holds of theirs with it.
pub(super) fn covering<'a>(
    open: &'a mut BTreeMap<Key, Entry>,
    wanted: &Key,
    user: &Owner,
) -> Option<(&'a Key, &'a mut Entry)> {
    let covers = |key: &Key, entry: &Entry| {
        let is_shared = key.owner == Owner::Users;
        let goes_on = || {
            let progress = entry.subscription.progress();
            let progress = progress.borrow();
            !progress.is_gone() || !is_shared && progress.is_missing()
        };
        key.covers(wanted) && (!is_shared || entry.subscription.is_carried_by(user)) && goes_on()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube_wire::resource::GroupVersionResource;

    use super::*;
    use crate::{
        storage::{Storage, test_disk::TestDisk},
        subscriptions::offline::Offline,
    };

    /// What is stored is as `a 3`: of which namespace, `*` for all, and its version.
    #[test]
    fn of_what_was_stored_the_wider_one_answers_if_it_is_ahead() {
        let key = |namespace: &str| {
            let all = Key::pooled(&GroupVersionResource::new("", "v1", "pods"));
            Key { namespace: namespace.trim_matches('*').into(), ..all }
        };
        for (stored, since, expected) in [
            ("", None, vec![]),
            ("a 3", None, vec![]),
            ("* 3", None, vec![key("*")]),
            ("b 3", None, vec![]),
            ("a 3|* 5", None, vec![key("*")]),
            ("a 3|* 5", Some(5), vec![key("*")]),
            // Nobody is listed anew for it.
            ("a 3|* 5", Some(3), vec![]),
            ("a 5|* 3", None, vec![]),
            ("a 5|* 3", Some(5), vec![]),
            ("a 3|* 3", None, vec![]),
        ] {
            let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
            let (storage, _) = Storage::open_on(disk.clone(), folder.path(), [7; 32]).unwrap();
            for one in stored.split('|').filter(|one| !one.is_empty()) {
                let (namespace, version) = one.split_once(' ').unwrap();
                let version = ResourceVersion::new(version.parse().unwrap()).unwrap();
                assert!(storage.replace(&key(namespace), &[], version));
            }
            drop(storage);
            let hub = Offline::new(&disk, folder.path());
            let since: Option<u64> = since;
            let since = since.and_then(ResourceVersion::new);
            let wanted = key("a");
            let found = hub.at_once(move |all| all.wider_held(&wanted, &Owner::Node, since));
            assert_eq!(found, expected, "{stored} {since:?}");
            hub.end();
        }
    }
}
