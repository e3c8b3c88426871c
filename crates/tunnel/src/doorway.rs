//! How many connections, or streams, of those whom nobody vouches for there may be at a time, in all and from one source: whoever can open a
//! port must not keep others from it.

use std::{
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::view::Domain;

/// One source has at most this part of the places. Many that are honest may come from one address, that of a NAT or of a balancer.
const SHARE: usize = 4;

/// After so many more sources those that have no place any more are forgotten.
const FORGET_AFTER: usize = 64;

/// What counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An address, of IPv6 the network of one subscriber, who has all of it: the rest is zero.
    Network(IpAddr),
    /// A user of this machine, whatever address of it its programs use.
    User(u32),
    /// All that edge nodes of one domain ask a gateway for, by a digest of what the domain is called; or what one node asks an endpoint of its own for,
    /// as if it were one.
    Domain(u64),
}

/// How a domain is written, before its digest.
const DOMAIN: &str = "domain-";

impl Source {
    /// All of a domain.
    pub(crate) fn of_domain(domain: &Domain) -> Self {
        let mut digest = DefaultHasher::new();
        domain.hash(&mut digest);
        Self::Domain(digest.finish())
    }

    /// Whether nobody has shown who it is: a domain is that of a certificate.
    pub(crate) fn is_of_stranger(self) -> bool {
        !matches!(self, Self::Domain(_))
    }

    /// Reads what a peer wrote of its client. A user is one of its own machine.
    pub(crate) fn read(said: &str) -> Option<Self> {
        match said.strip_prefix(DOMAIN) {
            Some(digest) => u64::from_str_radix(digest, 16).ok().map(Self::Domain),
            None => said.parse::<IpAddr>().ok().map(Self::from),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::User(uid) => write!(f, "uid-{uid}"),
            Self::Domain(digest) => write!(f, "{DOMAIN}{digest:016x}"),
        }
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self::Network(tls::socket::source(address))
    }
}

/// Places for connections, or for streams.
#[derive(Debug)]
pub(crate) struct Doorway {
    places: Arc<Semaphore>,
    share: usize,
    sources: Mutex<Sources>,
}

#[derive(Debug, Default)]
struct Sources {
    shares: HashMap<Source, Arc<Semaphore>>,
    forget_at: usize,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_source: OwnedSemaphorePermit,
}

impl Doorway {
    /// With so many places, of which one source has a quarter.
    pub(crate) fn new(places: usize) -> Self {
        let share = places.div_ceil(SHARE);
        Self { places: Arc::new(Semaphore::new(places)), share, sources: Mutex::default() }
    }

    /// Waits until there is a place for anybody. It is never closed, so there is one at last.
    pub(crate) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().acquire_owned().await.ok()
    }

    /// Gives that place to a source, unless it has its share.
    pub(crate) fn admit(&self, room: OwnedSemaphorePermit, source: impl Into<Source>) -> Option<Place> {
        let of_source = self.share_of(source.into()).try_acquire_owned().ok()?;
        Some(Place { _of_all: room, _of_source: of_source })
    }

    /// Makes a place that of another source, which it was not known to be of. None, if that one has its share.
    pub(crate) fn hand_over(&self, place: Place, to: Source) -> Option<Place> {
        Some(Place { _of_source: self.share_of(to).try_acquire_owned().ok()?, ..place })
    }

    /// Waits for a place. Those of one source that has its share wait for one another, and nobody else does.
    pub(crate) async fn enter(&self, source: impl Into<Source>) -> Option<Place> {
        let of_source = self.share_of(source.into()).acquire_owned().await.ok()?;
        Some(Place { _of_all: self.room().await?, _of_source: of_source })
    }

    fn share_of(&self, source: Source) -> Arc<Semaphore> {
        let mut sources = self.sources.lock();
        if sources.shares.len() >= sources.forget_at {
            sources.shares.retain(|_, share| Arc::strong_count(share) > 1);
            sources.forget_at = 2 * sources.shares.len() + FORGET_AFTER;
        }
        let share = sources.shares.entry(source);
        share.or_insert_with(|| Arc::new(Semaphore::new(self.share))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn source(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn sources_are_addresses_and_networks_of_subscribers() {
        for (address, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(Source::from(source(address)), Source::Network(source(expected)), "{address}");
        }
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let doorway = Doorway::new(8);
        let admit = |from: &str| {
            let room = doorway.room().now_or_never().flatten().expect("there is a place");
            doorway.admit(room, source(from))
        };
        let held: Vec<_> = ["10.0.0.1", "10.0.0.1"].map(|from| admit(from).unwrap()).into();
        assert!(admit("10.0.0.1").is_none(), "a third of one source");
        let others: Vec<_> = ["10.0.0.2", "fd00::1", "fd00::2"].map(|from| admit(from).unwrap()).into();
        assert!(admit("fd00::3").is_none(), "a third of one network");
        drop(held);
        let more: Vec<_> = ["10.0.0.1", "10.0.0.1", "10.0.0.2"].map(|from| admit(from).unwrap()).into();
        let last: Vec<_> = ["10.0.0.3", "10.0.0.3"].map(|from| admit(from).unwrap()).into();
        assert!(doorway.room().now_or_never().is_none(), "a ninth");
        drop((others, more, last));
        assert!(admit("10.0.0.3").is_some());
    }

    #[test]
    fn a_place_is_handed_over_unless_who_gets_it_has_its_share() {
        let doorway = Doorway::new(8);
        let enter = || doorway.admit(doorway.room().now_or_never().flatten()?, source("127.0.0.1"));
        let (user, held) = (Source::User(1000), [enter().unwrap(), enter().unwrap()]);
        assert!(enter().is_none(), "a third of one source");
        let [first, second] = held.map(|place| doorway.hand_over(place, user).unwrap());
        let third = enter().unwrap();
        assert!(doorway.hand_over(third, user).is_none(), "a third of one user");
        drop((first, second));
        assert!(doorway.hand_over(enter().unwrap(), user).is_some());
    }

    #[test]
    fn those_of_one_source_wait_for_one_another_and_are_forgotten() {
        let doorway = Doorway::new(4);
        let first = doorway.enter(source("10.0.0.1")).now_or_never().flatten().unwrap();
        let mut second = Box::pin(doorway.enter(source("10.0.0.1")));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(doorway.enter(source("10.0.0.2")).now_or_never().flatten().is_some());
        drop(first);
        assert!(second.now_or_never().flatten().is_some());
        for address in 0..1000_u32 {
            let from = IpAddr::from(std::net::Ipv4Addr::from_bits(address));
            assert!(doorway.enter(from).now_or_never().flatten().is_some());
        }
        assert!(doorway.sources.lock().shares.len() <= FORGET_AFTER);
    }
}
