//! A buffer for bytes on their way. Whoever waits for some holds none: a thousand idle streams cost little.

use std::cell::Cell;

/// How much is read at once: what two frames of a link take.
pub(crate) const SIZE: usize = 2 * crate::protocol::MAX_FRAME as usize;

thread_local! {
    // Those of a thread read one after the other, and mostly into the same.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An empty buffer with room for [`SIZE`].
pub(crate) fn take() -> Vec<u8> {
    let mut buffer = SPARE.take();
    buffer.clear();
    buffer.reserve_exact(SIZE);
    buffer
}

/// Gives a buffer back to whoever reads next.
pub(crate) fn give(buffer: Vec<u8>) {
    if buffer.capacity() >= SIZE {
        SPARE.set(buffer);
    }
}
