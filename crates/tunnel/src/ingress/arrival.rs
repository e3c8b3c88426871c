//! Where a client of a way in stands: before what it says of what it wants is in, it holds a place of a small doorway; then one of the listener's.
//! So those who say nothing, or never end it, keep nobody out who does.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    crowd::{Crowd, Seat},
    doorway::{Doorway, Place, Source},
    last_use::LastUse,
};

/// How many clients of a listener may have said what they want. One source may have all as long as no other wants a place: many honest ones may
/// come from one address, that of the API server, of a Prometheus or of a kube-proxy that rewrites it, and what they hold is what they asked for.
pub const CLIENTS_MAX: usize = 4096;

/// How many may not have said it yet. A quarter for one source: who is honest says it at once, so even a burst from one address holds few.
pub const ARRIVING_MAX: usize = 2048;

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) arriving: Doorway,
    clients: Crowd,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { arriving: Doorway::new(ARRIVING_MAX), clients: Crowd::new(CLIENTS_MAX) }
    }
}

/// A client that has come in, and its place.
#[derive(Debug)]
pub struct Arrival {
    source: Source,
    since: Instant,
    leave: CancellationToken,
    used: Arc<LastUse>,
    held: Mutex<Held>,
}

#[derive(Debug)]
enum Held {
    /// It has not said what it wants.
    Arriving(Arc<Rooms>, Place),
    /// It has, or its listener counts in another way.
    In { _place: Option<Seat> },
    /// There was no place.
    Out,
}

impl Arrival {
    pub(super) fn at(rooms: Arc<Rooms>, place: Place, source: Source) -> Self {
        Self::holding(source, Held::Arriving(rooms, place))
    }

    /// Of a client that holds no place: whoever may open the socket may use it.
    pub fn uncounted() -> Self {
        let source = IpAddr::from(Ipv4Addr::UNSPECIFIED).into();
        Self::holding(source, Held::In { _place: None })
    }

    fn holding(source: Source, held: Held) -> Self {
        Self {
            source,
            since: Instant::now(),
            leave: CancellationToken::new(),
            used: Arc::default(),
            held: Mutex::new(held),
        }
    }

    /// Until when it may take so long to say what it wants: from when it came, whatever it has been asked since; or from now, if it is in.
    pub fn deadline(&self, within: Duration) -> Instant {
        let arriving = matches!(*self.held.lock(), Held::Arriving(..));
        if arriving { self.since + within } else { Instant::now() + within }
    }

    /// Is cancelled when another source needs the place: then the client is to go.
    pub(super) fn leave(&self) -> CancellationToken {
        self.leave.clone()
    }

    /// What is noted when bytes pass between the client and where it wants to go.
    pub(super) fn used(&self) -> Arc<LastUse> {
        self.used.clone()
    }

    /// Where the client is.
    pub fn source(&self) -> Source {
        self.source
    }

    /// It is a program of this user of this machine, whose programs share what one source has. Says whether there is a place for it.
    #[must_use]
    pub fn is_of_user(&mut self, uid: u32) -> bool {
        self.source = Source::User(uid);
        self.held.get_mut().change(|held| match held {
            Held::Arriving(rooms, place) => {
                let place = rooms.arriving.hand_over(place, Source::User(uid));
                place.map_or(Held::Out, |place| Held::Arriving(rooms, place))
            }
            held @ (Held::In { .. } | Held::Out) => held,
        })
    }

    /// What it wants is in: it holds a place of the listener's from now on. Says whether there is one; if not, it is to be sent away.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.held.lock().change(|held| match held {
            Held::Arriving(rooms, _) => {
                match rooms.clients.enter(self.source, self.leave.clone(), self.used.clone()) {
                    Some(place) => Held::In { _place: Some(place) },
                    None => Held::Out,
                }
            }
            held @ (Held::In { .. } | Held::Out) => held,
        })
    }
}

impl Held {
    /// Says whether it holds a place afterwards.
    fn change(&mut self, to: impl FnOnce(Self) -> Self) -> bool {
        *self = to(std::mem::replace(self, Self::Out));
        !matches!(self, Self::Out)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_said_what_it_wants_leaves_the_doorway_to_others() {
        let rooms = Arc::new(Rooms { arriving: Doorway::new(4), clients: Crowd::new(2) });
        let arrive = |address: &str| {
            let source = Source::from(address.parse::<IpAddr>().unwrap());
            let place = rooms.arriving.admit(rooms.arriving.room().now_or_never().flatten()?, source)?;
            Some(Arrival::at(rooms.clone(), place, source))
        };
        let first = arrive("10.0.0.1").unwrap();
        assert!(arrive("10.0.0.1").is_none(), "one that says nothing has its share");
        assert!(first.enter() && first.enter());
        let second = arrive("10.0.0.1").unwrap();
        assert!(second.enter());
        // As old as one another, and the second is in use.
        first.used.set(1);
        let third = arrive("10.0.0.1").unwrap();
        assert!(!third.enter() && !third.enter(), "a third of one source");
        // It is on its way out, and holds nothing.
        assert!(arrive("10.0.0.1").is_some());
        let other = arrive("10.0.0.2").unwrap();
        assert!(other.enter() && first.leave().is_cancelled() && !second.leave().is_cancelled());
        drop(second);
        assert!(arrive("10.0.0.1").unwrap().enter());
    }

    #[test]
    fn programs_of_this_machine_share_by_user() {
        let rooms = Arc::new(Rooms { arriving: Doorway::new(8), clients: Crowd::new(2) });
        let source = Source::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let arrive = || {
            let room = rooms.arriving.room().now_or_never().flatten().unwrap();
            Arrival::at(rooms.clone(), rooms.arriving.admit(room, source).unwrap(), source)
        };
        let [mut first, mut second] = [arrive(), arrive()];
        assert!(first.is_of_user(1000) && second.is_of_user(1000));
        let [mut third, mut other] = [arrive(), arrive()];
        assert!(!third.is_of_user(1000) && other.is_of_user(1001));
        assert!(first.enter() && second.enter());
        // The first has something to do since.
        second.used.set(1);
        assert!(other.enter() && !third.enter());
        assert!(second.leave().is_cancelled() && !first.leave().is_cancelled());
        assert!(Arrival::uncounted().enter());
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_is_asked_in_between_gives_it_no_more_time() {
        let rooms = Arc::<Rooms>::default();
        let source = Source::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let place = rooms.arriving.enter(source).await.unwrap();
        let (arrival, since, within) =
            (Arrival::at(rooms, place, source), Instant::now(), Duration::from_secs(15));
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(arrival.deadline(within), since + within);
        assert!(arrival.enter());
        assert_eq!(arrival.deadline(within), Instant::now() + within);
    }
}
