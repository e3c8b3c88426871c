//! How many connections a listener has, whose they are, and which one goes where there are as many as may be: nobody is kept out by another who has many.
//!
//! A connection is nobody's until the hub has found a credential over it to be good, and then that user's, by name: tokens of one `ServiceAccount` are one user,
//! and all that is the node is one, too. Of nobody's there are few at a time, so that who opens connections and says nothing drives out its own
//! like. A user has a quarter of the places at most, the node any number. Where all are taken, whoever has most gives one up: the one that has waited longest for
//! its next request, else the watch that was opened last, which its client opens again, else what was asked last. The node's stay whatever others have; it
//! gives one up that waits only where it has more than half.

mod book;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::body::Body;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tunnel::doorway::Source;

use self::book::{Book, Holder, SHARE};
use crate::keeping::Keeping;

/// How many connections a listener has, if nothing else is said.
pub const ALL: usize = 4096;

/// Of those that are nobody's there are at most this part over HTTPS, which anybody reaches.
const STRANGERS: usize = 16;

/// How long after many have ended memory is given back: more may end, and it is not to be done all the time.
const CALM: Duration = Duration::from_secs(5);

/// All connections of a listener.
#[derive(Clone)]
pub struct Seats(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    /// Many have ended.
    fewer: Notify,
}

impl Seats {
    /// Those of a listener of the node, so many.
    pub fn local(most: usize) -> Self {
        Self::new(most, most / SHARE, true)
    }

    /// Those of a listener that anybody reaches, so many.
    pub fn outward(most: usize) -> Self {
        Self::new(most, most / STRANGERS, false)
    }

    /// Those of a listener that asks nobody who it is.
    pub fn of_nobody() -> Self {
        Self::new(ALL, ALL, true)
    }

    fn new(most: usize, strangers: usize, is_local: bool) -> Self {
        let book = Mutex::new(Book::new(most, strangers, is_local));
        Self(Arc::new(Shared { book, fewer: Notify::new() }))
    }

    /// A seat for a new connection from there, which is nobody's yet. None where others have all, and nobody has more than it needs.
    pub(super) fn take(&self, from: Source) -> Option<Seat> {
        let (number, leave) = self.0.book.lock().seat(from)?;
        let taken = Taken { seats: self.clone(), number, from, leave, is_named: AtomicBool::new(false) };
        Some(Seat(Arc::new(taken)))
    }

    /// Gives memory back to the system each time that many connections have ended, for ever.
    pub(super) async fn give_memory_back(&self) {
        loop {
            self.0.fewer.notified().await;
            sleep(CALM).await;
            self.0.book.lock().is_counted();
            // It takes a while, in which others go on.
            let _ = tokio::task::spawn_blocking(heap::give_back).await;
        }
    }
}

/// That of one connection, as long as it lasts. The hub finds it among the extensions of requests, to say whose they are.
#[derive(Clone)]
pub(crate) struct Seat(Arc<Taken>);

struct Taken {
    seats: Seats,
    number: u64,
    from: Source,
    leave: CancellationToken,
    /// Whether it is a user's, or the node's.
    is_named: AtomicBool,
}

impl Seat {
    /// One of its requests is under way as long as what this gives is kept.
    pub(super) fn asks(&self) -> UnderWay {
        self.count(|under_way| under_way + 1);
        UnderWay(self.clone())
    }

    /// The same of a watch, which the connection is for from now on.
    pub(super) fn watches(&self) -> UnderWay {
        if let Some(entry) = self.0.seats.0.book.lock().taken.get_mut(&self.0.number) {
            entry.is_watch = true;
        }
        self.asks()
    }

    fn count(&self, change: impl Fn(usize) -> usize) {
        let mut book = self.0.seats.0.book.lock();
        let now = book.moment();
        if let Some(entry) = book.taken.get_mut(&self.0.number) {
            (entry.under_way, entry.waits_since) = (change(entry.under_way), now);
        }
    }

    /// A request over it is the node's.
    pub(crate) fn is_of_node(&self) {
        self.0.is_named.store(true, Relaxed);
        self.is_of(&Holder::Node);
    }

    /// A request over it is of the user of that name, as a credential of it has shown. It stays that of the first, but for the node's.
    pub(crate) fn is_of_user(&self, name: &str) {
        if !self.is_named() {
            self.0.is_named.store(true, Relaxed);
            self.is_of(&Holder::User(name.into()));
        }
    }

    /// A request over it is of somebody whose name is not known: a good credential was shown.
    pub(crate) fn is_of_somebody(&self) {
        if !self.is_named() {
            self.is_of(&Holder::Unnamed(self.0.from));
        }
    }

