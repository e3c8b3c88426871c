//! Which server is asked next, and how long to wait before that. Pure.

use std::time::Duration;

use super::Server;

/// Pauses after failures: first and longest, before chance.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// How often the pause has doubled to be a second, and after how many failures it goes on to double: a change of leader is not slept through, not that from
/// one frozen for 5 s neither; a manager that stays away is not asked each second.
const SECOND: u32 = 2;
const PATIENT: u32 = 12;

/// How often one may be sent on from server to server without a pause.
const REDIRECTS: u32 = 3;

/// The servers, and what happened with them.
#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    servers: Vec<Server>,
    /// The term of the leader, as the cluster tells it.
    epoch: u64,
    at: usize,
    /// Who leads, as one of them said.
    leader: Option<Server>,
    redirects: u32,
    failures: u32,
}

impl Route {
    /// The servers are these now, the leader first; begins there if they are others. Returns whether all nodes are told of another leader by this.
    pub(super) fn set(&mut self, servers: &[Server], epoch: u64) -> bool {
        let is_first = self.servers.is_empty();
        // Of a leader that was just named nothing is known to be wrong.
        if self.servers != servers {
            *self = Self { servers: servers.to_vec(), epoch, ..Self::default() };
        } else if epoch > self.epoch {
            // It may be at the same address as the one before, or anywhere in a list that is always the same.
            (self.epoch, self.redirects, self.failures) = (epoch, 0, 0);
        } else {
            return false;
        }
        !is_first
    }

    /// Whom to ask.
    pub(super) fn next(&self) -> Option<&Server> {
        self.leader.as_ref().or_else(|| self.servers.get(self.at.checked_rem(self.servers.len())?))
    }

    /// Another leads than that one, about which nothing is known to be wrong.
    pub(super) fn passed_over(&mut self) {
        // One that another named may stand in the list as well.
        let named = self.leader.take().and_then(|named| self.servers.iter().position(|one| *one == named));
        self.at = named.unwrap_or(self.at).wrapping_add(1);
    }

    /// That one did not answer, or could not be used.
    pub(super) fn failed(&mut self) {
        // Whoever named it as leader may know better by now; it is the others' turn.
        self.passed_over();
        self.failures = self.failures.saturating_add(1);
    }

    /// That one does not lead; perhaps it knows who does.
    pub(super) fn redirected(&mut self, leader: Option<Server>) {
        match leader {
            Some(leader) if self.redirects < REDIRECTS && self.next() != Some(&leader) => {
                self.redirects += 1;
                self.leader = Some(leader);
            }
            _ => self.failed(),
        }
    }

    /// It took a report.
    pub(super) fn succeeded(&mut self) {
        (self.redirects, self.failures) = (0, 0);
    }

    /// How long to wait before asking: not at all at first and when sent on, then up to twice as long each time. `chance` is 0 to 1.
    pub(super) fn pause(&self, chance: f64) -> Duration {
        let Some(power) = self.failures.checked_sub(1) else { return Duration::ZERO };
        let power = if power < PATIENT { power.min(SECOND) } else { power - PATIENT + SECOND + 1 };
        let longest = BACKOFF.0.saturating_mul(2_u32.saturating_pow(power.min(16))).min(BACKOFF.1);
        longest.mul_f64(chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Route, Server};

    fn server(text: &str) -> Server {
        text.parse().unwrap()
    }

    fn route() -> Route {
        let mut route = Route::default();
        route.set(&[server("a:1"), server("b:1")], 1);
        route
    }

    #[test]
    fn servers_take_turns_and_pauses_grow() {
        let mut route = route();
        let mut pauses = Vec::new();
        for expected in ["a:1", "b:1", "a:1", "b:1"] {
            assert_eq!(route.next(), Some(&server(expected)));
            pauses.push(route.pause(1.0).as_millis());
            assert_eq!(route.pause(0.0), Duration::ZERO);
            route.failed();
        }
        assert_eq!(pauses, [0, 250, 500, 1_000]);
        // A change of leader is not slept through; a manager that stays away is not asked each second.
        let mut pauses = (0..12).map(|_| {
            let pause = route.pause(1.0).as_secs();
            route.failed();
            pause
        });
        assert!(pauses.by_ref().take(9).all(|pause| pause == 1));
        assert_eq!(pauses.collect::<Vec<_>>(), [2, 4, 8]);
        (0..40).for_each(|_| route.failed());
        assert_eq!(route.pause(1.0), Duration::from_secs(30));
        route.succeeded();
        assert_eq!(route.pause(1.0), Duration::ZERO);
    }

    #[test]
    fn a_leader_of_a_later_term_is_not_kept_waiting() {
        let (mut route, servers) = (route(), [server("a:1"), server("b:1")]);
        (0..41).for_each(|_| route.failed());
        for (epoch, pause) in [(1, 30), (0, 30), (2, 0)] {
            assert_eq!(route.set(&servers, epoch), pause == 0, "{epoch}");
            assert_eq!(route.pause(1.0).as_secs(), pause, "{epoch}");
            assert_eq!(route.next(), Some(&server("b:1")), "whose turn it is stays");
        }
        route.failed();
        route.failed();
        assert!(route.set(&[server("c:1")], 2), "another list");
        assert_eq!((route.next(), route.pause(1.0)), (Some(&server("c:1")), Duration::ZERO));
        assert!(!Route::default().set(&servers, 1), "the first that is told of is no other");
    }

    #[test]
    fn a_leader_that_is_named_is_asked_at_once_and_not_for_ever() {
        let mut route = route();
        route.redirected(Some(server("c:1")));
        assert_eq!((route.next(), route.pause(1.0)), (Some(&server("c:1")), Duration::ZERO));
        // Sent round in a ring: a pause in the end.
        for at in ["d:1", "c:1", "d:1"] {
            route.redirected(Some(server(at)));
        }
        assert_eq!((route.next(), route.pause(1.0)), (Some(&server("b:1")), Duration::from_millis(250)));
        // One that names itself, or nobody.
        let mut route = self::route();
        route.redirected(Some(server("a:1")));
        assert_eq!(route.next(), Some(&server("b:1")));
        route.redirected(None);
        assert_eq!(route.next(), Some(&server("a:1")));
    }

    #[test]
    fn who_leads_no_more_is_passed_over_without_a_pause() {
        let mut route = route();
        for expected in ["a:1", "b:1", "a:1"] {
            assert_eq!((route.next(), route.pause(1.0)), (Some(&server(expected)), Duration::ZERO));
            route.passed_over();
        }
        route.redirected(Some(server("a:1")));
        route.passed_over();
        assert_eq!(route.next(), Some(&server("b:1")), "the one after the one that was named");
    }

    #[test]
    fn other_servers_begin_with_their_first() {
        let mut route = route();
        route.redirected(Some(server("c:1")));
        route.set(&[server("a:1"), server("b:1")], 1);
        assert_eq!(route.next(), Some(&server("c:1")), "the same servers: what was said holds");
        route.failed();
        route.set(&[server("x:1")], 1);
        assert_eq!((route.next(), route.pause(1.0)), (Some(&server("x:1")), Duration::ZERO));
        assert_eq!(Route::default().next(), None);
    }
}
