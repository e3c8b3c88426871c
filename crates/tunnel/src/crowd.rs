//! Places that nobody holds for good: one source may have all of them as long as no other wants one; then who has most gives way to who has less.
//!
//! It gives the place over which nothing has passed for longest: a connection that is only kept is dialled again by whoever kept it, and a log that is
//! followed or a session would be cut. kubectl and API servers send a ping each 5 to 10 s over exec, attach and port-forward, so a shell that waits for its
//! user outlives what is kept from one scrape to the next; a log whose pod says nothing does not.
//!
//! Many that are honest may come from one address, as all that a Prometheus keeps open does, so no source has a fixed part.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{doorway::Source, last_use::LastUse};

/// What becomes of one who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict<S> {
    /// There is a free place.
    Free,
    /// It gets the idlest place of that source.
    InPlaceOf(S),
    /// There is none: nobody has more than its source would have with it.
    Full,
}

/// Decides on one more of `comer` where there are so many `places`, of which sources hold these.
fn verdict<S: Copy + Ord>(places: usize, held: &BTreeMap<S, usize>, comer: S) -> Verdict<S> {
    if held.values().sum::<usize>() < places {
        return Verdict::Free;
    }
    let own = held.get(&comer).copied().unwrap_or_default();
    // One that only changed hands would come back at once.
    match held.iter().max_by_key(|(_, count)| **count) {
        Some((most, count)) if *count > own + 1 => Verdict::InPlaceOf(*most),
        Some(_) | None => Verdict::Full,
    }
}

/// Places for streams, or for clients.
#[derive(Debug)]
pub(crate) struct Crowd {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    places: usize,
    next: u64,
    all: usize,
    // The oldest first.
    of: HashMap<Source, BTreeMap<u64, Held>>,
}

#[derive(Debug)]
struct Held {
    leave: CancellationToken,
    used: Arc<LastUse>,
}

/// A place, until it is dropped or another needs it.
#[derive(Debug)]
pub(crate) struct Seat {
    book: Arc<Mutex<Book>>,
    source: Source,
    number: u64,
    leave: CancellationToken,
}

impl Crowd {
    pub(crate) fn new(places: usize) -> Self {
        Self { book: Arc::new(Mutex::new(Book { places, ..Book::default() })) }
    }

    /// There are so many places from now on. Nobody goes for it by that alone: with fewer, who leaves has no successor.
    pub(crate) fn set_places(&self, places: usize) {
        self.book.lock().places = places;
    }

    /// Has those go who are more than there are places, of who has most the idlest first.
    pub(crate) fn send_away_beyond(&self) {
        let mut book = self.book.lock();
        while book.all > book.places {
            let most = book.of.iter().max_by_key(|(_, held)| held.len()).map(|(source, _)| *source);
            let Some(most) = most else { return };
            book.send_away_idlest(most);
        }
    }

    /// Whether there is a place for which nobody has to go.
    pub(crate) fn has_room(&self) -> bool {
        let book = self.book.lock();
        book.all < book.places
    }

    /// Gives a place to a source, if need be that of another, who is told by its own `leave`. `used` is noted for as long as the place is held.
    pub(crate) fn enter(&self, source: Source, leave: CancellationToken, used: Arc<LastUse>) -> Option<Seat> {
        used.note();
        let mut book = self.book.lock();
        // Looked at first, as all sources are counted only where there is no room.
        if book.all >= book.places {
            let held = book.of.iter().map(|(source, of)| (*source, of.len())).collect();
            match verdict(book.places, &held, source) {
                Verdict::Free => {}
                Verdict::InPlaceOf(most) => book.send_away_idlest(most),
                Verdict::Full => return None,
            }
        }
        let number = book.next;
        book.next += 1;
        book.all += 1;
        book.of.entry(source).or_default().insert(number, Held { leave: leave.clone(), used });
        Some(Seat { book: self.book.clone(), source, number, leave })
    }
}

