//! Memory of rendered versions, used again: each is some tens of kilobytes, of which the allocator would look for a place, cut off what was not
//! needed and join the rest hundreds of times a second.

use bytes::Bytes;
use parking_lot::Mutex;

/// Those of the process.
pub(crate) static BUFFERS: Buffers = Buffers::new();

/// So many bytes are kept for later: of what is in use less than this comes back before it is needed again.
const KEPT: usize = 2 << 20;

/// A buffer that holds more is one of a node with very many pods, and not kept.
const LARGEST: usize = 512 << 10;

/// Buffers that nobody uses.
pub(crate) struct Buffers(Mutex<Free>);

struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Free {
    const NONE: Self = Self { buffers: Vec::new(), bytes: 0 };
}

impl Buffers {
    const fn new() -> Self {
        Self(Mutex::new(Free::NONE))
    }

    /// An empty buffer with room for about so many bytes, and for twice as many at most: what is short would else hold what is long.
    pub(crate) fn take(&self, about: usize) -> Vec<u8> {
        let mut free = self.0.lock();
        let found = free.buffers.pop_if(|buffer| buffer.capacity() <= 2 * about);
        free.bytes -= found.as_ref().map_or(0, Vec::capacity);
        drop(free);
        let mut buffer = found.unwrap_or_default();
        buffer.reserve_exact(about);
        buffer
    }

    /// What was written into a buffer, which comes back when the last who reads it is gone.
    pub(crate) fn share(&'static self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, from: self })
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        let free = std::mem::replace(&mut *self.0.lock(), Free::NONE);
        drop(free);
    }
}

struct Lent {
    buffer: Vec<u8>,
    from: &'static Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut free = self.from.0.lock();
        if buffer.capacity() <= LARGEST && free.bytes + buffer.capacity() <= KEPT {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_stays_and_what_nobody_reads_is_used_again() {
        static BUFFERS: Buffers = Buffers::new();
        let written = |text: &[u8]| {
            let mut buffer = BUFFERS.take(64);
            assert!(buffer.is_empty() && buffer.capacity() >= 64);
            buffer.extend_from_slice(text);
            BUFFERS.share(buffer)
        };
        let first = written(b"first");
        let other = first.slice(1..);
        let place = first.as_ptr();
        drop(first);
        let second = written(b"second");
        assert_eq!((&other[..], &second[..]), (&b"irst"[..], &b"second"[..]));
        drop(other);
        let third = written(b"third");
        assert_eq!((third.as_ptr(), &third[..]), (place, &b"third"[..]));
        drop((second, third));
        assert!(BUFFERS.take(31).capacity() < 62, "a short version does not take a long buffer");
        assert!(BUFFERS.take(1_000).capacity() >= 1_000, "a short buffer grows");
        BUFFERS.clear();
        assert_eq!(BUFFERS.0.lock().bytes, 0);
    }

    #[test]
    fn so_much_is_kept_and_no_more() {
        static BUFFERS: Buffers = Buffers::new();
        let kept = || {
            let free = BUFFERS.0.lock();
            (free.buffers.len(), free.bytes)
        };
        drop(BUFFERS.share(Vec::with_capacity(LARGEST + 1)));
        assert_eq!(kept(), (0, 0));
        let all: Vec<_> = (0..=KEPT / LARGEST).map(|_| BUFFERS.share(Vec::with_capacity(LARGEST))).collect();
        drop(all);
        assert_eq!(kept(), (KEPT / LARGEST, KEPT));
    }
}
