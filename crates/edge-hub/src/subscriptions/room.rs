//! Whether there is room for another subscription, so that no client makes the hub hold the whole cluster piece by piece, nor leaves others
//! none. The node's own do not count: kubelets watch each Secret and ConfigMap of their pods by name, and pooled resources are the node's.
//! Pure.
//!
//! How much another one will hold is not known before it is listed: room is made by what the others hold, each time one is to be opened.

use std::{collections::HashMap, time::Duration};

use super::key::{Key, Owner};

/// How many of users there may be in all.
const ALL: usize = 512;

/// How many one user may have opened.
const EACH: usize = 128;

/// How many bytes all of users may hold before another one is opened.
const ALL_BYTES: usize = 64 << 20;

/// How many bytes one user's may hold before it opens another one.
const EACH_BYTES: usize = ALL_BYTES / 2;

/// Who holds less than this may open another whatever the others hold: one that holds a lot, and is watched, leaves room for these.
const MODEST_BYTES: usize = ALL_BYTES / 8;

/// A subscription that is open.
pub(super) struct Open<'a> {
    pub(super) key: &'a Key,
    /// Who was the first to ask for it.
    pub(super) opener: &'a Owner,
    /// For how long nobody has asked; nothing while somebody watches.
    pub(super) idle: Duration,
    /// Whether the configuration says that it stays.
    pub(super) pinned: bool,
    /// What it holds, its history included.
    pub(super) bytes: usize,
}

/// Whether another one may be opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Yes.
    Free,
    /// Once these are closed.
    After(Vec<Key>),
    /// No: all are in use.
    Full,
}

/// What is held: how many, and how many bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    count: usize,
    bytes: usize,
}

impl Held {
    fn add(&mut self, open: &Open<'_>) {
        self.count += 1;
        self.bytes += open.bytes;
    }

    fn take(&mut self, open: &Open<'_>) {
        self.count -= 1;
        self.bytes -= open.bytes;
    }

    fn is_below(self, count: usize, bytes: usize) -> bool {
        self.count < count && self.bytes < bytes
    }
}

/// Whether `opener` may open another. Where there are too many, or they hold too much, those go that nobody has used for longest: of its own if the
/// user has too much itself; of whoever holds most if all together do. None goes if that makes no room.
pub(super) fn room<'a>(open: impl Iterator<Item = Open<'a>>, opener: &Owner) -> Room {
    if *opener == Owner::Node {
        return Room::Free;
    }
    let (mut all, mut of_users) = (Held::default(), HashMap::<&Owner, Held>::new());
    let mut unused = Vec::new();
    for open in open.filter(|open| *open.opener != Owner::Node) {
        all.add(&open);
        of_users.entry(open.opener).or_default().add(&open);
        if !open.pinned && !open.idle.is_zero() {
            unused.push(open);
        }
    }
    let mut gone = Vec::new();
    loop {
        let own = of_users.get(opener).copied().unwrap_or_default();
        let own_fits = own.is_below(EACH, EACH_BYTES);
        if own_fits && all.is_below(ALL, ALL_BYTES) {
            return if gone.is_empty() { Room::Free } else { Room::After(gone) };
        }
        // What holds nothing makes no room where only bytes are too many.
        let only_bytes = own.count < EACH && all.count < ALL;
        let may_go = |open: &Open<'_>| (own_fits || open.opener == opener) && (!only_bytes || open.bytes > 0);
        let of_whom = |open: &Open<'_>| {
            let counts = own_fits && all.bytes >= ALL_BYTES;
            of_users.get(open.opener).filter(|_| counts).map_or(0, |held| held.bytes)
        };
        let candidates = unused.iter().enumerate().filter(|(_, open)| may_go(open));
        let first = candidates.max_by_key(|(_, open)| (of_whom(open), open.idle));
        let Some((at, _)) = first else {
            return if only_bytes && own.bytes < MODEST_BYTES { Room::Free } else { Room::Full };
        };
        let open = unused.swap_remove(at);
        all.take(&open);
        of_users.entry(open.opener).or_default().take(&open);
        gone.push(open.key.clone());
    }
}

#[cfg(test)]
mod tests {
    use kube_wire::resource::GroupVersionResource;

    use super::*;

    fn user(name: &str) -> Owner {
        Owner::User(name.into())
    }

    fn key(n: usize) -> Key {
        let pods = GroupVersionResource::new("", "v1", "pods");
        Key { owner: Owner::Users, labels: format!("n={n}").into(), ..Key::pooled(&pods) }
    }

    /// What is asked when these are open: who opened how many, and for how many seconds the n-th of them is unused.
    fn asked(open: &[(&Owner, usize)], idle: impl Fn(usize) -> u64, opener: &Owner) -> Room {
        let openers = open.iter().flat_map(|(opener, count)| std::iter::repeat_n(*opener, *count));
        let open: Vec<(Key, &Owner)> = openers.enumerate().map(|(n, opener)| (key(n), opener)).collect();
        let open = open.iter().enumerate().map(|(n, (key, opener))| Open {
            key,
            opener,
            idle: Duration::from_secs(idle(n)),
            pinned: n == 1,
            bytes: 1,
        });
        room(open, opener)
    }

