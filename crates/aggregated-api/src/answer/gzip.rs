//! Bytes on their way, compressed piece by piece: a large list is never held twice.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};

/// How much is gathered before it is handed on.
const PIECE: usize = 32 << 10;

/// Pieces, compressed at the level of the API server (1: fast).
pub(super) struct Compressed<I> {
    pieces: I,
    /// `None` at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I> Compressed<I> {
    pub(super) fn new(pieces: I) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::with_capacity(PIECE), Compression::fast())) }
    }
}

impl<E, I: Iterator<Item = Result<Bytes, E>>> Iterator for Compressed<I> {
    type Item = Result<Bytes, E>;

    fn next(&mut self) -> Option<Result<Bytes, E>> {
        let mut encoder = self.encoder.take()?;
        for piece in self.pieces.by_ref() {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Some(Err(error)),
            };
            // Writing to memory does not fail.
            let _ = encoder.write_all(&piece);
            if encoder.get_ref().len() >= PIECE {
                let out = std::mem::replace(encoder.get_mut(), Vec::with_capacity(PIECE));
                self.encoder = Some(encoder);
                return Some(Ok(out.into()));
            }
        }
        encoder.finish().ok().map(|end| Ok(end.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_compressed_can_be_read() {
        let pieces: Vec<_> =
            (0..20_000_u32).map(|_| Bytes::copy_from_slice(&fastrand::u64(..).to_be_bytes())).collect();
        let whole: Vec<u8> = pieces.iter().flatten().copied().collect();
        let packed: Vec<_> =
            Compressed::new(pieces.into_iter().map(Ok::<_, ()>)).map(Result::unwrap).collect();
        assert!(packed.len() > 1);
        let packed: Vec<u8> = packed.iter().flatten().copied().collect();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read, whole);
    }

    #[test]
    fn what_breaks_off_does_not_end() {
        let pieces = [Ok(Bytes::from_static(b"begin")), Err("gone"), Ok(Bytes::from_static(b"more"))];
        let packed: Vec<_> = Compressed::new(pieces.into_iter()).collect();
        assert_eq!(packed, [Err("gone")], "a reader that finds an end takes it for the whole");
    }
}