    fn is_of(&self, holder: &Holder) {
        let mut book = self.0.seats.0.book.lock();
        if book.taken.get(&self.0.number).is_some_and(|entry| entry.holder != *holder) {
            book.is_of(self.0.number, holder);
        }
    }

    /// Whether it is a user's, or the node's.
    pub(crate) fn is_named(&self) -> bool {
        self.0.is_named.load(Relaxed)
    }

    /// Whether it is anybody's.
    pub(super) fn is_known(&self) -> bool {
        let book = self.0.seats.0.book.lock();
        book.taken.get(&self.0.number).is_some_and(|entry| !entry.holder.is_stranger())
    }

    /// Comes to pass when another has the seat.
    pub(super) async fn is_given_away(&self) {
        self.0.leave.cancelled().await;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut book = self.seats.0.book.lock();
        book.taken.remove(&self.number);
        if book.is_much_less() {
            self.seats.0.fewer.notify_one();
        }
    }
}

/// A request that is not answered as a whole.
pub(super) struct UnderWay(Seat);

impl UnderWay {
    /// The request is under way until that body is sent.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Body::new(Keeping::new(body, self))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.count(|under_way| under_way - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{book::MANY, *};

    fn from(host: u8) -> Source {
        IpAddr::from([10, 0, 0, host]).into()
    }

    fn is_gone(seat: &Seat) -> bool {
        seat.0.leave.is_cancelled()
    }

    /// A seat, and what keeps it as it is.
    struct Sits {
        what: &'static str,
        seat: Seat,
        under_way: Option<UnderWay>,
    }

