//! How many connections a listener of the node's own has. Where there are as many as may be, the one goes that has waited longest for its next
//! request: whoever opens connections and asks nothing takes neither memory nor files without end, and keeps nobody out.

use std::{collections::BTreeMap, sync::Arc};

use axum::body::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::keeping::Keeping;

/// How many connections there may be.
const ALL: usize = 4096;

/// All connections of a listener.
#[derive(Clone)]
pub(super) struct Seats(Arc<Mutex<Book>>);

struct Book {
    most: usize,
    next: u64,
    taken: BTreeMap<u64, Entry>,
}

struct Entry {
    /// How many of its requests are not answered, as a whole.
    under_way: usize,
    /// What comes later has a higher one.
    waits_since: u64,
    leave: CancellationToken,
}

impl Default for Seats {
    fn default() -> Self {
        Self::new(ALL)
    }
}

impl Seats {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Book { most, next: 0, taken: BTreeMap::new() })))
    }

    /// A seat for a new connection; none where all that there may be are asking something.
    pub(super) fn take(&self) -> Option<Seat> {
        let mut book = self.0.lock();
        if book.taken.len() >= book.most {
            let waits = book.taken.iter().filter(|(_, entry)| entry.under_way == 0);
            let gone = waits.min_by_key(|(_, entry)| entry.waits_since).map(|(number, _)| *number)?;
            book.taken.remove(&gone)?.leave.cancel();
        }
        let (number, leave) = (book.moment(), CancellationToken::new());
        book.taken.insert(number, Entry { under_way: 0, waits_since: number, leave: leave.clone() });
        Some(Seat(Arc::new(Taken { seats: self.clone(), number, leave })))
    }
}

impl Book {
    fn moment(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// That of one connection, as long as it lasts.
#[derive(Clone)]
pub(super) struct Seat(Arc<Taken>);

struct Taken {
    seats: Seats,
    number: u64,
    leave: CancellationToken,
}

impl Seat {
    /// One of its requests is under way as long as what this gives is kept.
    pub(super) fn asks(&self) -> UnderWay {
        self.count(|under_way| under_way + 1);
        UnderWay(self.clone())
    }

    fn count(&self, change: impl Fn(usize) -> usize) {
        let mut book = self.0.seats.0.lock();
        let now = book.moment();
        if let Some(entry) = book.taken.get_mut(&self.0.number) {
            (entry.under_way, entry.waits_since) = (change(entry.under_way), now);
        }
    }

    /// Comes to pass when another has the seat.
    pub(super) async fn is_given_away(&self) {
        self.0.leave.cancelled().await;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.0.lock().taken.remove(&self.number);
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
    use super::*;

    #[test]
    fn who_has_waited_longest_goes_and_nobody_who_asks() {
        let seats = Seats::new(3);
        let [first, second, third] = [(); 3].map(|()| seats.take().unwrap());
        let is_gone = |seat: &Seat| seat.0.leave.is_cancelled();
        let asks = first.asks();
        let fourth = seats.take().unwrap();
        assert_eq!([&first, &second, &third].map(is_gone), [false, true, false]);
        drop(asks);
        let fifth = seats.take().unwrap();
        assert_eq!([&first, &third, &fourth].map(is_gone), [false, true, false], "it has asked meanwhile");
        let asking = [&first, &fourth, &fifth].map(Seat::asks);
        assert!(seats.take().is_none(), "all are asking");
        let body = asking.map(|asks| asks.until_sent(Body::empty()));
        assert!(seats.take().is_none(), "their answers are on their way");
        drop(body);
        drop(second);
        assert_eq!(seats.0.lock().taken.len(), 3, "a seat that was given away is not freed again");
        assert!(seats.take().is_some() && is_gone(&first));
        drop((first, third, fourth, fifth));
        assert!(seats.0.lock().taken.is_empty());
    }
}
