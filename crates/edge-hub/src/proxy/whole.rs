//! Answers that are read whole before their reader has any of them: objects that were written, and those that are shown through a filter. Whoever reads
//! slowly has the hub hold all of one, so that there are only so many bytes of them.

use std::sync::LazyLock;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::{StreamExt, stream};

use super::places::{Place, Places};
use crate::keeping::Keeping;

/// The bytes of one place: as small as most objects, so that who reads many of them is counted for little more than what is held.
const UNIT: usize = 8 << 10;

/// What is larger is no object: etcd takes none of more than a few MiB.
const LARGEST: usize = 8 << 20;

/// For answers to tokens, by the names of their users (`None`: all that are not known): 32 MiB, of which one user has a quarter.
static ROOM: LazyLock<Places<Holder>> = LazyLock::new(|| Places::new((32 << 20) / UNIT, |_| LARGEST / UNIT));

/// A user by name; `None`: all that are not known.
type Holder = Option<Box<str>>;

/// Whose answer it is, where that of each user is counted: goes with an answer as an extension.
#[derive(Debug, Clone)]
pub(crate) struct Of(pub(super) Holder);

/// Why an answer was not read whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is larger than an object may be.
    TooLarge,
    /// Too much is held already.
    Crowded,
    /// It broke off.
    Broken,
}

/// What was read, and what goes with it until it is sent.
pub(crate) struct Whole {
    /// All of it.
    pub(crate) bytes: Bytes,
    held: Held,
}

/// What goes with what is held.
struct Held {
    _body: BodyDataStream,
    _place: Option<Place<Holder>>,
}

impl Whole {
    /// A body that gives these bytes, and keeps what it stands for until they are sent.
    pub(crate) fn body(self, shown: Bytes) -> Body {
        Body::new(Keeping::new(Body::from(shown), self.held))
    }
}

/// Reads a body that is for `of`, if it is counted; else gives one that gives the same.
pub(crate) async fn read(body: Body, of: Option<&Of>) -> Result<Whole, (Unread, Body)> {
    let mut rest = body.into_data_stream();
    let mut read = Vec::new();
    let mut place = of.map(|Of(holder)| ROOM.none(holder.clone()));
    let (why, next) = loop {
        match rest.next().await {
            None => {
                // What is remembered of it keeps its memory.
                read.shrink_to_fit();
                if let Some(place) = &mut place {
                    place.shrink(read.len().div_ceil(UNIT));
                }
                let held = Held { _body: rest, _place: place };
                return Ok(Whole { bytes: Bytes::from(read), held });
            }
            Some(Ok(chunk)) => {
                let length = read.len() + chunk.len();
                if length > LARGEST {
                    break (Unread::TooLarge, Ok(chunk));
                }
                if !make_room(&mut read, length, place.as_mut()) {
                    break (Unread::Crowded, Ok(chunk));
                }
                read.extend_from_slice(&chunk);
            }
            Some(Err(error)) => break (Unread::Broken, Err(error)),
        }
    };
    // A piece without a byte is the end of what is sent in pieces.
    let first = (!read.is_empty()).then(|| Ok(Bytes::from(read)));
    let first = stream::iter(first.into_iter().chain([next]));
    Err((why, Body::new(Keeping::new(Body::from_stream(first.chain(rest)), place))))
}

/// Whether there is room for so many bytes.
fn make_room(read: &mut Vec<u8>, length: usize, place: Option<&mut Place<Holder>>) -> bool {
    if length <= read.capacity() {
        return true;
    }
    let mut units = length.max(read.capacity() * 2).min(LARGEST).div_ceil(UNIT);
    if let Some(place) = place {
        let held = place.count();
        place.grow(units);
        if place.count() < length.div_ceil(UNIT) {
            place.shrink(held);
            return false;
        }
        units = place.count();
    }
    read.reserve_exact(units * UNIT - read.len());
    true
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    const SIZE: usize = 3 << 20;

    fn of(name: &str) -> Of {
        Of(Some(name.into()))
    }

    async fn large(of: Option<&Of>) -> Result<Whole, (Unread, Body)> {
        read(Body::from(vec![b'x'; SIZE]), of).await
    }

    #[tokio::test]
    async fn what_is_read_in_pieces_counts_for_what_it_is() {
        let of = of("pieces");
        let read_in = async |pieces: usize, length: usize| {
            let pieces =
                stream::iter((0..pieces).map(move |_| Ok::<_, axum::Error>(Bytes::from(vec![b'x'; length]))));
            read(Body::from_stream(pieces), Some(&of)).await
        };
        // 5 MiB and three eighths; while the next came a second half of that was counted.
        let large = read_in(43, 128 << 10).await.ok().unwrap();
        let places = (43 << 17) / UNIT;
        let mut small = Vec::new();
        while let Ok(object) = read_in(1, 1000).await {
            small.push(object);
        }
        assert_eq!(small.len(), LARGEST / UNIT - places);
        drop(large);
    }

    #[tokio::test]
    async fn one_user_has_a_quarter_until_what_it_has_is_sent_and_the_rest_is_not_kept_from_it() {
        let slow = of("slow");
        let [first, second] = [large(Some(&slow)).await, large(Some(&slow)).await].map(Result::ok);
        let Err((why, body)) = large(Some(&slow)).await else { panic!("a third one is read whole") };
        assert_eq!(why, Unread::Crowded);
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), SIZE, "it comes as it is");
        let other = of("other");
        assert!(large(Some(&other)).await.is_ok(), "others have theirs");
        assert!(large(None).await.is_ok(), "the node is not counted");
        // As when its reader takes nothing of it.
        let first = first.unwrap();
        let shown = first.bytes.clone();
        let body = first.body(shown);
        assert!(large(Some(&slow)).await.is_err());
        drop(body);
        assert!(large(Some(&slow)).await.is_ok());
        drop(second);
    }

    #[tokio::test]
    async fn what_is_too_large_or_breaks_off_is_given_as_it_comes() {
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; LARGEST / 2]));
        let many = Body::from_stream(stream::iter([piece(), piece(), piece()]));
        let Err((why, body)) = read(many, Some(&of("large"))).await else { panic!("it is read whole") };
        assert_eq!(why, Unread::TooLarge);
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), 3 * LARGEST / 2);
        let broken = Body::from_stream(stream::iter([piece(), Err(std::io::ErrorKind::BrokenPipe.into())]));
        let Err((why, body)) = read(broken, None).await else { panic!("it is read whole") };
        assert_eq!(why, Unread::Broken);
        assert!(to_bytes(body, usize::MAX).await.is_err());
    }
}