    /// Takes seats as `WHOSE` for one that waits, `WHOSE?` for one that asks something, `WHOSE~` for a watch; whose name is a number is nobody's, from
    /// there, and whose begins with `@`, of no name.
    fn sit(seats: &Seats, all: &'static str) -> Vec<Sits> {
        let sit = |what: &'static str| {
            let whose = what.trim_end_matches(['?', '~']);
            let (unnamed, host) = (whose.starts_with('@'), whose.trim_start_matches('@').parse());
            let seat = seats.take(from(host.clone().unwrap_or_default())).expect(what);
            match (whose, host) {
                ("node", _) => seat.is_of_node(),
                (_, Ok(_)) if unnamed => seat.is_of_somebody(),
                (_, Ok(_)) => {}
                (name, Err(_)) => seat.is_of_user(name),
            }
            let under_way = match &what[whose.len()..] {
                "~" => Some(seat.watches()),
                "?" => Some(seat.asks()),
                _ => None,
            };
            Sits { what, seat, under_way }
        };
        all.split(' ').map(sit).collect()
    }

    /// Those that are gone, by their places.
    fn gone(all: &[Sits]) -> Vec<usize> {
        all.iter().enumerate().filter(|(_, sits)| is_gone(&sits.seat)).map(|(place, _)| place).collect()
    }

    #[test]
    fn where_all_are_taken_whoever_has_most_gives_one_up() {
        for (why, all, expected) in [
            ("there is room", "a a b b c c d", Some(&[][..])),
            ("what waits goes first", "a b~ b b~ c d node 1", Some(&[2])),
            ("what has waited longest, that is", "a b b c d e node 1", Some(&[1])),
            ("then the latest watch", "a b~ b~ c d e node 1", Some(&[2])),
            ("then what was asked last", "a b? b~ c d e node 1", Some(&[2])),
            ("before what is asked", "a b? b? c d e node 1", Some(&[2])),
            ("the node's stay", "node node node a a~ b c 1", Some(&[3])),
            ("whatever the node has", "node node node node a b b~ 1", Some(&[5])),
            ("but what waits where it has more than half", "node~ node node node node a a b", Some(&[1])),
            ("and only that", "node~ node~ node~ node~ node~ node~ a a", Some(&[6])),
            ("who has one keeps it", "node~ node~ node~ node~ node~ node? a b", None),
            ("nobody's are as others'", "a b c d e f 1 1", Some(&[6])),
            ("some of no name are one user from one place", "a b c d @1~ @2 @2 node", Some(&[5])),
        ] {
            let seats = Seats::new(8, 3, false);
            let all = sit(&seats, all);
            let next = seats.take(from(9));
            match expected {
                Some(expected) => assert_eq!((next.is_some(), &*gone(&all)), (true, expected), "{why}"),
                None => assert!(next.is_none() && gone(&all).is_empty(), "{why}"),
            }
            assert!(seats.0.book.lock().taken.len() <= 8);
        }
    }

    #[test]
    fn what_has_waited_longest_is_what_asked_last_before() {
        let seats = Seats::new(8, 1, false);
        let mut all = sit(&seats, "a a? b c d e f g");
        drop(all[0].seat.asks());
        drop(all[1].under_way.take());
        drop(all[0].seat.asks());
        seats.take(from(9)).unwrap();
        assert_eq!(gone(&all), [1]);
    }

    #[test]
    fn of_nobody_there_are_few_and_the_oldest_of_the_place_with_most_goes() {
        for (why, is_local, all, expected) in [
            ("there are fewer", false, "1 2", &[][..]),
            ("of the place with most", false, "1 2 2", &[1]),
            ("whether it asks or not", false, "1 2? 2", &[1]),
            ("on the node one that does not", true, "1 2? 2", &[2]),
            ("before one that does", true, "1 2? 2?", &[1]),
            ("those of users do not count", false, "a 1 2", &[]),
            ("nor do those of no name", false, "@1 @1 @1 @1", &[]),
        ] {
            let seats = Seats::new(16, 3, is_local);
            let all = sit(&seats, all);
            assert!(seats.take(from(9)).is_some());
            assert_eq!(gone(&all), expected, "{why}");
        }
    }

    #[test]
    fn a_user_has_its_share_and_the_node_what_it_wants() {
        for (why, all, expected) in [
            ("each has four of sixteen", "a a a a b b b b", &[][..]),
            ("what waits makes room", "a~ a a? a a", &[1]),
            ("or the latest watch, here that which is still to be asked something", "a~ a~ a~ a~ a", &[4]),
            ("the node has no share", "node node node node node node", &[]),
        ] {
            let seats = Seats::new(16, 16, true);
            let all = sit(&seats, all);
            assert_eq!(
                gone(&all),
                expected,
                "{why}: {:?}",
                all.iter().map(|sits| sits.what).collect::<Vec<_>>()
            );
        }
        let seats = Seats::new(16, 16, true);
        let watches = sit(&seats, "a~ a~ a~ a~");
        let next = seats.take(from(1)).unwrap();
        let _asks = next.asks();
        next.is_of_user("a");
        assert!(gone(&watches) == [3] && !is_gone(&next), "it is asked something");
    }

    #[test]
    fn it_stays_that_of_the_first_user_but_for_the_node() {
        let seats = Seats::new(16, 16, true);
        let seat = seats.take(from(1)).unwrap();
        assert!(!seat.is_known() && !seat.is_named());
        let holder = || seats.0.book.lock().taken.values().next().unwrap().holder.clone();
        seat.is_of_somebody();
        assert!(seat.is_known() && !seat.is_named());
        assert_eq!(holder(), Holder::Unnamed(from(1)));
        seat.is_of_user("a");
        seat.is_of_user("b");
        seat.is_of_somebody();
        assert_eq!(holder(), Holder::User("a".into()));
        seat.is_of_node();
        seat.is_of_user("b");
        assert_eq!(holder(), Holder::Node);
        assert!(seat.is_named());
    }

    #[test]
    fn a_request_is_under_way_until_its_answer_is_sent_and_a_seat_is_left_once() {
        let seats = Seats::new(2, 2, true);
        let all = sit(&seats, "a b");
        let body = all[1].seat.asks().until_sent(Body::empty());
        let waits =
            |seats: &Seats| seats.0.book.lock().taken.values().filter(|entry| entry.under_way == 0).count();
        assert_eq!(waits(&seats), 1);
        drop(body);
        assert_eq!(waits(&seats), 2);
        seats.0.book.lock().send_away(all[0].seat.0.number);
        assert!(is_gone(&all[0].seat));
        let next = seats.take(from(1)).unwrap();
        drop(all);
        assert_eq!(seats.0.book.lock().taken.len(), 1, "what was given away is not freed again");
        drop(next);
        assert!(seats.0.book.lock().taken.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_given_back_once_many_have_ended() {
        let seats = Seats::new(2 * MANY, 2 * MANY, true);
        let mut all: Vec<_> = (0..=MANY).map(|_| seats.take(from(1)).unwrap()).collect();
        let mut fewer = std::pin::pin!(seats.0.fewer.notified());
        drop(all.drain(..MANY - 1));
        assert!(futures::poll!(fewer.as_mut()).is_pending());
        drop(all.pop());
        assert!(futures::poll!(fewer.as_mut()).is_ready());
        seats.0.fewer.notify_one();
        let given = tokio::time::timeout(2 * CALM, seats.give_memory_back());
        assert!(given.await.is_err(), "it goes on");
        assert_eq!(seats.0.book.lock().were, 1, "from now on");
    }
}