    #[test]
    fn one_user_takes_no_more_than_its_part_and_the_node_what_it_needs() {
        let (greedy, other) = (user("greedy"), user("other"));
        let open = [(&Owner::Node, 2000), (&greedy, EACH)];
        assert_eq!(asked(&open, |_| 0, &greedy), Room::Full, "all are watched");
        assert_eq!(asked(&open, |_| 0, &other), Room::Free);
        assert_eq!(asked(&open, |_| 0, &Owner::Node), Room::Free);
        let idle = |n| if n == 2007 { 9 } else { u64::from(n != 2008) };
        assert_eq!(asked(&open, idle, &greedy), Room::After(vec![key(2007)]), "its own, unused for longest");
    }

    #[test]
    fn when_users_have_too_many_together_the_one_goes_that_is_unused_for_longest() {
        let users: Vec<Owner> = (0..4).map(|n| user(&n.to_string())).collect();
        let open: Vec<(&Owner, usize)> = users.iter().map(|user| (user, EACH)).collect();
        let late = user("late");
        assert_eq!(asked(&open, |_| 0, &late), Room::Full);
        assert_eq!(asked(&open, |n| if n == 300 { 5 } else { 0 }, &late), Room::After(vec![key(300)]));
        assert_eq!(asked(&open, |n| if n == 1 { 5 } else { 0 }, &late), Room::Full, "that one is pinned");
        assert_eq!(asked(&open, |_| 0, &Owner::Node), Room::Free);
    }

    /// What is asked when these are open: who opened each, for how many seconds it is unused, whether it is pinned, and how many MiB it holds.
    fn asked_of(open: &[(&Owner, u64, bool, usize)], opener: &Owner) -> Room {
        let keys: Vec<Key> = (0..open.len()).map(key).collect();
        let open = open.iter().zip(&keys).map(|((opener, idle, pinned, mebibytes), key)| Open {
            key,
            opener,
            idle: Duration::from_secs(*idle),
            pinned: *pinned,
            bytes: mebibytes << 20,
        });
        room(open, opener)
    }

    #[test]
    fn one_user_holds_no_more_than_its_part_of_all_bytes() {
        let (greedy, other) = (user("greedy"), user("other"));
        let watched = [(&greedy, 0, false, 31), (&greedy, 0, false, 1), (&Owner::Node, 9, false, 500)];
        assert_eq!(asked_of(&watched, &greedy), Room::Full);
        assert_eq!(asked_of(&watched[..1], &greedy), Room::Free);
        assert_eq!(asked_of(&watched, &other), Room::Free);
        assert_eq!(asked_of(&watched, &Owner::Node), Room::Free);
        let unused = [
            (&greedy, 5, false, 2),
            (&greedy, 7, false, 3),
            (&greedy, 9, false, 0),
            (&greedy, 8, true, 4),
            (&other, 99, false, 4),
            (&greedy, 0, false, 27),
        ];
        let expected = Room::After(vec![key(1), key(0)]);
        assert_eq!(asked_of(&unused, &greedy), expected, "as many as it takes, and none for nothing");
        let too_much = [(&greedy, 5, false, 2), (&greedy, 0, false, 32)];
        assert_eq!(asked_of(&too_much, &greedy), Room::Full, "none goes if that makes no room");
    }

    #[test]
    fn when_users_hold_too_much_together_it_is_of_whoever_holds_most() {
        let users: Vec<Owner> = (0..4).map(|n| user(&n.to_string())).collect();
        let open = [
            (&users[0], 0, false, 15),
            (&users[0], 3, false, 11),
            (&users[1], 2, false, 13),
            (&users[2], 0, false, 13),
            (&users[3], 50, false, 6),
            (&users[3], 90, true, 6),
        ];
        let late = user("late");
        assert_eq!(asked_of(&open, &late), Room::After(vec![key(1)]));
        assert_eq!(asked_of(&open[..3], &late), Room::Free);
        let watched = open.map(|(user, _, pinned, bytes)| (user, 0, pinned, bytes));
        assert_eq!(asked_of(&watched, &users[3]), Room::Full);
        assert_eq!(
            asked_of(&watched, &late),
            Room::Free,
            "it holds nothing, and is not kept out by who does"
        );
        let huge = [(&users[0], 0, false, 200), (&late, 0, false, 7)];
        assert_eq!(asked_of(&huge, &late), Room::Free);
        assert_eq!(asked_of(&huge, &users[0]), Room::Full);
        assert_eq!(asked_of(&watched, &Owner::Node), Room::Free);
    }
}
