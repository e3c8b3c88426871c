//! Whether a user is answered from what the node itself reads, or from what the users have among themselves.
//!
//! One stream for all is what the link is spared by. But nobody is led back to an earlier state by it, nor listed anew, where what the
//! users have reaches as far: while both are there, that one answers which has what is asked for, and is ahead.

use std::sync::Arc;

use kube_wire::resource_version::ResourceVersion;
use watch_cache::Cache;

use super::{Entry, Key, Owner, Progress, Subscription, Subscriptions, covering::covering};

/// How far a stream reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// From there on it tells what happened.
    oldest: ResourceVersion,
    /// Up to there it has everything.
    current: ResourceVersion,
    /// Whether upstream tells it now what happens.
    goes_on: bool,
}

impl Reach {
    /// That of a stream, if it has all of it and its owner may have that. One whose credential the API server does not take (401) tells nothing any
    /// more, and nothing will be done about it: other readers have others.
    fn of(subscription: &Subscription) -> Option<Self> {
        let progress = subscription.progress().borrow().clone();
        if progress.is_gone() || progress.is_unauthorized() {
            return None;
        }
        let goes_on =
            progress == Progress::Watching && !subscription.is_untold() && !subscription.is_doubted();
        Some(Self { goes_on, ..subscription.read(Self::stored)? })
    }

    /// That of what the store had.
    fn stored(cache: &Cache) -> Option<Self> {
        Some(Self { oldest: cache.oldest()?, current: cache.resource_version()?, goes_on: false })
    }

    /// Whether it is ahead of another, for who names a version or none.
    pub(super) fn is_before(self, other: Self, since: Option<ResourceVersion>) -> bool {
        let has = |of: Self| since.is_none_or(|since| of.oldest <= since);
        match (has(self), has(other)) {
            (true, false) => true,
            (false, true) => false,
            _ => self.current > other.current || self.goes_on && !other.goes_on,
        }
    }
}

impl Subscriptions {
    /// The key of what the node itself reads, if it answers a user's request for `wanted` as well as what the users have, if they have it: from the
    /// version `since` on if that is asked for. `wanted` is the users'. `remembers`: whether the user was allowed all of a wider one.
    pub fn of_node(
        &self,
        wanted: &Key,
        since: Option<ResourceVersion>,
        user: &Owner,
        remembers: impl Fn(&Key) -> bool,
    ) -> Option<Key> {
        let of_node = Key { owner: Owner::Node, ..wanted.clone() };
        let (key, node) = match self.found(&of_node, &Owner::Node) {
            // It may be let go before it is asked: nothing else is opened in the node's name then.
            Some(found) => (found.key().clone(), Reach::of(&found)?),
            // Nothing is opened in the node's name that the node did not read.
            None => self.first_stored([of_node.clone()].into_iter().chain(of_node.wider()))?,
        };
        let users = self.users_reach(wanted, user, remembers);
        (!users.is_some_and(|users| users.is_before(node, since))).then_some(key)
    }

    /// How far that reaches which this user can read from what the users have.
    fn users_reach(&self, wanted: &Key, user: &Owner, remembers: impl Fn(&Key) -> bool) -> Option<Reach> {
        if let Some(found) = self.found(wanted, user)
            && let Some(reach) = Reach::of(&found)
        {
            return Some(reach);
        }
        if let Some(reach) = self.stored_reach(wanted) {
            return Some(reach);
        }
        // A wider one is carried by who was allowed it, once nobody can be asked.
        if self.reflector.is_linked() {
            return None;
        }
        let wider = self.wider_held(wanted, user, None).into_iter().find(remembers)?;
        self.reach(&wider)
    }

    /// How far that very stream reaches, which is open or was stored.
    pub(super) fn reach(&self, key: &Key) -> Option<Reach> {
        let open = self.open.lock().get(key).map(|entry: &Entry| entry.subscription.clone());
        open.map_or_else(|| self.stored_reach(key), |open| Reach::of(&open))
    }

    /// What is open and answers `wanted`. It is read when the lock is gone: a writer may be busy with it.
    pub(super) fn found(&self, wanted: &Key, user: &Owner) -> Option<Arc<Subscription>> {
        covering(&mut self.open.lock(), wanted, user).map(|(_, entry)| entry.subscription.clone())
    }

