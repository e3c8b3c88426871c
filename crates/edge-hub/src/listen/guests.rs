//! Who is connected to the HTTPS listener, which anybody reaches: how many there may be, and how long those may stay of whom nothing is known.
//!
//! A connection is a stranger's until it has shown a certificate of the cluster, or a request over it was answered as only a good credential
//! is. Of strangers there are few at a time: when there are more, the oldest of the address that has most goes, so that who keeps connections
//! open and says nothing is in nobody else's way.

use std::{
    collections::BTreeMap,
    future::pending,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tunnel::doorway::Source;

use crate::make_room::lowest_of_most;

/// How many connections there may be.
const ALL: usize = 4096;

/// How many of one address.
const OF_ONE: usize = 1024;

/// How many of strangers.
const STRANGERS: usize = 256;

/// How long a stranger may stay while the hub owes it no answer, and at most.
const STAY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(2);

/// How often it is looked whether a stranger still waits for an answer.
const LOOK: Duration = Duration::from_secs(1);

/// All who are connected.
#[derive(Clone, Default)]
pub(super) struct Guests(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    next: u64,
    all: BTreeMap<u64, Entry>,
}

struct Entry {
    from: Source,
    is_known: bool,
    leave: CancellationToken,
}

impl Guests {
    /// A new connection; `None` if there is no room for it.
    pub(super) fn enter(&self, from: IpAddr, is_known: bool) -> Option<Guest> {
        let leave = CancellationToken::new();
        let entry = Entry { from: from.into(), is_known, leave: leave.clone() };
        let number = self.0.lock().enter(entry)?;
        Some(Guest { guests: self.clone(), number, leave, under_way: AtomicUsize::new(0) })
    }
}

impl Book {
    fn enter(&mut self, entry: Entry) -> Option<u64> {
        let of_one = self.all.values().filter(|other| other.from == entry.from).count();
        if of_one >= OF_ONE {
            return None;
        }
        let strangers = self.all.values().filter(|other| !other.is_known).count();
        if !entry.is_known && strangers >= STRANGERS || self.all.len() >= ALL {
            self.send_away()?;
        }
        let number = self.next;
        self.next += 1;
        self.all.insert(number, entry);
        Some(number)
    }

    /// Sends a stranger away, if there is one.
    fn send_away(&mut self) -> Option<()> {
        let strangers = self.all.iter().filter(|(_, entry)| !entry.is_known);
        let gone = *lowest_of_most(strangers.map(|(number, entry)| (number, entry.from, number)))?;
        self.all.remove(&gone)?.leave.cancel();
        Some(())
    }
}

/// One connection, as long as it lasts.
pub(super) struct Guest {
    guests: Guests,
    number: u64,
    leave: CancellationToken,
    under_way: AtomicUsize,
}

impl Guest {
    /// One of its requests is under way as long as what this gives is kept.
    pub(super) fn asks(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Relaxed);
        UnderWay(&self.under_way)
    }

    /// One of its requests was answered so.
    pub(super) fn is_answered(&self, status: StatusCode) {
        if proves(status)
            && let Some(entry) = self.guests.0.lock().all.get_mut(&self.number)
        {
            entry.is_known = true;
        }
    }

    /// Comes to pass when there is no room for the connection any more.
    pub(super) async fn is_sent_away(&self) {
        self.leave.cancelled().await;
    }

    /// Comes to pass when the connection has been a stranger's for too long. Of an answer that the hub has begun something may be on its way then.
    pub(super) async fn outstays(&self) {
        let (begun, mut pause) = (Instant::now(), STAY);
        loop {
            sleep(pause).await;
            if self.guests.0.lock().all.get(&self.number).is_some_and(|entry| entry.is_known) {
                pending::<()>().await;
            }
            if self.under_way.load(Relaxed) == 0 || begun.elapsed() >= LONGEST {
                return;
            }
            pause = LOOK;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.0.lock().all.remove(&self.number);
    }
}

/// A request that is not answered.
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Whether so is answered only who has shown a good credential. What is malformed, or cannot be looked into, is answered to anybody.
fn proves(status: StatusCode) -> bool {
    let of_good = [StatusCode::SWITCHING_PROTOCOLS, StatusCode::NOT_MODIFIED];
    let refused = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::GONE];
    status.is_success() || of_good.contains(&status) || refused.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_that_says_nothing_drives_out_its_own_and_leaves_soon() {
        let guests = Guests::default();
        let other = guests.enter(host(1), false).unwrap();
        let silent: Vec<_> = (0..2 * STRANGERS).map(|_| guests.enter(host(2), false).unwrap()).collect();
        assert_eq!(guests.0.lock().all.len(), STRANGERS);
        assert!(silent[0].leave.is_cancelled() && !silent[2 * STRANGERS - 1].leave.is_cancelled());
        assert!(!other.leave.is_cancelled(), "it is another's");
        other.is_answered(StatusCode::OK);
        let begun = Instant::now();
        silent[2 * STRANGERS - 1].outstays().await;
        assert_eq!(begun.elapsed(), STAY);
        assert!(tokio::time::timeout(LONGEST, other.outstays()).await.is_err(), "it is known");
        drop(silent);
        assert_eq!(guests.0.lock().all.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_may_stay_and_not_for_ever() {
        let guests = Guests::default();
        let guest = guests.enter(host(1), false).unwrap();
        guest.is_answered(StatusCode::UNAUTHORIZED);
        let under_way = guest.asks();
        assert!(tokio::time::timeout(LONGEST / 2, guest.outstays()).await.is_err());
        let begun = Instant::now();
        guest.outstays().await;
        assert!(begun.elapsed() <= LONGEST);
        drop(under_way);
        let begun = Instant::now();
        guest.outstays().await;
        assert_eq!(begun.elapsed(), STAY);
    }

    #[test]
    fn neither_one_address_nor_all_have_more_than_their_number() {
        let guests = Guests::default();
        let of_one: Vec<_> = (0..OF_ONE).map(|_| guests.enter(host(1), true).unwrap()).collect();
        assert!(guests.enter(host(1), true).is_none());
        let others: Vec<_> = (0..ALL - OF_ONE - 1)
            .map(|n| guests.enter(host(2 + u8::try_from(n / OF_ONE).unwrap()), true))
            .collect();
        assert!(others.iter().all(Option::is_some));
        let stranger = guests.enter(host(9), false).unwrap();
        let known = guests.enter(host(9), true).unwrap();
        assert!(stranger.leave.is_cancelled(), "strangers go first");
        assert!(guests.enter(host(9), true).is_none() && guests.enter(host(9), false).is_none());
        drop((of_one, known));
        assert!(guests.enter(host(1), true).is_some());
    }

    #[test]
    fn of_version_6_a_network_is_one_address() {
        let network = |text: &str| Source::from(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::7"));
        assert_ne!(network("2001:db8:1:2::7"), network("2001:db8:1:3::7"));
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
    }

    #[test]
    fn what_anybody_is_answered_proves_nothing() {
        for (status, expected) in [
            (101, true),
            (200, true),
            (201, true),
            (403, true),
            (404, true),
            (400, false),
            (401, false),
            (429, false),
            (503, false),
        ] {
            assert_eq!(proves(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
