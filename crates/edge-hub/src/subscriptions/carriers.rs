//! With whose credential a subscription goes upstream, where several users may read all of it. Pure.
//!
//! It is that of the one who opened it, for as long as that one watches and the API server takes it. After that it is the next
//! watcher's; the credential of somebody who left is used only while nobody watches at all, as between a list and the watch after it.

use super::key::Owner;
use crate::upstream::Credential;

/// How many users of a subscription are known at most. Who is beyond is answered as well, and carries nothing.
const MOST: usize = 64;

/// A user, and the credential of that user's latest request.
#[derive(Debug, Clone)]
pub struct Carrier {
    /// Who it is.
    pub user: Owner,
    /// The credential.
    pub credential: Credential,
}

impl Carrier {
    /// The node, which carries what is pooled and what the hub reads itself.
    pub fn node() -> Self {
        Self { user: Owner::Node, credential: Credential::Node }
    }
}

#[derive(Debug)]
struct Known {
    carrier: Carrier,
    /// How many watches are open.
    watches: usize,
    /// Whether the API server did not take the credential.
    refused: bool,
}

/// All who may carry a subscription, in the order in which they came; there is always one.
#[derive(Debug)]
pub(super) struct Carriers {
    known: Vec<Known>,
}

impl Carriers {
    pub(super) fn new(first: &Carrier) -> Self {
        Self { known: vec![Known { carrier: first.clone(), watches: 0, refused: false }] }
    }

    /// A user asks. Whether the credential was not known before.
    pub(super) fn present(&mut self, carrier: &Carrier) -> bool {
        if let Some(known) = self.known.iter_mut().find(|known| known.carrier.user == carrier.user) {
            let new = !same(&known.carrier.credential, &carrier.credential);
            if new {
                known.carrier.credential = carrier.credential.clone();
                known.refused = false;
            }
            return new;
        }
        if self.known.len() >= MOST {
            let Some(left) = self.known.iter().position(|known| known.watches == 0) else { return false };
            self.known.remove(left);
        }
        self.known.push(Known { carrier: carrier.clone(), watches: 0, refused: false });
        true
    }

    /// A watcher's credential, which is not the one of its user's latest request. Whether it takes the place of one that was refused.
    pub(super) fn offer(&mut self, carrier: &Carrier) -> bool {
        let refused = self.known.iter().any(|known| known.refused && known.carrier.user == carrier.user);
        refused && self.present(carrier)
    }

    /// Whether there is a credential that was not refused, and may be used now.
    pub(super) fn has_next(&self) -> bool {
        self.next().is_some()
    }

    pub(super) fn has(&self, user: &Owner) -> bool {
        self.known.iter().any(|known| known.carrier.user == *user)
    }

    /// The credential to go on with. When all were refused they are tried again, from the first.
    pub(super) fn current(&mut self) -> Credential {
        if self.next().is_none() {
            for known in &mut self.known {
                known.refused = false;
            }
        }
        let next = self.next().or(self.known.first());
        next.map_or(Credential::Node, |known| known.carrier.credential.clone())
    }

    /// The API server does not take a credential. Whether there is another to try.
    pub(super) fn refuse(&mut self, credential: &Credential) -> bool {
        for known in self.known.iter_mut().filter(|known| same(&known.carrier.credential, credential)) {
            known.refused = true;
        }
        self.next().is_some()
    }

    pub(super) fn attach(&mut self, user: &Owner) {
        self.of(user, |known| known.watches += 1);
    }

    pub(super) fn detach(&mut self, user: &Owner) {
        self.of(user, |known| known.watches = known.watches.saturating_sub(1));
    }

    fn of(&mut self, user: &Owner, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.iter_mut().find(|known| known.carrier.user == *user) {
            change(known);
        }
    }

    fn next(&self) -> Option<&Known> {
        let watched = self.known.iter().any(|known| known.watches > 0);
        self.known.iter().find(|known| !known.refused && (known.watches > 0 || !watched))
    }
}

fn same(one: &Credential, other: &Credential) -> bool {
    match (one, other) {
        (Credential::Node, Credential::Node) => true,
        (Credential::Bearer(one), Credential::Bearer(other)) => one == other,
        (Credential::Node | Credential::Bearer(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn user(name: &str) -> Owner {
        Owner::User(name.into())
    }

    fn carrier(name: &str, token: &'static str) -> Carrier {
        Carrier { user: user(name), credential: Credential::Bearer(HeaderValue::from_static(token)) }
    }

    fn carried_with(carriers: &mut Carriers, token: &'static str) -> bool {
        same(&carriers.current(), &carrier("", token).credential)
    }

    #[test]
    fn the_first_watcher_carries_until_it_leaves_and_then_the_next() {
        let mut carriers = Carriers::new(&carrier("a", "1"));
        assert!(carriers.present(&carrier("b", "2")) && !carriers.present(&carrier("b", "2")));
        assert!(carried_with(&mut carriers, "1"));
        carriers.attach(&user("a"));
        carriers.attach(&user("b"));
        assert!(carried_with(&mut carriers, "1"));
        assert!(carriers.present(&carrier("a", "3")), "tokens change");
        assert!(carried_with(&mut carriers, "3"));
        carriers.detach(&user("a"));
        assert!(carried_with(&mut carriers, "2"), "who left carries nothing");
        carriers.detach(&user("b"));
        assert!(carried_with(&mut carriers, "3"), "nobody watches: as before anybody did");
    }

    #[test]
    fn a_credential_that_is_refused_gives_way_to_those_of_watchers_only() {
        let mut carriers = Carriers::new(&carrier("a", "1"));
        let refused = |token| carrier("", token).credential;
        assert!(!carriers.refuse(&refused("1")), "there is no other");
        assert!(carried_with(&mut carriers, "1"), "it is tried again");
        carriers.present(&carrier("b", "2"));
        carriers.present(&carrier("gone", "3"));
        carriers.attach(&user("a"));
        carriers.attach(&user("b"));
        assert!(carriers.refuse(&refused("1")) && carried_with(&mut carriers, "2"));
        assert!(!carriers.refuse(&refused("2")), "who does not watch is not asked");
        assert!(carried_with(&mut carriers, "1"), "all again, from the first");
        carriers.refuse(&refused("1"));
        assert!(carriers.present(&carrier("a", "4")) && carried_with(&mut carriers, "4"), "a new token");
    }

    /// Two pods of one `ServiceAccount`: the one that asked last is gone, and its token with it.
    #[test]
    fn a_watcher_goes_on_with_its_own_token_when_a_later_one_is_refused() {
        let mut carriers = Carriers::new(&carrier("a", "1"));
        carriers.attach(&user("a"));
        assert!(!carriers.offer(&carrier("a", "1")), "nothing was refused");
        assert!(carriers.present(&carrier("a", "2")) && carried_with(&mut carriers, "2"));
        assert!(!carriers.offer(&carrier("a", "1")), "the later one serves");
        assert!(!carriers.refuse(&carrier("", "2").credential) && !carriers.has_next());
        assert!(carriers.offer(&carrier("a", "1")) && carriers.has_next());
        assert!(carried_with(&mut carriers, "1"));
        assert!(!carriers.offer(&carrier("b", "3")), "who is not known");
    }

    #[test]
    fn no_more_are_known_than_there_is_room_for() {
        let mut carriers = Carriers::new(&carrier("first", "1"));
        carriers.attach(&user("first"));
        for n in 0..2 * MOST {
            carriers.present(&carrier(&n.to_string(), "2"));
        }
        assert!(carriers.known.len() == MOST && carriers.has(&user("first")) && !carriers.has(&user("0")));
    }
}