    /// The first of these that was stored and nobody has asked for since.
    fn first_stored(&self, keys: impl IntoIterator<Item = Key>) -> Option<(Key, Reach)> {
        keys.into_iter().find_map(|key| {
            let reach = self.stored_reach(&key)?;
            Some((key, reach))
        })
    }

    /// How far that reaches which was stored, nobody has asked for since, and may be shown.
    pub(super) fn stored_reach(&self, key: &Key) -> Option<Reach> {
        if self.reflector.is_undone(key) {
            return None;
        }
        Reach::stored(self.restored.lock().get(&key.to_string())?)
    }
}

#[cfg(test)]
mod tests {
    use kube_wire::resource::GroupVersionResource;

    use super::*;
    use crate::{
        storage::{Storage, test_disk::TestDisk},
        subscriptions::offline::Offline,
    };

    fn key(owner: &Owner, namespace: &str) -> Key {
        let all = Key::pooled(&GroupVersionResource::new("", "v1", "pods"));
        Key { owner: owner.clone(), namespace: namespace.into(), ..all }
    }

    /// What is stored is as `node a 3`: whose it is, of which namespace, `*` for all, and its version.
    #[test]
    fn without_a_link_what_was_stored_of_either_answers_that_is_ahead_and_may_be_read() {
        let of_node = |namespace: &str| Some(key(&Owner::Node, namespace));
        for (stored, remembers, expected) in [
            ("", true, None),
            ("node a 3", true, of_node("a")),
            ("node * 3", true, of_node("")),
            ("node b 3", true, None),
            ("node a 3|users a 3", true, of_node("a")),
            ("node a 3|users a 5", true, None),
            ("node * 3|users a 5", true, None),
            ("node * 5|users a 3", true, of_node("")),
            // Another's right to all of it is not this user's.
            ("node a 3|users * 5", true, None),
            ("node a 3|users * 5", false, of_node("a")),
            ("node * 3|users * 5", false, of_node("")),
        ] {
            let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(TestDisk::default()));
            let (storage, _) = Storage::open_on(disk.clone(), folder.path(), [7; 32]).unwrap();
            for one in stored.split('|').filter(|one| !one.is_empty()) {
                let [whose, namespace, version] = one.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{one}")
                };
                let owner = if whose == "node" { Owner::Node } else { Owner::Users };
                let version = ResourceVersion::new(version.parse().unwrap()).unwrap();
                assert!(storage.replace(&key(&owner, namespace.trim_matches('*')), &[], version));
            }
            drop(storage);
            let hub = Offline::new(&disk, folder.path());
            let user = Owner::User("a".into());
            let found = hub.at_once(move |all| {
                all.of_node(&key(&Owner::Users, "a"), None, &user, |wider| {
                    remembers && wider.owner == Owner::Users
                })
            });
            assert_eq!(found, expected, "{stored} {remembers}");
            hub.end();
        }
    }

    #[test]
    fn the_one_answers_that_has_what_is_asked_for_and_is_ahead() {
        let reach = |(oldest, current, goes_on)| Reach {
            oldest: ResourceVersion::new(oldest).unwrap(),
            current: ResourceVersion::new(current).unwrap(),
            goes_on,
        };
        // The node's, the users', the version that is asked for, and whether it is the users' that answers.
        for (node, users, since, expected) in [
            ((1, 9, true), (1, 9, true), None, false),
            ((1, 9, true), (1, 10, true), None, true),
            ((1, 10, true), (1, 9, true), None, false),
            // A list that has just come, and is of the time when it was asked for.
            ((9, 9, false), (1, 9, true), None, true),
            ((1, 9, true), (1, 9, false), None, false),
            // Without a link.
            ((1, 9, false), (1, 9, false), None, false),
            ((1, 9, false), (1, 10, false), Some(10), true),
            // Nobody is listed anew for it.
            ((5, 9, true), (1, 8, true), Some(4), true),
            ((5, 9, true), (1, 8, false), Some(4), true),
            ((5, 9, true), (6, 10, true), Some(5), false),
            ((5, 9, false), (6, 10, true), Some(5), false),
            // It is in any case.
            ((5, 9, true), (5, 9, true), Some(4), false),
            ((5, 9, true), (5, 10, true), Some(4), true),
        ] {
            let since: Option<u64> = since;
            let before = reach(users).is_before(reach(node), since.and_then(ResourceVersion::new));
            assert_eq!(before, expected, "{node:?} {users:?} {since:?}");
        }
    }
}