impl Book {
    fn send_away_idlest(&mut self, of: Source) {
        // Of those that are as idle the oldest.
        let idlest = self.of.get(&of).and_then(|all| all.iter().min_by_key(|(_, held)| held.used.at()));
        let number = idlest.map(|(number, _)| *number);
        if let Some(held) = number.and_then(|number| self.remove(of, number)) {
            held.leave.cancel();
        }
    }

    fn remove(&mut self, source: Source, number: u64) -> Option<Held> {
        let of = self.of.get_mut(&source)?;
        let removed = of.remove(&number)?;
        if of.is_empty() {
            self.of.remove(&source);
        }
        self.all -= 1;
        Some(removed)
    }
}

impl Seat {
    /// Is cancelled when another needs the place.
    pub(crate) fn leave(&self) -> &CancellationToken {
        &self.leave
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.book.lock().remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn who_has_most_gives_way_to_who_has_less() {
        use Verdict::{Free, Full, InPlaceOf};
        for (what, held, comer, expected) in [
            ("one may have all but the last", &[(1, 7)][..], 1, Free),
            ("and that", &[(1, 8)], 1, Full),
            ("until another comes", &[(1, 8)], 2, InPlaceOf(1)),
            ("and then once more", &[(1, 7), (2, 1)], 2, InPlaceOf(1)),
            ("who has most does not drive others out", &[(1, 7), (2, 1)], 1, Full),
            ("until they have the same", &[(1, 4), (2, 4)], 2, Full),
            ("or nearly", &[(1, 5), (2, 3)], 2, InPlaceOf(1)),
            ("no place changes hands for nothing", &[(1, 3), (2, 2), (3, 3)], 2, Full),
            ("a third has its part", &[(1, 4), (2, 4)], 3, InPlaceOf(2)),
            ("of whoever has most", &[(1, 3), (2, 5)], 3, InPlaceOf(2)),
            (
                "more sources than places",
                &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)],
                9,
                Full,
            ),
        ] {
            assert_eq!(verdict(8, &held.iter().copied().collect(), comer), expected, "{what}");
        }
        assert_eq!(verdict(0, &BTreeMap::new(), 1), Full);
    }

    #[test]
    fn of_those_as_idle_the_oldest_goes_is_told_and_is_counted_once() {
        let crowd = Crowd::new(4);
        let [first, second] = [1, 2].map(|n| Source::from(IpAddr::from([10, 0, 0, n])));
        let enter = |source| {
            let used = Arc::<LastUse>::default();
            let seat = crowd.enter(source, CancellationToken::new(), used.clone());
            used.set(1);
            seat
        };
        let mut held: Vec<_> = (0..4).map(|_| enter(first).unwrap()).collect();
        assert!(enter(first).is_none() && !crowd.has_room());
        let other = enter(second).unwrap();
        let told: Vec<_> = held.iter().map(|seat| seat.leave().is_cancelled()).collect();
        assert_eq!(told, [true, false, false, false]);
        // It leaves later, and what it had is another's.
        drop(held.remove(0));
        assert!(!crowd.has_room());
        let third = enter(second).unwrap();
        assert!(held[0].leave().is_cancelled() && enter(second).is_none() && enter(first).is_none());
        drop((held, other, third));
        assert!(crowd.has_room() && crowd.book.lock().of.is_empty());
    }

    #[test]
    fn the_idlest_goes_first_however_old_others_are() {
        let crowd = Crowd::new(4);
        let [first, second] = [1, 2].map(|n| Source::from(IpAddr::from([10, 0, 0, n])));
        // The oldest is in use, and so is the third.
        let held = [9, 3, 8, 5].map(|last| {
            let used = Arc::<LastUse>::default();
            let seat = crowd.enter(first, CancellationToken::new(), used.clone()).unwrap();
            used.set(last);
            seat
        });
        let mut others = Vec::new();
        for expected in [[false, true, false, false], [false, true, false, true]] {
            others.push(crowd.enter(second, CancellationToken::new(), Arc::default()).unwrap());
            assert_eq!(held.each_ref().map(|seat| seat.leave().is_cancelled()), expected);
        }
        assert!(crowd.enter(second, CancellationToken::new(), Arc::default()).is_none());
    }
}
