//! Whether there is room for another subscription, so that no client makes the hub hold the whole cluster piece by piece, nor leaves others
//! none. The node's own do not count: kubelets watch each Secret and ConfigMap of their pods by name, and pooled resources are the node's.
//! Pure.

use std::time::Duration;

use super::key::{Key, Owner};

/// How many of users there may be in all.
const ALL: usize = 512;

/// How many one user may have opened.
const EACH: usize = 128;

/// A subscription that is open.
pub(super) struct Open<'a> {
    pub(super) key: &'a Key,
    /// Who was the first to ask for it.
    pub(super) opener: &'a Owner,
    /// For how long nobody has asked; nothing while somebody watches.
    pub(super) idle: Duration,
    /// Whether the configuration says that it stays.
    pub(super) pinned: bool,
}

/// Whether another one may be opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Yes.
    Free,
    /// Once this one is closed.
    After(Key),
    /// No: all are in use.
    Full,
}

/// Whether `opener` may open another. Where there are too many, the one goes that nobody has used for longest, of its own if the user has too
/// many itself.
pub(super) fn room<'a>(open: impl Iterator<Item = Open<'a>>, opener: &Owner) -> Room {
    if *opener == Owner::Node {
        return Room::Free;
    }
    let of_users: Vec<Open<'_>> = open.filter(|open| *open.opener != Owner::Node).collect();
    let own = of_users.iter().filter(|open| open.opener == opener).count();
    if own < EACH && of_users.len() < ALL {
        return Room::Free;
    }
    let unused = of_users.into_iter().filter(|open| !open.pinned && !open.idle.is_zero());
    let candidates = unused.filter(|open| own < EACH || open.opener == opener);
    candidates.max_by_key(|open| open.idle).map_or(Room::Full, |open| Room::After(open.key.clone()))
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
        assert_eq!(asked(&open, idle, &greedy), Room::After(key(2007)), "its own, unused for longest");
    }

    #[test]
    fn when_users_have_too_many_together_the_one_goes_that_is_unused_for_longest() {
        let users: Vec<Owner> = (0..4).map(|n| user(&n.to_string())).collect();
        let open: Vec<(&Owner, usize)> = users.iter().map(|user| (user, EACH)).collect();
        let late = user("late");
        assert_eq!(asked(&open, |_| 0, &late), Room::Full);
        assert_eq!(asked(&open, |n| if n == 300 { 5 } else { 0 }, &late), Room::After(key(300)));
        assert_eq!(asked(&open, |n| if n == 1 { 5 } else { 0 }, &late), Room::Full, "that one is pinned");
        assert_eq!(asked(&open, |_| 0, &Owner::Node), Room::Free);
    }
}
