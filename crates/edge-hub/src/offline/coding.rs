//! In which coding the API server sends what it compresses (everything above 128 KiB, to whoever takes gzip, as all clients in Go do).
//! What is kept is kept plain: it is told again over loopback, to clients that may not take the same.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http::{HeaderMap, header};

/// What is larger when it is plain is not kept. `/openapi/v2` of a large cluster has some megabytes.
pub(super) const LARGEST: usize = 16 << 20;

/// A coding that can be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Plain,
    Gzip,
}

impl Coding {
    /// The coding of an answer's body; none if it is another.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get(header::CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => Some(Self::Plain),
            Some(b"gzip") => Some(Self::Gzip),
            Some(_) => None,
        }
    }

    /// The plain body, if it is whole and not too large.
    pub(crate) fn plain(self, body: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Plain => Some(body),
            Self::Gzip => {
                let mut plain = Vec::new();
                let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
                GzDecoder::new(&*body).take(limit).read_to_end(&mut plain).ok()?;
                (plain.len() <= LARGEST).then_some(plain)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_was_compressed_is_plain_again_or_nothing() {
        let packed = gzip(b"text");
        assert_eq!(Coding::Gzip.plain(packed.clone()), Some(b"text".to_vec()));
        assert_eq!(Coding::Gzip.plain(packed[..packed.len() - 1].to_vec()), None, "it broke off");
        assert_eq!(Coding::Gzip.plain(b"text".to_vec()), None, "it never was");
        assert_eq!(Coding::Gzip.plain(gzip(&vec![0; LARGEST + 1])), None, "a bomb");
        assert_eq!(Coding::Gzip.plain(gzip(&vec![0; LARGEST])).map(|plain| plain.len()), Some(LARGEST));
    }

    #[test]
    fn a_coding_that_nobody_undoes_is_left_alone() {
        let of = |value: &'static str| {
            Coding::of(&HeaderMap::from_iter([(header::CONTENT_ENCODING, value.parse().unwrap())]))
        };
        assert_eq!((Coding::of(&HeaderMap::new()), of("gzip")), (Some(Coding::Plain), Some(Coding::Gzip)));
        assert_eq!(of("br"), None);
    }
}
